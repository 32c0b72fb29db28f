"""The first rank's connection to its agent and to the store. A run without an agent has no such connection."""

import logging
import os
import shutil
import threading
from collections.abc import Mapping
from datetime import timedelta
from enum import IntEnum
from pathlib import Path

from everspot_core.jobs.checkpoint import Checkpoint
from everspot_core.jobs.early_stop import EarlyStop
from everspot_core.jobs.records import EventKind
from everspot_store import Store, StoreError, SystemClock
from pydantic import JsonValue

from everspot_train.agent_requests import Requests
from everspot_train.checkpoint.manifest import stream_name
from everspot_train.run_tracker import RunStatus
from everspot_train.rundir import (
    CHECKPOINT_DIR_VARIABLE,
    RESTORED,
    USER_TREE,
    RunContext,
    RunDir,
    StopReport,
    TrainingPhase,
)
from everspot_train.trainer.interval import CheckpointInterval
from everspot_train.trainer.publisher import Publisher, Snapshot
from everspot_train.trainer.reporter import Reporter
from everspot_train.trainer.user_files import UserFiles
from everspot_train.trainer.warmup import Warmup
from everspot_train.writer.protocol import StreamFile

log = logging.getLogger("everspot.trainer")

_FETCHED = "fetched"
"""Name of the folder of a fetched checkpoint until `restore` is called. A program that fails before that did not fail
while loading it."""
_STREAMS = "streams"
_MEMORY = "memory-"
_NOTES_TIMEOUT = timedelta(minutes=2)
"""The longest wait for events at the end. Each has a bounded number of tries."""
_RUN_STATUS = {
    TrainingPhase.FINISHED: RunStatus.FINISHED,
    TrainingPhase.STOPPED: RunStatus.SCHEDULED,
    TrainingPhase.FENCED: RunStatus.RUNNING,  # the job goes on under its other owner
}
_HEAD_EVERY = timedelta(seconds=5)  # no object of the store is rewritten more often


class Decision(IntEnum):
    """An action between two steps. The first rank decides and shares it with the others."""

    GO_ON = 0
    CHECKPOINT = 1
    STOP = 2
    LEAVE = 3  # the job has another owner


def snapshot_directory(context: RunContext, step: int) -> Path:
    """Return the first rank's folder for the files of one checkpoint."""
    return Path(context.scratch_dir) / f"snapshot-{step:012d}"


def restore_directory(context: RunContext) -> Path:
    """Return the first rank's folder for the files of the fetched checkpoint."""
    return Path(context.scratch_dir) / RESTORED


def restored_streams(context: RunContext) -> Path:
    """Return the folder with the streams of the fetched checkpoint, a path below `restore_directory`."""
    return restore_directory(context) / _STREAMS


def memory_folders(context: RunContext) -> list[Path]:
    """Return the folders for the memory of checkpoints, in the order to try them."""
    folders = [Path(context.memory_dir)] if context.memory_dir else []
    return [*folders, Path(context.scratch_dir)]


def memory_file(rank: int) -> str:
    """Return the name of the file with the memory of a rank."""
    return f"{_MEMORY}{rank:05d}"


def earlier_memory(context: RunContext) -> dict[str, Path]:
    """Return the memory that an earlier attempt has left on this machine, by the name of its stream."""
    return {stream_name(rank): path for rank, path in _memory_files(context)}


def _memory_files(context: RunContext) -> list[tuple[int, Path]]:
    """Return the files with the memory of ranks, each with its rank."""
    files = sorted(Path(context.memory_dir).glob(f"{_MEMORY}*")) if context.memory_dir else []
    numbers = [path.name.removeprefix(_MEMORY) for path in files]
    return [(int(number), path) for number, path in zip(numbers, files, strict=True) if number.isdecimal()]


