"""Samples the utilization of one attempt, and writes it to the store in windows that grow with the attempt's age."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.jobs.utilization import (
    WINDOWS_PER_CHUNK,
    Utilization,
    UtilizationWindow,
    combine,
    merge_xids,
    window_length,
)
from everspot_core.jobs.utilization_limit import GpuUseWatch
from everspot_store import ChunkWriter, Store

from everspot_train.agent.actions import JobKey
from everspot_train.agent.threads import Background
from everspot_train.agent.utilization.counters import JobCounters, read_network
from everspot_train.agent.utilization.gpus import GpuReading, is_hardware_fault, open_gpus
from everspot_train.rundir import Status

SAMPLE_EVERY = timedelta(seconds=10)
"""Real time between two samples, the same as the heartbeat of an idle instance. It bounds the cost
(`bench/measure.py`). GPUs report the last second or less, so a minute has six readings."""
CONFIRM_TIMEOUT = timedelta(seconds=10)
"""The longest wait for the driver's answer. A sound GPU answers in milliseconds."""
RECENT = timedelta(minutes=1)
"""The span of the figures in the job's record, which is renewed about as often."""

_log = logging.getLogger(__name__)


class UtilizationSampler:
    """The utilization of the machine by one attempt.

    `sample` is called by one thread, and may hang with a broken GPU; `write` by another. Neither can end the job.

    Args:
        counters: reads the counters of the job's processes.
        status: the trainer's last report; None for a program without it.
        vcpus: processors that the job may use.
        gpus: the numbers of its GPUs.
        limit: judges the use of its GPUs; None without a limit.
        is_limited: whether the limit counts now. It does not while data and packages are prepared, without a GPU.
    """

    def __init__(
        self,
        store: Store,
        job: JobKey,
        clock: Clock,
        *,
        counters: Callable[[], JobCounters],
        status: Callable[[], Status | None],
        vcpus: int,
        gpus: Sequence[int],
        limit: GpuUseWatch | None = None,
        is_limited: Callable[[], bool] = lambda: True,
    ) -> None:
        self._job, self._clock = job, clock
        self._counters, self._status, self._vcpus = counters, status, vcpus
        self._gpu_numbers, self._limit, self._is_limited = tuple(gpus), limit, is_limited
        self._lock = threading.Lock()
        self._began = self._sampled_at = self._window_began = clock.monotonic()
        self._failed = False
        self._before: dict[str, float | None] = {}
        self._recent: deque[tuple[timedelta, Utilization]] = deque()
        self._window: list[Utilization] = []
        self._windows: list[UtilizationWindow] = []
        self._total = Utilization()
        self._pending: bytes | None = None
        self._chunks = ChunkWriter(store.utilization, job.job_id, job.epoch)

    @property
    def recent(self) -> Utilization | None:
        """The use in the last minute; None before the second sample."""
        with self._lock:
            spans = [span for _, span in self._recent]
        return combine(spans) if spans else None

    @property
    def total(self) -> Utilization | None:
        """The use in the whole attempt; None before the second sample."""
        with self._lock:
            return self._total if self._total.seconds else None

    @property
    def low_gpu_share(self) -> float | None:
        """The share of the time in which its GPUs computed, if it is below the limit; otherwise None."""
        with self._lock:
            return self._limit.low_share if self._limit is not None else None

    def confirm_gpu_fault(self) -> bool | None:
        """Return whether the driver confirms that one of the job's GPUs has failed; None without NVML. GPUs that do not
        answer within `CONFIRM_TIMEOUT` have failed."""
        answers = list[bool | None]()

        def query_driver() -> None:
            gpus = open_gpus(self._gpu_numbers)
            if gpus is None:
                answers.append(None)
                return
            with self._lock:
                xids = self._total.xids
            answers.append(any(map(is_hardware_fault, (*xids, *gpus.read_xids()))) or gpus.has_fault())

        end = self._clock.monotonic() + CONFIRM_TIMEOUT
        if not Background(query_driver).wait(lambda: self._clock.monotonic() >= end):
            return True
        return answers[0] if answers else None

    def sample(self) -> None:
        """Take a sample if it is due. After a failure, which is logged, no further samples are taken."""
        now = self._clock.monotonic()
        if self._failed or (self._before and now - self._sampled_at < SAMPLE_EVERY):
            return
        try:
            self._take(now)
        except Exception:
            _log.exception("job %s, epoch %d: its use of the machine is not measured any further", *self._job)
            self._failed = True

    def write(self, *, last: bool = False) -> None:
        """Write the finished windows if they make a chunk, or the `last`. Raises `StoreError`; then they stay."""
        with self._lock:
            if last:
                self._close_window(self._clock.monotonic())
            if self._pending is None and self._windows and (last or len(self._windows) >= WINDOWS_PER_CHUNK):
                self._pending = b"".join(window.to_json() + b"\n" for window in self._windows)
                self._windows.clear()
        if self._pending is not None:
            self._chunks.append(self._pending)
            self._pending = None

    def _take(self, now: timedelta) -> None:
        is_first, seconds = not self._before, (now - self._sampled_at).total_seconds()
        counters, network, status = self._counters(), read_network(), self._status()
        gpus = open_gpus(self._gpu_numbers)
        readings, xids = (gpus.read(), gpus.read_xids()) if gpus is not None else ([], [])
        growth = {
            name: self._growth(name, value)
            for name, value in {
                "cpu_seconds": counters.cpu_seconds,
                "read_bytes": counters.read_bytes,
                "written_bytes": counters.written_bytes,
                "io_wait_seconds": counters.io_wait_seconds,
                "received_bytes": network[0] if network is not None else None,
                "sent_bytes": network[1] if network is not None else None,
                "ecc_errors": _add([reading.ecc_errors for reading in readings]),
                "steps": status.loop_steps if status is not None else None,
                "loop_seconds": status.loop_seconds if status is not None else None,
                "data_wait_seconds": status.data_wait_seconds if status is not None else None,
            }.items()
        }
        self._sampled_at = now
        if is_first or seconds <= 0:
            self._window_began = now
            return
        span = Utilization(
            seconds=seconds,
            vcpus=self._vcpus,
            memory_gib=counters.memory_gib,
            xids=merge_xids(xids),
            **_gpu_figures(readings, seconds),
            **growth,
        )
        is_limited = self._limit is not None and self._is_limited()
        with self._lock:
            self._add(span, now, is_limited=is_limited)

    def _growth(self, name: str, value: float | None) -> float | None:
        """Return the growth of a counter since its last reading. None if the counter fell, because it restarted, or
        lost a process that nobody waited for."""
        self._before.setdefault(name, None)
        before = self._before[name]
        if value is not None:
            self._before[name] = value
        return value - before if value is not None and before is not None and value >= before else None

    def _add(self, span: Utilization, now: timedelta, *, is_limited: bool) -> None:
        self._total = combine([self._total, span])
        if self._limit is not None and is_limited:
            self._limit.add(span)
        self._recent.append((now, span))
        while now - self._recent[0][0] >= RECENT:
            self._recent.popleft()
        self._window.append(span)
        if now - self._window_began >= window_length(now - self._began):
            self._close_window(now)

    def _close_window(self, now: timedelta) -> None:
        if self._window:
            self._windows.append(UtilizationWindow(at=self._clock.now(), utilization=combine(self._window)))
            self._window.clear()
        self._window_began = now


def _gpu_figures(readings: Sequence[GpuReading], seconds: float) -> dict[str, float | None]:
    """Return the fields of the GPUs for a span that ends with these readings."""
    busy = [reading.busy for reading in readings if reading.busy is not None]
    watts = _add([reading.watts for reading in readings])
    return {
        "gpu_seconds": len(busy) * seconds if busy else None,
        "gpu_busy_seconds": sum(busy) * seconds if busy else None,
        "gpu_memory_gib": max((r.memory_gib for r in readings if r.memory_gib is not None), default=None),
        "gpu_memory_total_gib": min(
            (r.memory_total_gib for r in readings if r.memory_total_gib is not None), default=None
        ),
        "gpu_joules": watts * seconds if watts is not None else None,
        "gpu_celsius": max((r.celsius for r in readings if r.celsius is not None), default=None),
    }


def _add(values: Sequence[float | None]) -> float | None:
    """Return the sum of the known values; None if none is known."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
