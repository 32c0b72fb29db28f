"""Publishes and restores checkpoints under the owner's epoch, one at a time."""

import logging
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.checkpoint import Part, before_loop_end
from everspot_store import (
    Checkpoints,
    Fenced,
    LocalCopies,
    StoreError,
    StoreUnavailable,
    Transfer,
    TransferCancelled,
)

from everspot_train.rundir import USER_FILE, USER_TREE
from everspot_train.writer.protocol import (
    AnyAnswer,
    FailedAnswer,
    MakeWayRequest,
    PublishedAnswer,
    PublishRequest,
    RestoredAnswer,
    RestoreRequest,
)
from everspot_train.writer.stream_memory import StreamMemory

log = logging.getLogger("everspot.trainer")

_ATTEMPTS = 6
_PAUSE = timedelta(seconds=1)
_POLL_INTERVAL = timedelta(milliseconds=200)
_COPY_POLL_INTERVAL, _LONGEST_POLL_INTERVAL = timedelta(milliseconds=1), timedelta(milliseconds=32)
"""Between two looks at the counter of what is copied. It may stand still until the end of a training step."""
_COPY_TIMEOUT = timedelta(minutes=2)
"""The longest pause of a trainer's copy. After it the copy counts as abandoned, for example because a rank was
killed."""
_HEADROOM = 1.05
"""The least free space of a folder, as a multiple of the size of a checkpoint's streams."""
SAFETY = 1.25
"""The assumed time of an upload as a multiple of the measured time, because other instances may upload at the same
time."""

Reply = Callable[[AnyAnswer], None]
"""A function that sends an answer to the trainer."""


