"""The price at each moment: from the ledger's price points, and from the catalogue where these are missing.

Money is kept as exact fractions of a dollar and rounded only where it is shown, so that the parts of a bill always
add up to its total.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from everspot_core.capacity.catalogue import Catalogue, zone_region
from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs.records import Market

HOUR = 3600
_MICROSECOND = timedelta(microseconds=1)


class Basis(StrEnum):
    """The source of a price. All but the first two are named in the bill's notes."""

    STATED = "stated by the cloud"
    LISTED = "the catalogue's list price"
    BEFORE_FIRST = "the first price stated by the cloud, taken for the time before it too"
    LISTED_FOR_SPOT = "the catalogue's list price: the cloud stated none"
    CATALOGUE_SPOT = "the catalogue's highest spot price of the region: the cloud stated none"
    ELSEWHERE = "the catalogue's highest list price of other regions: none is known for this one"
    NONE = "none found in any region: counted as 0; declare onDemandUsdPerHour for the type"


@dataclass(frozen=True)
class PriceSegment:
    """A span of time at one price."""

    start: datetime
    end: datetime
    usd_per_hour: Fraction
    basis: Basis

    @property
    def seconds(self) -> Fraction:
        """Its length."""
        return seconds_between(self.start, self.end)

    @property
    def cost(self) -> Fraction:
        """Dollars, exact."""
        return self.seconds * self.usd_per_hour / HOUR


class PriceBook:
    """Prices by type, zone and market over time."""

    def __init__(self, points: Iterable[PricePoint], catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        pools: dict[tuple[str, str, Market], dict[datetime, Fraction]] = defaultdict(dict)
        for point in points:
            pools[(point.instance_type, point.zone, point.market)][point.at] = exact(point.usd_per_hour)
        self._pools = {pool: sorted(prices.items()) for pool, prices in pools.items()}

    def segments(
        self, instance_type: str, zone: str, market: Market, start: datetime, end: datetime
    ) -> list[PriceSegment]:
        """Return the span from `start` to `end`, cut at every change of price; empty if the span is empty."""
        if end <= start:
            return []
        points = self._pools.get((instance_type, zone, market), [])
        if not points:
            price, basis = self._fallback(instance_type, zone, market)
            return [PriceSegment(start, end, price, basis)]
        cut = []
        index = bisect_right(points, start, key=lambda p: p[0])
        if index == 0:
            until = min(end, points[0][0])
            cut.append(PriceSegment(start, until, points[0][1], Basis.BEFORE_FIRST))
            start, index = until, 1
        while start < end:
            until = min(end, points[index][0]) if index < len(points) else end
            cut.append(PriceSegment(start, until, points[index - 1][1], Basis.STATED))
            start, index = until, index + 1
        return cut

    def cost(self, instance_type: str, zone: str, market: Market, start: datetime, end: datetime) -> Fraction:
        """Return dollars for the span from `start` to `end`, exact."""
        return total(s.cost for s in self.segments(instance_type, zone, market, start, end))

    def _fallback(self, instance_type: str, zone: str, market: Market) -> tuple[Fraction, Basis]:
        try:
            region = zone_region(zone)
        except ValueError:
            region = zone
        spot = self._catalogue.spot_range(instance_type, region)
        if market is Market.SPOT and spot is not None:
            return exact(spot[1].usd_per_hour), Basis.CATALOGUE_SPOT
        price = self._catalogue.on_demand(instance_type, region)
        if price is None:
            # An unknown price must not be zero: a budget would never be used up. A price that is too high is noticed,
            # and the budget can be raised.
            price = self._catalogue.most_expensive(instance_type)
            return (exact(price.usd_per_hour), Basis.ELSEWHERE) if price else (Fraction(0), Basis.NONE)
        return exact(price.usd_per_hour), Basis.LISTED if market is Market.ON_DEMAND else Basis.LISTED_FOR_SPOT


def exact(value: float) -> Fraction:
    """Return the exact decimal number that a float was read from: 0.1 is one tenth."""
    return Fraction(repr(value))


def seconds_between(start: datetime, end: datetime) -> Fraction:
    """Return seconds from one moment to another, exact to the microsecond."""
    return Fraction((end - start) // _MICROSECOND, 1_000_000)


def total(amounts: Iterable[Fraction]) -> Fraction:
    """Return the sum, exact; 0 for nothing."""
    return sum(amounts, Fraction(0))


def rounded(amount: Fraction, places: int = 2) -> Decimal:
    """For display only: half away from zero, as bills do."""
    scaled = abs(amount) * 10**places
    whole = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return Decimal(whole if amount >= 0 else -whole).scaleb(-places)


def notes(segments: Iterable[tuple[str, Sequence[PriceSegment]]]) -> list[str]:
    """Return the assumptions about prices, once per pool and kind, for the reader of a bill. Input: (pool name, its
    segments)."""
    assumptions = {
        (pool, s.basis) for pool, cut in segments for s in cut if s.basis not in (Basis.STATED, Basis.LISTED)
    }
    return [f"{pool}: price is {basis.value}" for pool, basis in sorted(assumptions)]
