"""A job's checkpoints: parts are written once, one small head document publishes them, and the fence guards the head.

A stale owner cannot harm its successor. It may upload parts, but only under its own epoch. It cannot publish them,
because its successor has written a higher epoch into the head. It may delete parts of its own or earlier epochs, but
only parts that the head did not name when the stale owner last held the lease. No later head names such parts again.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.checkpoint import AFTER_LOOP, Checkpoint, CheckpointHead, Part, by_failed_loads
from pydantic import JsonValue

from everspot_store.backend import Guard, Versioned
from everspot_store.bucket import Bucket
from everspot_store.errors import CheckpointCorrupt, DigestMismatch, Fenced, StoreUnavailable
from everspot_store.part_transfers import PartTransfers
from everspot_store.segments import LocalCopies, split_stream
from everspot_store.table import Table
from everspot_store.transfers import Transfer

_ROUNDS = 5
FRESH = timedelta(days=7)
"""Older parts are uploaded again even if their bytes are the same: a bucket's rules may remove objects of jobs after 30
days, and a job may wait for weeks."""
_CLOCK_ERROR = timedelta(days=1)
"""Parts that were stored further ahead of this machine's clock are uploaded again: one of the two clocks is wrong."""
_HEAD_AGE = timedelta(seconds=1)
"""The time after which a deletion of many parts reads the head again. The head of a large checkpoint is a megabyte."""
_PART_KEY = re.compile(r"jobs/[^/]+/checkpoints/(?P<epoch>\d+)/(?P<step>\d+)/")
_log = logging.getLogger(__name__)


def is_fresh(stored_at: datetime, now: datetime) -> bool:
    """Return whether a part is young enough to belong to another checkpoint. `stored_at`: by the clock of the machine
    that uploaded it. `now`: by this machine's clock."""
    return -_CLOCK_ERROR <= now - stored_at < FRESH


