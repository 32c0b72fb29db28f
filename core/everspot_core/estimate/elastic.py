"""The cost of elastic capacity: nothing at its floor, its cap at the most, and in between the use of the last month at
the requested settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.capacity.market import Market
from everspot_core.costs.prices import PriceBook
from everspot_core.estimate.rates import PoolRates
from everspot_core.estimate.requested import HOURS_A_MONTH, Cost, CostLine, ElasticRequest, TypeOption
from everspot_core.estimate.usage_history import Recent, Stretch


@dataclass(frozen=True, slots=True)
class _Replayed:
    """A month of use: its cost, the same on-demand, and its instance hours."""

    usd: Fraction
    on_demand: Fraction
    hours: Fraction


def assign_use(requests: Sequence[ElasticRequest], used: Sequence[Stretch], hours: Fraction) -> list[list[Stretch]]:
    """Return for each request its part of the recent use of elastic capacity. Each stretch belongs to one request.

    The ledger does not say which request an instance was launched for. So a stretch goes to the request that fits it
    best: by type, then market, then place. A request whose cap is reached gets no more, as long as another one has
    room.

    Args:
        requests: All of one side of a change.
        used: The instances that were elastic lately.
        hours: The length of the ledger.
    """
    shares: list[list[Stretch]] = [[] for _ in requests]
    room = [request.most * hours for request in requests]
    able = [number for number, request in enumerate(requests) if request.most > 0]
    for stretch in used if able else ():
        number = min(able, key=lambda n: (room[n] <= 0, *_misfit(requests[n], stretch), n))
        shares[number].append(stretch)
        room[number] -= stretch.hours
    return shares


def _misfit(request: ElasticRequest, stretch: Stretch) -> tuple[bool, bool, bool]:
    """Return whether a request differs from a stretch in type, market and place."""
    launch = stretch.launch
    is_here = launch.zone in request.zones if request.zones else launch.zone.startswith(request.region)
    offered = {candidate.instance_type for candidate in request.candidates}
    return launch.instance_type not in offered, launch.market not in request.markets, not is_here


def elastic_lines(
    request: ElasticRequest, rates: PoolRates, catalogue: Catalogue, recent: Recent | None, used: Sequence[Stretch]
) -> tuple[list[CostLine], list[str]]:
    """Return the lines of elastic capacity, and the parts whose cost is unknown. `used`: the request's part of the
    instances that were elastic lately."""
    if request.most == 0:
        return [], []
    highest_prices = {
        c.instance_type: price for c in request.candidates if (price := _highest_price(c, request, rates)) is not None
    }
    unknown = _beyond(request, rates)
    if not highest_prices:
        names = ", ".join(c.instance_type for c in request.candidates)
        return [], unknown or [f"{request.name}: no price of {names} is known"]
    hour = request.most * max(highest_prices.values())
    if request.most_usd_per_hour is not None:
        hour = min(hour, request.most_usd_per_hour)
    replay = _replayed(request, rates, catalogue, recent, used) if recent is not None else None
    high = hour * HOURS_A_MONTH
    cost = Cost(
        high=high,
        expected=min(replay.usd, high) if replay else Fraction(0),
        on_demand=replay.on_demand if replay else Fraction(0),
    )
    lines = [CostLine(name=request.name, kind="elastic instances", team=request.team, cost=cost)]
    for extra in request.extras:
        months = replay.hours / HOURS_A_MONTH if replay else Fraction(0)
        cost = Cost(
            high=extra.usd_per_month * request.most,
            expected=extra.usd_per_month * months,
            on_demand=extra.without_spot * months,
        )
        lines.append(CostLine(name=request.name, kind=extra.kind, team=request.team, cost=cost))
    return lines, unknown


def _beyond(request: ElasticRequest, rates: PoolRates) -> list[str]:
    """Return the types that get no Spot because of their limit, in words."""
    if Market.SPOT not in request.markets:
        return []
    sentences = [rates.beyond_limit(candidate, request.zones, request.region) for candidate in request.candidates]
    return [f"{request.name}: {words}" for words in sentences if words]


def _highest_price(candidate: TypeOption, request: ElasticRequest, rates: PoolRates) -> Fraction | None:
    prices = [rates.on_demand(candidate.instance_type, request.region)] if Market.ON_DEMAND in request.markets else []
    if Market.SPOT in request.markets:
        prices += [pool.high for pool in rates.pools(candidate, request.zones, request.region)]
    return max((price for price in prices if price is not None), default=None)


def _replayed(
    request: ElasticRequest, rates: PoolRates, catalogue: Catalogue, recent: Recent, used: Sequence[Stretch]
) -> _Replayed:
    """Return the use as it would cost at these settings, for a month.

    A type that is still offered costs what it was billed. Work of a type or market that is no longer offered goes to
    the type that does it cheapest, by GPUs or else vCPUs. No more hours run than the cap on instances allows.
    """
    book, offered = PriceBook(recent.points, catalogue), {c.instance_type: c for c in request.candidates}
    usd = on_demand = hours = Fraction(0)
    for stretch in used:
        launch = stretch.launch
        name, share, market = launch.instance_type, Fraction(1), launch.market
        if name not in offered:
            name, share = _instead(launch.instance_type, request, rates, catalogue.types)
        if market not in request.markets:
            market = request.markets[0]
        if name != launch.instance_type or market is not launch.market:
            usd += stretch.hours * share * _usual(offered[name], market, request, rates)
        else:
            usd += book.cost(name, launch.zone, market, stretch.start, stretch.end)
        on_demand += stretch.hours * share * (rates.on_demand(name, request.region) or 0)
        hours += stretch.hours * share
    month = Fraction(HOURS_A_MONTH) / (Fraction(recent.span.total_seconds()) / 3600)
    room = Fraction(request.most * HOURS_A_MONTH)
    fits = month if hours * month <= room else room / hours
    return _Replayed(usd * fits, on_demand * fits, hours * fits)


def _usual(candidate: TypeOption, market: Market, request: ElasticRequest, rates: PoolRates) -> Fraction:
    """Return the expected price of an hour; the list price where no spot price is known."""
    pools = rates.pools(candidate, request.zones, request.region) if market is Market.SPOT else []
    cheapest = min((pool.expected for pool in pools), default=None)
    return cheapest if cheapest is not None else rates.on_demand(candidate.instance_type, request.region) or Fraction(0)


def _instead(
    name: str, request: ElasticRequest, rates: PoolRates, types: Mapping[str, InstanceType]
) -> tuple[str, Fraction]:
    """Return the type that does the work of another one cheapest, and how many of its instances do that of one."""

    def share(other: str) -> Fraction:
        replaced, candidate = types.get(name), types.get(other)
        if replaced is None or candidate is None:
            return Fraction(1)
        by_gpu = replaced.gpus > 0 and candidate.gpus > 0
        return Fraction(replaced.gpus, candidate.gpus) if by_gpu else Fraction(replaced.vcpus, candidate.vcpus)

    market = Market.SPOT if Market.SPOT in request.markets else Market.ON_DEMAND
    best = min(
        request.candidates, key=lambda c: (share(c.instance_type) * _usual(c, market, request, rates), c.instance_type)
    )
    return best.instance_type, share(best.instance_type)
