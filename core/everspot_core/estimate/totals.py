"""Adds an estimate up: parts to teams and to a total, before and after a change.

Parts are rounded to cents before they are added, so that the rows of a printed table add up to its total.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.market import Market
from everspot_core.costs.prices import rounded
from everspot_core.estimate.elastic import assign_use, elastic_lines
from everspot_core.estimate.model import CostFigures, CostPart, Estimate, Range
from everspot_core.estimate.rates import PoolRates
from everspot_core.estimate.requested import CostLine, RequestedCapacity
from everspot_core.estimate.standing_cost import standing_lines
from everspot_core.estimate.usage_history import Recent, Stretch

_Cents = tuple[Decimal, Decimal, Decimal, Decimal]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a change, added up."""

    figures: CostFigures
    unknown: tuple[str, ...]
    dates: frozenset[date]


def estimate(
    before: RequestedCapacity | None,
    after: RequestedCapacity | None,
    catalogue: Catalogue,
    recent: Recent | None = None,
    *,
    as_of: date,
) -> Estimate:
    """Return the cost of a change for a month.

    Args:
        before: The capacity that is requested now; None if it is unknown. An empty `RequestedCapacity` is nothing.
        after: The capacity that the change requests; None if it is unknown.
        catalogue: List prices and the ranges of spot prices.
        recent: The cluster's ledger of the last month, if there is one. Prices and the mix of pools are expected to
            stay as they were in it, and elastic capacity to be used as it was.
        as_of: The day of the prices if no price has one.
    """
    standing, elastic = _used(before, after, recent)
    was, will = (
        None if side is None else _side(side, catalogue, recent, standing, elastic) for side in (before, after)
    )
    unknown_now = will.unknown if will is not None else ()
    formerly = [f"before: {words}" for words in was.unknown if words not in unknown_now] if was is not None else []
    dates = frozenset[date]().union(*(side.dates for side in (was, will) if side is not None))
    return Estimate(
        before=None if was is None else was.figures,
        after=None if will is None else will.figures,
        prices_as_of=min(dates, default=as_of),
        by_use=(after or before or RequestedCapacity()).by_use,
        unknown=(*unknown_now, *formerly),
    )


def _used(
    before: RequestedCapacity | None, after: RequestedCapacity | None, recent: Recent | None
) -> tuple[list[Stretch], list[Stretch]]:
    """Return the instances that were standing and elastic capacity lately.

    Capacity that a larger standing fleet takes over is no longer elastic. Capacity that a smaller standing fleet gives
    up is not added to the elastic capacity, because nobody knows whether it had work.
    """
    if recent is None:
        return [], []
    sides = [side for side in (before, after) if side is not None]
    sizes = [_sizes(side) for side in sides]
    weights = {c.instance_type: c.weight for side in sides[:1] for request in side.standing for c in request.candidates}
    standing_use, _ = recent.split(sizes[0] if sizes else {}, weights)
    most = {market: max((size.get(market, Fraction(0)) for size in sizes), default=Fraction(0)) for market in Market}
    _, beyond = recent.split(most, weights)
    return standing_use, beyond


def _sizes(side: RequestedCapacity) -> dict[Market, Fraction]:
    sizes: dict[Market, Fraction] = {}
    for request in side.standing:
        if request.agents:
            sizes[request.market] = sizes.get(request.market, Fraction(0)) + request.units
    return sizes


def _side(
    side: RequestedCapacity,
    catalogue: Catalogue,
    recent: Recent | None,
    standing: Sequence[Stretch],
    elastic: Sequence[Stretch],
) -> _Side:
    full_catalogue = catalogue.with_types(side.types)
    rates = PoolRates(full_catalogue, recent)
    lines: list[CostLine] = []
    unknown, unpriced = list(side.unknown), list(side.unpriced)
    for request in side.standing:
        new_lines, lacking = standing_lines(request, rates, standing if request.agents else ())
        lines, unknown = lines + new_lines, unknown + lacking
        unpriced += [request.name] if lacking and not new_lines else []
    hours = Fraction(recent.span.total_seconds()) / 3600 if recent is not None else Fraction(0)
    for more, use in zip(side.elastic, assign_use(side.elastic, elastic, hours), strict=True):
        new_lines, lacking = elastic_lines(more, rates, full_catalogue, recent, use)
        lines, unknown = lines + new_lines, unknown + lacking
        unpriced += [more.name] if lacking and not new_lines else []
    lines += [request.line for request in side.fixed]
    figures = _figures(lines).model_copy(update={"unpriced": tuple(sorted(set(unpriced)))})
    return _Side(figures, tuple(dict.fromkeys(unknown)), frozenset(rates.dates) | frozenset(side.dates))


def _figures(lines: Iterable[CostLine]) -> CostFigures:
    parts, teams = [], dict[str, list[_Cents]]()
    for line in sorted(lines, key=lambda one: (one.team, one.kind, one.name)):
        cents = _cents(line)
        if any(cents):
            parts.append(CostPart(name=line.name, kind=line.kind, team=line.team, range=_range(cents)))
            teams.setdefault(line.team, []).append(cents)
    return CostFigures(
        total=_sum(cents for own in teams.values() for cents in own),
        teams={team: _sum(own) for team, own in sorted(teams.items())},
        parts=tuple(parts),
    )


def _cents(line: CostLine) -> _Cents:
    cost = line.cost
    return rounded(cost.low), rounded(cost.expected), rounded(cost.high), rounded(cost.on_demand)


def _sum(all_: Iterable[_Cents]) -> Range:
    low = expected = high = on_demand = Decimal(0)
    for cents in all_:
        low, expected, high, on_demand = low + cents[0], expected + cents[1], high + cents[2], on_demand + cents[3]
    return _range((low, expected, high, on_demand))


def _range(cents: _Cents) -> Range:
    low, expected, high, on_demand = (float(amount) for amount in cents)
    return Range(low=low, expected=expected, high=high, on_demand=on_demand)