class Checkpoints:
    """The checkpoints of one job, for the owner of one epoch; for reading if `epoch` is None.

    `guard` returns whether the owner's lease is still valid. It is called before every write and delete, and may raise
    an error, such as `StoreUnavailable` if the lease cannot be checked now. One thread at a time may write.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`.
    """

    def __init__(
        self,
        heads: Table[CheckpointHead],
        data: Bucket,
        clock: Clock,
        job_id: str,
        epoch: int | None,
        guard: Guard | None,
        incarnation: int = 0,
    ) -> None:
        self._heads = heads
        self._data = data
        self._clock = clock
        self._job_id = job_id
        self._epoch = epoch
        self._incarnation = incarnation
        self._guard = guard or (lambda: True)
        self._head: Versioned[CheckpointHead] | None = None
        self._broken: set[str] = set()
        self._parts = PartTransfers(data, clock, self._check_guard)

    @property
    def epoch(self) -> int:
        """The epoch under which this object writes.

        Raises:
            ValueError: if this object was opened for reading.
        """
        if self._epoch is None:
            raise ValueError("these checkpoints were opened for reading; a writer needs its epoch")
        return self._epoch

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self._job_id

    @property
    def broken(self) -> frozenset[str]:
        """The identities of the checkpoints that `restore` has passed over."""
        return frozenset(self._broken)

    def mark_broken(self, broken: Iterable[str]) -> None:
        """Pass over these checkpoints, too. `broken`: their identities."""
        self._broken |= set(broken)

    def key_prefix(self, step: int) -> str:
        """The prefix of the keys of the parts that `publish` uploads for a step."""
        return f"jobs/{self._job_id}/checkpoints/{self.epoch:06d}/{step:012d}"

    def head(self) -> CheckpointHead | None:
        """The published checkpoints as they are now, or None if the job never had an owner."""
        head = self._heads.get(self._job_id)
        return None if head is None else head.value

    def fence(self) -> CheckpointHead:
        """Fence out every earlier owner: write this epoch into the head before anything is read.

        Raises:
            Fenced: if a later owner has fenced the head already, or `guard` returns False.
        """
        for _ in range(_ROUNDS):
            old = self._current()
            if old is not None and self._is_own(old.value):
                self._head = old
                return old.value
            new = CheckpointHead(
                job_id=self._job_id,
                epoch=self.epoch,
                incarnation=self._incarnation,
                checkpoints=old.value.checkpoints if old is not None else [],
            )
            if self._write(old, new):
                return new
        raise StoreUnavailable(f"the head of job {self._job_id} changes faster than it can be fenced")

    def publish(
        self,
        step: int,
        files: Mapping[str, Path],
        info: Mapping[str, JsonValue] | None = None,
        keep: int = 2,
        unchanged: Mapping[str, Part] | None = None,
        transfer: Transfer | None = None,
        *,
        streams: Mapping[str, memoryview] | None = None,
        again: bool = False,
        background: bool = False,
        wait_for: Callable[[str, int], None] = lambda stream, size: None,
    ) -> Checkpoint:
        """Upload files and streams, and publish them as the newest checkpoint. Returns when it is durable.

        Publishing the newest step again does nothing and returns the published checkpoint.

        Args:
            step: optimizer steps done.
            files: by the names of their parts.
            info: stored with the checkpoint.
            keep: the number of checkpoints that the head lists afterwards; 2 at least after the end of a loop.
            unchanged: parts of the newest checkpoint that belong to this one as they are.
            transfer: tracks the upload, and may cancel it.
            streams: memory by the name of the stream. Segments that the newest checkpoint has with the same bytes are
                not uploaded again.
            again: publish the newest step once more, because its state has changed.
            background: give other threads and processes precedence on the processors.
            wait_for: called with the name of a stream and a number of bytes; returns when that many bytes of the stream
                are in place. An error that it raises ends the upload.

        Raises:
            Fenced: if a later owner has taken over, or `guard` returns False. Nothing was published.
            TransferCancelled: if the upload was cancelled before it was complete. Nothing was published.
            ValueError: if `step` is behind what is published, or `keep` below 1.
        """
        if keep < 1:
            raise ValueError(f"keep={keep} would leave no checkpoint")
        self._check_guard()
        self._fenced()
        done = self._published(step)
        if done is not None and not again:
            return done
        listed = {_identity(earlier) for earlier in self._fenced().value.checkpoints}
        transfer = transfer or Transfer(self._clock)
        segments = [segment for name, view in sorted((streams or {}).items()) for segment in split_stream(name, view)]
        sizes = [path.stat().st_size for path in files.values()] + [len(segment.view) for segment in segments]
        transfer.begin(sum(sizes))
        uploaded = self._parts.upload(
            self.key_prefix(step), files, segments, self._segments_before(), transfer, wait_for, background=background
        )
        parts = sorted([*uploaded, *(unchanged or {}).values()], key=lambda part: part.name)
        checkpoint = Checkpoint(
            step=step, epoch=self.epoch, created_at=self._clock.now(), parts=parts, info=dict(info or {})
        )
        for _ in range(_ROUNDS):
            old = self._fenced()
            intact = [
                earlier
                for earlier in old.value.checkpoints
                if not self._is_broken(earlier) and not _replaces(checkpoint, earlier)
            ]
            if (late := _find_late(intact, checkpoint, listed)) is not None:
                if not again:
                    self._parts.forget()
                    return late
                intact.remove(late)
            # A resume begins with the checkpoint of the loop's end, not with the one behind it.
            least = 2 if checkpoint.info.get(AFTER_LOOP) is True else 1
            new = old.value.model_copy(update={"checkpoints": [checkpoint, *intact][: max(keep, least)]})
            if self._write(old, new):
                self._parts.forget()
                return checkpoint
            self._head = self._own()
        raise StoreUnavailable(f"the head of job {self._job_id} changes faster than it can be published")

    def restore(
        self,
        folder: Path,
        include: Callable[[str], bool] = lambda name: True,
        order: Callable[[Sequence[Checkpoint]], Sequence[Checkpoint]] = lambda listed: listed,
        streams: Path | None = None,
        copies: LocalCopies | None = None,
        *,
        require_all: bool = False,
    ) -> Checkpoint | None:
        """Fetch the newest whole checkpoint into `folder`, each part under its name; None if there never was one.

        `include`: returns whether the part of a name is fetched. `order`: sorts the checkpoints into the order in which
        they are tried. `streams`: the folder for streams, one file each; None: `folder`. `copies`: streams of an
        earlier owner on this machine; a segment that they hold unchanged is not downloaded. `require_all`: whether the
        parts that `include` leaves out have to exist, too.

        A checkpoint with a missing part or a wrong digest is skipped. A checkpoint that an attempt failed to load is
        skipped if an older one has no failed load. The next `publish` leaves skipped checkpoints out of the head. A
        writer calls `fence` first.

        Raises:
            CheckpointCorrupt: if no published checkpoint is whole.
            Fenced: if a later owner has fenced the head already.
        """
        head = self.head() if self._epoch is None else self._fenced().value
        reasons: list[str] = []
        ordered = order(by_failed_loads(head.checkpoints)) if head is not None else []
        for checkpoint in ordered:
            try:
                parts = [part for part in checkpoint.parts if include(part.name)]
                if require_all:
                    self._check_present(checkpoint)
                self._parts.fetch(parts, folder, streams or folder, copies or LocalCopies({}))
            except (DigestMismatch, FileNotFoundError) as error:
                _log.warning("job %s: checkpoint of step %d is not whole: %s", self._job_id, checkpoint.step, error)
                reasons.append(f"step {checkpoint.step}: {error}")
                self._broken.add(_identity(checkpoint))
            else:
                self._broken |= {_identity(other) for other in ordered if other.step > checkpoint.step}
                return checkpoint
        if reasons:
            raise CheckpointCorrupt(self._job_id, reasons)
        return None

    def _check_present(self, checkpoint: Checkpoint) -> None:
        """Raises FileNotFoundError if a part does not exist with its size."""
        places = {part.key.rpartition("/")[0] + "/" for part in checkpoint.parts}
        sizes = {entry.key: entry.size for place in sorted(places) for entry in self._data.list(place)}
        for part in checkpoint.parts:
            if sizes.get(part.key) != part.size:
                raise FileNotFoundError(f"{part.key} is missing or incomplete")

    def note_failed_load(self, step: int, epoch: int) -> None:
        """Record that an attempt failed while it loaded a checkpoint, so that the next attempt begins with another one.

        Raises:
            Fenced: if a later owner has taken over, or `guard` returns False.
        """
        for _ in range(_ROUNDS):
            old = self._own()
            noted = [
                checkpoint.model_copy(update={"failed_loads": checkpoint.failed_loads + 1})
                if (checkpoint.step, checkpoint.epoch) == (step, epoch)
                else checkpoint
                for checkpoint in old.value.checkpoints
            ]
            if self._write(old, old.value.model_copy(update={"checkpoints": noted})):
                return
        raise StoreUnavailable(f"the head of job {self._job_id} changes faster than it can be written")

    def retire(self, guard: Guard | None = None, go_on: Callable[[], bool] = lambda: True) -> list[str]:
        """Delete parts that the head does not name: of superseded checkpoints, and of uploads that were cut off.

        Parts of later epochs stay, and this owner's uploads beyond the newest published step. The head is read again
        when it was last read `_HEAD_AGE` ago, because the process may have been stopped for any time between two
        deletes. Returns the deleted keys.

        Args:
            guard: returns whether a second lease is still valid.
            go_on: called before each deletion. If it returns False, the remaining parts stay until the next call.

        Raises:
            Fenced: if a later owner has taken over, or the guard returns False. The successor deletes the remaining
                parts.
        """
        read_at = self._clock.monotonic()
        superseded = self._find_superseded(self._own().value)
        deleted: list[str] = []
        for key in superseded:
            if not go_on():
                break
            if (now := self._clock.monotonic()) - read_at >= _HEAD_AGE:
                read_at = now
                self._own()
            self._check_guard()
            if guard is not None and not guard():
                raise Fenced(self._job_id, self.epoch, "its lease has ended")
            self._data.delete(key)
            deleted.append(key)
        return deleted

    def _find_superseded(self, head: CheckpointHead) -> list[str]:
        """Return the keys of the parts that `retire` deletes."""
        published_keys = {part.key for checkpoint in head.checkpoints for part in checkpoint.parts}
        newest = max((checkpoint.step for checkpoint in head.checkpoints), default=-1)
        return [
            entry.key
            for entry in self._data.list(f"jobs/{self._job_id}/checkpoints/")
            if entry.key not in published_keys
            and (place := parse_part_key(entry.key)) is not None
            and (place[0] < self.epoch or (place[0] == self.epoch and place[1] <= newest))
        ]

    def _own(self) -> Versioned[CheckpointHead]:
        """The head as it is now, if it has this owner's epoch."""
        head = self._current()
        if head is None or not self._is_own(head.value):
            raise Fenced(self._job_id, self.epoch, "the head is not its own")
        return head

    def _fenced(self) -> Versioned[CheckpointHead]:
        """The head with this owner's epoch, as last read or written."""
        if self._head is None:
            self.fence()
        assert self._head is not None  # noqa: S101 - fence() sets it or raises
        return self._head

    def _current(self) -> Versioned[CheckpointHead] | None:
        head = self._heads.get(self._job_id)
        if head is not None and head.value.epoch > self.epoch:
            raise Fenced(self._job_id, self.epoch, f"epoch {head.value.epoch} has taken over")
        if head is not None and head.value.epoch == self.epoch and head.value.incarnation > self._incarnation:
            raise Fenced(self._job_id, self.epoch, "a later agent of the same instance has taken over")
        return head

    def _is_own(self, head: CheckpointHead) -> bool:
        return (head.epoch, head.incarnation) == (self.epoch, self._incarnation)

    def _write(self, old: Versioned[CheckpointHead] | None, new: CheckpointHead) -> bool:
        self._check_guard()
        written = self._heads.create(self._job_id, new) if old is None else self._heads.replace(self._job_id, old, new)
        if written is not None:
            self._head = written
        return written is not None

    def _published(self, step: int) -> Checkpoint | None:
        whole = [checkpoint for checkpoint in self._fenced().value.checkpoints if not self._is_broken(checkpoint)]
        if not whole or step > whole[0].step:
            return None
        if step == whole[0].step:
            return whole[0]
        raise ValueError(f"step {step} is behind step {whole[0].step}, which is published")

    def _segments_before(self) -> dict[str, Part]:
        """The segments of the newest whole checkpoint by name, without segments older than `FRESH`."""
        whole = [checkpoint for checkpoint in self._fenced().value.checkpoints if not self._is_broken(checkpoint)]
        now = self._clock.now()
        parts = whole[0].parts if whole else []
        return {part.name: part for part in parts if part.stored_at is not None and is_fresh(part.stored_at, now)}

    def _is_broken(self, checkpoint: Checkpoint) -> bool:
        return _identity(checkpoint) in self._broken

    def _check_guard(self) -> None:
        if not self._guard():
            raise Fenced(self._job_id, self.epoch, "its lease has ended")


def _replaces(new: Checkpoint, earlier: Checkpoint) -> bool:
    """Return whether both are of the same step, after code that followed the loop. The checkpoint of the loop's end
    stays, because a resume begins with it."""
    return new.step == earlier.step and all(c.info.get(AFTER_LOOP) is True for c in (new, earlier))


def _find_late(listed: list[Checkpoint], new: Checkpoint, before: set[str]) -> Checkpoint | None:
    """Return the checkpoint that an earlier try to publish `new` has written without an answer. `before`: the
    identities of the checkpoints that were listed when the present try began."""
    same = (c for c in listed if (c.epoch, c.step) == (new.epoch, new.step) and _identity(c) not in before)
    return next(same, None)


def _identity(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.epoch}/{checkpoint.step}/{checkpoint.created_at.isoformat()}"


def parse_part_key(key: str) -> tuple[int, int] | None:
    """Return the epoch and the step in the key of a part; None for another object, which a job may have written."""
    match = _PART_KEY.match(key)
    return (int(match["epoch"]), int(match["step"])) if match is not None else None
