"""The trainer's public interface for training loops."""

import logging
import math
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import torch
from everspot_core.jobs.job import Precision
from everspot_core.jobs.recipes import Parallel
from everspot_store import StoreUnavailable
from pydantic import JsonValue

from everspot_train.rundir import RUN_DIR_VARIABLE, RunContext, RunDir, read_context
from everspot_train.step_profiler import LoopTimes, StepProfiler
from everspot_train.trainer.agent_link import AgentLink
from everspot_train.trainer.batch_fit import fit_batch_size
from everspot_train.trainer.checkpointer import Checkpointer
from everspot_train.trainer.data import BatchOrder
from everspot_train.trainer.environment import numeric_environment
from everspot_train.trainer.errors import RunFenced, RunStopped, TrainerError, is_clean, last_word
from everspot_train.trainer.feed_parts import Feed, count_batches, read_batch_size
from everspot_train.trainer.feeds import as_feed, read_epochs, steps_of_epochs
from everspot_train.trainer.generators import RandomGenerator, find_generators, frame_roots, is_generator
from everspot_train.trainer.loop_state import LoopState
from everspot_train.trainer.loop_timing import LoopTiming
from everspot_train.trainer.model_setup import Blocks, gradient_sync, set_up_model
from everspot_train.trainer.module_state import ModuleState
from everspot_train.trainer.precision import MixedPrecision
from everspot_train.trainer.randomness import LoopRandomness, seed_everything
from everspot_train.trainer.ranks import Ranks
from everspot_train.trainer.rehearsal import Recorder
from everspot_train.trainer.run_invariants import RunInvariants
from everspot_train.trainer.state import Stateful, TrainState, unwrapped
from everspot_train.trainer.stepper import Stepper
from everspot_train.trainer.trackable import check_names, check_tracked
from everspot_train.trainer.untracked import UntrackedState

log = logging.getLogger("everspot.trainer")


