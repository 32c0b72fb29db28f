"""Measures by how much the first step of a process is longer than the second: the cost of a fresh process."""

from datetime import timedelta

from everspot_core.clock import Clock


class Warmup:
    """Times the first two steps as the loop sees them, without waiting for a GPU. The time between two steps, such as
    for a checkpoint, does not count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: timedelta | None = None
        self._lengths: list[timedelta] = []

    def begins(self) -> None:
        """Note that a step begins."""
        if not self.is_timed:
            self._begun = self._clock.monotonic()

    def ended(self) -> bool:
        """Note that a step has ended, if one had begun. Return True once, when both times are known."""
        if self._begun is None:
            return False
        self._lengths.append(self._clock.monotonic() - self._begun)
        self._begun = None
        return self.is_timed

    @property
    def is_timed(self) -> bool:
        """Whether both have been timed."""
        return len(self._lengths) == 2

    def seconds(self) -> tuple[float, float]:
        """Return the seconds of the first and of the second step, once both are known."""
        first, following = self._lengths
        return round(first.total_seconds(), 3), round(following.total_seconds(), 3)
