"""The trainer's side of the checkpoint writer: starts it, sends snapshots, and receives its answers."""

import concurrent.futures
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from everspot_core.jobs.checkpoint import Checkpoint, Part
from everspot_store import StoreUnavailable, TransferCancelled
from pydantic import JsonValue, ValidationError

from everspot_train.writer.protocol import (
    ANSWER,
    AliveAnswer,
    AnyRequest,
    EndRequest,
    FailedAnswer,
    MakeWayRequest,
    PublishedAnswer,
    PublishRequest,
    RestoredAnswer,
    RestoreRequest,
    SkipRequest,
    StreamFile,
)

log = logging.getLogger("everspot.trainer")

COMMAND = (sys.executable, "-P", "-m", "everspot_train.writer")
"""The writer's command. Without `-P` python would search the job's folder first, where a user's file may have the name
of a module that the writer imports."""
_STARTS = 3
"""How many writers are started for one request before it fails."""
_MOST_DEATHS = 10
"""How many writers in a row may die while they publish in the background, before training ends."""
_KILLED_STATUSES = (-signal.SIGKILL, 128 + signal.SIGKILL)
_END_TIMEOUT = timedelta(seconds=10)
SILENCE = timedelta(minutes=3)
"""The longest time without a sign of life of the writer, after which it is killed. Far longer than `ALIVE_EVERY`, since
a busy machine may be slow to start it."""
_LATE = timedelta(seconds=10)
"""How long after its deadline a publication is still waited for: the writer gives up by itself at the deadline."""
_TICK_SECONDS = 1.0
_READ_BYTES = 1 << 16
_SHOWN_BYTES = 200  # of a line that is no answer


