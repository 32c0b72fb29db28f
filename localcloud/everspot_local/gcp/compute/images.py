"""Stands in for Compute Engine's images: the image that Everspot's template bakes, and a few public ones.

They hold no data: whatever image it has, a machine runs the local cloud's boot command.
"""

import re
from typing import Any

from everspot_local.gcp.answers import ApiError, missing
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.project import PROJECT
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
OWN_FAMILY = "everspot"
# By project and family: name of the newest, size in GB, architecture.
_PUBLIC = {
    (PROJECT, OWN_FAMILY): ("everspot", 50, "X86_64"),
    ("debian-cloud", "debian-12"): ("debian-12-bookworm-v20261110", 10, "X86_64"),
    ("debian-cloud", "debian-12-arm64"): ("debian-12-bookworm-arm64-v20261110", 10, "ARM64"),
    ("ubuntu-os-cloud", "ubuntu-2404-lts-amd64"): ("ubuntu-2404-noble-amd64-v20261105", 10, "X86_64"),
    ("ubuntu-os-cloud", "ubuntu-2204-lts"): ("ubuntu-2204-jammy-v20261105", 10, "X86_64"),
    ("deeplearning-platform-release", "common-cu128-ubuntu-2204-nvidia-570"): (
        "common-cu128-ubuntu-2204-nvidia-570-v20261101", 50, "X86_64",
    ),
}  # fmt: skip


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""

    def get(request: Request) -> Document:
        return find(compute, f"projects/{request.params['project']}/global/images/{request.params['image']}")

    def newest(request: Request) -> Document:
        return find(compute, f"projects/{request.params['project']}/global/images/family/{request.params['family']}")

    def listed(request: Request) -> Document:
        project = request.params["project"]
        found = [_document(compute, *entry) for entry in _PUBLIC.items() if entry[0][0] == project]
        return {"kind": "compute#imageList", "id": f"projects/{project}/global/images", "items": found}

    return {"compute.images.get": get, "compute.images.getFromFamily": newest, "compute.images.list": listed}


def find(compute: Compute, link: str) -> Document:
    """Return an image by a link to it or to its family.

    Raises:
        ApiError: 404, if there is none.
    """
    text = link if "projects/" in link or link.startswith("global/") else f"global/images/{link}"
    path = compute.path(text)
    found = re.fullmatch(r"projects/([^/]+)/global/images/(family/)?([^/]+)", path)
    if found is None:
        raise ApiError(400, "invalid", f"Invalid value for field 'sourceImage': '{link}'. The URL is malformed.")
    project, by_family, name = found.groups()
    for (owner, family), image in _PUBLIC.items():
        if owner == project and name == (family if by_family else image[0]):
            return _document(compute, (owner, family), image)
    raise missing(path)


def _document(compute: Compute, key: tuple[str, str], image: tuple[str, int, str]) -> Document:
    (project, family), (name, size, arch) = key, image
    path = f"projects/{project}/global/images/{name}"
    return {
        "kind": "compute#image", "id": str(10**18 + sum(map(ord, name)) * 10**9), "name": name, "family": family,
        "status": "READY", "diskSizeGb": str(size), "architecture": arch, "selfLink": compute.link(path),
        "guestOsFeatures": [{"type": "UEFI_COMPATIBLE"}, {"type": "GVNIC"}],
    }  # fmt: skip
