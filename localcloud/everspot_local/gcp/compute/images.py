"""Stands in for Compute Engine's images: the image that Everspot's template bakes, and a few public ones.

They hold no data: whatever image it has, a machine runs the local cloud's boot command.
"""

import re
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid, missing
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.project import PROJECT
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
OWN_FAMILY = "everspot"
STATES = ("ACTIVE", "DEPRECATED", "OBSOLETE", "DELETED")
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
        items = [_document(compute, *entry) for entry in _PUBLIC.items() if entry[0][0] == project]
        return {"kind": "compute#imageList", "id": f"projects/{project}/global/images", "items": items}

    def path(request: Request) -> str:
        compute.check_project(request.params)
        return f"projects/{PROJECT}/global/images/{request.params['image']}"

    def delete(request: Request) -> Document:
        find(compute, path(request))
        work = lambda: compute.images_gone.add(path(request))  # noqa: E731
        return compute.begun(request, "delete", path(request), work=work).document

    def deprecate(request: Request) -> Document:
        find(compute, path(request))
        state = request.body.get("state", "")
        if state and state not in STATES:
            raise invalid("resource.state", state, f"It has to be one of {', '.join(STATES)}.")
        work = lambda: compute.deprecations.update({path(request): dict(request.body)})  # noqa: E731
        return compute.begun(request, "deprecate", path(request), work=work).document

    return {
        "compute.images.get": get, "compute.images.getFromFamily": newest, "compute.images.list": listed,
        "compute.images.delete": delete, "compute.images.deprecate": deprecate,
    }  # fmt: skip


def find(compute: Compute, link: str) -> Document:
    """Return an image by a link to it or to its family.

    Raises:
        ApiError: 404, if there is no such image.
    """
    text = link if "projects/" in link or link.startswith("global/") else f"global/images/{link}"
    path = compute.path(text)
    link_match = re.fullmatch(r"projects/([^/]+)/global/images/(family/)?([^/]+)", path)
    if link_match is None:
        raise ApiError(400, "invalid", f"Invalid value for field 'sourceImage': '{link}'. The URL is malformed.")
    project, by_family, name = link_match.groups()
    for (owner, family), image in _PUBLIC.items():
        if owner == project and name == (family if by_family else image[0]):
            document = _document(compute, (owner, family), image)
            own = compute.path(document["selfLink"])
            # Images, getFromFamily: "the latest image that is part of an image family and is not deprecated".
            hidden = by_family and document.get("deprecated", {}).get("state", "ACTIVE") != "ACTIVE"
            if own not in compute.images_gone and not hidden:
                return document
    raise missing(path)


def check_usable(document: Document, field: str) -> None:
    """Refuse an image that is obsolete or marked as deleted. Images, `deprecated.state`: "Operations which create a new
    resource using an OBSOLETE or DELETED resource will be rejected and result in an error"."""
    state = document.get("deprecated", {}).get("state", "")
    if state in ("OBSOLETE", "DELETED"):
        raise invalid(field, document["selfLink"], f"The image is {state.lower()}: it cannot be used.")


def _document(compute: Compute, key: tuple[str, str], image: tuple[str, int, str]) -> Document:
    (project, family), (name, size, arch) = key, image
    path = f"projects/{project}/global/images/{name}"
    deprecated = compute.deprecations.get(path)
    return {
        **({"deprecated": deprecated} if deprecated else {}),
        "kind": "compute#image", "id": str(10**18 + sum(map(ord, name)) * 10**9), "name": name, "family": family,
        "status": "READY", "diskSizeGb": str(size), "architecture": arch, "selfLink": compute.link(path),
        "guestOsFeatures": [{"type": "UEFI_COMPATIBLE"}, {"type": "GVNIC"}],
    }  # fmt: skip
