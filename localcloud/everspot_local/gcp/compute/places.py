"""Stands in for Compute Engine's descriptions of the project, its region, zones and machine types.

It has no other region, no custom machine types, and shows only two quotas of the project.
"""

from collections.abc import Callable
from typing import Any

from everspot_core.capacity.catalogue import InstanceType

from everspot_local.gcp.answers import missing
from everspot_local.gcp.compute.collection import aggregated, paged
from everspot_local.gcp.compute.machine_types import accelerator_name, machine_type_name, machine_types
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.project import NUMBER
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
_SINCE = "2014-05-30T18:35:16.413-07:00"


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    calls: dict[str, Callable[[Compute, Request], Document]] = {
        "projects.get": _project, "regions.get": _one_region, "regions.list": _regions,
        "zones.get": _one_zone, "zones.list": _zones, "machineTypes.get": _one_type, "machineTypes.list": _types,
        "machineTypes.aggregatedList": _all_types,
    }  # fmt: skip
    return {f"compute.{name}": _bound(call, compute) for name, call in calls.items()}


def _bound(call: Callable[[Compute, Request], Document], compute: Compute) -> Handler:
    return lambda request: call(compute, request)


def _project(compute: Compute, request: Request) -> Document:
    compute.check_project(request.params)
    return {
        "kind": "compute#project", "id": NUMBER, "name": compute.name, "creationTimestamp": _SINCE,
        "selfLink": compute.link(f"projects/{compute.name}"), "defaultNetworkTier": "PREMIUM",
        "defaultServiceAccount": f"{NUMBER}-compute@developer.gserviceaccount.com",
        "quotas": compute.global_quotas(),
        "commonInstanceMetadata": {"kind": "compute#metadata", "fingerprint": "AAAAAAAAAAA="},
    }  # fmt: skip


def _region(compute: Compute) -> Document:
    name = compute.project.region
    path = f"projects/{compute.name}/regions/{name}"
    zones = [compute.link(f"projects/{compute.name}/zones/{zone}") for zone in compute.project.zones]
    identity = {"kind": "compute#region", "id": "1210", "name": name, "description": name, "status": "UP"}
    return {
        **identity,
        "creationTimestamp": _SINCE,
        "selfLink": compute.link(path),
        "zones": zones,
        "quotas": compute.quotas(),
    }


def _one_region(compute: Compute, request: Request) -> Document:
    compute.scope(request.params)
    return _region(compute)


def _regions(compute: Compute, request: Request) -> Document:
    compute.check_project(request.params)
    return {"kind": "compute#regionList", "id": "regions", **paged([_region(compute)], request.params)}


def _zone(compute: Compute, zone: str) -> Document:
    region = compute.link(f"projects/{compute.name}/regions/{compute.project.region}")
    identity = {
        "kind": "compute#zone",
        "id": str(2210 + ord(zone[-1])),
        "name": zone,
        "description": zone,
        "status": "UP",
    }
    link = compute.link(f"projects/{compute.name}/zones/{zone}")
    return {**identity, "creationTimestamp": _SINCE, "region": region, "selfLink": link, "supportsPzs": False}


def _one_zone(compute: Compute, request: Request) -> Document:
    compute.scope(request.params)
    return _zone(compute, request.params["zone"])


def _zones(compute: Compute, request: Request) -> Document:
    compute.check_project(request.params)
    zones = [_zone(compute, zone) for zone in compute.project.zones]
    return {"kind": "compute#zoneList", "id": "zones", **paged(zones, request.params)}


def _sold(compute: Compute, zone: str) -> dict[str, InstanceType]:
    """Return the machine types of a zone by name."""
    pools = compute.project.market.pools
    sold_names = {machine_type_name(name) for name in pools.catalogue.types if pools.offers(name, zone)}
    return {name: kind for name, kind in machine_types(pools.catalogue).items() if name in sold_names}


def _type(compute: Compute, zone: str, name: str, kind: InstanceType) -> Document:
    link = compute.link(f"projects/{compute.name}/zones/{zone}/machineTypes/{name}")
    own = [{"guestAcceleratorType": accelerator_name(kind), "guestAcceleratorCount": kind.gpus}]
    return {
        "kind": "compute#machineType", "id": str(10**6 + sum(map(ord, name))), "name": name, "zone": zone,
        "guestCpus": kind.vcpus, "memoryMb": int(kind.memory_gib * 1024), "isSharedCpu": False,
        "accelerators": own if kind.gpus and kind.name == name else None, "selfLink": link,
        "architecture": kind.arch.upper(), "creationTimestamp": _SINCE,
    }  # fmt: skip


def _one_type(compute: Compute, request: Request) -> Document:
    scope, zone, name = compute.scope(request.params), request.params["zone"], request.params["machineType"]
    sold = _sold(compute, zone)
    if name not in sold:
        raise missing(f"{scope}/machineTypes/{name}")
    return _type(compute, zone, name, sold[name])


def _types(compute: Compute, request: Request) -> Document:
    compute.scope(request.params)
    zone = request.params["zone"]
    types = [_type(compute, zone, name, kind) for name, kind in _sold(compute, zone).items()]
    return {"kind": "compute#machineTypeList", "id": "machineTypes", **paged(types, request.params)}


def _all_types(compute: Compute, request: Request) -> Document:
    compute.check_project(request.params)
    entries = [
        (f"projects/{compute.name}/zones/{zone}/machineTypes/{name}", _type(compute, zone, name, kind))
        for zone in compute.project.zones
        for name, kind in _sold(compute, zone).items()
    ]
    return aggregated("machineTypes", "machineType", entries, request.params, compute)
