"""The passing of time on the cloud: market time runs faster than this machine's by a factor.

It does not touch the time of this machine, by which services tell when an object or a message was written and when
credentials expire: those stay real, since the waits of real programs on them are real.
"""

import time
from datetime import UTC, datetime, timedelta

CLOCK_VARIABLE = "EVERSPOT_CLOCK"


class MarketClock:
    """Market time on whole seconds, so that every place that states a moment states the same one.

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
        """The market's first moment."""
        return datetime.fromtimestamp(self._epoch, UTC)

    @property
    def variable(self) -> str:
        """What programs of the machines read from `EVERSPOT_CLOCK` to keep the same time."""
        return f"{self.scale:g}@{self._epoch}"

    def now(self) -> datetime:
        """Market time, cut to the second."""
        return datetime.fromtimestamp(int(self._exact()), UTC)

    def exact(self) -> float:
        """Market time in seconds since 1970, with fractions."""
        return self._exact()

    def real_until(self, moment: datetime) -> float:
        """Real seconds until market time reaches a moment; 0 if it has passed."""
        return max(0.0, (moment.timestamp() - self._exact()) / self.scale)

    def to_real(self, duration: timedelta) -> timedelta:
        """How long a span of market time takes on this machine."""
        return duration / self.scale

    def _exact(self) -> float:
        return self._epoch + (time.time() - self._epoch) * self.scale


def stamp(moment: datetime) -> str:
    """A moment as the clouds write it: `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
