"""Stands in for Compute Engine's advice on Spot capacity: its likelihood, its price, and how often it was preempted.

Google does not say how it rates. Here the rating follows from the ratio of what the pools would give now to what is
asked for: none is 0, part of it 0.4 to 0.6, all of it 0.7 and more. What was preempted is this market's own.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from everspot_core.jobs.records import Market

from everspot_local.gcp.answers import invalid, not_here, required
from everspot_local.gcp.compute.launching import find_kind
from everspot_local.gcp.compute.names import tail
from everspot_local.gcp.compute.selection import RankedTypes, choose
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.router import Handler, Request
from everspot_local.machines.machine import EndedBy
from everspot_local.market.clock import stamp
from everspot_local.market.pools import MarketPool

Document = dict[str, Any]
_SHAPES = ("ANY", "ANY_SINGLE_ZONE", "BALANCED")
_LONG, _SHORT = "3600s", "600s"
"""The times that are told are few. Compute Engine, "View VM availability"."""


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    return {
        "compute.advice.capacity": lambda request: _capacity(compute, request),
        "compute.advice.capacityHistory": lambda request: _history(compute, request),
    }


def _capacity(compute: Compute, request: Request) -> Document:
    compute.scope(request.params)
    body, size = request.body, int(request.body.get("size", 0))
    if size < 1:
        raise invalid("resource.size", size, "Must be at least 1.")
    _check_spot(body.get("instanceProperties", {}))
    kinds = _kinds(compute, body.get("instanceFlexibilityPolicy", {}))
    policy = body.get("distributionPolicy", {})
    shape = policy.get("targetShape", "ANY_SINGLE_ZONE")
    if shape not in _SHAPES:
        raise invalid("resource.distributionPolicy.targetShape", shape, f"Must be one of {', '.join(_SHAPES)}.")
    zones = [tail(str(zone.get("zone", ""))) for zone in policy.get("zones", ())] or list(compute.project.zones)
    for zone in zones:
        compute.check_zone(zone)

    def available(kind: str, zone: str) -> int:
        pool = compute.project.market.pools.get(kind, zone)
        return pool.available(Market.SPOT) if pool is not None else 0

    chosen = choose(shape, 3 * size, RankedTypes((tuple(kinds),)), zones, available, {})
    ratio = len(chosen) / size
    scores = {"obtainability": _rating(ratio), "estimatedUptime": _LONG if ratio >= 2 else _SHORT}
    counts: dict[tuple[str, str], int] = {}
    for place in chosen[:size]:
        counts[place] = counts.get(place, 0) + 1
    shards = [
        {
            "zone": compute.link(f"projects/{compute.name}/zones/{zone}"), "machineType": kinds[kind],
            "instanceCount": count, "provisioningModel": "SPOT",
        }
        for (zone, kind), count in counts.items()
    ]  # fmt: skip
    return {"recommendations": [{"scores": scores, "shards": shards}]}


def _kinds(compute: Compute, policy: Mapping[str, Any]) -> dict[str, str]:
    """Return a request's machine types by the catalogue's types that they are with their GPUs."""
    machine_types: dict[str, str] = {}
    for selection in policy.get("instanceSelections", {}).values():
        for name in selection.get("machineTypes", ()):
            properties = {"machineType": name, "guestAccelerators": selection.get("guestAccelerators", ())}
            machine_types[find_kind(compute, properties, "")] = name
    if not machine_types:
        raise required("resource.instanceFlexibilityPolicy.instanceSelections")
    return machine_types


def _rating(ratio: float) -> float:
    if ratio == 0:
        return 0.0
    return round(0.4 + 0.2 * ratio if ratio < 1 else min(0.95, 0.7 + 0.125 * (ratio - 1)), 2)


def _history(compute: Compute, request: Request) -> Document:
    scope = compute.scope(request.params)
    body = request.body
    properties = body.get("instanceProperties", {})
    _check_spot(properties)
    if not body.get("types"):
        raise required("resource.types")
    if not properties.get("machineType"):
        raise required("resource.instanceProperties.machineType")
    location = body.get("locationPolicy", {}).get("location", "")
    zones = [tail(location)] if "zones/" in location else list(compute.project.zones)
    for zone in zones:
        compute.check_zone(zone)
    kind = find_kind(compute, properties, "")
    pools = [pool for zone in zones if (pool := compute.project.market.pools.get(kind, zone)) is not None]
    history: Document = {"machineType": properties["machineType"]}
    history["location"] = compute.link(f"projects/{compute.name}/{location}" if "zones/" in location else scope)
    if "PRICE" in body["types"] and pools:
        history["priceHistory"] = _prices(compute, pools[0])
    if "PREEMPTION" in body["types"] and pools:
        history["preemptionHistory"] = _preemptions(compute, pools)
    return history


def _prices(compute: Compute, pool: MarketPool) -> list[Document]:
    ends = [at for at, _ in pool.prices[1:]] + [compute.project.market.clock.now()]
    return [
        {"interval": _interval(at, end), "listPrice": _money(usd)}
        for (at, usd), end in zip(pool.prices, ends, strict=True)
    ]


def _money(usd: float) -> Document:
    return {"currencyCode": "USD", "units": str(int(usd)), "nanos": round((usd - int(usd)) * 1e9)}


def _preemptions(compute: Compute, pools: list[MarketPool]) -> list[Document]:
    """Return the preemption rates by days of market time. Discovery document: "total preempted Spots / total Spots that
    stopped running"."""
    now, day = compute.project.market.clock.now(), timedelta(days=1)
    machines = [m for m in compute.project.machines.all.values() if m.pool in pools and m.market is Market.SPOT]
    rates, start = [], compute.project.market.clock.epoch
    while start < now:
        end = start + day
        ended = [m for m in machines if m.ended_at is not None and start <= m.ended_at < end]
        rate = sum(m.ended_by is EndedBy.MARKET for m in ended) / len(ended) if ended else 0.0
        rates.append({"interval": _interval(start, min(end, now)), "preemptionRate": round(rate, 4)})
        start = end
    return rates


def _interval(start: datetime, end: datetime) -> Document:
    return {"startTime": stamp(start), "endTime": stamp(end)}


def _check_spot(properties: Mapping[str, Any]) -> None:
    """Refuse other provisioning models than Spot: Compute API, `advice`, is for Spot VMs."""
    model = properties.get("scheduling", {}).get("provisioningModel")
    if model != "SPOT":
        raise not_here(f"advice on provisioning model {model}")
