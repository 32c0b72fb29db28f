"""How much longer the first step of a process takes than the next one: what a fresh process pays once more."""

from datetime import timedelta

from everspot_core.clock import Clock


class Warmup:
    """Times the first two steps, as the loop sees them: a GPU is not waited for. What lies between two steps, such as a
    checkpoint, does not count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: timedelta | None = None
        self._lengths: list[timedelta] = []

    def begins(self) -> None:
        """A step begins."""
        if not self.known:
            self._begun = self._clock.monotonic()

    def ended(self) -> bool:
        """A step has ended, if one had begun. True: now both are known, which is said once."""
        if self._begun is None:
            return False
        self._lengths.append(self._clock.monotonic() - self._begun)
        self._begun = None
        return self.known

    @property
    def known(self) -> bool:
        """Whether both have been timed."""
        return len(self._lengths) == 2

    def seconds(self) -> tuple[float, float]:
        """What the first step and the one behind it took, once they are known."""
        first, following = self._lengths
        return round(first.total_seconds(), 3), round(following.total_seconds(), 3)
