"""What the training process prints, on its way to the store. Metrics are sent by the trainer itself."""

from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_store import KeyTaken, Store, StoreError

from everspot_train.agent.actions import JobKey
from everspot_train.agent.threads import Schedule

SPACING = timedelta(seconds=5)
CHUNK_BYTES = 1024 * 1024
"""Of one object. A program that prints faster than a chunk each time lags behind and is caught up with at its end."""
FINAL_CHUNKS = 64
MOST_CHUNKS = 10_000
OUTPUT = "output.log"


class LogShipper:
    """Ships one ownership's output; its keys carry the epoch and are written once. Not thread-safe.

    What was not shipped because the store failed is shipped the next time: the file on disk is the buffer.
    """

    def __init__(self, store: Store, job: JobKey, run_dir: Path, clock: Clock) -> None:
        self._store = store
        self._job = job
        self._output = run_dir / OUTPUT
        self._clock = clock
        self._schedule = Schedule(SPACING, clock)
        self._offset = 0
        self._seq = 0

    def ship_if_due(self) -> None:
        """One chunk, if the last one is long enough ago. Raises `StoreError`."""
        if self._schedule.due():
            self._ship_chunk()

    def ship_rest(self) -> None:
        """All that is left, up to a bound. Raises `StoreError`."""
        for _ in range(FINAL_CHUNKS):
            if not self._ship_chunk():
                break

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
        self._append(data)
        self._offset += len(data)
        return True

    def _append(self, data: bytes) -> None:
        """Write behind what an earlier agent of this ownership wrote."""
        for _ in range(MOST_CHUNKS):
            self._seq += 1
            try:
                self._store.append_log(self._job.job_id, self._job.epoch, self._seq - 1, data)
            except KeyTaken:
                continue
            except StoreError:
                self._seq -= 1  # the same chunk again: it may have been written
                raise
            return
        raise KeyTaken(f"logs of job {self._job.job_id}, epoch {self._job.epoch}")
