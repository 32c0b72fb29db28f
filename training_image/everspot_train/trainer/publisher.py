"""Publishing checkpoints: one at a time, beside the training loop or in front of everything else."""

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.records import Checkpoint
from everspot_store import Checkpoints, Fenced, StoreError, StoreUnavailable
from pydantic import JsonValue

log = logging.getLogger("everspot.trainer")

_ATTEMPTS = 6
_PAUSE = timedelta(seconds=1)


@dataclass(frozen=True)
class Snapshot:
    """A state on local disk that waits to be published. `began`: monotonic time at which taking it began."""

    step: int
    directory: Path
    trigger: str
    began: timedelta
    info: dict[str, JsonValue] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, Path]:
        """The parts by name."""
        return {path.name: path for path in sorted(self.directory.iterdir())}


class Publisher:
    """Uploads snapshots under the owner's epoch.

    Args:
        checkpoints: the job's checkpoints, opened for this owner's epoch and guarded by its lease.
        keep: how many checkpoints stay.
        on_published: told, in the publishing thread, what became durable and from which snapshot.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        keep: int,
        clock: Clock,
        on_published: Callable[[Checkpoint, Snapshot], None],
    ) -> None:
        self._checkpoints, self._keep = checkpoints, keep
        self._clock, self._on_published = clock, on_published
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="everspot-publisher")
        self._flight: Future[None] | None = None
        self.durable_step: int | None = None

    @property
    def busy(self) -> bool:
        """Whether a publication is under way."""
        return self._flight is not None and not self._flight.done()

    def start(self, snapshot: Snapshot) -> None:
        """Publish beside the training loop. Only when not `busy`."""
        self.settle()
        self._flight = self._pool.submit(self._publish, snapshot)

    def settle(self) -> None:
        """Wait for what is under way. An unreachable store is a warning here: the next checkpoint may do better.

        Raises:
            Fenced: if the job has another owner.
            StoreError: for anything that will not get better by itself.
        """
        flight, self._flight = self._flight, None
        if flight is None:
            return
        try:
            flight.result()
        except StoreUnavailable as error:
            log.warning("a checkpoint could not be published, training goes on: %s", error)

    def collect(self) -> None:
        """`settle` for what is already over; never waits."""
        if self._flight is not None and self._flight.done():
            self.settle()

    def publish(self, snapshot: Snapshot, deadline: timedelta | None) -> None:
        """Publish, and return when the snapshot is durable. Only when not `busy`.

        Tries again while the store cannot be reached: until `deadline` (monotonic) if there is one, and a bounded
        number of times without.

        Raises:
            Fenced: if the job has another owner.
            StoreUnavailable: if the store stayed out of reach.
        """
        self.settle()
        attempt = 1
        while True:
            try:
                return self._publish(snapshot)
            except StoreUnavailable as error:
                late = attempt >= _ATTEMPTS if deadline is None else self._clock.monotonic() + _PAUSE >= deadline
                if late:
                    raise
                log.warning("step %d is not durable yet (attempt %d): %s", snapshot.step, attempt, error)
            attempt += 1
            self._clock.sleep(_PAUSE)

    def close(self) -> None:
        """Wait for the publishing thread to end."""
        self._pool.shutdown(wait=True)

    def _publish(self, snapshot: Snapshot) -> None:
        published = self._checkpoints.publish(snapshot.step, snapshot.files, snapshot.info, self._keep)
        self.durable_step = snapshot.step
        self._on_published(published, snapshot)
        shutil.rmtree(snapshot.directory, ignore_errors=True)
        try:
            self._checkpoints.retire()
        except Fenced:
            raise
        except StoreError as error:
            log.warning("old checkpoint parts stay for now: %s", error)
