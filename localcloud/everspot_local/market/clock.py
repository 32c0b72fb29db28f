"""Market time, which runs faster than this machine's time by a factor.

It leaves the machine's time alone. Services use the machine's time for the writes of objects and messages and for the
expiry of credentials, because real programs wait for these in real time.
"""

import time
from datetime import UTC, datetime, timedelta

from everspot_core.documents import format_duration

CLOCK_VARIABLE = "EVERSPOT_CLOCK"
TOGETHER = 5
"""Real seconds that two clocks may differ by: half of the shortest lease."""


class MarketClock:
    """Market time in whole seconds, so that every record of a moment has the same value.

    Args:
        scale: market seconds in a real second.
        epoch: the real moment, in seconds since 1970, at which market time and real time are equal. Now by default.
    """

    def __init__(self, scale: float = 1.0, epoch: int | None = None) -> None:
        if scale <= 0:
            raise ValueError(f"the time scale must be above 0, not {scale}")
        self.scale = scale
        self._epoch = int(time.time()) if epoch is None else epoch

    @property
    def epoch(self) -> datetime:
        """Return the market's first moment."""
        return datetime.fromtimestamp(self._epoch, UTC)

    @property
    def variable(self) -> str:
        """Return the value of `EVERSPOT_CLOCK`, which sets the time of the machines' programs."""
        return f"{self.scale:g}@{self._epoch}"

    def now(self) -> datetime:
        """Return market time, rounded down to the second."""
        return datetime.fromtimestamp(int(self._exact()), UTC)

    def exact(self) -> float:
        """Return market time in seconds since 1970, with fractions."""
        return self._exact()

    def real_until(self, moment: datetime) -> float:
        """Return the real seconds until market time reaches a moment; 0 if it has passed."""
        return max(0.0, (moment.timestamp() - self._exact()) / self.scale)

    def to_real(self, duration: timedelta) -> timedelta:
        """Return how long a span of market time takes on this machine."""
        return duration / self.scale

    def _exact(self) -> float:
        return self._epoch + (time.time() - self._epoch) * self.scale


def read(variable: str) -> tuple[float, int]:
    """Read the scale and the epoch of a clock from a value of `MarketClock.variable`."""
    scale, _, epoch = variable.partition("@")
    return float(scale), int(epoch)


def apart(here: str, other_variable: str) -> str:
    """Describe how two clocks differ, by their variables; empty if they keep the same time to `TOGETHER`."""
    (scale, epoch), (other, begun) = read(here), read(other_variable)
    if scale != other:
        return f"time runs {scale:g} times as fast as this machine's here, and {other:g} times there"
    if abs((epoch - begun) * (scale - 1)) <= TOGETHER * scale:
        return ""
    off = timedelta(seconds=round(abs(epoch - begun) * abs(scale - 1)))
    return f"the market time here is {format_duration(off)} {'behind' if epoch > begun else 'ahead of'} that there"


def stamp(moment: datetime) -> str:
    """Write a time as the clouds do: `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
