"""What elastic capacity costs: nothing at its floor, its cap at the most, and between them last month's use as it would
cost at the settings asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from everspot_core.catalogue import Catalogue, InstanceType
from everspot_core.estimate.asked import HOURS_A_MONTH, Cost, CostLine, ElasticAsk, TypeOption
from everspot_core.estimate.rates import PoolRates
from everspot_core.estimate.recent import Recent, Stretch
from everspot_core.market import Market
from everspot_core.prices import PriceBook


@dataclass(frozen=True, slots=True)
class _Replayed:
    """A month of use: its cost, the same on-demand, and its instance hours."""

    usd: Fraction
    on_demand: Fraction
    hours: Fraction


def elastic_lines(
    ask: ElasticAsk, rates: PoolRates, catalogue: Catalogue, recent: Recent | None, used: Sequence[Stretch]
) -> tuple[list[CostLine], list[str]]:
    """The lines of elastic capacity, and what of it is not known. `used`: which instances were elastic lately."""
    if ask.most == 0:
        return [], []
    dearest = {c.instance_type: price for c in ask.candidates if (price := _dearest(c, ask, rates)) is not None}
    unknown = _beyond(ask, rates)
    if not dearest:
        names = ", ".join(c.instance_type for c in ask.candidates)
        return [], unknown or [f"{ask.name}: no price of {names} is known"]
    hour = ask.most * max(dearest.values())
    if ask.most_usd_per_hour is not None:
        hour = min(hour, ask.most_usd_per_hour)
    found = _replayed(ask, rates, catalogue, recent, used) if recent is not None else None
    high = hour * HOURS_A_MONTH
    cost = Cost(
        high=high,
        expected=min(found.usd, high) if found else Fraction(0),
        on_demand=found.on_demand if found else Fraction(0),
    )
    lines = [CostLine(name=ask.name, kind="elastic instances", team=ask.team, cost=cost)]
    for extra in ask.extras:
        months = found.hours / HOURS_A_MONTH if found else Fraction(0)
        cost = Cost(
            high=extra.usd_per_month * ask.most,
            expected=extra.usd_per_month * months,
            on_demand=extra.without_spot * months,
        )
        lines.append(CostLine(name=ask.name, kind=extra.kind, team=ask.team, cost=cost))
    return lines, unknown


def _beyond(ask: ElasticAsk, rates: PoolRates) -> list[str]:
    """The types that get no Spot because of their limit, in words."""
    if Market.SPOT not in ask.markets:
        return []
    told = [rates.beyond_limit(candidate, ask.zones, ask.region) for candidate in ask.candidates]
    return [f"{ask.name}: {words}" for words in told if words]


def _dearest(candidate: TypeOption, ask: ElasticAsk, rates: PoolRates) -> Fraction | None:
    found = [rates.on_demand(candidate.instance_type, ask.region)] if Market.ON_DEMAND in ask.markets else []
    if Market.SPOT in ask.markets:
        found += [pool.high for pool in rates.pools(candidate, ask.zones, ask.region)]
    return max((price for price in found if price is not None), default=None)


def _replayed(
    ask: ElasticAsk, rates: PoolRates, catalogue: Catalogue, recent: Recent, used: Sequence[Stretch]
) -> _Replayed:
    """The use as it would cost at these settings, for a month.

    What is still offered costs what it was billed. Work of a type or market that is not offered any more goes to the
    type that does it cheapest, by GPUs or else vCPUs. No more hours run than the cap on instances allows.
    """
    book, offered = PriceBook(recent.points, catalogue), {c.instance_type: c for c in ask.candidates}
    usd = on_demand = hours = Fraction(0)
    for stretch in used:
        launch = stretch.launch
        name, share, market = launch.instance_type, Fraction(1), launch.market
        if name not in offered:
            name, share = _instead(launch.instance_type, ask, rates, catalogue.types)
        if market not in ask.markets:
            market = ask.markets[0]
        if name != launch.instance_type or market is not launch.market:
            usd += stretch.hours * share * _usual(offered[name], market, ask, rates)
        else:
            usd += book.cost(name, launch.zone, market, stretch.start, stretch.end)
        on_demand += stretch.hours * share * (rates.on_demand(name, ask.region) or 0)
        hours += stretch.hours * share
    month = Fraction(HOURS_A_MONTH) / (Fraction(recent.span.total_seconds()) / 3600)
    room = Fraction(ask.most * HOURS_A_MONTH)
    fits = month if hours * month <= room else room / hours
    return _Replayed(usd * fits, on_demand * fits, hours * fits)


def _usual(candidate: TypeOption, market: Market, ask: ElasticAsk, rates: PoolRates) -> Fraction:
    """The price of an hour as it is expected; the list price where none of Spot is known."""
    pools = rates.pools(candidate, ask.zones, ask.region) if market is Market.SPOT else []
    cheapest = min((pool.expected for pool in pools), default=None)
    return cheapest if cheapest is not None else rates.on_demand(candidate.instance_type, ask.region) or Fraction(0)


def _instead(name: str, ask: ElasticAsk, rates: PoolRates, types: Mapping[str, InstanceType]) -> tuple[str, Fraction]:
    """The type that does the work of another one cheapest, and how many of its instances do that of one."""

    def share(other: str) -> Fraction:
        mine, theirs = types.get(name), types.get(other)
        if mine is None or theirs is None:
            return Fraction(1)
        by_gpu = mine.gpus > 0 and theirs.gpus > 0
        return Fraction(mine.gpus, theirs.gpus) if by_gpu else Fraction(mine.vcpus, theirs.vcpus)

    market = Market.SPOT if Market.SPOT in ask.markets else Market.ON_DEMAND
    best = min(ask.candidates, key=lambda c: (share(c.instance_type) * _usual(c, market, ask, rates), c.instance_type))
    return best.instance_type, share(best.instance_type)
