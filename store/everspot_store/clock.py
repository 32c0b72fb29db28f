"""Two clocks: the machine's clock, whose market time the local cloud may speed up, and a manual clock for tests."""

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

ENVIRONMENT = "EVERSPOT_CLOCK"


class SystemClock:
    """The machine's clock. `EVERSPOT_CLOCK="<scale>@<epoch seconds>"` makes market time run `scale` times faster
    since that moment; unset, market time is real time.

    Raises:
        ValueError: if the variable is set and cannot be read.
    """

    def __init__(self, scale: float = 1.0, epoch: float = 0.0) -> None:
        if not scale > 0:
            raise ValueError(f"the market's time scale must be above zero, not {scale}")
        self.scale = scale
        self.epoch = epoch

    @classmethod
    def from_environment(cls) -> "SystemClock":
        """Return the clock that `EVERSPOT_CLOCK` describes."""
        text = os.environ.get(ENVIRONMENT, "")
        if not text:
            return cls()
        scale, _, epoch = text.partition("@")
        try:
            numbers = float(scale), float(epoch)
        except ValueError as error:
            raise ValueError(f'{ENVIRONMENT}={text!r} is not "<scale>@<epoch seconds>"') from error
        try:
            return cls(*numbers)
        except ValueError as error:
            raise ValueError(f"{ENVIRONMENT}={text!r}: {error}") from error

    def now(self) -> datetime:
        """Return the market's time, UTC."""
        real = time.time()
        market = real if self.scale == 1.0 else self.epoch + (real - self.epoch) * self.scale
        return datetime.fromtimestamp(market, UTC)

    def monotonic(self) -> timedelta:
        """Real time by CLOCK_MONOTONIC: the same for all processes of this machine."""
        return timedelta(seconds=time.clock_gettime(time.CLOCK_MONOTONIC))

    def sleep(self, duration: timedelta) -> None:
        """Wait for a real duration; not at all if it is negative."""
        if duration > timedelta(0):
            time.sleep(duration.total_seconds())

    def to_real(self, duration: timedelta) -> timedelta:
        """Return how long a span of market time takes on this machine."""
        return duration / self.scale

    def to_market(self, duration: timedelta) -> timedelta:
        """Return how much market time passes in a span of this machine's time."""
        return duration * self.scale


class ManualClock:
    """A clock that does not move until it is advanced. `sleep` advances it, so that nothing ever waits.

    `on_sleep` is called with each slept duration, so that a test can let others act during a wait.
    """

    def __init__(
        self,
        start: datetime = datetime(2026, 1, 1, tzinfo=UTC),
        *,
        scale: float = 1.0,
        on_sleep: Callable[[timedelta], None] | None = None,
    ) -> None:
        self._start = start
        self._elapsed = timedelta(0)
        self._lock = threading.Lock()
        self.scale = scale
        self.on_sleep = on_sleep
        self.slept: list[timedelta] = []

    def now(self) -> datetime:
        """Return the market's time, UTC."""
        return self._start + self._elapsed * self.scale

    def monotonic(self) -> timedelta:
        """Real time since the clock was made."""
        return self._elapsed

    def advance(self, duration: timedelta) -> None:
        """Let real time go on."""
        with self._lock:
            self._elapsed += max(duration, timedelta(0))

    def sleep(self, duration: timedelta) -> None:
        """Advance real time by `duration`, and remember it in `slept`."""
        self.slept.append(duration)
        self.advance(duration)
        if self.on_sleep is not None:
            self.on_sleep(duration)

    def to_real(self, duration: timedelta) -> timedelta:
        """Return how long a span of market time takes on this clock."""
        return duration / self.scale

    def to_market(self, duration: timedelta) -> timedelta:
        """Return how much market time passes in a span of this clock's real time."""
        return duration * self.scale
