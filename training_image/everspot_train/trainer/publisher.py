"""Publishes checkpoints, one at a time, beside the training loop or before everything else."""

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from everspot_core.checkpoint import Checkpoint, Part
from everspot_core.clock import Clock
from everspot_store import Checkpoints, Fenced, StoreError, StoreUnavailable, Transfer, TransferCancelled
from pydantic import JsonValue

from everspot_train.trainer.deadlines import gives_way

log = logging.getLogger("everspot.trainer")

_ATTEMPTS = 6
_PAUSE = timedelta(seconds=1)
_LOOK = timedelta(milliseconds=200)


@dataclass(frozen=True)
class Snapshot:
    """A state on local disk that is to be published.

    Attributes:
        step: optimizer steps done.
        directory: with the files.
        trigger: why it was made.
        began: the monotonic time at which the snapshot began.
        info: what is stored with it.
        unchanged: parts of the checkpoint before it that belong to it, too.
        again: publish it also if its step is published already.
    """

    step: int
    directory: Path
    trigger: str
    began: timedelta
    info: dict[str, JsonValue] = field(default_factory=dict)
    unchanged: dict[str, Part] = field(default_factory=dict)
    again: bool = False

    @property
    def files(self) -> dict[str, Path]:
        """The parts by name."""
        return {path.name: path for path in sorted(self.directory.iterdir())}

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(path.stat().st_size for path in self.files.values())


class Publisher:
    """Uploads snapshots under the owner's epoch.

    Args:
        checkpoints: the job's checkpoints, opened for this owner's epoch and guarded by its lease.
        keep: the number of checkpoints that stay.
        on_published: called in the publishing thread with each durable checkpoint and its snapshot.
        suspended: whether the lease has ended because the store is silent. Then a publication waits for as long as
            the agent lets the process live.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        keep: int,
        clock: Clock,
        on_published: Callable[[Checkpoint, Snapshot], None],
        suspended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._checkpoints, self._keep = checkpoints, keep
        self._clock, self._on_published, self._suspended = clock, on_published, suspended
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="everspot-publisher")
        self._flight: Future[None] | None = None
        self._flying: Snapshot | None = None
        self._transfer: Transfer | None = None
        self._rate: float | None = None
        self.durable_step: int | None = None

    @property
    def busy(self) -> bool:
        """Whether a publication is under way."""
        return self._flight is not None and not self._flight.done()

    def start(self, snapshot: Snapshot) -> None:
        """Publish beside the training loop. To be called only when not `busy`."""
        self.settle()
        self._flying, self._transfer = snapshot, Transfer(self._clock)
        self._flight = self._pool.submit(self._publish, snapshot, self._transfer)

    def is_flying(self, step: int) -> bool:
        """Whether the snapshot of `step` is being published."""
        return self.busy and self._flying is not None and self._flying.step == step

    def settle(self) -> None:
        """Wait for a publication under way. If the store is out of reach, this only warns, since the next one may
        succeed.

        Raises:
            Fenced: if the job has another owner.
            StoreError: for an error that does not pass by itself.
        """
        flight, self._flight = self._flight, None
        if flight is None:
            return
        try:
            flight.result()
        except TransferCancelled:
            log.warning("the upload of an older checkpoint was cancelled: a newer one has to be durable soon")
        except StoreUnavailable as error:
            log.warning("a checkpoint could not be published, training goes on: %s", error)
        if self._flying is not None:  # a store that is away for long must not fill the disk
            shutil.rmtree(self._flying.directory, ignore_errors=True)

    def collect(self) -> None:
        """Like `settle`, but only if the publication has ended; it never waits."""
        if self._flight is not None and self._flight.done():
            self.settle()

    def publish(self, snapshot: Snapshot, deadline: timedelta | None) -> None:
        """Publish, and return when the snapshot is durable.

        It waits for a publication under way, or cancels it if this one would otherwise miss its `deadline` (see
        `gives_way`). While the store cannot be reached, it tries again until `deadline` (monotonic), or without one a
        bounded number of times.

        Raises:
            Fenced: if the job has another owner.
            StoreUnavailable: if the store stayed out of reach.
        """
        if deadline is not None:
            self._make_way(snapshot.size, deadline)
        self.settle()
        attempt = 1
        while True:
            try:
                return self._publish(snapshot, Transfer(self._clock), urgent=deadline is not None)
            except StoreUnavailable as error:
                if deadline is not None:
                    late = self._clock.monotonic() + _PAUSE >= deadline
                else:
                    late = attempt >= _ATTEMPTS and not self._suspended()
                if late:
                    raise
                log.warning("step %d is not durable yet (attempt %d): %s", snapshot.step, attempt, error)
            attempt += 1
            self._clock.sleep(_PAUSE)

    def close(self) -> None:
        """Wait for the publishing thread to end."""
        self._pool.shutdown(wait=True)

    def _make_way(self, size: int, deadline: timedelta) -> None:
        """Wait for the publication under way for as long as the newer snapshot of `size` bytes can afford it; else
        cancel it."""
        while self.busy and self._flight is not None and self._transfer is not None:
            transfer = self._transfer
            seconds = (deadline - self._clock.monotonic()).total_seconds()
            if gives_way(transfer.remaining_bytes, size, transfer.rate or self._rate, seconds):
                transfer.cancel()
                return
            wait([self._flight], timeout=_LOOK.total_seconds())

    def _publish(self, snapshot: Snapshot, transfer: Transfer, *, urgent: bool = False) -> None:
        """Publish once. `urgent`: leave the deletion of older parts to the next publication."""
        published = self._checkpoints.publish(
            snapshot.step,
            snapshot.files,
            snapshot.info,
            self._keep,
            snapshot.unchanged,
            transfer=transfer,
            again=snapshot.again,
        )
        self._rate = transfer.rate or self._rate
        self.durable_step = snapshot.step
        self._on_published(published, snapshot)
        shutil.rmtree(snapshot.directory, ignore_errors=True)
        if urgent:
            return
        try:
            self._checkpoints.retire()
        except Fenced:
            raise
        except StoreError as error:
            log.warning("old checkpoint parts stay for now: %s", error)
