"""The cost of an hour of a cluster at list prices: of standing capacity, and of elastic capacity at its cap."""

from collections.abc import Sequence
from dataclasses import dataclass

from everspot_core.capacity.catalogue import Catalogue, Price
from everspot_core.capacity.fleet import CapacitySpec, derived_weights
from everspot_core.capacity.market import Market
from everspot_core.counting import counted


@dataclass(frozen=True, kw_only=True)
class ElasticCap:
    """The limits of elastic capacity: the number of instances, and their highest cost together in USD per hour."""

    instances: int
    usd_per_hour: float | None
    markets: tuple[Market, ...]


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Prices of a type in USD per hour.

    Attributes:
        spot: the catalogue's lowest.
        limit: the highest paid price on Spot, at most the on-demand price.
        units: of the standing fleets' target.
    """

    name: str
    on_demand: float
    spot: float
    limit: float
    units: float


def describe_hour(region: str, catalogue: Catalogue, capacity: CapacitySpec, lines: Sequence[str]) -> str:
    """Return the lines of an hour's cost with their heading, which names region and date of the prices."""
    prices = [catalogue.on_demand(choice.name, region) for choice in capacity.types]
    dates = sorted({price.as_of.isoformat() for price in prices if price is not None and price.as_of})
    dated = f" of {', '.join(dates)}" if dates else ""
    return (
        f"An hour of the cluster, at list prices of {region}{dated}:\n"
        + "".join(f"  {line}\n" for line in lines)
        + "  Agents' volumes, what is stored, jobs' requests, data transfer and taxes are not counted."
    )


def describe_upkeep(usd_per_hour: float, usd_per_month: float, parts: Sequence[str], *, known_all: bool) -> str:
    """Return the line of what a cluster costs while no agent runs. `known_all`: whether each part has a price."""
    least = "" if known_all else "at least "
    return f"nothing running: {least}${usd_per_hour:.3f}, ${usd_per_month:.2f} a month ({', '.join(parts)})"


def list_rates(region: str, catalogue: Catalogue, capacity: CapacitySpec) -> list[Rate]:
    """Return the prices of the types that have one in the region, in the order of the list."""
    weights, priced = derived_weights(capacity, catalogue.types), []
    for choice in capacity.types:
        price, spot = catalogue.on_demand(choice.name, region), catalogue.spot_range(choice.name, region)
        if price is None:
            continue
        limit = choice.max_price if choice.max_price is not None else capacity.max_price
        most = price.usd_per_hour if limit is None else min(limit, price.usd_per_hour)
        priced.append(
            Rate(
                name=choice.name,
                on_demand=price.usd_per_hour,
                spot=min(most, spot[0].usd_per_hour if spot else most),
                limit=most,
                units=weights.get(choice.name, 1),
            )
        )
    return priced


def no_room(rates: Sequence[Rate], cap: ElasticCap) -> str | None:
    """Return why the cap allows no launch at all, or None. On Spot, a price below it is always possible."""
    cheapest = _beyond(rates, cap)
    if cheapest is None or Market.SPOT in cap.markets or cap.instances == 0:
        return None
    return f"{cap.usd_per_hour:g} is less than an hour of any type costs on-demand; the cheapest is {cheapest}"


def describe_price(price: Price | None) -> str:
    """Return a price in dollars, or the words that it is not known."""
    return "at a price that is not known here" if price is None else f"${price.usd_per_hour:.3f}"


def describe_standing(capacity: CapacitySpec, rates: Sequence[Rate], *, unit: str, chooser: str) -> str:
    """Return the cost of standing capacity: from the cheapest types, on Spot at the catalogue's prices, to the most
    expensive ones at the highest paid price. `unit`: of the target; `chooser`: the system that chooses types."""
    on_demand, spot = capacity.on_demand_target, capacity.spot_target
    if capacity.target == 0 or not rates:
        return "standing: nothing"
    low = on_demand * min(r.on_demand / r.units for r in rates) + spot * min(r.spot / r.units for r in rates)
    high = on_demand * max(r.on_demand / r.units for r in rates) + spot * max(r.limit / r.units for r in rates)
    parts = [f"{counted(count, unit)} {how}" for count, how in ((on_demand, "on-demand"), (spot, "on Spot")) if count]
    return f"standing: {_span(low, high)} more ({' and '.join(parts)}, depending on the types that {chooser})"


def _span(low: float, high: float, digits: int = 2) -> str:
    """Return a range in dollars, or one amount if both ends read the same."""
    ends = dict.fromkeys(f"${usd:.{digits}f}" for usd in (low, high))
    return " to ".join(ends)


def describe_cap(rates: Sequence[Rate], cap: ElasticCap | None) -> str:
    """Return the cost of elastic capacity at its cap."""
    if cap is None or cap.instances == 0 or not rates:
        return "elastic: nothing"
    expensive_type, each = max(
        ((rate.name, rate.on_demand if Market.ON_DEMAND in cap.markets else rate.limit) for rate in rates),
        key=lambda pair: pair[1],
    )
    total = cap.instances * each
    parts = f"{counted(cap.instances, 'instance')} of {expensive_type} at ${each:.3f}"
    if cap.usd_per_hour is None or total <= cap.usd_per_hour:
        return f"elastic: up to ${total:.2f} more ({parts})"
    sentence = f"elastic: up to ${cap.usd_per_hour:.2f} more (maxUsdPerHour; {parts} would be ${total:.2f})"
    cheapest = _beyond(rates, cap)
    return f"{sentence}. On-demand does not fit under it: the cheapest type is {cheapest}" if cheapest else sentence


def describe_spot(region: str, catalogue: Catalogue, rates: Sequence[Rate], cap: ElasticCap | None) -> str | None:
    """Return the cost of elastic capacity at its cap if all of it is Spot, at the catalogue's prices: of the cheapest
    type in the cheapest zone, to the most expensive ones. None if nothing is launched on Spot, or no price is known."""
    if cap is None or cap.instances == 0 or Market.SPOT not in cap.markets:
        return None
    prices = {rate: span for rate in rates if (span := catalogue.spot_range(rate.name, region)) is not None}
    if not prices:
        return None
    spans = {
        rate.name: (min(rate.limit, lowest.usd_per_hour), min(rate.limit, highest.usd_per_hour))
        for rate, (lowest, highest) in prices.items()
    }
    low = cap.instances * min(lowest for lowest, _ in spans.values())
    high = cap.instances * max(highest for _, highest in spans.values())
    limit = ""
    if cap.usd_per_hour is not None and high > cap.usd_per_hour:
        low, high, limit = min(low, cap.usd_per_hour), cap.usd_per_hour, "maxUsdPerHour; "
    listed = ", ".join(f"{name} {_span(*span, digits=3)}" for name, span in spans.items())
    unpriced = [rate.name for rate in rates if rate not in prices]
    lacking = f"; {', '.join(unpriced)} at a price that is not known here" if unpriced else ""
    parts = f"{limit}{counted(cap.instances, 'instance')} of {listed}{lacking}"
    return f"elastic, all on Spot: {_span(low, high)} more at the known prices ({parts})"


def _beyond(rates: Sequence[Rate], cap: ElasticCap) -> str | None:
    """Return the cheapest type on-demand, if even that costs more than the cap."""
    if cap.usd_per_hour is None or not rates:
        return None
    cheapest = min(rates, key=lambda rate: rate.on_demand)
    return f"{cheapest.name} at ${cheapest.on_demand:.3f}" if cheapest.on_demand > cap.usd_per_hour else None
