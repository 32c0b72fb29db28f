"""Detects that the GPUs of a job computed less than the `limits` of its job file demand."""

from collections import deque
from datetime import timedelta

from everspot_core.jobs.utilization import Utilization


class GpuUseWatch:
    """The share of the time in which a job's GPUs computed, over a span that ends now.

    It is the mean of the whole span, so that an evaluation or a checkpoint within it does not count as idle time, and a
    few busy seconds do not hide an idle half hour. Samples without a GPU figure do not count.

    Args:
        below: the share of time, from 0 to 1, below which the use is too low.
        span: real time over which the use is judged. Nothing is judged before this much time was measured.
    """

    def __init__(self, below: float, span: timedelta) -> None:
        self._below, self._span = below, span.total_seconds()
        self._samples: deque[tuple[float, float, float]] = deque()
        self._seconds = self._gpu_seconds = self._busy_seconds = 0.0

    def add(self, sample: Utilization) -> None:
        """Add the utilization since the last sample."""
        if not sample.gpu_seconds or sample.gpu_busy_seconds is None:
            return
        self._count((sample.seconds, sample.gpu_seconds, sample.gpu_busy_seconds), 1)
        self._samples.append((sample.seconds, sample.gpu_seconds, sample.gpu_busy_seconds))
        while self._seconds - self._samples[0][0] >= self._span:
            self._count(self._samples.popleft(), -1)

    @property
    def low_share(self) -> float | None:
        """The share of the span in which the GPUs computed, if it is below the limit; otherwise None."""
        if self._seconds < self._span or not self._gpu_seconds:
            return None
        share = min(1.0, max(0.0, self._busy_seconds / self._gpu_seconds))
        return share if share < self._below else None

    def _count(self, sample: tuple[float, float, float], sign: int) -> None:
        self._seconds += sign * sample[0]
        self._gpu_seconds += sign * sample[1]
        self._busy_seconds += sign * sample[2]
