"""What the documents of an image in OCI's layout say of its layers: the image specification 1.1 (image-index.md,
layer.md)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
"""Media types of lists of manifests, one for each processor."""
MOST_DOCUMENT = 4 << 20
"""The most bytes of a manifest or a configuration that registries accept."""
ZSTD = "+zstd"
"""The end of the media type of a layer that is compressed with zstd, which Python 3.11 cannot read."""
GZIP = "`docker buildx build --output type=image,compression=gzip,force-compression=true`"
"""The command that also compresses the layers of a base image with gzip (docs.docker.com/build/exporters)."""
_ARCHITECTURES = ("amd64", "arm64")
_LEVELS = 2  # an index may name another index, with a manifest for each processor


def list_entries(document: Any, key: str) -> list[dict[str, Any]]:
    """Return the descriptors that a document lists under a key."""
    entries = document.get(key) if isinstance(document, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def count_zstd_layers(manifest: Mapping[str, Any]) -> int:
    """Return the number of layers that are compressed with zstd."""
    return sum(str(layer.get("mediaType")).endswith(ZSTD) for layer in list_entries(manifest, "layers"))


def count_unreadable_layers(index: Any, read: Callable[[str], Any]) -> int:
    """Return the number of zstd layers that an image has for every processor; 0 if it has none for one of them.

    `read`: returns a document of the image by its digest.
    """
    return min(map(count_zstd_layers, _manifests(index, read, _LEVELS)), default=0)


def _manifests(index: Any, read: Callable[[str], Any], levels: int) -> Iterator[Any]:
    for entry in list_entries(index, "manifests") if levels else ():
        platform = entry.get("platform")
        architecture = platform.get("architecture") if isinstance(platform, dict) else None
        if architecture is not None and architecture not in _ARCHITECTURES:
            continue  # of a processor that no instance has, or an attestation
        document = read(str(entry.get("digest")))
        if entry.get("mediaType") in INDEXES:
            yield from _manifests(document, read, levels - 1)
        else:
            yield document
