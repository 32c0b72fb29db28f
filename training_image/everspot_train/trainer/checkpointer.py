"""Restores, checkpoints and stops a run, in agreement between all ranks."""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from everspot_core.jobs.checkpoint import AFTER_LOOP, SAVED_BY, Checkpoint
from everspot_core.jobs.early_stop import EarlyStop
from everspot_core.jobs.events import STOP_TRIGGER
from everspot_core.jobs.job import Precision
from everspot_core.jobs.records import EventKind
from everspot_store import Fenced, SystemClock
from pydantic import JsonValue

from everspot_train.checkpoint.manifest import stream_name
from everspot_train.checkpoint.memory import SharedMemory
from everspot_train.checkpoint.saver import Saver
from everspot_train.rundir import RunContext, TrainingPhase
from everspot_train.trainer.agent_link import (
    AgentLink,
    Decision,
    memory_file,
    memory_folders,
    restore_directory,
    restored_streams,
    snapshot_directory,
)
from everspot_train.trainer.environment import process_age
from everspot_train.trainer.errors import RunFenced, RunStopped
from everspot_train.trainer.loop_timing import LoopTiming
from everspot_train.trainer.precision import mixed
from everspot_train.trainer.ranks import Ranks
from everspot_train.trainer.state import TrainState
from everspot_train.trainer.step_window import StepWindow
from everspot_train.writer.protocol import StreamFile

log = logging.getLogger("everspot.trainer")

_FENCED = -1
_RESERVE_TIMEOUT = timedelta(minutes=10)
"""The longest time for reserving memory. A file on disk may take minutes."""
TOTAL_STEPS = "total_steps"
"""In a checkpoint's `info`: how many steps the loop was to make."""


@dataclass(frozen=True, slots=True)
class _Staging:
    """A snapshot whose tensors are not copied yet. `began`: the monotonic time; `streams`: the memory of all ranks."""

    began: timedelta
    streams: dict[str, StreamFile]


