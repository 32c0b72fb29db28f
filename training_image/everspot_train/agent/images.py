"""Fetches the images of jobs from registries, as folders in OCI's image layout.

The agent does this and not the job, because the registry's credentials open every repository that the instance may
read. The job's first process unpacks the folder, and compares every digest with the one that the job names.
"""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everspot_clouds.base import RegistryLogin
from everspot_clouds.image_registry import ImageRegistry
from everspot_core.clock import Clock
from everspot_core.jobs.image_layout import INDEXES
from everspot_core.jobs.image_reference import RegistryImage
from everspot_store import NoRoom, TreeCache, TreeInUse, remove_tree

from everspot_train.prepare.oci_layout import (
    blob_path,
    fetched_layout,
    fetched_layouts,
    list_layers,
    read_digest,
    read_document,
    select_manifest,
)

MOST_IMAGES = 3
"""The most fetched images in a cache. The least recently used ones are removed."""


class ImageFetcher:
    """Fetches images. Several threads may use it.

    Args:
        log_in: returns access to the registry of an image.
        clock: for the waits between tries.

    Attributes:
        moved_at: the monotonic time of the last piece that a transfer has moved.
    """

    def __init__(self, log_in: Callable[[RegistryImage], RegistryLogin], clock: Clock) -> None:
        self._log_in = log_in
        self._clock = clock
        self.moved_at = clock.monotonic()

    def fetch(self, image: RegistryImage, cache: Path, is_stopped: Callable[[], bool]) -> TreeInUse:
        """Return the layout of an image in a job's cache, which is not removed before it is closed. Fetch it if it is
        not there.

        Args:
            is_stopped: asked between two pieces; True ends the transfer.

        Raises:
            RegistryError: if the registry refuses, or does not answer.
            PullStopped: if `is_stopped` returned True.
            NotReady: if it is no image for this machine.
            OSError: if it cannot be written, for example because the disk is full.
            StoreError: if another process fetches it for too long.
        """
        trees = TreeCache(fetched_layouts(cache), self._clock)

        def check() -> bool:
            self.moved_at = self._clock.monotonic()
            return is_stopped()

        def make(folder: Path) -> None:
            with ImageRegistry(image, self._log_in, self._clock, check) as registry:
                _write_layout(registry, image, folder, trees)

        tree = trees.use(fetched_layout(cache, image).name, f"the image {image.name}", make)
        trees.limit(MOST_IMAGES)
        return tree


def _write_layout(registry: ImageRegistry, image: RegistryImage, layout: Path, trees: TreeCache) -> None:
    """Write an image as image-layout.md of the image specification describes it."""
    remove_tree(layout)
    blob_path(layout, image.digest).parent.mkdir(parents=True)

    def read(digest: str) -> dict[str, Any]:
        path = blob_path(layout, digest)
        if not path.exists():
            path.write_bytes(registry.read_manifest(digest))
        return read_document(layout, digest)

    top = read(image.digest)
    kind = top.get("mediaType") or (INDEXES[0] if "manifests" in top else "")
    index = {"schemaVersion": 2, "manifests": [{"mediaType": kind, "digest": image.digest}]}
    manifest = read(select_manifest(index, image.name, read))
    list_layers(manifest)  # before they are fetched
    descriptors = {read_digest(entry): entry for entry in (manifest.get("config"), *(manifest.get("layers") or []))}
    try:
        trees.make_room(sum(max(0, int(entry.get("size") or 0)) for entry in descriptors.values()))
    except NoRoom as error:
        words = f"{os.strerror(errno.ENOSPC)}: the image needs {error.needed} bytes, and {error.free} are to spare"
        raise OSError(errno.ENOSPC, words) from None
    for digest in descriptors:
        registry.save_blob(digest, blob_path(layout, digest))
    (layout / "index.json").write_text(json.dumps(index))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
