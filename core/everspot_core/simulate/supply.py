"""The capacity that a fleet's clouds have, over time: how many instances of each pool, and when that changes."""

from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import numpy as np

from everspot_core.schedule.view import PoolKey
from everspot_core.simulate.trace import Trace
from everspot_core.simulate.workload import ALWAYS, Fleet

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment from which the hours of a workload count."""


class PoolSupply:
    """Pools by key. A trace that has ended begins anew."""

    def __init__(self, fleet: Fleet, traces: Mapping[str, Trace]) -> None:
        """`traces`: by the names that the fleet uses.

        Raises:
            KeyError: if one is missing.
        """
        self._named = {key: offer.availability for key, offer in fleet.offers().items() if offer.availability != ALWAYS}
        self._tracks = {name: _Track(traces[name]) for name in sorted(set(self._named.values()))}

    @property
    def keys(self) -> tuple[PoolKey, ...]:
        """The pools whose capacity is not always there."""
        return tuple(self._named)

    def count(self, key: PoolKey, now: datetime) -> int | None:
        """How many instances there are in all, held ones included; None: as many as are asked for."""
        name = self._named.get(key)
        return None if name is None else self._tracks[name].at(now - BEGIN)

    def next_change(self, now: datetime) -> datetime | None:
        """The first moment after now at which any count changes; None: never."""
        changes = [c for track in self._tracks.values() if (c := track.next_change(now - BEGIN)) is not None]
        return BEGIN + min(changes) if changes else None


class _Track:
    """A trace without end, read by the time since the beginning."""

    def __init__(self, trace: Trace) -> None:
        self._gap, self._counts = trace.gap, trace.available.tolist()
        # Compared with the tick before, the last one for the first: so the seam is a change like others.
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
