"""The ledger of a cluster over a span of time: prices as the cloud stated them, and the instances that ran.

The ledger does not say for which part of the settings an instance ran. So the instances that had been there longest
count as standing capacity, up to its size, and all others as elastic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.market import Market
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.costs.nodes import is_billed
from everspot_core.costs.prices import HOUR, PriceBook, seconds_between, total
from everspot_core.jobs.records import Role

Place = tuple[str, str]
"""Instance type and zone."""


@dataclass(frozen=True, slots=True)
class SeenPrice:
    """Spot prices of a pool over the span, USD per hour. `mean`: over time."""

    low: Fraction
    mean: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of an instance's life, all of it standing or all of it elastic."""

    launch: LaunchRecord
    start: datetime
    end: datetime

    @property
    def hours(self) -> Fraction:
        """Its length."""
        return seconds_between(self.start, self.end) / HOUR


@dataclass(frozen=True)
class Recent:
    """A ledger from `since` to `until`. Instances of the scheduler do not count."""

    since: datetime
    until: datetime
    launches: tuple[LaunchRecord, ...]
    ends: Mapping[str, EndRecord]
    points: tuple[PricePoint, ...]

    @classmethod
    def from_ledger(
        cls,
        launches: Iterable[LaunchRecord],
        ends: Iterable[EndRecord],
        points: Iterable[PricePoint],
        *,
        since: datetime,
        until: datetime,
    ) -> "Recent":
        """Return the prices and instances of a span from a ledger. The ledger may begin before the span and end after
        it."""
        recorded = {launch.instance_id: launch for launch in launches}
        billed = tuple(launch for launch in recorded.values() if is_billed(launch, recorded))
        return cls(since, until, billed, {end.instance_id: end for end in ends}, tuple(points))

    @property
    def span(self) -> timedelta:
        """Its length."""
        return self.until - self.since

    @cached_property
    def spot(self) -> dict[Place, SeenPrice]:
        """Spot prices by pool."""
        book = PriceBook(self.points, Catalogue((), ()))
        places = {(p.instance_type, p.zone) for p in self.points if p.market is Market.SPOT and p.at < self.until}
        prices_by_place = {}
        for kind, zone in sorted(places):
            cut = book.segments(kind, zone, Market.SPOT, self.since, self.until)
            prices = [segment.usd_per_hour for segment in cut]
            mean = total(s.cost for s in cut) / (total(s.seconds for s in cut) / HOUR)
            prices_by_place[kind, zone] = SeenPrice(min(prices), mean, max(prices))
        return prices_by_place

    def split(
        self, standing: Mapping[Market, Fraction], weights: Mapping[str, Fraction]
    ) -> tuple[list[Stretch], list[Stretch]]:
        """Return the lives of the instances within the span: the standing capacity's, and all others.

        Args:
            standing: units of each market that count as standing.
            weights: units of an instance by type; 1 where it is silent.
        """
        standing_use: list[Stretch] = []
        beyond: list[Stretch] = []
        for market in Market:
            lives = self._lives(market)
            moments = sorted({moment for _, start, end in lives for moment in (start, end)})
            for start, end in pairwise(moments):
                room = standing.get(market, Fraction(0))
                for launch, first, last in lives:  # the oldest first
                    if first >= end:
                        break
                    if last <= start:
                        continue
                    (standing_use if room > 0 else beyond).append(Stretch(launch, start, end))
                    room -= weights.get(launch.instance_type, Fraction(1))
        return standing_use, beyond

    def _lives(self, market: Market) -> list[tuple[LaunchRecord, datetime, datetime]]:
        lives = []
        for launch in self.launches:
            end = self.ends.get(launch.instance_id)
            start = max(launch.launched_at, self.since)
            last = self.until if end is None else min(end.ended_at, self.until)
            if launch.market is market and launch.role is not Role.SCHEDULER and start < last:
                lives.append((launch, start, last))
        return sorted(lives, key=lambda life: (life[0].launched_at, life[0].instance_id))
