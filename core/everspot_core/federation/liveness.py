"""Whether a cluster's schedulers live, and whether its clock is right, by the heartbeats that another cluster reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

SILENT = timedelta(minutes=5)
"""Real time after which a scheduler without a heartbeat is no more. It writes one every 20 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """What one reader has made of the heartbeats. Moments of `timedelta` are by the reader's monotonic clock.

    `beats`: the newest heartbeat of each scheduler, by their clock; `newest`: that which changed last, None: there is
    none. `changed_on`, `changed_at`: when the reader saw it change; None: not yet. `apart`: market time by which their
    clock is ahead of the reader's, below zero if it is behind; None: they are no lease apart, or nobody knows.
    """

    beats: Mapping[str, datetime]
    newest: datetime | None
    looked_at: timedelta
    first_at: timedelta
    changed_on: datetime | None
    changed_at: timedelta | None
    apart: timedelta | None

    def alive(self, lag: timedelta) -> bool:
        """Whether a scheduler there lives. A heartbeat that changes says so, whatever the two clocks say; until two
        looks can be compared, its age does. `lag`: that age at this look, in real time."""
        if self.newest is None:
            return False
        if self.changed_at is not None:
            return self.looked_at - self.changed_at < SILENT
        return lag < SILENT and self.looked_at - self.first_at < SILENT

    @property
    def silent_since(self) -> datetime | None:
        """The last sign of life: when the reader saw it, or else what the heartbeat says; None: there was none."""
        return self.changed_on or self.newest


def update_liveness(
    before: Liveness | None,
    beats: Mapping[str, datetime],
    now: datetime,
    at: timedelta,
    lease: timedelta,
    to_real: Callable[[timedelta], timedelta],
) -> Liveness:
    """What follows from one more look at the heartbeats.

    Args:
        before: the last look's; None: this is the first.
        beats: when each scheduler last beat, by its own clock.
        now: market time. `at`: by the reader's monotonic clock.
        lease: clocks that are further apart than this, in real time, are told of.
        to_real: how long a span of market time takes.
    """
    moved = {} if before is None else {name: beat for name, beat in beats.items() if before.beats.get(name) != beat}
    if moved:
        newest: datetime | None = max(moved.values())
    elif before is not None and before.newest in beats.values():
        newest = before.newest
    else:
        newest = max(beats.values(), default=None)
    # A heartbeat that changed was written since the last look; so it says what their clock showed at most so long ago.
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
