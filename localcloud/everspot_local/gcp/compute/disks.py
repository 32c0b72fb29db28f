"""Stands in for the disks of instances: they are made with an instance, and go with it or stay as `autoDelete` says.

Disks are not made, attached, resized or labelled by themselves, and no quota limits their gigabytes. Where instances
boot images, the boot disk that stays has the root tree of its machine (`everspot_local.machines.trees`).
"""

from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.answers import missing
from everspot_local.gcp.compute.collection import Collection
from everspot_local.gcp.compute.names import already_exists, in_use, moment, tail
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    return {**DISKS.routes(compute), "compute.disks.delete": lambda request: _delete(compute, request)}


def check_free(compute: Compute, paths: list[str]) -> None:
    """Refuse new disks whose names are taken; as met: https://github.com/hashicorp/terraform/issues/7998."""
    for path in paths:
        if path in compute.resources:
            raise already_exists(path)


def make(compute: Compute, instance: Document, properties: Mapping[str, Any], image: Document) -> None:
    """Make the disks of a new instance. `properties`: as requested; `image`: of the boot disk."""
    for attached, requested in zip(instance["disks"], properties["disks"], strict=True):
        initial = requested.get("initializeParams", {})
        kind = tail(str(initial.get("diskType", "pd-standard")))
        disk = {
            "sizeGb": attached["diskSizeGb"], "status": "READY", "type": f"{instance['zone']}/diskTypes/{kind}",
            "users": [instance["selfLink"]], "labels": dict(initial.get("labels", {})),
        }  # fmt: skip
        if attached["boot"]:
            own = ("guestOsFeatures", "licenses", "architecture")
            disk |= {name: image[name] for name in own if name in image}
            disk |= {"sourceImage": image["selfLink"], "sourceImageId": image["id"]}
        path = compute.path(attached["source"])
        compute.add(path, "disk", disk)
        if attached["boot"]:
            compute.disk_machines[path] = instance["id"]


def release(compute: Compute, instance: Document) -> None:
    """Delete the disks of a deleted instance, except disks without `autoDelete`."""
    for attached in instance["disks"]:
        path = compute.path(attached["source"])
        if attached.get("autoDelete"):
            _remove(compute, path)
        elif path in compute.resources:
            del compute.resources[path]["users"]
            compute.resources[path]["lastDetachTimestamp"] = moment(compute.project.market.clock.now())


def _delete(compute: Compute, request: Request) -> Document:
    if (repeated := compute.operations.repeated(request.method, request.params)) is not None:
        return repeated.document
    path = DISKS.path(compute, request)
    compute.get(path)

    def work() -> None:
        compute.check_unused(path)
        _remove(compute, path)

    compute.check_unused(path)
    for image_path, image in compute.of_kind("images"):
        if image["status"] == "PENDING" and compute.path(image["sourceDisk"]) == path:
            raise in_use(path, image_path)
    return compute.begun(request, "delete", path, work=work).document


def _remove(compute: Compute, path: str) -> None:
    compute.resources.pop(path, None)
    if machine := compute.disk_machines.pop(path, None):
        compute.project.machines.trees.remove_disk(machine)


def _nothing(_compute: Compute, scope: str, _body: Document) -> Document:
    raise missing(scope)  # disks are made with their instances


DISKS = Collection("disks", "disks", "disk", "disk", _nothing, verbs=("get", "list", "aggregatedList"))
