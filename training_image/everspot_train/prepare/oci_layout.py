"""Reads images in OCI's image layout: the image specification 1.1 (image-layout.md, image-index.md)."""

import hashlib
import json
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from everspot_core.counting import counted
from everspot_core.jobs.image_layout import GZIP, INDEXES, MOST_DOCUMENT, count_zstd_layers, list_entries
from everspot_core.jobs.image_reference import RegistryImage

from everspot_train.prepare.errors import NotReady

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def find_manifest(layout: Path, digest: str | None = None) -> str:
    """Return the digest of the only manifest of a layout, or of the manifest for this machine's processor.

    Args:
        digest: that the layout has to have, of a manifest or an index; None: any.

    Raises:
        NotReady: if there is none, or it has other bytes than its digest says.
    """
    try:
        index = json.loads((layout / "index.json").read_bytes()[:MOST_DOCUMENT])
    except (OSError, ValueError) as error:
        words = "upload a folder in OCI's image layout, as `podman save --format oci-dir` writes it"
        raise NotReady(f"image: {layout.name} has no index.json ({error}): {words}") from None
    if digest is not None and _list_digests(index) != [digest]:
        raise NotReady(f"image: {layout.name} is not {digest}")
    return select_manifest(index, layout.name, partial(read_document, layout))


def select_manifest(index: Any, name: str, read: Callable[[str], dict[str, Any]]) -> str:
    """Return the digest of the only manifest of an index, or of the manifest for this machine's processor.

    Args:
        name: of the image, for errors.
        read: returns a document of the image by its digest, for an index that names another one.

    Raises:
        NotReady: if there is none.
    """
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    for _ in range(2):  # an index may name another index, with a manifest for each processor
        entries = list_entries(index, "manifests")
        fitting = [e for e in entries if (e.get("platform") or {}).get("architecture", architecture) == architecture]
        if len(fitting) != 1:
            raise NotReady(f"image: {counted(len(fitting), 'image')} for {architecture} in {name}, not one")
        digest = read_digest(fitting[0])
        if fitting[0].get("mediaType") not in INDEXES:
            return digest
        index = read(digest)
    raise NotReady(f"image: the index of {name} names no image")


def _list_digests(index: Any) -> list[Any]:
    return [entry.get("digest") for entry in list_entries(index, "manifests")]


def fetched_layouts(cache: Path) -> Path:
    """Return the folder of the images that agents have fetched from registries, in a job's cache."""
    return cache / "registry"


def fetched_layout(cache: Path, image: RegistryImage) -> Path:
    """Return the layout of an image that an agent has fetched from its registry."""
    return fetched_layouts(cache) / image.digest.partition(":")[2]


def read_digest(descriptor: Any) -> str:
    """Return the digest in a descriptor. Raises `NotReady` if it is no SHA-256 digest."""
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    name, _, hexadecimal = digest.partition(":") if isinstance(digest, str) else ("", "", "")
    if name != "sha256" or len(hexadecimal) != 64 or set(hexadecimal) - set("0123456789abcdef"):
        raise NotReady(f"image: {digest!r} is no SHA-256 digest")
    return f"sha256:{hexadecimal}"


def list_layers(manifest: dict[str, Any]) -> list[str]:
    """Return the digests of the layers of a manifest, the lowest first.

    Raises:
        NotReady: if one has no SHA-256 digest, or is compressed with zstd, which Python 3.11 cannot read.
    """
    layers = manifest.get("layers") or []
    digests = [read_digest(layer) for layer in layers]
    if zstd := count_zstd_layers(manifest):
        raise NotReady(f"image: {counted(zstd, 'layer')} compressed with zstd: build it with gzip, for example {GZIP}")
    return digests


def blob_path(layout: Path, digest: str) -> Path:
    """Return the path of a blob in a layout."""
    return layout / "blobs" / "sha256" / digest.partition(":")[2]


def read_document(layout: Path, digest: str) -> dict[str, Any]:
    """Return a manifest, an index or a configuration. Raises `NotReady` if it has other bytes than its digest says."""
    try:
        data = blob_path(layout, digest).read_bytes()
    except OSError as error:
        raise NotReady(f"image: {digest} cannot be read: {error.strerror}") from None
    if len(data) > MOST_DOCUMENT or f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise NotReady(f"image: {digest} has other bytes than its digest says")
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise NotReady(f"image: {digest} is no document of an image")
    return document
