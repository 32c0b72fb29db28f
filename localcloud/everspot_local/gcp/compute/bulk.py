"""Stands in for bulk creation: many instances in one request, in zones and of types that the cloud chooses.

`selection` chooses the zones. Zones that the policy does not name are allowed, as documented for `gcloud compute
instances bulk create`. A request has at most 1,000 instances.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from everspot_local.gcp.answers import invalid, not_here, required
from everspot_local.gcp.compute.collection import merged
from everspot_local.gcp.compute.instances import template_properties
from everspot_local.gcp.compute.launching import find_kind, lacking, launch, read_market, stockout
from everspot_local.gcp.compute.names import already_exists, check_name, new_id, tail
from everspot_local.gcp.compute.properties import checked
from everspot_local.gcp.compute.selection import RankedTypes, choose, read_ranked_types
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.compute.vms import Vm
from everspot_local.gcp.operations import Operation, OperationFailed
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
MOST = 1000


@dataclass
class Bulk:
    """A parsed request.

    Attributes:
        least: minimum number of instances; if fewer are available, none is created.
        names: of the instances.
    """

    properties: Document
    count: int
    least: int
    names: list[str]
    zones: list[str]
    shape: str
    machine_types: RankedTypes
    wrong: list[OperationFailed] = field(default_factory=list)


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    return {
        "compute.regionInstances.bulkInsert": lambda request: _insert(compute, request),
        "compute.instances.bulkInsert": lambda request: _insert(compute, request),
    }


def _insert(compute: Compute, request: Request) -> Document:
    if (repeated := compute.operations.repeated(request.method, request.params)) is not None:
        return repeated.document
    scope = compute.scope(request.params)
    bulk = _read(compute, request, scope)
    never = timedelta(seconds=-1)  # it is done when the instances run, or when it is known that they will not
    operation = compute.operations.begin(
        "bulkInsert", scope, f"{scope}/instances", "0", request.caller.email, duration=never
    )
    operation.document["operationGroupId"] = new_id()
    compute.operations.remember(request.method, request.params, operation)
    _carry_out(compute, bulk, operation)
    return operation.document


def _read(compute: Compute, request: Request, scope: str) -> Bulk:
    body = request.body
    properties: Document = {}
    if link := body.get("sourceInstanceTemplate"):
        properties = template_properties(compute, link, "resource.sourceInstanceTemplate")
    elif "instanceProperties" not in body:
        message = "Either sourceInstanceTemplate or instanceProperties must be specified."
        raise invalid("resource", "", message)
    properties = merged(properties, body.get("instanceProperties", {}))
    count = int(body.get("count", 0))
    if not 1 <= count <= MOST:
        raise invalid("resource.count", count, f"Must be between 1 and {MOST}.")
    least = int(body.get("minCount", count))
    if not 1 <= least <= count:
        raise invalid("resource.minCount", least, "Must be between 1 and count.")
    regional = "/regions/" in scope
    policy = body.get("instanceFlexibilityPolicy")
    if policy is not None and not regional:
        # Discovery document: "supported only for regional bulkInsert requests".
        raise invalid("resource.instanceFlexibilityPolicy", "", "It is supported by regional requests only.")
    ranked_types = RankedTypes(())
    if policy is not None:
        ranked_types = read_ranked_types(policy.get("instanceSelections", {}), "resource.instanceFlexibilityPolicy")
        properties["machineType"] = ranked_types.types[0]
    # Held to the rules once before anything is launched, and for each type besides.
    for kind in ranked_types.types or (properties.get("machineType", ""),):
        checked(compute, {**properties, "machineType": kind}, "resource.instanceProperties")
    if not ranked_types.ranks:
        ranked_types = RankedTypes(((tail(properties["machineType"]),),))
    location = body.get("locationPolicy", {})
    zones = _zones(compute, location) if regional else [tail(scope)]
    names = _names(compute, body, count, zones)
    return Bulk(properties, count, least, names, zones, location.get("targetShape", "ANY_SINGLE_ZONE"), ranked_types)


def _zones(compute: Compute, location: Mapping[str, Any]) -> list[str]:
    """Return the region's zones except the denied ones."""
    listed = [tail(str(each.get("zone", ""))) for each in location.get("zones", ())]
    denied = set()
    for link, rules in location.get("locations", {}).items():
        compute.check_zone(tail(link))
        if rules.get("constraints"):
            raise not_here(f"resource.locationPolicy.locations[{link}].constraints")
        if rules.get("preference") == "DENY":
            denied.add(tail(link))
    for zone in listed:
        compute.check_zone(zone)
    allowed = [zone for zone in listed or compute.project.zones if zone not in denied]
    if not allowed:
        raise invalid("resource.locationPolicy", "", "There is no zone that is allowed.")
    return allowed


def _names(compute: Compute, body: Mapping[str, Any], count: int, zones: Sequence[str]) -> list[str]:
    pattern, per_instance = body.get("namePattern"), body.get("perInstanceProperties", {})
    if bool(pattern) == bool(per_instance):
        message = "Exactly one of namePattern and perInstanceProperties must be specified."
        raise required("resource.namePattern") if not pattern else invalid("resource.namePattern", pattern, message)
    if pattern:
        return _numbered(compute, pattern, count, zones)
    if len(per_instance) < count:
        raise invalid("resource.count", count, "There are fewer entries in perInstanceProperties.")
    if any(more for more in per_instance.values()):
        raise not_here("resource.perInstanceProperties with anything but names")
    names = [check_name(name, "resource.perInstanceProperties") for name in per_instance]
    for path, instance in compute.of_kind("instances"):
        if instance["name"] in names and tail(instance["zone"]) in zones:
            raise already_exists(path)
    return names[:count]


