"""Adds an estimate up: parts to teams and to a total, before and after a change.

Parts are rounded to cents before they are added, so that a table of them adds up for who reads it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction

from everspot_core.catalogue import Catalogue
from everspot_core.estimate.asked import AskedFor, CostLine
from everspot_core.estimate.elastic import elastic_lines
from everspot_core.estimate.model import CostFigures, CostPart, Estimate, Range
from everspot_core.estimate.rates import PoolRates
from everspot_core.estimate.recent import Recent, Stretch
from everspot_core.estimate.standing import standing_lines
from everspot_core.market import Market
from everspot_core.prices import rounded

_Cents = tuple[Decimal, Decimal, Decimal, Decimal]


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a change, added up."""

    figures: CostFigures
    unknown: tuple[str, ...]
    dates: frozenset[date]


def estimate(
    before: AskedFor | None, after: AskedFor | None, catalogue: Catalogue, recent: Recent | None = None, *, as_of: date
) -> Estimate:
    """What a change costs a month.

    Args:
        before: What is asked for now; None if it is not known. Nothing at all is an empty `AskedFor`.
        after: What the change asks for; None if it is not known.
        catalogue: List prices and the ranges of spot prices.
        recent: What the cluster's ledger tells of the last month, if there is one. Prices and the mix of pools are
            expected to be as they were in it, and elastic capacity is used as it was.
        as_of: The day of the prices if nothing at all has one.
    """
    standing, elastic = _used(before, after, recent)
    was, will = (
        None if side is None else _side(side, catalogue, recent, standing, elastic) for side in (before, after)
    )
    told = will.unknown if will is not None else ()
    formerly = [f"before: {words}" for words in was.unknown if words not in told] if was is not None else []
    dates = frozenset[date]().union(*(side.dates for side in (was, will) if side is not None))
    return Estimate(
        before=None if was is None else was.figures,
        after=None if will is None else will.figures,
        prices_as_of=min(dates, default=as_of),
        by_use=(after or before or AskedFor()).by_use,
        unknown=(*told, *formerly),
    )


def _used(
    before: AskedFor | None, after: AskedFor | None, recent: Recent | None
) -> tuple[list[Stretch], list[Stretch]]:
    """The instances that were standing and elastic capacity lately.

    What a larger standing capacity takes over is not elastic any more. What a smaller one leaves is not added to the
    elastic: whether it had work is not known.
    """
    if recent is None:
        return [], []
    sides = [side for side in (before, after) if side is not None]
    sizes = [_sizes(side) for side in sides]
    weights = {c.instance_type: c.weight for side in sides[:1] for ask in side.standing for c in ask.candidates}
    kept, _ = recent.split(sizes[0] if sizes else {}, weights)
    most = {market: max((size.get(market, Fraction(0)) for size in sizes), default=Fraction(0)) for market in Market}
    _, beyond = recent.split(most, weights)
    return kept, beyond


def _sizes(side: AskedFor) -> dict[Market, Fraction]:
    found: dict[Market, Fraction] = {}
    for ask in side.standing:
        if ask.agents:
            found[ask.market] = found.get(ask.market, Fraction(0)) + ask.units
    return found


def _side(
    side: AskedFor, catalogue: Catalogue, recent: Recent | None, standing: Sequence[Stretch], elastic: Sequence[Stretch]
) -> _Side:
    known = catalogue.with_types(side.types)
    rates = PoolRates(known, recent)
    lines: list[CostLine] = []
    unknown, unpriced = list(side.unknown), list(side.unpriced)
    for ask in side.standing:
        found, lacking = standing_lines(ask, rates, standing if ask.agents else ())
        lines, unknown = lines + found, unknown + lacking
        unpriced += [ask.name] if lacking and not found else []
    for more in side.elastic:
        found, lacking = elastic_lines(more, rates, known, recent, elastic)
        lines, unknown = lines + found, unknown + lacking
        unpriced += [more.name] if lacking and not found else []
    lines += [ask.line for ask in side.fixed]
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
    for one in all_:
        low, expected, high, on_demand = low + one[0], expected + one[1], high + one[2], on_demand + one[3]
    return _range((low, expected, high, on_demand))


def _range(cents: _Cents) -> Range:
    low, expected, high, on_demand = (float(amount) for amount in cents)
    return Range(low=low, expected=expected, high=high, on_demand=on_demand)
