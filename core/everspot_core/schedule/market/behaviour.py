"""How a pool has behaved: its spells with and without capacity, as they were seen."""

from dataclasses import dataclass, replace
from datetime import datetime

REMEMBERED = 64
"""Spells of each kind that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """The spells of one pool.

    Attributes:
        ups: hours of the ended spells with capacity, oldest first, at most REMEMBERED.
        downs: hours of the ended spells without capacity, likewise.
        up: whether the pool is up in the present spell.
        since: when the present spell began; None: the pool was never looked at.
        first: the moment of the first look; the spell of that moment counts from then on.
        down_since: when the pool was last seen to go down, while it is only presumed to be up again.
    """

    up: bool = False
    since: datetime | None = None
    first: datetime | None = None
    ups: tuple[float, ...] = ()
    downs: tuple[float, ...] = ()
    down_since: datetime | None = None

    def observe(self, up: bool, at: datetime) -> "Behaviour":
        """Return the behaviour after one more look at the pool, which found it up or not."""
        if self.since is None:
            return replace(self, up=up, since=at, first=at)
        if up == self.up:
            return self
        hours = (at - self.since).total_seconds() / 3600
        if self.up:
            return replace(self, up=up, since=at, ups=(*self.ups, hours)[-REMEMBERED:], down_since=None)
        return replace(self, up=up, since=at, downs=(*self.downs, hours)[-REMEMBERED:])

    def presumed(self, at: datetime) -> "Behaviour":
        """Return the behaviour of a pool that nobody has asked for a while, and that is presumed to be up again since
        `at`."""
        return self if self.up else replace(self.observe(True, at), down_since=self.since)

    def age(self, now: datetime) -> float:
        """Return hours that the present spell has lasted; 0 before the first look."""
        return _hours(self.since, now)

    def outage(self, now: datetime) -> float:
        """Return hours for which it has been down, also if it is presumed to be up again by now; 0 if it was seen to be
        up."""
        return _hours(self.down_since if self.up else self.since, now)


def _hours(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else (now - since).total_seconds() / 3600
