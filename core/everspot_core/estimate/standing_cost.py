"""The cost of standing capacity: from the cheapest pool at its lowest price to the most expensive one at its
highest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from everspot_core.capacity.allocation import AllocationRequest, Launchable, Pool, Prefer, allocate
from everspot_core.capacity.market import Market
from everspot_core.estimate.rates import PoolRate, PoolRates
from everspot_core.estimate.requested import HOURS_A_MONTH, Cost, CostLine, StandingRequest
from everspot_core.estimate.usage_history import Stretch

_TRIED = 200
"""Units up to which instances are chosen one by one. A larger fleet is this one, as many times over."""

_PLENTY = 1_000_000
"""Instances that every pool can give: how many it has is not known."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The expected fleet: its cost an hour, and its instances."""

    usd_per_hour: Fraction
    instances: Fraction


def standing_lines(
    request: StandingRequest, rates: PoolRates, used: Sequence[Stretch]
) -> tuple[list[CostLine], list[str]]:
    """Return the lines of one market's standing capacity, and the parts whose cost is unknown. `used`: the instances
    that were this capacity lately, in any market; empty without a ledger."""
    if request.units == 0:
        return [], []
    pools, lacking = _priced(request, rates)
    beyond = _beyond(request, rates)
    lacking = [name for name in lacking if name not in beyond]
    kind = "on-demand instances" if request.market is Market.ON_DEMAND else "spot instances"
    unknown = [f"{request.name}: {words}" for words in beyond.values()]
    unknown += [f"{request.name}: no {request.market.value} price of {', '.join(lacking)} is known"] if lacking else []
    listed = [r for c in request.candidates if (r := rates.on_demand_pool(c, request.region)) is not None]
    if not pools or not listed:
        return [], unknown or [f"{request.name}: no on-demand price of its types is known"]
    most = _most_units(request)
    chosen = _as_used(request, pools, used) or _as_allocated(request, pools, request.prefer)
    instead = _as_allocated(request, listed, request.prefer if request.prefer is Prefer.ORDER else Prefer.PRICE)
    low = request.units * min(p.low / p.candidate.weight for p in pools)
    high = most * max(p.high / p.candidate.weight for p in pools)
    cost = Cost(
        low=low * HOURS_A_MONTH,
        expected=_within(chosen.usd_per_hour, low, high) * HOURS_A_MONTH,
        high=high * HOURS_A_MONTH,
        on_demand=instead.usd_per_hour * HOURS_A_MONTH,
    )
    lines = [CostLine(name=request.name, kind=kind, team=request.team, cost=cost)]
    weights = [p.candidate.weight for p in pools]
    fewest, many = request.units / max(weights), most / min(weights)
    for extra in request.extras:
        each = extra.usd_per_month
        cost = Cost(
            low=fewest * each,
            expected=_within(chosen.instances, fewest, many) * each,
            high=many * each,
            on_demand=instead.instances * extra.without_spot,
        )
        lines.append(CostLine(name=request.name, kind=extra.kind, team=request.team, cost=cost))
    return lines, unknown


def _within(value: Fraction, low: Fraction, high: Fraction) -> Fraction:
    return min(max(value, low), high)


def _priced(request: StandingRequest, rates: PoolRates) -> tuple[list[PoolRate], list[str]]:
    """Return the pools with a price, and the types without one."""
    pools, lacking = [], []
    for candidate in request.candidates:
        if request.market is Market.ON_DEMAND:
            listed = rates.on_demand_pool(candidate, request.region)
            priced = [] if listed is None else [listed]
        else:
            priced = rates.pools(candidate, request.zones, request.region)
        pools += priced
        lacking += [] if priced else [candidate.instance_type]
    return pools, lacking


def _beyond(request: StandingRequest, rates: PoolRates) -> dict[str, str]:
    """Return the types whose limit is below every known spot price, which give nothing, and a sentence about them."""
    if request.market is Market.ON_DEMAND:
        return {}
    sentences = {c.instance_type: rates.beyond_limit(c, request.zones, request.region) for c in request.candidates}
    return {name: words for name, words in sentences.items() if words}


def _most_units(request: StandingRequest) -> Fraction:
    """Return the largest number of units of the fleet. The last instance may provide more units than are missing."""
    weights = {candidate.weight for candidate in request.candidates}
    heaviest = max(weights)
    if len(weights) == 1:
        return math.ceil(request.units / heaviest) * heaviest
    whole = all(value.denominator == 1 for value in (*weights, request.units))
    return request.units + heaviest - (1 if whole else 0)


def _as_used(request: StandingRequest, pools: Sequence[PoolRate], used: Sequence[Stretch]) -> _Chosen | None:
    """Return the fleet in its recent mix of pools, at their recent prices; None if there is no recent use."""
    by_place = {(p.candidate.instance_type, p.zone): p for p in pools}
    hours = units = usd = Fraction(0)
    for stretch in used:
        launch = stretch.launch
        zone = "" if request.market is Market.ON_DEMAND else launch.zone
        pool = by_place.get((launch.instance_type, zone), by_place.get((launch.instance_type, "")))
        if launch.market is request.market and pool is not None:
            hours += stretch.hours
            units += stretch.hours * pool.candidate.weight
            usd += stretch.hours * pool.expected
    return _Chosen(request.units * usd / units, request.units * hours / units) if units else None


def _as_allocated(needed: StandingRequest, pools: Sequence[PoolRate], prefer: Prefer) -> _Chosen:
    """Return the fleet as the product's own allocation would choose it, if every pool had plenty."""
    tried = min(needed.units, Fraction(_TRIED))
    spread = min(needed.pools, len(pools)) if prefer is Prefer.PRICE else 1
    places = [(pool, str(number)) for number, pool in enumerate(pools)]  # a zone may not be known
    candidates = tuple(
        Launchable(
            instance_type=pool.candidate.instance_type,
            zone=place,
            weight=float(pool.candidate.weight),
            priority=pool.candidate.priority,
        )
        for pool, place in places
    )
    offered = [
        Pool(
            instance_type=pool.candidate.instance_type,
            zone=place,
            market=Market.SPOT,
            available=_PLENTY,
            usd_per_hour=float(pool.expected),
        )
        for pool, place in places
    ]
    request = AllocationRequest(
        candidates=candidates, spot=float(tried), spot_strategy=prefer, instance_pools_to_use=spread
    )
    placed = allocate(request, offered).placements
    scale = needed.units / tried
    usd = sum((pools[p.candidate].expected for p in placed), Fraction(0))
    return _Chosen(usd * scale, len(placed) * scale)
