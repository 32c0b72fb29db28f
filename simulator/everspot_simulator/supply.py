"""The capacity of a fleet's pools over time: how many instances each has, and when that changes."""

from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import numpy as np
from everspot_core.schedule.view import PoolKey

from everspot_simulator.trace import Trace
from everspot_simulator.workload import ALWAYS, Fleet

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment from which the hours of a workload count."""


class PoolSupply:
    """The capacity of each pool. A trace that has ended begins again."""

    def __init__(self, fleet: Fleet, traces: Mapping[str, Trace]) -> None:
        """`traces`: by the names that the fleet uses.

        Raises:
            KeyError: if one is missing.
        """
        self._trace_names = {
            key: offer.availability for key, offer in fleet.offers().items() if offer.availability != ALWAYS
        }
        self._tracks = {name: _Track(traces[name]) for name in sorted(set(self._trace_names.values()))}

    @property
    def keys(self) -> tuple[PoolKey, ...]:
        """The pools with a trace; all others always have capacity."""
        return tuple(self._trace_names)

    def count(self, key: PoolKey, now: datetime) -> int | None:
        """Return how many instances the pool has in all, held ones included; None if there is no limit."""
        name = self._trace_names.get(key)
        return None if name is None else self._tracks[name].at(now - BEGIN)

    def next_change(self, now: datetime) -> datetime | None:
        """Return the first moment after `now` at which any count changes; None if none ever does."""
        changes = [c for track in self._tracks.values() if (c := track.next_change(now - BEGIN)) is not None]
        return BEGIN + min(changes) if changes else None


class _Track:
    """A trace that repeats without end, read by the time since the beginning."""

    def __init__(self, trace: Trace) -> None:
        self._gap, self._counts = trace.gap, trace.available.tolist()
        # Each tick is compared with the one before it, the first with the last, so that the seam may be a change too.
        self._changes = np.flatnonzero(trace.available != np.roll(trace.available, 1)).tolist()

    def at(self, since: timedelta) -> int:
        count: int = self._counts[since // self._gap % len(self._counts)]
        return count

    def next_change(self, since: timedelta) -> timedelta | None:
        if not self._changes:
            return None
        tick, ticks = since // self._gap, len(self._counts)
        n = bisect_right(self._changes, tick % ticks)
        later = self._changes[n] if n < len(self._changes) else self._changes[0] + ticks
        ahead: int = later - tick % ticks
        return (tick + ahead) * self._gap