class Checkpointer:
    """Keeps the state of one rank durable. The first rank has the link to agent and store; the others follow its
    decisions.

    Args:
        context: the run as the agent describes it.
        link: on the first rank only.
        state: the state to keep.
        check_losses_finite: raises if a loss so far was not finite; called before each snapshot.
        info: the environment that the numbers depend on; stored with each checkpoint, and compared at the resume.
        overlap: copy what only optimizers change while the next forward and backward run.
    """

    def __init__(
        self,
        context: RunContext,
        link: AgentLink | None,
        ranks: Ranks,
        state: TrainState,
        info: dict[str, JsonValue],
        check_losses_finite: Callable[[], None],
        *,
        overlap: bool,
    ) -> None:
        self._context, self._link, self._ranks, self._state = context, link, ranks, state
        self._info = info | {SAVED_BY: context.submission.home_id}
        self._check_losses_finite = check_losses_finite
        self._clock = SystemClock.from_environment()
        self._memory = SharedMemory(memory_folders(context), memory_file(ranks.rank), ranks.device)
        self._saver = Saver(self._memory, ranks.rank, ranks.gather, ranks.device)
        self._overlap, self._window = overlap, StepWindow({}, self.finish_copies, ranks.device)
        self._copied_step, self._stall = 0, timedelta()
        self._reserving: threading.Thread | None = None
        self._restored: Checkpoint | None = None
        self._fetched, self._step_fetched = False, 0
        self._final: str | None = None
        self._steps_made = 0

    def track(self, pieces: Mapping[str, Any]) -> None:
        """Take the tracked objects, whose tensors may be copied until an optimizer steps."""
        if self._overlap:
            self._window = StepWindow(pieces, self.finish_copies, self._ranks.device)

    def finish_copies(self, *, wait: bool = True) -> None:
        """Complete the copy of the snapshot, which goes on beside the loop. Each rank decides alone: if one rank
        discards its part, the checkpoint is not published.

        Args:
            wait: Whether to wait for the copy. Otherwise it is completed only if all is copied.
        """
        if not self._saver.is_copying:
            return
        try:
            changed = self._saver.finish(self._count_stall, wait=wait)
            reason = f"{changed} was changed before the optimizer stepped" if changed else ""
        except RuntimeError as error:  # of CUDA, or a lack of memory for the copies' sums
            reason = f"its copy failed: {error}"
        if reason:
            self._overlap = False
            log.warning(
                "the checkpoint of step %d is discarded, and the next ones stop the loop while they are copied: %s",
                self._copied_step,
                reason,
            )

    def _count_stall(self, seconds: float) -> None:
        if self._link:
            self._link.report_copied(self._copied_step, self._stall + timedelta(seconds=seconds))

    def pin(self, accumulation: int, batch_size: int | None) -> None:
        """Store the global batch with each checkpoint, so that later attempts use the same one."""
        whole = batch_size * accumulation * self._ranks.world_size if batch_size else None
        self._info = self._info | {"accumulation": accumulation, "global_batch": whole}

    def fetch(self) -> int | None:
        """Fetch the newest whole checkpoint, once. Return its step, or None without a checkpoint. All ranks call it."""
        if not self._fetched:
            self._step_fetched = self._on_rank_0(self._fetch)
            self._fetched = True
        return self._step_fetched or None

    @property
    def total_steps_before(self) -> int | None:
        """The total steps of the attempt before, on the first rank; None without a checkpoint."""
        total = self._restored.info.get(TOTAL_STEPS) if self._restored else None
        return total if isinstance(total, int) else None

    def restore(self) -> int | None:
        """Load the newest whole checkpoint into the tracked objects. Return its step, or None without a checkpoint."""
        if self.fetch() is None:
            return None
        self._on_rank_0(lambda link: link.begin_loading())
        directory, streams = restore_directory(self._context), restored_streams(self._context)
        fitting = self._context.submission.warm_start and bool(self._on_rank_0(lambda link: self._is_of_smaller_run()))
        step, took_part = self._state.load(directory, self._ranks.rank, streams, fitting=fitting)
        if not took_part:
            log.warning("rank %d took no part in the checkpoint: its random numbers start afresh", self._ranks.rank)
        self._ranks.meet()
        if self._link:
            self._link.drop_restored()
        return step

    def _is_of_smaller_run(self) -> bool:
        """Return whether another job saved the restored checkpoint. Epoch 0 alone does not tell: a job that has moved
        to another cluster finds its own checkpoint there under epoch 0."""
        if self._restored is None or self._restored.epoch:
            return False
        return self._restored.info.get(SAVED_BY) != self._info[SAVED_BY]

    def begin(self, step: int, total_steps: int, metrics: dict[str, float], timing: LoopTiming) -> None:
        """Report that training begins, or goes on, at `step`. `metrics`: the metrics of earlier attempts; `timing`: of
        the loop, reported with each step."""
        self._info, self._final = self._info | {TOTAL_STEPS: total_steps}, None
        if self._link:
            self._link.reporter.timing = timing
            lower = mixed(Precision(str(self._info["precision"])))
            self._link.report_training_started(
                step, total_steps, self._restored, process_age(), mixed=lower, metrics=metrics
            )

    def report_epochs(self, steps_per_epoch: float | None) -> None:
        """Report the optimizer steps of one epoch; None: the loader does not know its length."""
        if self._link:
            self._link.reporter.update(steps_per_epoch=steps_per_epoch)

    def reserve_memory(self, size: int) -> None:
        """Begin to reserve memory for checkpoints while the loop goes on. `size`: of this rank's part, in bytes.

        The first checkpoint requests again what is missing, and reports a failure.
        """

        def reserve() -> None:
            with suppress(OSError):
                self._memory.reserve(size)

        self._reserving = threading.Thread(target=reserve, name="everspot-memory", daemon=True)
        self._reserving.start()

    def finish(self) -> None:
        """Report that the program is finished, however many steps are done."""
        if self._link:
            self._link.reporter.update(complete=True)

    def report_early_stop(self, early_stop: EarlyStop) -> None:
        """Report why the job's `stop` ends training."""
        if self._link:
            self._link.report_early_stop(early_stop)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Record metrics of `step`. Only the first rank's metrics count."""
        if self._link:
            self._link.reporter.log(step, metrics)

    def note_untracked(self, subject: str) -> None:
        """Write an event: the loop uses something that no checkpoint holds."""
        if self._link:
            self._link.note(EventKind.NOT_TRACKED, what=subject)

    def between_steps(self, step: int, metrics: dict[str, float]) -> None:
        """Report progress, and carry out the request of the agent or of the checkpoint policy.

        Raises:
            RunStopped: after the state was made durable.
            RunFenced: if the job has another owner.
        """
        self.finish_copies()  # the scaler may have left out the step
        if self._steps_made == 1:  # since then optimizers have a state, and the size is known
            self.reserve_memory(self._state.size(self._ranks.world_size))
        self._steps_made += 1
        if self._link:
            self._link.report_step(step, metrics)
        decision = self._on_rank_0(lambda link: link.decide_between_steps(step))
        if decision == Decision.LEAVE:
            raise RunFenced("the lease is over")
        if decision == Decision.STOP:
            self.checkpoint_now(step, STOP_TRIGGER)
            raise RunStopped(step)
        if decision == Decision.CHECKPOINT:
            self.checkpoint_in_background(step, self._link.trigger if self._link else "")
        if self._link:
            self._link.step_begins()

    def checkpoint_in_background(self, step: int, trigger: str) -> None:
        """Take a snapshot and publish it while the loop goes on. Without enough memory for the snapshot, training goes
        on without it."""

        def publish(staging: _Staging) -> None:
            if self._link:
                self._link.publish_in_background(step, trigger, staging.began, self._info, staging.streams)

        began, self._copied_step = self._clock.monotonic(), step
        try:
            saved = self._snapshot(step, publish, overlap=self._overlap and trigger != "final")
        except OSError as error:
            log.warning("no checkpoint of step %d, training goes on: %s", step, error)
            if self._link:
                self._link.skip_interval()
            return
        if saved and trigger != "final":  # after it nothing is stalled any more
            self._stall = self._clock.monotonic() - began
            if not self._saver.is_copying:
                self._count_stall(0)

    def checkpoint_after_loop(self, step: int, metrics: dict[str, float]) -> None:
        """Take the final snapshot of the loop and publish it while the program goes on."""
        if self._link:
            self._link.reporter.log(step, metrics)
            self._link.reporter.update(step=step)
        self.checkpoint_in_background(step, "final")
        self._final = self._state.fingerprint()

    def checkpoint_now(self, step: int, trigger: str) -> None:
        """Make `step` durable before returning."""
        if self._link:
            self._link.reporter.update(phase=TrainingPhase.CHECKPOINTING, step=step)
        self._make_durable(step, trigger, self._info)

    def checkpoint_at_end(self, step: int) -> None:
        """Make the state at the end of the program durable. If code after the loop has changed what is tracked, this
        is a second checkpoint of the same step, marked as such: a resume prefers the one before that code."""
        self.finish_copies()
        if step and any(self._ranks.gather(self._final is None or self._final != self._state.fingerprint())):
            if self._link:
                self._link.reporter.update(phase=TrainingPhase.CHECKPOINTING, step=step)
            again = bool(self._on_rank_0(lambda link: not link.needs_snapshot(step)))
            info = self._info | ({AFTER_LOOP: True} if self._final is not None else {})
            self._make_durable(step, "final", info, again=again)
            return
        self.checkpoint_now(step, "final")

    def close(self, phase: TrainingPhase, step: int, message: str, *, cut_off: bool, complete: bool) -> None:
        """Report the end of this process. `complete`: whether a program may end after this step."""
        self.finish_copies()
        if self._link:
            self._link.close(phase, step, message, cut_off=cut_off, complete=complete)
            self._link = None
        if phase is TrainingPhase.FINISHED:  # the next attempt of a job that goes on may be on this machine
            self._memory.close()

    def _make_durable(self, step: int, trigger: str, info: dict[str, JsonValue], *, again: bool = False) -> None:
        def publish(staging: _Staging) -> None:
            self._on_rank_0(
                lambda link: link.publish_now(step, trigger, staging.began, info, staging.streams, again=again)
            )

        if self._snapshot(step, publish, again=again):
            self._on_rank_0(lambda link: link.wait_until_durable())

    def _snapshot(
        self, step: int, publish: Callable[[_Staging], None], *, again: bool = False, overlap: bool = False
    ) -> bool:
        """Copy the state into memory on all ranks, unless it is durable already. Return whether it was copied.

        `publish` is called when the copies begin: what has been copied is uploaded while the rest is being copied.
        `again`: copy it also if the step is durable. Step 0 needs no checkpoint, since a new start gives the same
        state. `overlap`: copy some of it when this has returned: `finish_copies` comes next.
        """
        self.finish_copies()
        began = self._clock.monotonic()
        if step == 0 or not (again or self._on_rank_0(lambda link: link.needs_snapshot(step))):
            return False
        self._check_losses_finite()
        self._await_memory()

        def begin(sizes: list[int]) -> None:
            memories = self._ranks.gather((str(self._memory.path), self._memory.counter_at))
            streams = {
                stream_name(rank): StreamFile(path=path, size=size, counter_at=counter_at)
                for rank, ((path, counter_at), size) in enumerate(zip(memories, sizes, strict=True))
            }
            publish(_Staging(began, streams))

        directory = snapshot_directory(self._context, step)
        stable_paths = self._window.stable_paths if overlap else lambda tensors: ()
        self._state.save(directory, step, self._ranks.rank, self._saver, self._ranks.gather, begin, stable_paths)
        return True

    def _await_memory(self) -> None:
        """Wait until the memory for checkpoints is reserved. All ranks call it.

        Raises:
            TimeoutError: if that takes too long on any of them.
        """
        if self._reserving is not None:
            self._reserving.join(_RESERVE_TIMEOUT.total_seconds())
        late_ranks = self._ranks.gather(self._reserving is not None and self._reserving.is_alive())
        if any(late_ranks):
            ranks = [rank for rank, is_late in enumerate(late_ranks) if is_late]
            raise TimeoutError(
                f"the memory for checkpoints was not reserved within {_RESERVE_TIMEOUT} on ranks {ranks}"
            )

    def _on_rank_0(self, action: Callable[[AgentLink], int | None]) -> int:
        """Run `action` on rank 0, and return its result on all ranks. The result is shared as a number: None, False and
        step 0 are 0."""
        shared = 0
        if self._link:
            try:
                shared = int(action(self._link) or 0)
            except Fenced as error:
                log.warning("this process owns the job no more: %s", error)
                shared = _FENCED
        shared = self._ranks.share(shared)
        if shared == _FENCED:
            raise RunFenced("the job has another owner")
        return shared

    def _fetch(self, link: AgentLink) -> int:
        """Return the step of the fetched checkpoint, or 0 without one, since step 0 has no checkpoint."""
        self._restored = checkpoint = link.restore()
        link.drop_memory(self._ranks.world_size)
        if checkpoint is None:
            return 0
        for name, now in sorted(self._info.items()):
            if name != SAVED_BY and checkpoint.info.get(name, now) != now:
                log.warning(
                    "%s was %s and is %s now: the resumed numbers may differ from an uninterrupted run's last bits",
                    name,
                    checkpoint.info[name],
                    now,
                )
        return checkpoint.step