def _numbered(compute: Compute, pattern: str, count: int, zones: Sequence[str]) -> list[str]:
    """Return the names of a pattern. Discovery document, `namePattern`: numbers start after the biggest existing
    one."""
    placeholders = re.fullmatch(r"([^#]*)(#{1,18})([^#]*)", pattern)
    if placeholders is None:
        message = "It must contain one continuous sequence of 1 to 18 placeholder characters (#)."
        raise invalid("resource.namePattern", pattern, message)
    head, digits, end = placeholders[1], len(placeholders[2]), placeholders[3]
    used = re.compile(rf"{re.escape(head)}(\d{{{digits}}}){re.escape(end)}")
    numbers = [
        int(match[1])
        for _, instance in compute.of_kind("instances")
        if tail(instance["zone"]) in zones and (match := used.fullmatch(instance["name"]))
    ]
    first = max(numbers, default=0) + 1
    if first + count - 1 >= 10**digits:
        raise invalid("resource.namePattern", pattern, "The pattern has too few placeholders for the count.")
    return [
        check_name(f"{head}{number:0{digits}}{end}", "resource.namePattern") for number in range(first, first + count)
    ]


def _carry_out(compute: Compute, bulk: Bulk, operation: Operation) -> None:
    """Launch as many instances as there is capacity for, or none if that is fewer than the least."""
    market = read_market(bulk.properties)

    def available(machine_type: str, zone: str) -> int:
        kind = _kind(compute, bulk, machine_type, zone)
        problem = lacking(compute, kind, zone, market)
        if problem is not None:
            bulk.wrong.append(problem)
            return 0
        pool = compute.project.market.pools.get(kind, zone)
        capacity = pool.available(market) if pool is not None else 0
        return next((n for n in range(min(capacity, bulk.count), 0, -1) if _may(compute, kind, market, n)), 0)

    chosen = choose(bulk.shape, bulk.count, bulk.machine_types, bulk.zones, available, {})
    if len(chosen) < bulk.least:
        _fail(compute, bulk, operation)
        return
    launched: list[Vm] = []
    for name, (zone, machine_type) in zip(bulk.names, chosen, strict=False):
        properties = _of_type(bulk, machine_type)
        _, vm = launch(
            compute, zone, name, properties, operation.document["user"], group=operation.document["operationGroupId"]
        )
        if vm is not None:
            launched.append(vm)
    _finish_with(compute, bulk, operation, launched)


def _of_type(bulk: Bulk, machine_type: str) -> Document:
    return {**bulk.properties, "machineType": machine_type}


def _kind(compute: Compute, bulk: Bulk, machine_type: str, zone: str) -> str:
    return find_kind(compute, _of_type(bulk, machine_type), zone)


def _may(compute: Compute, kind: str, market: Any, count: int) -> bool:
    return all(limit(kind, market, count) is None for limit in compute.limits)


def _fail(compute: Compute, bulk: Bulk, operation: Operation) -> None:
    """Fail because the least number is not available, and give the reason for each zone and type. As met: the code of
    the count stands first (slurm-gcp, `resume.py`; SkyPilot, `instance_utils.py`)."""
    words = f"Requested minimum count of {bulk.least} VMs could not be created."
    first = OperationFailed("VM_MIN_COUNT_NOT_REACHED", words, status=400)
    market = read_market(bulk.properties)
    reasons = list(bulk.wrong)
    for machine_type in bulk.machine_types.types:
        for zone in bulk.zones:
            kind = _kind(compute, bulk, machine_type, zone)
            if lacking(compute, kind, zone, market) is None:  # it could give some, and not enough
                full = (limit(kind, market, bulk.least) for limit in compute.limits)
                reasons.append(next((each for each in full if each is not None), None) or stockout(compute, kind, zone))
    distinct = {(each.code, each.message, str(each.details)): each for each in reasons}
    _status(bulk, operation, dict.fromkeys(bulk.zones, 0), failed=True)
    delay = compute.project.market.delays.operation
    compute.project.market.timeline.after(
        delay, lambda: compute.operations.finish(operation, [first, *distinct.values()])
    )


def _finish_with(compute: Compute, bulk: Bulk, operation: Operation, launched: list[Vm]) -> None:
    """Finish the operation when the last of its instances runs, or has ended before."""
    zones: dict[str, int] = {}
    for vm in launched:
        zone = vm.machine.pool.zone
        zones[zone] = zones.get(zone, 0) + 1
    _status(bulk, operation, zones, failed=False)

    def look() -> None:
        if all(vm.beginning is None or vm.beginning.done for vm in launched):
            compute.operations.finish(operation)
        else:
            compute.project.market.timeline.after(timedelta(seconds=1), look)

    slowest = max(compute.project.market.pool_delays(vm.machine.pool).pending for vm in launched)
    compute.project.market.timeline.after(slowest, look)


def _status(bulk: Bulk, operation: Operation, zones: Mapping[str, int], *, failed: bool) -> None:
    locations = {
        f"zones/{zone}": {
            "status": "DONE",
            "targetVmCount": bulk.count if failed or len(zones) == 1 else count,
            "createdVmCount": count,
            "failedToCreateVmCount": 0 if not failed else bulk.count,
            "deletedVmCount": 0,
        }
        for zone, count in zones.items()
    }
    operation.document["instancesBulkInsertOperationMetadata"] = {"perLocationStatus": locations}