class Run:
    """One process of one training run. Open it with `Run.open`, and use it as a context manager.

    Under an agent (EVERSPOT_RUN_DIR is set) the run is restored, checkpointed and stopped as the agent and the job's
    spec say. Without one the same loop just trains: nothing is stored, and metrics go to the log.
    """

    def __init__(
        self,
        context: RunContext | None,
        ranks: Ranks,
        precision: Precision,
        accumulation: int,
        clip_norm: float | None,
        pins: RunInvariants,
    ) -> None:
        self._context, self._ranks, self._pins = context, ranks, pins
        self._amp = MixedPrecision(precision, ranks.device)
        self._accumulation, self._clip_norm = accumulation, clip_norm
        self._checkpointer: Checkpointer | None = None
        self._stepper: Stepper | None = None
        self._loader: Any = None
        self._feed: Feed | None = None
        self._stream: Generator[Any, None, None] | None = None
        self._randomness = LoopRandomness()
        self._random_roots: dict[str, Any] = {}
        self._model: torch.nn.Module | None = None
        self._recorder: Recorder | None = None
        self._profiler: StepProfiler | None = None
        self._restore_done = self._settled = self._is_fitted = False
        self._gradient_bytes = 0
        self._loop = LoopState(context.submission.spec.stop if context else None)
        self._timing = LoopTiming()
        self._modules = ModuleState({})
        self._untracked: UntrackedState | None = None
        self._departure: RunStopped | RunFenced | None = None
        self.state = TrainState(ranks.device)
        self.steps_done = 0

    @classmethod
    def open(
        cls,
        *,
        accumulation: int = 1,
        clip_norm: float | None = None,
        precision: Precision | str | None = None,
        seed: int | None = None,
        overlap_copies: bool | None = None,
    ) -> Self:
        """Open the run that the environment describes.

        Args:
            accumulation: losses per optimizer step. If the run goes on with another number of processes, it changes so
                that the global batch stays the same.
            clip_norm: largest norm of the gradient.
            precision: number format; None takes the job's, and `auto` without a job. `auto` means the format that the
                first attempt chose.
            seed: for the global random generators; None leaves them alone.
            overlap_copies: copy the weights and the state of optimizers for a checkpoint while the next forward and
                backward run, instead of between two steps. A weight that the loop changes before the optimizer steps
                is detected, and ends the overlap. None: on a GPU only.

        Raises:
            RunDirError: if EVERSPOT_RUN_DIR names a directory without a run.
            StateMismatch: if the run was begun with another precision.
            ValueError: if an argument makes no sense.
        """
        if accumulation < 1 or (clip_norm is not None and not clip_norm > 0):
            raise ValueError(f"accumulation ({accumulation}) must be 1 or more, clip_norm ({clip_norm}) above zero")
        rundir = RunDir.from_environment()
        context = read_context(rundir) if rundir else None
        of_job = context.submission.spec.precision if context else Precision.AUTO
        ranks = Ranks()
        link = AgentLink(rundir, context) if rundir and context and ranks.first else None
        pins = RunInvariants(ranks.share_object(link.pinned() if link else {}))
        lowered = context.mixed if context and context.submission.spec.mixed_on_failover else None
        chosen = pins.precision(Precision(precision) if precision else of_job, ranks.device, lowered=lowered)
        run = cls(context, ranks, chosen, accumulation, clip_norm, pins)
        run._recorder = Recorder.from_environment(rundir, ranks.rank)
        if seed is not None:
            seed_everything(seed, ranks.rank)
        if rundir and context:
            info = numeric_environment(ranks.device, run.precision.value, ranks.world_size)
            overlap = ranks.device.type == "cuda" if overlap_copies is None else overlap_copies
            run._checkpointer = Checkpointer(
                context, link, ranks, run.state, info, run._check_losses_finite, overlap=overlap
            )
            if ranks.first:
                run._profiler = StepProfiler(rundir, ranks.world_size, run._loop_times)
        else:
            log.info("no %s: training without an agent, nothing is checkpointed", RUN_DIR_VARIABLE)
        return run

    # Properties for the loop

    @property
    def device(self) -> torch.device:
        """The device for model and batches."""
        return self._ranks.device

    @property
    def rank(self) -> int:
        """The number of this process. Rank 0 communicates with agent and store."""
        return self._ranks.rank

    @property
    def world_size(self) -> int:
        """The number of processes that train together."""
        return self._ranks.world_size

    @property
    def precision(self) -> Precision:
        """The number format in use, never `auto`."""
        return self._amp.precision

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """`parameters` of the job's spec; empty without a job."""
        return dict(self._context.submission.spec.parameters) if self._context else {}

    def accumulation_for(self, batch_size: int | None) -> int:
        """Return the losses per optimizer step for this many samples per batch and process: the requested number, or
        the one that keeps the first attempt's global batch.

        Raises:
            StateMismatch: if no number keeps it.
        """
        return self._pins.accumulation(self._accumulation, batch_size, self.world_size)

    def fit_batch_size(self, global_batch: int, try_step: Callable[[int], None]) -> int:
        """Return the most samples per batch and process that divide the global batch and whose step fits the device's
        memory with a tenth to spare. Accumulation makes up the global batch. All ranks call it, before `track`.

        Args:
            global_batch: samples per optimizer step of all processes together.
            try_step: makes a training step with so many samples on a model and an optimizer of its own. Its draws do
                not change the random state of the run.

        Raises:
            ValueError: if the processes cannot share the global batch evenly.
            TrainerError: if not even the smallest batch fits.
        """
        size = fit_batch_size(global_batch, self._ranks, try_step, lambda: self._gradient_bytes)
        self._is_fitted = True
        self._accumulation = global_batch // (size * self.world_size)
        log.info("batch size %d, %d batches per step: %d samples", size, self._accumulation, global_batch)
        return size

    def steps_for(self, epochs: float, loader: Any) -> int:
        """Return the optimizer steps of `epochs` of this loader or batch sampler: `epochs` times its length, divided by
        the accumulation. A schedule needs the number before `batches(epochs=…)`.

        Raises:
            ValueError: if `epochs` is not above zero, or the loader does not know its length.
            StateMismatch: if the global batch cannot be that of the first attempt.
        """
        accumulation = self.accumulation_for(read_batch_size(loader))
        self._align(loader, accumulation)
        return steps_of_epochs(epochs, loader, accumulation)

    def _align(self, loader: Any, accumulation: int) -> None:
        """Have a step see the same samples whatever batch size was fitted to this machine."""
        order = loader if isinstance(loader, BatchOrder) else getattr(loader, "batch_sampler", None)
        if self._is_fitted and isinstance(order, BatchOrder):
            order.align(accumulation)

    @property
    def epoch(self) -> int:
        """The epoch of the newest batch, from 0: the number of times that the loader was read to its end before. It is
        known after `restore`."""
        return self._feed.epoch if self._feed else 0

    @property
    def resume_step(self) -> int:
        """The step from which this attempt goes on, 0 if there is no checkpoint. It is known before `track` and
        `restore`, so that a loop can first repeat what it had changed by then: unfrozen layers, parameter groups, a
        longer context. The first use fetches the checkpoint; all ranks have to use it.

        Raises:
            RunFenced: if the job has a later owner.
            CheckpointCorrupt: if there are checkpoints and none is whole.
        """
        return (self._checkpointer.fetch() or 0) if self._checkpointer else 0

    @property
    def last_loss(self) -> float:
        """Mean loss of the last optimizer step on this rank, also of an attempt before; NaN before the first. Reading
        it waits for the device, so do not read it at every step.

        Raises:
            NonFiniteLoss: if this loss, or an earlier one, is not finite.
        """
        self._check_losses_finite()
        return self._stepper.finite_checks.last_loss if self._stepper else math.nan

    # The steps of a loop

    def prepare(
        self,
        model: torch.nn.Module,
        *,
        channels_last: bool = False,
        compile: bool | str = False,
        activation_checkpointing: bool | Blocks = False,
        parallel: Parallel | str = Parallel.DDP,
    ) -> torch.nn.Module:
        """Return the model on `device`, parallelized over the ranks if there are several. Call it before the optimizer
        is made. The names in the model's state do not depend on any option.

        Args:
            channels_last: keep weights of images in this layout, on a GPU only.
            compile: compile the model with torch.compile; text names another backend than inductor.
            activation_checkpointing: recompute activations in the backward pass: of the blocks that the model repeats,
                or of the modules of these classes.
            parallel: how several ranks share the model.

        Raises:
            ValueError: if there are no blocks whose activations could be recomputed, or one holds a BatchNorm; for an
                unknown kind of parallelism.
        """
        return set_up_model(
            model,
            self.device,
            self.world_size,
            channels_last=channels_last,
            activation_checkpointing=activation_checkpointing,
            parallel=Parallel(parallel),
            compiler="inductor" if compile is True else compile or None,
        )

    def prepare_alone(
        self, model: torch.nn.Module, *, channels_last: bool = False, activation_checkpointing: bool | Blocks = False
    ) -> torch.nn.Module:
        """Return the model on `device` without parallelism, for the trial steps of `fit_batch_size`.

        Raises:
            ValueError: as `prepare`.
        """
        self._gradient_bytes = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
        return set_up_model(
            model,
            self.device,
            1,
            channels_last=channels_last,
            activation_checkpointing=activation_checkpointing,
            parallel=Parallel.DDP,
            compiler=None,
        )

    def track(
        self,
        *,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: Any,
        scheduler: Any | None = None,
        **others: Stateful | RandomGenerator,
    ) -> None:
        """Name the objects that make up the state. `others`: further ones with `state_dict` and `load_state_dict`,
        or random generators of python, numpy or torch.

        Raises:
            TypeError: if `loader` has no position that could be resumed, `scheduler` needs a metric, or an object has
                no state.
            ValueError: for a name that the trainer uses itself.
            UnsafeState: if the state of an object holds what could not be read back.
            UnsupportedState: if an object is sharded between ranks by FSDP1, ZeroRedundancyOptimizer or ShardedTensor,
                which no checkpoint can hold (DTensors, as `fully_shard` makes them, are saved as shards); or if an
                optimizer has parameters that no tracked object holds.
            StateMismatch: if the global batch cannot be that of the first attempt.
        """
        batch_size = read_batch_size(loader)
        accumulation = self.accumulation_for(batch_size)
        self._align(loader, accumulation)
        if self._checkpointer:
            self._checkpointer.pin(accumulation, batch_size)
        self._model, self._loader, self._feed, self._stream = model, loader, as_feed(loader), None
        self._stepper = Stepper(self._amp, optimizer, scheduler, accumulation, self._clip_norm)
        shared: dict[str, Stateful] = {"model": unwrapped(model), "optimizer": optimizer, "precision": self._amp}
        pieces: dict[str, Any] = {name: piece for name, piece in others.items() if not is_generator(piece)}
        self._random_roots = {name: piece for name, piece in others.items() if name not in pieces} | {"loader": loader}
        check_names(pieces)
        shared |= {"scheduler": scheduler} if scheduler is not None else {}
        shared |= {name: unwrapped(piece) for name, piece in pieces.items()}
        check_tracked(shared, self._ranks, checkpointed=self._checkpointer is not None)
        if self._checkpointer:
            self._checkpointer.track(shared)
        self._modules = ModuleState({n: p for n, p in shared.items() if isinstance(p, torch.nn.Module)})
        self._loop.track(self._stepper)
        self._untracked = UntrackedState(model, shared, lambda: self.steps_done, self._note_untracked)
        self.state.shared = shared | {"modules": self._modules, "run": self._loop}
        self.state.local = {"position": self._feed, "randomness": self._randomness}
        if self._recorder:
            self._recorder.track(self.state, model, loader)

    def finish(self) -> None:
        """Declare the run finished, however many steps are done.

        The loop ends after the current step, and the program may `break` immediately. Without this call a program that
        ends before its last step has failed. With several ranks the first one decides.
        """
        self._loop.finished = True
        if self._checkpointer:
            self._checkpointer.finish()

    def restore(self) -> int | None:
        """Load the newest whole checkpoint. Return its step, or None without a checkpoint. `batches` calls it if the
        loop does not.

        Raises:
            RunFenced: if the job has a later owner.
            StateMismatch: if the checkpoint does not fit what is tracked.
            CheckpointCorrupt: if there are checkpoints and none is whole.
        """
        self._tracked()
        self._restore_done = True
        step = self._checkpointer.restore() if self._checkpointer else None
        self.steps_done = step or 0
        return step

    def batches(self, total_steps: int | None = None, *, epochs: float | None = None) -> Iterator[Any]:
        """Yield batches until `total_steps` optimizer steps are done, over as many epochs as that takes, or until the
        steps of `epochs` are done, which may be a fraction. Both count from the job's very beginning.

        Between two steps, when the loop's body is over, it stops if the agent asks for it, and checkpoints when due.
        Random generators that the loader or the calling function refers to are part of the state.

        Raises:
            RunStopped: after the state was made durable. Let it pass.
            RunFenced: if the job has another owner. Let it pass.
            TrainerError: if `track` was not called, or an epoch has no batch.
            ValueError: unless there is either `total_steps` or `epochs`; for `epochs` of a loader without a length.
            UnsupportedState: if the loop changes an optimizer by a schedule, or steps one, that is not tracked.
        """
        stepper, _, _ = self._tracked()
        if epochs is not None and total_steps is None:
            total_steps = steps_of_epochs(epochs, self._loader, stepper.accumulation)
        elif total_steps is None or epochs is not None:
            raise ValueError("run.batches needs either total_steps or epochs=…, and not both")
        self._randomness.watch(find_generators(self._random_roots | frame_roots(sys._getframe(1))))
        return self._batches(total_steps, epochs)

    def _batches(self, total_steps: int, epochs: float | None) -> Iterator[Any]:
        stepper, feed, untracked = self._tracked()
        if not self._restore_done:
            self.restore()
        if epochs is not None:
            total_steps = self._loop.plan_epochs(epochs, total_steps)
        if self._recorder:
            total_steps = self._recorder.limit(total_steps, stepper.accumulation)
        self._loop.total_steps = total_steps = self._agree_on_steps(total_steps)
        if self._ranks.first:  # of an attempt before, which the agent of this one does not know
            self._stop_early()
        if self._checkpointer:
            self._checkpointer.begin(self.steps_done, total_steps, self._loop.metrics, self._timing)
            batches = count_batches(self._loader)
            self._checkpointer.report_epochs(batches / stepper.accumulation if batches else None)
        over, goes_on = self._loop.finished, self._goes_on()  # `over`: since an attempt before
        if self._stream is None and goes_on:
            if self._settled:  # the code after a loop has run since, and what it drew counts
                self._randomness.load_state_dict(self._randomness.state_dict())
            self._stream = read_epochs(feed, feed.open_epoch(), self._epoch_over)
            # Last of all: whatever the program and the loader have drawn until now, the next batch is drawn as before.
            self._modules.apply_pending()
            self._randomness.apply_pending()
        elif self._stream is None:  # nothing to do here; a later loop of the program may go on
            # The checkpoint of a loop's end is from before the code after the loop, which runs again now.
            self._settled = self._loop.restored_total_steps == total_steps == self.steps_done
            self._modules.apply_pending(last=self._settled)
            self._randomness.apply_pending(last=self._settled)
        stepper.begin_loop()
        untracked.begin()
        try:
            while True:
                if stepper.at_boundary or over:
                    self._timing.end_step()
                    if self._recorder:
                        self._recorder.boundary(self.steps_done)
                    if not self._goes_on():
                        self._profile_steps()
                        break
                    if self._recorder:
                        self._recorder.wait(self.steps_done)
                    self._between_steps(stepper.metrics())
                    self._profile_steps()
                    self._timing.begin_step()
                elif self._checkpointer:  # a checkpoint can be published before a long step is over
                    self._checkpointer.finish_copies(wait=False)
                assert self._stream is not None  # noqa: S101 - there is a step to do
                with self._timing.waiting(), untracked.tracked_read():
                    batch = next(self._stream)
                stepper.count_batch()
                if self._recorder:
                    self._recorder.batch(batch)
                with gradient_sync(self._model, stepper.completes):
                    yield batch
        finally:
            self._end_loop()
        self._check_losses_finite()
        if self._checkpointer:
            self._checkpointer.checkpoint_after_loop(self.steps_done, stepper.metrics())
        if self._recorder:
            self._recorder.wait(self.steps_done, over=True)

    def _agree_on_steps(self, total_steps: int) -> int:
        """Return the first rank's number of steps. A rank that ended its loop alone would leave the others waiting."""
        numbers = self._ranks.gather(total_steps)
        if self._ranks.first and len(set(numbers)) > 1:
            log.warning(
                "the loaders of the ranks make %s steps: every rank does the first one's %d. A schedule that was made "
                "from run.steps_for differs between the ranks",
                ", ".join(map(str, numbers)),
                numbers[0],
            )
        return int(numbers[0])

    def _between_steps(self, metrics: dict[str, float]) -> None:
        if self._checkpointer:
            try:
                self._checkpointer.between_steps(self.steps_done, metrics)
            except (RunStopped, RunFenced) as departure:
                self._departure = departure  # also if the program catches it
                raise

    def _profile_steps(self) -> None:
        if self._profiler:
            self._profiler.between_steps(self.steps_done, self._loader)

    def _loop_times(self) -> LoopTimes:
        return LoopTimes(self._timing.loop_seconds, self._timing.wait_seconds)

    def _goes_on(self) -> bool:
        """Return whether there are more steps, the same on all ranks."""
        finished = bool(self._ranks.share(int(self._loop.finished)))
        self._loop.finished = finished
        return not finished and (self._loop.total_steps is None or self.steps_done < self._loop.total_steps)

    def _end_loop(self) -> None:
        if self._stepper:
            self._stepper.end_loop()
        if self._untracked:
            self._untracked.end()

    def _note_untracked(self, subject: str) -> None:
        if self._checkpointer:
            self._checkpointer.note_untracked(subject)

    def _epoch_over(self) -> None:
        if self._recorder:
            self._recorder.epoch_over(self.steps_done)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the mixed-precision context for the forward pass and the loss."""
        return self._amp.autocast()

    def step(self, loss: torch.Tensor) -> bool:
        """Do the backward pass and, when enough losses are accumulated, the optimizer step. Return whether the
        optimizer was stepped.

        Raises:
            NonFiniteLoss: on a processor before the optimizer is stepped; on a GPU, which is not waited for, some steps
                later, but before a checkpoint is taken. With fp16 such a step is left out instead.
        """
        stepper, _, _ = self._tracked()
        if self._recorder:
            self._recorder.loss(loss)
        if not stepper.take(loss, self.steps_done):
            return False
        self.steps_done += 1
        return True

    def log(self, **metrics: float) -> None:
        """Record metrics of the current step. The loss is recorded automatically."""
        values = {name: float(value) for name, value in metrics.items()}
        self._loop.log(values)
        if self._ranks.first:
            self._loop.evaluate(self.steps_done, values)
            self._stop_early()
        if self._recorder:
            self._recorder.metrics(values)
        if self._checkpointer:
            self._checkpointer.log(self.steps_done, values)
        elif self._ranks.first:
            log.info("step %d: %s", self.steps_done, ", ".join(f"{n}={v:.6g}" for n, v in values.items()))

    def _stop_early(self) -> None:
        """End the loop behind the present step if the job's `stop` says so, and report why. A loop that has no step
        left is not ended early."""
        early_stop, total_steps = self._loop.early_stop, self._loop.total_steps
        if early_stop is None or (total_steps is not None and self.steps_done >= total_steps):
            return
        if not self._loop.finished:
            log.info("%s", early_stop.sentence)
        self.finish()
        if self._checkpointer:
            self._checkpointer.report_early_stop(early_stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._recorder:
            self._recorder.end(self.steps_done, error)
        self._end_loop()
        if is_clean(error) and self._departure is not None:
            error = self._departure
        try:
            if self._checkpointer and is_clean(error) and self._stepper is not None:
                self._checkpointer.checkpoint_at_end(self.steps_done)
        except BaseException as late:
            self._close(late)
            raise
        self._close(error)

    def _check_losses_finite(self) -> None:
        """Wait for the device and check every loss so far."""
        if self._stepper:
            self._stepper.finite_checks.look(wait=True)

    def _tracked(self) -> tuple[Stepper, Feed, UntrackedState]:
        if self._stepper is None or self._feed is None or self._untracked is None:
            raise TrainerError("call run.track(model=…, optimizer=…, loader=…) first")
        return self._stepper, self._feed, self._untracked

    def _close(self, error: BaseException | None) -> None:
        if self._profiler:
            self._profiler.close(hurry=isinstance(error, RunStopped | RunFenced))
        if self._checkpointer:
            if self._loop.unreported_metric and error is None and self._ranks.first:
                log.warning("stop: the program has never called run.log(%s=…)", self._loop.unreported_metric)
            phase, message = last_word(error)
            cut_off = isinstance(error, StoreUnavailable)  # an error of the machine, not of the program
            if self._loop.total_steps is None:
                self._loop.total_steps = self._checkpointer.total_steps_before
            complete = self._loop.complete(self.steps_done)
            self._checkpointer.close(phase, self.steps_done, message, cut_off=cut_off, complete=complete)
        if self._stream is not None:  # a loader's workers live as long as its iterator
            self._stream.close()
        if self._feed:
            self._feed.close()
        self._ranks.leave()
