"""What an hour of a cluster costs at list prices: with nothing running, for what stands, and at the cap of the rest."""

from collections.abc import Sequence
from dataclasses import dataclass

from everspot_core.catalogue import Catalogue, Price
from everspot_core.counting import counted
from everspot_core.fleet import derived_weights
from everspot_core.market import Market

from everspot_clouds.aws import endpoints
from everspot_clouds.aws.alarms import USD_A_MONTH as MONITORING_USD_A_MONTH
from everspot_clouds.aws.fleet import Ec2Capacity
from everspot_clouds.aws.quotas import most_vcpus

_HOURS_A_MONTH = 730


@dataclass(frozen=True, kw_only=True)
class Cap:
    """The limits of elastic capacity: a number of instances, and what they may cost together in USD per hour."""

    instances: int
    usd_per_hour: float | None
    markets: tuple[Market, ...]


@dataclass(frozen=True, kw_only=True)
class Always:
    """What a cluster pays for while no agent runs: the scheduler, and an endpoint of each of the `services` in each of
    so many `zones`; with `monitoring` the metrics, alarms and dashboard."""

    scheduler_type: str
    services: Sequence[str] = ()
    zones: int = 0
    monitoring: bool = False


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Prices of a type in USD per hour. `spot`: the catalogue's lowest; `limit`: the highest that is paid on Spot, at
    most the on-demand price (Amazon EC2 API Reference, SpotOptionsRequest: the default of MaxPrice). `units`: of the
    standing fleets' target."""

    name: str
    on_demand: float
    spot: float
    limit: float
    units: float


def hourly_cost(region: str, known: Catalogue, capacity: Ec2Capacity, always: Always, cap: Cap | None) -> str:
    """The cost of an hour in a few lines, for a preview. `known`: the catalogue with the types declared in place."""
    rates = rates_of(region, known, capacity)
    prices = [known.on_demand(choice.name, region) for choice in capacity.types]
    dates = sorted({price.as_of.isoformat() for price in prices if price is not None and price.as_of})
    lines = [_nothing_running(region, known, always), _standing(capacity, rates), _at_the_cap(rates, cap)]
    lines += _quotas(known, capacity, cap)
    dated = f" of {', '.join(dates)}" if dates else ""
    return (
        f"An hour of the cluster, at list prices of {region}{dated}:\n"
        + "".join(f"  {line}\n" for line in lines)
        + "  Volumes, buckets, requests, data transfer and taxes are not counted."
    )


def rates_of(region: str, known: Catalogue, capacity: Ec2Capacity) -> list[Rate]:
    """The prices of the types that have one in the region, in the order of the list."""
    weights, found = derived_weights(capacity, known.types), []
    for choice in capacity.types:
        price, spot = known.on_demand(choice.name, region), known.spot_range(choice.name, region)
        if price is None:
            continue
        limit = choice.max_price if choice.max_price is not None else capacity.max_price
        most = price.usd_per_hour if limit is None else min(limit, price.usd_per_hour)
        found.append(
            Rate(
                name=choice.name,
                on_demand=price.usd_per_hour,
                spot=min(most, spot[0].usd_per_hour if spot else most),
                limit=most,
                units=weights.get(choice.name, 1),
            )
        )
    return found


def no_room(rates: Sequence[Rate], cap: Cap) -> str | None:
    """Why the cap lets nothing be launched at all, or None. On Spot, a price below it is always possible."""
    cheapest = _beyond(rates, cap)
    if cheapest is None or Market.SPOT in cap.markets or cap.instances == 0:
        return None
    return f"{cap.usd_per_hour:g} is less than an hour of any type costs on-demand; the cheapest is {cheapest}"


def _nothing_running(region: str, known: Catalogue, always: Always) -> str:
    count = len(always.services) * always.zones
    endpoint = endpoints.PRICES.get(region, endpoints.PRICES[endpoints.LEAST]).usd_per_hour
    scheduler = known.on_demand(always.scheduler_type, region)
    parts = [f"scheduler {always.scheduler_type} {_price(scheduler)}"]
    if count:
        parts.append(f"{counted(count, 'interface endpoint')} ${count * endpoint:.3f}")
    watching = MONITORING_USD_A_MONTH / _HOURS_A_MONTH if always.monitoring else 0
    if watching:
        parts.append(f"monitoring ${watching:.3f}")
    known_all = scheduler is not None and (region in endpoints.PRICES or not count)
    total = (scheduler.usd_per_hour if scheduler is not None else 0) + count * endpoint + watching
    return f"nothing running: {'' if known_all else 'at least '}${total:.3f} ({', '.join(parts)})"


def _price(price: Price | None) -> str:
    return "at a price that is not known here" if price is None else f"${price.usd_per_hour:.3f}"


def _standing(capacity: Ec2Capacity, rates: Sequence[Rate]) -> str:
    """From the cheapest types, on Spot at the catalogue's prices, to the dearest ones at the highest that is paid."""
    on_demand, spot = capacity.on_demand_target, capacity.spot_target
    if capacity.target == 0 or not rates:
        return "standing: nothing"
    low = on_demand * min(r.on_demand / r.units for r in rates) + spot * min(r.spot / r.units for r in rates)
    high = on_demand * max(r.on_demand / r.units for r in rates) + spot * max(r.limit / r.units for r in rates)
    span = f"${low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"${low:.2f} to ${high:.2f}"
    parts = [f"{counted(count, 'unit')} {how}" for count, how in ((on_demand, "on-demand"), (spot, "on Spot")) if count]
    return f"standing: {span} more ({' and '.join(parts)}, depending on the types that EC2 chooses)"


def _at_the_cap(rates: Sequence[Rate], cap: Cap | None) -> str:
    if cap is None or cap.instances == 0 or not rates:
        return "elastic: nothing"
    dearest, each = max(
        ((rate.name, rate.on_demand if Market.ON_DEMAND in cap.markets else rate.limit) for rate in rates),
        key=lambda pair: pair[1],
    )
    total = cap.instances * each
    parts = f"{counted(cap.instances, 'instance')} of {dearest} at ${each:.3f}"
    if cap.usd_per_hour is None or total <= cap.usd_per_hour:
        return f"elastic: up to ${total:.2f} more ({parts})"
    told = f"elastic: up to ${cap.usd_per_hour:.2f} more (maxUsdPerHour; {parts} would be ${total:.2f})"
    cheapest = _beyond(rates, cap)
    return f"{told}. On-demand does not fit under it: the cheapest type is {cheapest}" if cheapest else told


def _quotas(known: Catalogue, capacity: Ec2Capacity, cap: Cap | None) -> list[str]:
    """The quotas of the account that everything at once may need. Whether it has them is asked by doctor."""
    standing = {Market.ON_DEMAND: capacity.on_demand_target, Market.SPOT: capacity.spot_target}
    elastic = dict.fromkeys(cap.markets, cap.instances) if cap is not None else {}
    found = most_vcpus(standing, elastic, derived_weights(capacity, known.types), known.types)
    told = ", ".join(f"{count:,} of {quota.code} ({quota.name})" for quota, count in found.items())
    return [f"vCPU quotas, at most: {told}; `everspot doctor` says what the account has"] if told else []


def _beyond(rates: Sequence[Rate], cap: Cap) -> str | None:
    """The cheapest type on-demand, if even that costs more than the cap."""
    if cap.usd_per_hour is None or not rates:
        return None
    cheapest = min(rates, key=lambda rate: rate.on_demand)
    return f"{cheapest.name} at ${cheapest.on_demand:.3f}" if cheapest.on_demand > cap.usd_per_hour else None