class WriterDied(StoreUnavailable):
    """The writer ended without an answer. It may or may not have published.

    Attributes:
        killed: whether it got SIGKILL, and not from this trainer.
    """

    def __init__(self, message: str, *, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed

    def as_lasting(self) -> "WriterFailed | WriterOutOfMemory":
        """Return the error of a trainer that starts no further writer."""
        if not self.killed:
            return WriterFailed(str(self))
        return WriterOutOfMemory(f"{self}, most likely for lack of memory: raise resources.memory_gib")


class WriterFailed(Exception):
    """Several writers in a row ended without an answer. Another machine may be better."""


class WriterOutOfMemory(Exception):
    """Several writers in a row ended without an answer, the last one by SIGKILL."""


@dataclass(frozen=True)
class Snapshot:
    """A state to publish.

    Attributes:
        step: optimizer steps done.
        directory: with the files.
        trigger: why it was made.
        began: the monotonic time at which the snapshot began.
        streams: the memory of all ranks, by the name of the stream.
        info: what is stored with it.
        unchanged: parts of the checkpoint before it that belong to it, too.
        again: publish it also if its step is published already.
    """

    step: int
    directory: Path
    trigger: str
    began: timedelta
    streams: dict[str, StreamFile]
    info: dict[str, JsonValue] = field(default_factory=dict)
    unchanged: dict[str, Part] = field(default_factory=dict)
    again: bool = False

    @property
    def size(self) -> int:
        """Bytes of files and streams."""
        files = sum(path.stat().st_size for path in self.directory.iterdir())
        return files + sum(stream.size for stream in self.streams.values())


class Publisher:
    """Sends snapshots to the writer, one at a time.

    Args:
        keep: the number of checkpoints that stay.
        on_published: called in a thread of its own with each durable checkpoint and its snapshot.
        command: the writer's.
        silence: after which a writer that shows no sign of life is replaced.
    """

    def __init__(
        self,
        keep: int,
        on_published: Callable[[Checkpoint, Snapshot], None],
        command: tuple[str, ...] = COMMAND,
        silence: timedelta = SILENCE,
    ) -> None:
        self._keep, self._on_published = keep, on_published
        self._writer = _Writer(command, silence)
        self._restore: RestoreRequest | None = None
        self._restoring: Future[RestoredAnswer | PublishedAnswer] | None = None
        self._flight: Future[None] | None = None
        self._publication: tuple[PublishRequest, Snapshot] | None = None
        self._largest = self._deaths = 0
        self.durable_step: int | None = None

    @property
    def busy(self) -> bool:
        """Whether a publication is under way."""
        return self._flight is not None and not self._flight.done()

    def fetch(self, folder: Path, streams: list[Path], memory: Mapping[str, Path]) -> None:
        """Begin to fetch the newest whole checkpoint into `folder`, and its streams into the first of `streams` that
        has room. `memory`: what an earlier attempt has left on this machine, by the name of the stream."""
        files = {name: str(path) for name, path in memory.items()}
        self._restore = RestoreRequest(folder=str(folder), streams=[str(path) for path in streams], memory=files)
        self._restoring = self._writer.send(self._restore)

    def fetched(self) -> RestoredAnswer:
        """Wait for the checkpoint.

        Raises:
            Fenced: if a later owner was here.
            CheckpointCorrupt: if there are checkpoints and none is whole.
            WriterFailed, WriterOutOfMemory: if no writer answers.
            StoreError: for any other error of the store.
        """
        assert self._restoring is not None and self._restore is not None  # noqa: S101 - `fetch` comes first
        for start in range(_STARTS):
            try:
                restored = self._restoring.result()
                break
            except WriterDied as error:
                if start == _STARTS - 1:
                    raise error.as_lasting() from error
                log.warning("the checkpoint is fetched again: %s", error)
                self._restoring = self._writer.send(self._restore)
        assert isinstance(restored, RestoredAnswer)  # noqa: S101 - the answer to its request
        self._writer.broken = restored.broken
        return restored

    def start(self, snapshot: Snapshot, *, now: bool = False, deadline: timedelta | None = None) -> None:
        """Begin to publish, after the publication under way.

        Args:
            snapshot: whose streams may still be written to, as their counters say.
            now: the job waits for this checkpoint. While the store cannot be reached, the writer tries again until
                `deadline` (monotonic), or without one a bounded number of times.
            deadline: the moment (monotonic) after which the checkpoint is useless.

        Raises:
            Fenced: if the job has another owner.
            WriterFailed, WriterOutOfMemory: if `_MOST_DEATHS` writers in a row have died.
            StoreError: for an error that does not pass by itself.
        """
        self.await_publication()
        self._begin(snapshot, now=now, deadline=deadline)

    def is_flying(self, step: int) -> bool:
        """Return whether the snapshot of `step` is being published."""
        return self.busy and self._publication is not None and self._publication[1].step == step

    def await_publication(self, timeout: timedelta | None = None) -> bool:
        """Wait for the publication under way. Return whether its snapshot was discarded, or gave way to a newer one.
        An unreachable store only causes a warning, since the next publication may succeed.

        `timeout`: real time after which the publication is given up, and the writer replaced; None: as long as the
        writer works on it.

        Raises:
            Fenced: if the job has another owner.
            WriterFailed, WriterOutOfMemory: if `_MOST_DEATHS` writers in a row have died.
            StoreError: for an error that does not pass by itself.
        """
        flight, self._flight = self._flight, None
        if flight is None:
            return False
        try:
            self._await(flight, timeout)
        except TransferCancelled as error:
            log.warning("a checkpoint was not published: %s", error)
            return True
        except StoreUnavailable as error:
            if isinstance(error, WriterDied) and self._deaths >= _MOST_DEATHS and timeout is None:
                raise error.as_lasting() from error
            log.warning("a checkpoint could not be published, training goes on: %s", error)
        finally:
            if self._publication is not None:
                self._remove(self._publication[1])  # a store that is away for long must not fill the disk
        return False

    def collect(self) -> bool:
        """Like `await_publication`, but only if the publication has ended; it never waits."""
        return self._flight is not None and self._flight.done() and self.await_publication()

    def make_way(self, deadline: timedelta) -> None:
        """Cancel a publication under way if a newer snapshot would otherwise miss its `deadline` (monotonic)."""
        if self.busy:
            self._writer.notify(MakeWayRequest(size=self._largest, deadline=deadline))

    def wait(self, timeout: timedelta | None = None) -> None:
        """Wait until the snapshot that was started `now` is durable. If the writer dies, another one goes on.
        `timeout`: real time after which the snapshot is given up; None: as long as the writer works on it.

        Raises:
            Fenced: if the job has another owner.
            StoreUnavailable: if the store stayed out of reach, or the time is over.
            WriterFailed, WriterOutOfMemory: if no writer answers.
        """
        end = time.monotonic() + timeout.total_seconds() if timeout is not None else None
        assert self._publication is not None  # noqa: S101 - `start` comes first
        request, snapshot = self._publication
        for start in range(_STARTS):
            flight, self._flight = self._flight, None
            assert flight is not None  # noqa: S101 - it was just begun
            time_left = timedelta(seconds=max(0.0, end - time.monotonic())) if end is not None else None
            try:
                self._await(flight, time_left)
            except WriterDied as error:
                if end is not None and time.monotonic() >= end:
                    raise
                if start == _STARTS - 1:
                    raise error.as_lasting() from error
                log.warning("step %d is not durable yet: %s", snapshot.step, error)
                self._send(request, snapshot)
            else:
                break
        self._remove(snapshot)

    def _await(self, flight: Future[None], timeout: timedelta | None) -> None:
        """Wait for a publication. It ends with the writer, which does not outlast `SILENCE` without a sign of life.

        Raises:
            WriterDied: if the time is over; the writer was killed then.
            StoreError: the publication's own error.
        """
        if timeout is not None and not concurrent.futures.wait([flight], (timeout + _LATE).total_seconds()).done:
            step = self._publication[1].step if self._publication is not None else 0
            seconds = timeout.total_seconds()
            self._writer.kill(f"step {step} was not durable {seconds:.0f} s after it was waited for")
        flight.result()

    def close(self) -> None:
        """Wait for a publication under way, and end the writer."""
        if self._flight is not None:
            self._flight.exception()
        self._writer.close()

    def _begin(self, snapshot: Snapshot, *, now: bool, deadline: timedelta | None) -> None:
        request = PublishRequest(
            step=snapshot.step,
            directory=str(snapshot.directory),
            streams=snapshot.streams,
            info=snapshot.info,
            unchanged=snapshot.unchanged,
            keep=self._keep,
            again=snapshot.again,
            now=now,
            deadline=deadline,
        )
        self._largest = max(self._largest, snapshot.size)
        self._publication = request, snapshot
        self._send(request, snapshot)

    def _send(self, request: PublishRequest, snapshot: Snapshot) -> None:
        flight: Future[None] = Future()
        self._flight = flight
        answer = self._writer.send(request)
        answer.add_done_callback(lambda answer: self._arrived(answer, snapshot, flight))

    def _arrived(
        self, answer: "Future[RestoredAnswer | PublishedAnswer]", snapshot: Snapshot, flight: Future[None]
    ) -> None:
        try:
            published = answer.result()
            assert isinstance(published, PublishedAnswer)  # noqa: S101 - the answer to its request
            self.durable_step = snapshot.step
            try:
                self._on_published(published.checkpoint, snapshot)
            except OSError as error:  # such as a full disk: the checkpoint is durable nevertheless
                log.warning("the checkpoint of step %d is durable, but was not reported: %s", snapshot.step, error)
        except Exception as error:
            self._deaths = self._deaths + 1 if isinstance(error, WriterDied) else 0
            flight.set_exception(error)
        else:
            self._deaths = 0
            flight.set_result(None)

    @staticmethod
    def _remove(snapshot: Snapshot) -> None:
        shutil.rmtree(snapshot.directory, ignore_errors=True)


class _Writer:
    """The writer's process. It is started with the first request, and again after it has died.

    Attributes:
        broken: the identities of checkpoints that a later writer has to pass over.
    """

    def __init__(self, command: tuple[str, ...], silence: timedelta) -> None:
        self._command = command
        self._silent_ticks = round(silence.total_seconds() / _TICK_SECONDS)
        self._killed_because = ""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._answer: Future[RestoredAnswer | PublishedAnswer] | None = None
        self.broken: list[str] = []

    def send(self, request: RestoreRequest | PublishRequest) -> "Future[RestoredAnswer | PublishedAnswer]":
        """Send a request. The future's result is the answer, or `WriterDied`."""
        answer: Future[RestoredAnswer | PublishedAnswer] = Future()
        with self._lock:
            process = self._running()
            self._answer = answer
        self._write(process, request)
        return answer

    def notify(self, request: MakeWayRequest | SkipRequest) -> None:
        """Send a request that has no answer."""
        with self._lock:
            process = self._process
        if process is not None:
            self._write(process, request)

    def close(self) -> None:
        """End the process, after the publication under way."""
        with self._lock:
            process, self._process = self._process, None
            listener, self._listener = self._listener, None
        if process is None or listener is None:
            return
        self._write(process, EndRequest())
        listener.join(_END_TIMEOUT.total_seconds())
        if listener.is_alive():
            process.kill()
            listener.join(_END_TIMEOUT.total_seconds())

    def kill(self, reason: str) -> None:
        """Kill the process. The request that it works on fails with `reason`."""
        with self._lock:
            process, self._killed_because = self._process, reason
        if process is not None:
            process.kill()

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        self._process, self._killed_because = process, ""
        self._listener = threading.Thread(target=self._listen, args=(process,), name="everspot-writer", daemon=True)
        self._listener.start()
        if self.broken:
            self._write(process, SkipRequest(broken=self.broken))
        return process

    @staticmethod
    def _write(process: "subprocess.Popen[bytes]", request: AnyRequest) -> None:
        assert process.stdin is not None  # noqa: S101 - it was started with a pipe
        try:
            process.stdin.write(request.model_dump_json().encode() + b"\n")
            process.stdin.flush()
        except (BrokenPipeError, ValueError):  # it has died, or was closed: its listener says so
            log.debug("the checkpoint writer takes no request")

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Deliver the process's answers until it ends. It is killed if it shows no sign of life for too long."""
        assert process.stdout is not None  # noqa: S101 - it was started with a pipe
        assert process.stdin is not None  # noqa: S101 - it was started with a pipe
        reason = ""
        try:
            reason = self._read_answers(process, process.stdout.fileno())
        except Exception as error:  # whatever it is, the trainer waits for an answer
            log.exception("the checkpoint writer is given up")
            reason = f"its answers cannot be read: {error}"
        code = _end(process, timedelta() if reason else _END_TIMEOUT)
        process.stdout.close()
        with suppress(OSError):  # a broken pipe, with a request that nobody reads any more
            process.stdin.close()
        with self._lock:
            answer, self._answer = (self._answer, None) if self._process in (process, None) else (None, None)
            if self._process is process:
                self._process = None
                reason = reason or self._killed_because
        if answer is not None:
            because = f": {reason}" if reason else ""
            killed = not reason and code in _KILLED_STATUSES
            answer.set_exception(WriterDied(f"the checkpoint writer ended with status {code}{because}", killed=killed))

    def _read_answers(self, process: "subprocess.Popen[bytes]", pipe: int) -> str:
        """Deliver answers until the process has ended, or has been silent for too long. Return why it is to end; empty
        if it has ended by itself."""
        poll = select.poll()  # a training program may have more files open than `select` takes
        partial_line, silent_ticks = b"", 0
        poll.register(pipe, select.POLLIN)
        while silent_ticks < self._silent_ticks:
            if poll.poll(_TICK_SECONDS * 1000):
                data = os.read(pipe, _READ_BYTES)
                if not data:
                    return ""
                *lines, partial_line = (partial_line + data).split(b"\n")
                for line in lines:
                    self._deliver(line)
                silent_ticks = 0
            elif process.poll() is not None:  # another process, forked meanwhile, has the pipe's other end
                return ""
            else:  # ticks, not a clock: a trainer that was suspended with its writer has waited for nothing
                silent_ticks += 1
        return f"no sign of life for {silent_ticks * _TICK_SECONDS:.0f} s"

    def _deliver(self, line: bytes) -> None:
        try:
            message = ANSWER.validate_json(line)
        except ValidationError:
            log.warning("the checkpoint writer printed %r", line[:_SHOWN_BYTES])
            return
        if isinstance(message, AliveAnswer):
            return
        with self._lock:
            answer, self._answer = self._answer, None
        if answer is None:
            return
        if isinstance(message, FailedAnswer):
            answer.set_exception(message.exception())
        else:
            answer.set_result(message)


def _end(process: "subprocess.Popen[bytes]", timeout: timedelta) -> int | None:
    """Return the exit code of a process, which is killed after `timeout`; None if even that does not end it."""
    for seconds in (timeout.total_seconds(), _END_TIMEOUT.total_seconds()):
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    return None
