"""Stands in for the lists of disks: those of instances, with the labels that they were created with.

A disk goes with its instance, whatever `autoDelete` says. Disks are not made, kept, resized or labelled by themselves.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from everspot_local.gcp.compute.collection import aggregated, paged
from everspot_local.gcp.compute.names import tail
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    calls: dict[str, Callable[[Compute, Request], Document]] = {"aggregatedList": _aggregated, "list": _list}
    return {f"compute.disks.{verb}": partial(call, compute) for verb, call in calls.items()}


def _aggregated(compute: Compute, request: Request) -> Document:
    compute.check_project(request.params)
    return aggregated("disks", "disk", _all(compute), request.params, compute)


def _list(compute: Compute, request: Request) -> Document:
    scope = compute.scope(request.params)
    disks = [disk for path, disk in _all(compute) if path.startswith(f"{scope}/")]
    answer = {"kind": "compute#diskList", "id": f"{scope}/disks", "selfLink": compute.link(f"{scope}/disks")}
    return {**answer, **paged(disks, request.params)}


def _all(compute: Compute) -> list[tuple[str, Document]]:
    """Return every disk with its path."""
    return [
        (compute.path(attached["source"]), _disk(compute, instance, attached, labels))
        for path, instance in compute.of_kind("instances")
        for attached, labels in zip(instance["disks"], compute.vms[path].disk_labels, strict=False)
    ]


def _disk(compute: Compute, instance: Document, attached: Document, labels: Document) -> Document:
    return {
        "kind": "compute#disk",
        "id": str(int(instance["id"]) + 1 + int(attached.get("index", 0))),
        "name": tail(attached["source"]),
        "creationTimestamp": instance["creationTimestamp"],
        "selfLink": attached["source"],
        "zone": instance["zone"],
        "sizeGb": attached["diskSizeGb"],
        "status": "READY",
        "users": [instance["selfLink"]],
        "labels": labels,
    }
