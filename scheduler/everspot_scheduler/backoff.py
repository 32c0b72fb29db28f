"""Spaces calls: at least an interval apart, and further apart while the other side throttles them."""

from datetime import timedelta

_SLOWEST = 16
QUIET_TICKS = 12
"""After this many ticks without a change but heartbeats, the next ticks are QUIET_FACTOR times as far apart."""
IDLE_TICKS = 24
"""After this many consecutive ticks without jobs and agents, the next ticks are IDLE_FACTOR times as far apart. In an
idle cluster the ticks' listings are most of the store's cost."""
IDLE_FACTOR = 36


class Backoff:
    """Decides when the next call is due, by the monotonic clock. Throttling doubles the interval, success restores
    it."""

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval
        self._factor = 1
        self._last: timedelta | None = None

    def due(self, now: timedelta, *, urgent: bool = False) -> bool:
        """Return whether to call now. An urgent call may come after a fifth of the interval, unless we were
        throttled."""
        if self._last is None:
            return True
        interval = self._interval * self._factor
        return now - self._last >= (interval / 5 if urgent and self._factor == 1 else interval)

    def take(self, now: timedelta) -> bool:
        """Return whether to call now. If so, that call is noted."""
        if not self.due(now):
            return False
        self.called(now)
        return True

    def called(self, now: timedelta) -> None:
        """Note that a call begins."""
        self._last = now

    def went_well(self) -> None:
        """Note that the call was answered."""
        self._factor = 1

    def throttled(self) -> None:
        """Note that the call was throttled, or got no answer."""
        self._factor = min(self._factor * 2, _SLOWEST)