class WriterService:
    """Carries out the requests of one trainer.

    Args:
        checkpoints: the job's checkpoints, opened for this owner's epoch and guarded by its lease.
        clock: for waits.
        reply: called in the publishing thread with each answer.
        suspended: returns whether the lease has ended because the store does not answer. Then a publication waits as
            long as the agent lets the process live.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        clock: Clock,
        reply: Reply,
        suspended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._checkpoints, self._clock = checkpoints, clock
        self._reply, self._suspended = reply, suspended
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="everspot-publisher")
        self._transfer: Transfer | None = None
        self._answered = threading.Event()
        self._is_urgent = False  # a checkpoint with a deadline waits, or is about to be requested
        self._rate: float | None = None
        self._memory = StreamMemory()

    def restore(self, request: RestoreRequest) -> None:
        """Fence out earlier owners, fetch the newest complete checkpoint, and reply."""
        self._pool.submit(self._answer, lambda: self._restore(request))

    def publish(self, request: PublishRequest) -> None:
        """Publish a checkpoint, and reply when it is durable. Old parts are deleted afterwards.

        A next publication with a deadline ends the deletion. Any other one waits for at most twice as many parts as
        the checkpoint has: a job that publishes without a pause deletes more than it adds, and a backlog stops no job.
        """
        self._is_urgent = request.deadline is not None
        self._transfer, self._answered = Transfer(self._clock), threading.Event()
        self._pool.submit(self._publish, request, self._transfer, self._answered)

    def make_way(self, request: MakeWayRequest) -> None:
        """See `MakeWayRequest`. Returns when the publication has ended or is cancelled."""
        self._is_urgent, transfer = True, self._transfer
        while transfer is not None and not self._answered.is_set():
            seconds = (request.deadline - self._clock.monotonic()).total_seconds()
            if gives_way(transfer.remaining_bytes, request.size, transfer.rate or self._rate, seconds):
                transfer.cancel()
                return
            self._answered.wait(_POLL_INTERVAL.total_seconds())

    def skip(self, broken: Sequence[str]) -> None:
        """Skip checkpoints that are known to be broken."""
        self._checkpoints.mark_broken(broken)

    def close(self) -> None:
        """Wait for the publishing thread to end."""
        self._pool.shutdown(wait=True)

    def _answer(self, action: Callable[[], RestoredAnswer | PublishedAnswer]) -> bool:
        """Reply with the result of an action, or with its error. Returns whether it succeeded."""
        try:
            answer: AnyAnswer = action()
        except Exception as error:  # the trainer waits for an answer, so any error is one
            if not isinstance(error, StoreError):
                log.exception("the checkpoint writer failed")
            answer = FailedAnswer.from_error(error)
        self._reply(answer)
        return not isinstance(answer, FailedAnswer)

    def _restore(self, request: RestoreRequest) -> RestoredAnswer:
        head = self._checkpoints.fence()
        sizes = [sum(part.size for part in c.parts if part.stream) for c in head.checkpoints]
        streams = _folder_with_room(list(map(Path, request.streams)), max(sizes, default=0))
        with _earlier_memory(request.memory) as memory:
            copies = LocalCopies(memory)
            checkpoint = self._checkpoints.restore(
                Path(request.folder),
                lambda name: name == USER_TREE or not name.startswith(USER_FILE),
                before_loop_end,
                streams,
                copies,
            )
        return RestoredAnswer(
            checkpoint=checkpoint,
            broken=sorted(self._checkpoints.broken),
            streams=str(streams),
            local_bytes=copies.used_bytes,
        )

    def _publish(self, request: PublishRequest, transfer: Transfer, answered: threading.Event) -> None:
        parts = list[Part]()

        def publish() -> PublishedAnswer:
            answer = self._until_durable(request, transfer)
            parts.extend(answer.checkpoint.parts)
            return answer

        is_durable = self._answer(publish)
        answered.set()
        if not is_durable or request.deadline is not None:  # the next publication deletes older parts
            return
        deleted = count()

        def go_on() -> bool:
            is_next_queued = self._answered is not answered
            return not self._is_urgent and (next(deleted) < 2 * len(parts) or not is_next_queued)

        try:
            self._checkpoints.retire(go_on=go_on)
        except (Fenced, StoreError) as error:  # the next request detects a later owner
            log.warning("old checkpoint parts stay for now: %s", error)

    def _until_durable(self, request: PublishRequest, transfer: Transfer) -> PublishedAnswer:
        """Publish. If the trainer waits, retry while the store does not answer, until the deadline or a bounded number
        of times.

        Raises:
            Fenced: if the job has another owner.
            StoreUnavailable: if the store did not answer in any try.
            TransferCancelled: if a newer checkpoint has to be durable soon.
        """
        attempt = 1
        while True:
            try:
                return self._once(request, transfer)
            except StoreUnavailable as error:
                if not request.now or self._too_late(request.deadline, attempt):
                    raise
                log.warning("step %d is not durable yet (attempt %d): %s", request.step, attempt, error)
            attempt += 1
            self._clock.sleep(_PAUSE)

    def _too_late(self, deadline: timedelta | None, attempt: int) -> bool:
        if deadline is not None:
            return self._clock.monotonic() + _PAUSE >= deadline
        return attempt >= _ATTEMPTS and not self._suspended()

    def _once(self, request: PublishRequest, transfer: Transfer) -> PublishedAnswer:
        directory = Path(request.directory)
        files = {path.name: path for path in sorted(directory.iterdir())} if directory.is_dir() else {}
        streams, counters = self._memory.map(request.streams)
        checkpoint = self._checkpoints.publish(
            request.step,
            files,
            request.info,
            request.keep,
            request.unchanged,
            transfer=transfer,
            streams=streams,
            again=request.again,
            background=not request.now,
            wait_for=partial(self._wait_for, counters, transfer),
        )
        self._rate = transfer.rate or self._rate
        return PublishedAnswer(checkpoint=checkpoint)

    def _wait_for(self, counters: Mapping[str, memoryview], transfer: Transfer, stream: str, size: int) -> None:
        """Wait until the first `size` bytes of a stream have been copied.

        Raises:
            TransferCancelled: if the copy was abandoned, or the upload was cancelled.
        """
        copied, since, pause = -1, self._clock.monotonic(), _COPY_POLL_INTERVAL
        while True:
            (now_copied,) = struct.unpack("=q", counters[stream])
            if now_copied >= size:
                return
            transfer.moved(0)  # it raises if the upload was cancelled
            pause = min(2 * pause, _LONGEST_POLL_INTERVAL)
            if now_copied != copied:
                copied, since, pause = now_copied, self._clock.monotonic(), _COPY_POLL_INTERVAL
            if now_copied < 0 or self._clock.monotonic() - since > _COPY_TIMEOUT:
                raise TransferCancelled("the trainer did not complete it")
            self._clock.sleep(pause)


def _folder_with_room(folders: Sequence[Path], size: int) -> Path:
    """Return the first folder whose file system has space for `size` bytes, or the last folder."""
    for folder in folders[:-1]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            status = os.statvfs(folder)
        except OSError as error:
            log.warning("%s cannot hold a checkpoint: %s", folder, error)
            continue
        if status.f_bavail * status.f_frsize >= size * _HEADROOM:
            return folder
    return folders[-1]


@contextmanager
def _earlier_memory(files: Mapping[str, str]) -> Iterator[dict[str, memoryview]]:
    """Map the memory of an earlier attempt, without unreadable parts."""
    views: dict[str, memoryview] = {}
    for name, path in files.items():
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - the path is a text from JSON
                views[name] = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            log.info("the memory of an earlier attempt cannot be read: %s", error)
    try:
        yield views
    finally:
        views.clear()


def gives_way(remaining: int | None, fresh: int, rate: float | None, seconds: float) -> bool:
    """Return whether an upload under way is cancelled in favor of a newer checkpoint.

    If there is time for both, both are uploaded. If there is time only for the newer one, the older one is cancelled.
    If there is time for neither, the older one continues, because it is nearer to its end.

    Args:
        remaining: bytes of the upload under way that have not arrived; None before it has begun.
        fresh: bytes of the newer checkpoint.
        rate: measured bytes per second; None if nothing was measured.
        seconds: until the newer one must be durable.
    """
    if remaining is None or remaining >= fresh:  # cancelling loses nothing: the newer one has no more bytes to upload
        return True
    if rate is None:
        return False
    affordable = rate * seconds / SAFETY
    return remaining + fresh > affordable >= fresh
