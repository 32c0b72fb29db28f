"""Detects signs of life of a program without steps: one that has just begun, or does not report steps."""

from collections.abc import Callable
from datetime import timedelta

from everspot_core.clock import Clock

WINDOW = timedelta(minutes=1)
"""The real time over which the processor time is measured."""
LEAST_USE = 0.01
"""The fraction of one processor that counts as a sign of life. Imports, compilers and downloads use far more. Processes
that only wait for each other (a DataLoader's poll, torchrun's monitor, NCCL's watchdog) use less."""


class SignsOfLife:
    """The last sign of life of one program. Not thread-safe.

    Args:
        traces: returns a value that changes with the program's output or report.
        processor: returns the processor seconds of its processes. None, if they cannot be measured, counts as a sign of
            life.
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
        """Return the monotonic time of the last sign of life."""
        now, traces = self._clock.monotonic(), self._traces()
        if traces != self._last_traces:
            self._last_traces, self.last = traces, now
        if now - self._measured_at >= WINDOW:
            used, before = self._processor(), self._used
            least = LEAST_USE * (now - self._measured_at).total_seconds()
            if used is None or before is None or abs(used - before) >= least:  # falls when a process ends
                self.last = now
            self._measured_at, self._used = now, used
        return self.last