class AgentLink:
    """Reads the agent's requests, decides between steps, publishes checkpoints, reports progress. `trigger`: the reason
    of the last checkpoint."""

    def __init__(self, rundir: RunDir, context: RunContext) -> None:
        self.context = context
        self.clock = SystemClock.from_environment()
        self.store = Store.open(context.control_url, context.data_url, clock=self.clock)
        self.requests = Requests(rundir, self.clock)
        self._rundir = rundir
        self.reporter = Reporter(rundir, self.store, context, self.clock)
        self._policy = context.submission.spec.checkpoint
        self._publisher = Publisher(self._policy.keep, self._published)
        folder = os.environ.get(CHECKPOINT_DIR_VARIABLE)
        self._user_files = UserFiles(Path(folder) if folder else None, self.clock)
        writer = f"trainer-{context.instance_id}"
        self._events = self.store.event_writer(context.job_id, context.epoch, writer, context.instance_id)
        self._notes: list[threading.Thread] = []
        self._notes_lock = threading.Lock()
        self._warmup = Warmup(self.clock)
        self._interval = CheckpointInterval(context, self.clock, self.note)
        self._last_begun = self.clock.monotonic()
        self._last_step = 0
        self._rate: float | None = None
        self._local_bytes = 0
        self.trigger = ""
        self.reporter.update(phase=TrainingPhase.STARTING)
        self._clear_scratch()
        # The program imports, builds its model and reads its data meanwhile.
        streams = [folder / _STREAMS for folder in memory_folders(context)]
        self._publisher.fetch(self._fetched, streams, earlier_memory(context))

    def pinned(self) -> dict[str, JsonValue]:
        """Return the newest checkpoint's `info`; empty if there is no checkpoint."""
        head = self.store.checkpoints(self.context.job_id).head()
        return dict(head.checkpoints[0].info) if head is not None and head.checkpoints else {}

    def restore(self) -> Checkpoint | None:
        """Shut out earlier owners and fetch the newest whole checkpoint; `begin_loading` comes next.

        Raises:
            Fenced: if a later owner was here.
            CheckpointCorrupt: if there are checkpoints and none is whole.
        """
        self.reporter.update(phase=TrainingPhase.RESTORING)
        restored = self._publisher.fetched()
        checkpoint, self._local_bytes = restored.checkpoint, restored.local_bytes
        self._last_begun = self.clock.monotonic()
        if checkpoint is None:
            return None
        for path in self._fetched.iterdir():
            if path.name not in {part.name for part in checkpoint.parts}:
                path.unlink()  # of a newer checkpoint that turned out not to be whole
        self._user_files.resume(self._fetched / USER_TREE, checkpoint.parts)
        (self._fetched / _STREAMS).symlink_to(restored.streams)
        self._publisher.durable_step = self._last_step = checkpoint.step
        self._interval.resume(checkpoint.info)
        return checkpoint

    def begin_loading(self) -> None:
        """Move the fetched checkpoint to `restore_directory`, from which the agent infers that loading has begun."""
        self._fetched.rename(restore_directory(self.context))

    def drop_memory(self, ranks: int) -> None:
        """Remove the memory of ranks that an earlier attempt had and this one, of so many `ranks`, has not. It was read
        when the checkpoint was fetched, and would take the room that the larger parts of fewer ranks need."""
        for rank, path in _memory_files(self.context):
            if rank >= ranks:
                path.unlink(missing_ok=True)

    def drop_restored(self) -> None:
        """Remove the fetched files, which are as large as the state. Mapped files stay until they are unmapped."""
        shutil.rmtree(restored_streams(self.context).resolve(), ignore_errors=True)
        shutil.rmtree(restore_directory(self.context), ignore_errors=True)

    def report_training_started(
        self,
        step: int,
        total_steps: int,
        restored: Checkpoint | None,
        seconds: float,
        *,
        mixed: bool,
        metrics: dict[str, float],
    ) -> None:
        """Report that training begins or goes on at `step`. `seconds`: real time since the start of the process;
        `mixed`: whether in mixed precision; `metrics`: those of the attempts before."""
        self.reporter.update(
            phase=TrainingPhase.TRAINING,
            step=step,
            total_steps=total_steps,
            resumed_from=restored.step if restored else None,
            durable_step=restored.step if restored else None,
            durable_at=restored.created_at if restored else None,
            mixed=mixed,
            metrics=metrics,
        )
        if self.reporter.tracker is not None:
            self.reporter.tracker.begin(step)
        local = {"local_bytes": self._local_bytes} if restored is not None and self._local_bytes else {}
        self.note(EventKind.TRAINING, from_step=step, restored=restored is not None, seconds=round(seconds, 3), **local)

    def report_step(self, step: int, metrics: dict[str, float]) -> None:
        """Report that `step` steps are done."""
        if self._warmup.ended():
            first, following = self._warmup.seconds()
            self.note(EventKind.STEPPED, step=step - 1, seconds=first, next_seconds=following)
        self.reporter.progress(step, metrics)

    def step_begins(self) -> None:
        """Note that the next step begins."""
        self._warmup.begins()

    def decide_between_steps(self, step: int) -> Decision:
        """Decide what happens now, between two steps.

        Raises:
            Fenced: if a publication found out that the job has another owner.
        """
        discarded = self._publisher.collect()
        if self.requests.lost():
            return Decision.LEAVE
        if self.requests.stop() is not None:
            return Decision.STOP
        if self._publisher.busy or self.requests.suspended():
            return Decision.GO_ON
        if self.requests.checkpoint():
            self.trigger = "rebalance"
            return Decision.CHECKPOINT
        if discarded or self._interval_over(step):
            self.trigger = "interval"
            return Decision.CHECKPOINT
        return Decision.GO_ON

    def report_early_stop(self, early_stop: EarlyStop) -> None:
        """Report why the job's `stop` ends training."""
        try:
            self._rundir.write(StopReport(early_stop=early_stop))
        except OSError as error:  # such as a full disk
            log.warning("the reason of the early stop was not written: %s", error)

    def skip_interval(self) -> None:
        """Postpone the checkpoint to the next interval, instead of the next step."""
        self._last_begun = self.clock.monotonic()

    def publish_in_background(
        self, step: int, trigger: str, began: timedelta, info: dict[str, JsonValue], streams: Mapping[str, StreamFile]
    ) -> None:
        """Publish the snapshot of `step` while it is copied and the loop goes on. `streams`: the memory of all
        ranks."""
        trained = (began - self._last_begun).total_seconds()
        self._rate = (step - self._last_step) / trained if trained > 0 else None
        self._last_begun, self._last_step = began, step
        self._publisher.start(self._snapshot(step, began, trigger, info, streams))

    def report_copied(self, step: int, stall: timedelta) -> None:
        """Note that all of the snapshot of `step` has been copied, for which training stood still for `stall`."""
        self._interval.stalled(step, stall, self._rate)

    def publish_now(
        self,
        step: int,
        trigger: str,
        began: timedelta,
        info: dict[str, JsonValue],
        streams: Mapping[str, StreamFile],
        *,
        again: bool = False,
    ) -> None:
        """Publish the snapshot of `step` while it is copied; `wait_until_durable` comes next. `again`: as a second one
        of its step.

        Raises:
            Fenced: if the job has another owner.
        """
        self._last_begun, self._last_step = began, step
        snapshot = self._snapshot(step, began, trigger, info, streams, again=again)
        self._publisher.start(snapshot, now=True, deadline=self._durable_by())

    def wait_until_durable(self) -> None:
        """Wait for the snapshot of `publish_now`.

        Raises:
            Fenced: if the job has another owner.
            StoreUnavailable: if the store stayed out of reach until the stop's deadline, or for a while without one.
        """
        self._publisher.wait(self._time_left())

    def needs_snapshot(self, step: int) -> bool:
        """Return whether `step` is not durable yet. Afterwards no publication is under way, so the ranks may write to
        their memory. If there is a deadline, a publication of an earlier step is waited for only as long as `step` can
        be made durable in time, too; then it is cancelled.

        Raises:
            Fenced: if the job has another owner.
        """
        deadline = self._durable_by()
        if deadline is not None and not self._publisher.is_flying(step):
            self._publisher.make_way(deadline)
        self._publisher.await_publication(self._time_left())
        return self._publisher.durable_step != step

    def close(
        self, phase: TrainingPhase, step: int, message: str = "", *, cut_off: bool = False, complete: bool = True
    ) -> None:
        """Report the end of this process. `complete`: whether a program may end after this step."""
        self._publisher.close()
        self.reporter.close()
        if self.reporter.tracker is not None:
            status = _RUN_STATUS.get(phase, RunStatus.FAILED)
            self.reporter.tracker.close(status, step, message, hurry=status in (RunStatus.SCHEDULED, RunStatus.RUNNING))
        end = self.clock.monotonic() + _NOTES_TIMEOUT
        for note in self._notes:
            note.join(max(0.0, (end - self.clock.monotonic()).total_seconds()))
        self.reporter.update(phase=phase, step=step, message=message, cut_off=cut_off, complete=complete)

    def _durable_by(self) -> timedelta | None:
        """Return the monotonic deadline after which a checkpoint is useless, or None without a deadline."""
        stop = self.requests.stop()
        by = (stop.term_at or stop.deadline) if stop is not None and stop.deadline is not None else None
        return timedelta(seconds=by) if by is not None else None

    def _time_left(self) -> timedelta | None:
        """Return the time until this machine ends, or None without a deadline."""
        stop = self.requests.stop()
        if stop is None or stop.deadline is None:
            return None
        return max(timedelta(), timedelta(seconds=stop.deadline) - self.clock.monotonic())

    def _interval_over(self, step: int) -> bool:
        elapsed = self.clock.monotonic() - self._last_begun
        if elapsed < _HEAD_EVERY or step == self._last_step:
            return False
        interval = self._interval.interval
        by_time = interval is not None and elapsed >= interval
        by_steps = self._policy.steps is not None and step - self._last_step >= self._policy.steps
        return by_time or by_steps

    def _snapshot(
        self,
        step: int,
        began: timedelta,
        trigger: str,
        info: dict[str, JsonValue],
        streams: Mapping[str, StreamFile],
        *,
        again: bool = False,
    ) -> Snapshot:
        directory = snapshot_directory(self.context, step)
        urgent = self._durable_by() is not None
        limit = sum(stream.size for stream in streams.values()) if urgent else None
        unchanged = self._user_files.add_to(directory, step, limit)
        info = info | self._interval.info()
        return Snapshot(step, directory, trigger, began, dict(streams), info, unchanged, again)

    @property
    def _fetched(self) -> Path:
        return Path(self.context.scratch_dir) / _FETCHED

    def _published(self, published: Checkpoint, snapshot: Snapshot) -> None:
        self._user_files.published(snapshot.step, published.parts)
        durable = self.clock.monotonic() - snapshot.began
        seconds = durable.total_seconds()
        self.reporter.update(durable_step=published.step, durable_at=published.created_at)
        size = sum(part.size for part in published.parts)
        self.note(
            EventKind.CHECKPOINTED,
            step=published.step,
            bytes=size,
            seconds=round(seconds, 3),
            trigger=snapshot.trigger,
        )
        self._interval.published(published.step, durable, size)

    def note(self, kind: EventKind, **data: JsonValue) -> None:
        """Write an event without waiting for it. If the store refuses it, the event is dropped and the error is
        logged."""

        def write() -> None:
            try:
                self._events.emit(kind, **data)
            except StoreError as error:
                log.warning("event %s was not written: %s", kind.value, error)

        thread = threading.Thread(target=write, name="everspot-event", daemon=True)
        with self._notes_lock:  # the loop and the thread that hears of publications may come here at once
            thread.start()
            self._notes = [*(note for note in self._notes if note.is_alive()), thread]

    def _clear_scratch(self) -> None:
        scratch = Path(self.context.scratch_dir)
        scratch.mkdir(parents=True, exist_ok=True)
        leftovers = [*scratch.glob("snapshot-*"), restore_directory(self.context), self._fetched]
        leftovers += [folder / _STREAMS for folder in memory_folders(self.context)]
        for leftover in leftovers:
            shutil.rmtree(leftover, ignore_errors=True)
