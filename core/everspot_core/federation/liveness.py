"""Judges by the heartbeats of another cluster whether its schedulers are alive and its clock is right."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

SILENT = timedelta(minutes=5)
"""Real time without a heartbeat after which a scheduler counts as dead. It writes one every 20 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """The state of another cluster's schedulers, as one reader knows it from their heartbeats.

    Times of type `timedelta` are by the reader's monotonic clock.

    Attributes:
        beats: the newest heartbeat of each scheduler, by their clock.
        newest: the heartbeat that changed last; None if there is no heartbeat.
        looked_at: when the reader last read the heartbeats.
        first_at: when the reader first read them.
        changed_on: market time at which the reader last saw a changed heartbeat; None: not yet.
        changed_at: the same moment by the monotonic clock.
        apart: how far their clock is ahead of the reader's, market time, negative if it is behind; None if they are
            less than a lease apart, or if the difference is unknown.
    """

    beats: Mapping[str, datetime]
    newest: datetime | None
    looked_at: timedelta
    first_at: timedelta
    changed_on: datetime | None
    changed_at: timedelta | None
    apart: timedelta | None

    def alive(self, lag: timedelta) -> bool:
        """Return whether a scheduler there is alive.

        A changed heartbeat shows it, whatever the two clocks say. Until two readings can be compared, the age of the
        heartbeat decides. `lag`: that age at this reading, in real time.
        """
        if self.newest is None:
            return False
        if self.changed_at is not None:
            return self.looked_at - self.changed_at < SILENT
        return lag < SILENT and self.looked_at - self.first_at < SILENT

    @property
    def silent_since(self) -> datetime | None:
        """The last sign of life: when the reader last saw a changed heartbeat, otherwise the time of the newest
        heartbeat, or None."""
        return self.changed_on or self.newest


def update_liveness(
    before: Liveness | None,
    beats: Mapping[str, datetime],
    now: datetime,
    at: timedelta,
    lease: timedelta,
    to_real: Callable[[timedelta], timedelta],
) -> Liveness:
    """Return the state after one more reading of the heartbeats.

    Args:
        before: the state after the last reading; None before the first.
        beats: when each scheduler last wrote a heartbeat, by its own clock.
        now: market time.
        at: the reader's monotonic clock.
        lease: clocks that are further apart than this, in real time, are reported.
        to_real: converts a span of market time to real time.
    """
    moved = {} if before is None else {name: beat for name, beat in beats.items() if before.beats.get(name) != beat}
    if moved:
        newest: datetime | None = max(moved.values())
    elif before is not None and before.newest in beats.values():
        newest = before.newest
    else:
        newest = max(beats.values(), default=None)
    # A changed heartbeat was written after the last reading, so its time is their clock's, at most that long ago.
    gap = at - before.looked_at if before is not None else timedelta(0)
    apart = before.apart if before is not None else None
    if newest is not None and (moved or before is None):
        ahead = to_real(newest - now)
        wrong = ahead > lease or (bool(moved) and -ahead - gap > lease)
        apart = newest - now if wrong else None
    return Liveness(
        beats=dict(beats),
        newest=newest,
        looked_at=at,
        first_at=before.first_at if before is not None else at,
        changed_on=now if moved else before.changed_on if before is not None else None,
        changed_at=at if moved else before.changed_at if before is not None else None,
        apart=apart,
    )
