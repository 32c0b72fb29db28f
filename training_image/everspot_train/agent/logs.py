"""What the training process says, on its way to the store: its output as chunks, its metrics as lines."""

import json
import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_store import KeyTaken, Store

from everspot_train.agent.decide import JobKey
from everspot_train.agent.threads import Schedule
from everspot_train.rundir import Status

SPACING = timedelta(seconds=5)
CHUNK_BYTES = 1024 * 1024
"""Of one object. A program that prints faster than a chunk each time lags behind and is caught up with at its end."""
FINAL_CHUNKS = 64
MOST_CHUNKS = 10_000
OUTPUT = "output.log"


class LogShipper:
    """Ships one ownership's output and metrics; its keys carry the epoch and are written once. Not thread-safe.

    What was not shipped because the store failed is shipped the next time: the file on disk is the buffer.
    """

    def __init__(self, store: Store, job: JobKey, run_dir: Path, clock: Clock) -> None:
        self._store = store
        self._job = job
        self._output = run_dir / OUTPUT
        self._clock = clock
        self._schedule = Schedule(SPACING, clock)
        self._offset = 0
        self._log_seq = 0
        self._metric_lines: list[str] = []
        self._metric_seq = 0
        self._last_step: int | None = None

    def note(self, status: Status | None) -> None:
        """Remember the metrics of a step that is new."""
        if status is None or status.step == self._last_step or not status.metrics:
            return
        self._last_step = status.step
        finite = {name: value for name, value in status.metrics.items() if math.isfinite(value)}
        line = {"at": self._clock.now().isoformat(), "step": status.step, **finite}
        self._metric_lines.append(json.dumps(line))

    def ship_if_due(self) -> None:
        """One chunk of each, if the last ones are long enough ago. Raises `StoreError`."""
        if self._schedule.due():
            self._ship_chunk()
            self._ship_metrics()

    def ship_rest(self) -> None:
        """All that is left, up to a bound. Raises `StoreError`."""
        for _ in range(FINAL_CHUNKS):
            if not self._ship_chunk():
                break
        self._ship_metrics()

    def tail(self, limit: int) -> str:
        """The last `limit` bytes of the output, as text."""
        try:
            with self._output.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - limit))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _ship_chunk(self) -> bool:
        try:
            with self._output.open("rb") as file:
                file.seek(self._offset)
                data = file.read(CHUNK_BYTES)
        except FileNotFoundError:
            return False
        if not data:
            return False
        self._log_seq = self._append(self._store.append_log, self._log_seq, data)
        self._offset += len(data)
        return True

    def _ship_metrics(self) -> None:
        if not self._metric_lines:
            return
        count = len(self._metric_lines)
        data = "".join(line + "\n" for line in self._metric_lines[:count]).encode()
        self._metric_seq = self._append(self._store.append_metrics, self._metric_seq, data)
        del self._metric_lines[:count]

    def _append(self, append: Callable[[str, int, int, bytes], None], seq: int, data: bytes) -> int:
        """Write behind what an earlier agent of this ownership wrote; the next number."""
        for number in range(seq, seq + MOST_CHUNKS):
            try:
                append(self._job.job_id, self._job.epoch, number, data)
            except KeyTaken:
                continue
            return number + 1
        raise KeyTaken(f"logs of job {self._job.job_id}, epoch {self._job.epoch}")
