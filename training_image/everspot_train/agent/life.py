"""Looks for signs of life of a program that makes no steps: one that has just begun, or does not report them."""

from collections.abc import Callable
from datetime import timedelta

from everspot_core.clock import Clock

WINDOW = timedelta(minutes=1)
"""The real time over which the use of the processor is measured."""
LEAST_USE = 0.01
"""The part of one processor that is a sign of life. Imports, compilers and downloads use far more; processes that only
wait for each other (a DataLoader's poll, torchrun's watch, NCCL's watchdog) use less."""


class SignsOfLife:
    """The last sign of life of one program. Not thread-safe.

    Args:
        traces: what the program leaves behind (output, report), as values that differ when there is more.
        processor: seconds of processor time that its processes have used; None if that cannot be measured, which
            counts as life.
    """

    def __init__(self, traces: Callable[[], object], processor: Callable[[], float | None], clock: Clock) -> None:
        self._traces = traces
        self._processor = processor
        self._clock = clock
        self.last = clock.monotonic()
        self._last_traces = traces()
        self._measured_at = self.last
        self._used = processor()

    def look(self) -> timedelta:
        """Return the monotonic moment of the last sign of life."""
        now, traces = self._clock.monotonic(), self._traces()
        if traces != self._last_traces:
            self._last_traces, self.last = traces, now
        if now - self._measured_at >= WINDOW:
            used, before = self._processor(), self._used
            least = LEAST_USE * (now - self._measured_at).total_seconds()
            if used is None or before is None or abs(used - before) >= least:  # less: a process of it has ended
                self.last = now
            self._measured_at, self._used = now, used
        return self.last
