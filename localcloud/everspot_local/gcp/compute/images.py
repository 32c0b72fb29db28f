"""Stands in for Compute Engine's images: a few public ones, and images that are made of disks, with their root trees.

The project has an image in the shape of the one that Everspot's template bakes, and nothing inside. It makes no image
of other images, snapshots or archives, of a disk that goes with its instance, nor under a key of one's own.
"""

import logging
import re
import threading
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid, missing, not_here, required
from everspot_local.gcp.compute.collection import paged
from everspot_local.gcp.compute.names import check_labels, check_name, in_use, tail
from everspot_local.gcp.compute.state import Compute, fingerprint
from everspot_local.gcp.operations import Operation, OperationFailed
from everspot_local.gcp.project import PROJECT
from everspot_local.gcp.router import Handler, Request

log = logging.getLogger(__name__)
Document = dict[str, Any]
OWN_FAMILY = "everspot"
STATES = ("ACTIVE", "DEPRECATED", "OBSOLETE", "DELETED")
_NEVER = timedelta(seconds=-1)
"""The duration of operations that end when an image is made, whenever that is."""
_SUPPORTED = {
    "name", "description", "family", "labels", "licenses", "sourceDisk", "sourceType", "storageLocations", "kind",
    "guestOsFeatures",
}  # fmt: skip
# By project and family: name of the newest, size in GB, architecture.
_PUBLIC = {
    (PROJECT, OWN_FAMILY): ("everspot", 50, "X86_64"),
    ("debian-cloud", "debian-12"): ("debian-12-bookworm-v20261110", 10, "X86_64"),
    ("debian-cloud", "debian-12-arm64"): ("debian-12-bookworm-arm64-v20261110", 10, "ARM64"),
    ("ubuntu-os-cloud", "ubuntu-2404-lts-amd64"): ("ubuntu-2404-noble-amd64-v20261105", 10, "X86_64"),
    ("ubuntu-os-cloud", "ubuntu-2204-lts"): ("ubuntu-2204-jammy-v20261105", 10, "X86_64"),
    ("ubuntu-os-accelerator-images", "ubuntu-accelerator-2404-amd64-with-nvidia-580"): (
        "ubuntu-accelerator-2404-amd64-with-nvidia-580-v20261106", 10, "X86_64",
    ),
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
        documents = [document for path, document in _all(compute) if path.startswith(f"projects/{project}/")]
        folder = f"projects/{project}/global/images"
        return {"kind": "compute#imageList", "id": folder, **paged(documents, request.params)}

    def path(request: Request) -> str:
        return f"{compute.scope(request.params)}/images/{request.params['image']}"

    def delete(request: Request) -> Document:
        find(compute, path(request))

        def work() -> None:
            if compute.resources.pop(path(request), None) is None:
                compute.images_gone.add(path(request))

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
        "compute.images.insert": lambda request: _insert(compute, request),
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
    images = [document for own, document in _all(compute) if own.startswith(f"projects/{project}/")]
    if not by_family:
        images = [document for document in images if document["name"] == name]
    else:
        images = [document for document in images if document.get("family") == name and _is_current(document)]
    if not images:
        raise missing(path)
    return max(images, key=lambda document: datetime.fromisoformat(document["creationTimestamp"]))


def check_usable(document: Document, field: str) -> None:
    """Refuse an image that is not there yet, obsolete or marked as deleted. Images, `deprecated.state`: "Operations
    which create a new resource using an OBSOLETE or DELETED resource will be rejected and result in an error"."""
    if document["status"] != "READY":
        path = document["selfLink"].partition("/compute/v1/")[2]
        raise ApiError(400, "resourceNotReady", f"The resource '{path}' is not ready")
    state = document.get("deprecated", {}).get("state", "")
    if state in ("OBSOLETE", "DELETED"):
        raise invalid(field, document["selfLink"], f"The image is {state.lower()}: it cannot be used.")


def _is_current(document: Document) -> bool:
    """Return whether a family leads to an image. Images, getFromFamily: "the latest image that is part of an image
    family and is not deprecated"."""
    state = document.get("deprecated", {}).get("state", "ACTIVE")
    return bool(document["status"] == "READY" and state == "ACTIVE")


def _all(compute: Compute) -> list[tuple[str, Document]]:
    """Return every image with its path."""
    public = [_public(compute, *entry) for entry in _PUBLIC.items()]
    entries = [(compute.path(image["selfLink"]), image) for image in public]
    entries = [(path, image) for path, image in entries if path not in compute.images_gone]
    return [
        (path, {**image, **({"deprecated": state} if (state := compute.deprecations.get(path)) else {})})
        for path, image in (*entries, *compute.of_kind("images"))
    ]


def _public(compute: Compute, key: tuple[str, str], image: tuple[str, int, str]) -> Document:
    (project, family), (name, size, arch) = key, image
    return {
        "kind": "compute#image", "id": str(10**18 + sum(map(ord, name)) * 10**9), "name": name, "family": family,
        "status": "READY", "diskSizeGb": str(size), "architecture": arch,
        "selfLink": compute.link(f"projects/{project}/global/images/{name}"),
        "creationTimestamp": "2026-11-10T00:00:00.000-08:00",
        "guestOsFeatures": [{"type": "UEFI_COMPATIBLE"}, {"type": "GVNIC"}],
    }  # fmt: skip


def _insert(compute: Compute, request: Request) -> Document:
    """Begin to make an image of a disk; it is PENDING until that is done."""
    if (repeated := compute.operations.repeated(request.method, request.params)) is not None:
        return repeated.document
    body = request.body
    path = f"{compute.scope(request.params)}/images/{check_name(body.get('name'))}"
    if unknown := sorted(set(body) - _SUPPORTED):
        raise not_here(f"resource.{unknown[0]} of images")
    if body.get("family"):
        check_name(body["family"], "resource.family")
    check_labels(body.get("labels"))
    if not body.get("sourceDisk"):
        raise required("resource.sourceDisk")
    if any(own == path for own, _ in _all(compute) if own not in compute.resources):
        raise ApiError(409, "alreadyExists", f"The resource '{path}' already exists")
    disk_path = compute.referred(body["sourceDisk"], "disks", "resource.sourceDisk")
    disk = compute.get(disk_path)
    _check_source(compute, disk_path, disk, force=bool(request.params.get("forceCreate")))
    labels = dict(body.get("labels", {}))
    document = {
        "description": body.get("description", ""), "family": body.get("family"), "licenses": disk.get("licenses"),
        "sourceType": "RAW", "status": "PENDING", "diskSizeGb": disk["sizeGb"], "sourceDisk": disk["selfLink"],
        "sourceDiskId": disk["id"], "labels": labels, "labelFingerprint": fingerprint(labels),
        "architecture": disk["architecture"], "guestOsFeatures": disk["guestOsFeatures"],
        "storageLocations": body.get("storageLocations") or [_nearest(compute.project.region)],
    }  # fmt: skip
    image = compute.add(path, "image", document)
    operation = compute.begun(request, "insert", path, duration=_NEVER)
    _complete(compute, image, compute.disk_machines.get(disk_path, ""), operation)
    return operation.document


def _check_source(compute: Compute, path: str, disk: Document, *, force: bool) -> None:
    """Refuse a disk that an instance writes on; as met: https://github.com/ansible/ansible/issues/61634."""
    for link in disk.get("users", ()):
        vm = compute.vms[compute.path(link)]
        if vm.status != "TERMINATED":
            if not force:
                raise in_use(path, vm.path)
            raise not_here("images of running instances (`forceCreate`); stop or delete them first")
        if not vm.has_lasting_disk:
            raise not_here("images of a disk that goes with its instance: set autoDelete to false")
    if "sourceImage" not in disk:
        raise not_here("images of disks that nothing boots")


def _nearest(region: str) -> str:
    """Return the multi-region where an image lies by default: the closest to its source ("Manage custom images")."""
    return {"europe": "eu", "us": "us", "northamerica": "us"}.get(region.partition("-")[0], "asia")


def _complete(compute: Compute, image: Document, machine: str, operation: Operation) -> None:
    """Make an image's tree of a machine's disk on a thread of its own, so that the market goes on."""
    market, trees = compute.project.market, compute.project.machines.trees

    def end(failed: list[OperationFailed] | None) -> None:
        image["status"] = "FAILED" if failed else "READY"
        compute.operations.finish(operation, failed)

    def run() -> None:
        try:
            if machine and trees.has_disk(machine):
                image["archiveSizeBytes"] = str(trees.snapshot(machine, image["id"]))
        except Exception:  # whatever it is, the image does not stay pending for ever
            log.exception("the image %s cannot be made", image["name"])
            failed = [OperationFailed("INTERNAL_ERROR", "Internal error.", status=500)]
            market.timeline.after(timedelta(), lambda: end(failed))
        else:
            market.timeline.after(market.delays.operation, lambda: end(None))

    threading.Thread(target=run, name=f"everspot-{tail(image['selfLink'])}", daemon=True).start()
