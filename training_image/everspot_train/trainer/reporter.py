"""Reports the run's progress to the agent (status.json) and its metrics to the store."""

import logging
import threading
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from everspot_core.clock import Clock
from everspot_core.jobs.reported_values import update_metrics
from everspot_store import Store, StoreError

from everspot_train.metrics_buffer import MetricsBuffer
from everspot_train.run_tracker import RunTracker
from everspot_train.rundir import RunContext, RunDir, Status, restrict_metrics
from everspot_train.trainer.environment import gpu_memory_gib
from everspot_train.trainer.loop_timing import LoopTiming

log = logging.getLogger("everspot.trainer")

_STATUS_EVERY = timedelta(seconds=0.5)
_CHUNK_EVERY = timedelta(minutes=5)  # the newest are in the status, which the agent reads at each renewal
_RATE_WINDOW = timedelta(seconds=15)


class Reporter:
    """Writes status.json immediately when the phase changes, twice a second otherwise, and metrics in chunks."""

    def __init__(self, rundir: RunDir, store: Store, context: RunContext, clock: Clock) -> None:
        self._rundir, self._clock = rundir, clock
        self._lock = threading.RLock()
        self._status = Status()
        self._counts: Counter[str] = Counter()
        stop = context.submission.spec.stop
        self._always_recorded = {"loss"} | ({stop.metric} if stop is not None else set())
        self._reported_left_out = False
        self._marks: deque[tuple[timedelta, int]] = deque()
        self._written = self._chunked = clock.monotonic()
        self._metrics = MetricsBuffer(store, context.job_id, context.epoch, clock)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="everspot-reporter")
        self._flight: Future[None] | None = None
        self._write_failed = False
        self.tracker = RunTracker.from_context(context, clock)
        self.timing: LoopTiming | None = None
        """Of the loop; None before it begins."""

    def update(self, **fields: Any) -> None:
        """Change fields of the status and write it now. A failure is only logged."""
        with self._lock:
            self._status = self._status.model_copy(update=fields)
            self._write()

    def progress(self, step: int, metrics: dict[str, float]) -> None:
        """Report that the run is at `step`. Cheap: most calls write nothing. `metrics` are recorded when one does."""
        now = self._clock.monotonic()
        with self._lock:
            self._status = self._status.model_copy(update={"step": step})
            if now - self._written < _STATUS_EVERY:
                return
            self._mark(now, step)
            self.log(step, metrics)
            self._write()
        if (self._metrics.is_filling or now - self._chunked >= _CHUNK_EVERY) and (
            self._flight is None or self._flight.done()
        ):
            self._chunked = now
            self._flight = self._pool.submit(self._send)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Record metrics of `step`. Numbers that are not finite go into the store's chunks as null only."""
        if self.tracker is not None:
            self.tracker.add(step, metrics)
        with self._lock:
            self._status = self._status.model_copy(update={"metrics": update_metrics(self._status.metrics, metrics)})
            self._counts.update(metrics.keys())
            self._metrics.add(step, metrics)

    def close(self) -> None:
        """Send the metrics that are left. A failure is only logged, since metrics must not end a run."""
        self._pool.shutdown(wait=True)
        self._send()

    def _mark(self, now: timedelta, step: int) -> None:
        self._marks.append((now, step))
        while now - self._marks[0][0] > _RATE_WINDOW:
            self._marks.popleft()
        since, first = self._marks[0]
        elapsed = (now - since).total_seconds()
        if elapsed > 0:
            self._status = self._status.model_copy(update={"steps_per_second": (step - first) / elapsed})

    def _write(self) -> None:
        self._written = self._clock.monotonic()
        self._status = self._status.model_copy(update={"gpu_memory_gib": gpu_memory_gib(), **self._times()})
        try:
            self._rundir.write(self._status.model_copy(update={"metrics": self._recorded_metrics()}))
        except OSError as error:  # such as a full disk; the next write has these fields, too
            if not self._write_failed:
                log.warning("the agent does not hear of step %s, training goes on: %s", self._status.step, error)
            self._write_failed = True
        else:
            self._write_failed = False

    def _recorded_metrics(self) -> dict[str, float]:
        """Return the metrics for the job's record. The first time that metrics are left out, log one of them."""
        metrics = self._status.metrics
        recorded = restrict_metrics(metrics, dict(self._counts) | dict.fromkeys(self._always_recorded, 0))
        if len(recorded) < len(metrics) and not self._reported_left_out:
            self._reported_left_out = True
            name = next(name for name in metrics if name not in recorded)
            log.warning("the job's record leaves out the metric %.100s, and perhaps further ones", name)
        return recorded

    def _times(self) -> dict[str, float]:
        timing = self.timing
        if timing is None or not timing.steps:
            return {}
        return {
            "loop_steps": timing.steps,
            "loop_seconds": timing.loop_seconds,
            "data_wait_seconds": timing.wait_seconds,
        }

    def _send(self) -> None:
        """Write the waiting metrics. A failure of the store is only logged."""
        try:
            self._metrics.write()
        except StoreError as error:
            log.warning("metrics wait for the store: %s", error)
