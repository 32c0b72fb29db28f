"""Accelerate: `ResumableLoop(accelerator)` gives a user's loop its epochs and batches.

At a notice the loop ends between two optimizer steps, after `accelerator.save_state`, and the program ends. The next
attempt continues from the newest checkpoint. Accelerate itself restores what was prepared and registered. Added are the
epoch, the position in the data, and the random numbers of each rank.
"""

import json
import logging
import math
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from everspot_train.frameworks.attempt import FrameworkAttempt, StepDecision
from everspot_train.frameworks.calls import CallLabels, PastCall, read_call_site
from everspot_train.frameworks.random_states import read_random_states, restore_random_states
from everspot_train.rundir import COMPLETE_MARKER
from everspot_train.trainer.errors import RunStopped
from everspot_train.trainer.warm_start import ScheduleAdvance

_FOLDER = "everspot"
_MOST_OWN = 2
"""The most checkpoints of one loop that are kept on the disk."""
_CALL = "everspot-call.json"
"""The file in a checkpoint with the place of the loop in the program."""
_log = logging.getLogger(__name__)
_labels = CallLabels()


class ResumableLoop:
    """The epochs and batches of one loop. Make it after `accelerator.prepare` and `register_for_checkpointing`.

    Its checkpoints lie in the folder `checkpoints/everspot`. Without an agent it only yields epochs and batches.

    Args:
        name: tells this loop from others of the program, if an attempt may skip some of them.

    Attributes:
        step: optimizer steps since the loop's very beginning.

    Raises:
        ValueError: if the name is not allowed, or the loaders restore themselves.
    """

    def __init__(self, accelerator: Accelerator, *, name: str | None = None) -> None:
        self.step = 0
        self._accelerator = accelerator
        self._attempt = FrameworkAttempt.from_environment()
        self._position = _Position(self._attempt)
        self._folder = Path()
        self._epochs = 0
        self._resuming = self._finished = False
        if self._attempt is None:
            return
        if accelerator.use_stateful_dataloader:  # its state lacks the order of the epoch
            raise ValueError(
                "DataLoaderConfiguration: use_stateful_dataloader=True would repeat samples after a resume; remove it: "
                "this loop restores the position in the data itself"
            )
        self._site = read_call_site()
        label = _labels.assign(name, self._site, _past_loops(self._attempt.folder / _FOLDER))
        self._folder = self._attempt.folder / _FOLDER / f"loop-{label}"
        accelerator.register_for_checkpointing(self._position)
        newest = _newest_checkpoint(self._folder)
        self._schedules = ScheduleAdvance({})
        if newest is not None:
            self._schedules = ScheduleAdvance(self._named_schedules())
            accelerator.load_state(str(newest))
            self.step = self._position.step
            self._resuming = self._is_of_as_many_ranks()
        self._attempt.listen()
        self._attempt.note_saved(self.step)

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the epochs that are left of `count`, from 0. What the body does behind its batches, such as an
        evaluation, belongs to the epoch.

        Raises:
            RunStopped: after the state was saved at a notice. Let it pass.
        """
        self._epochs = count
        if self._position.is_of_smaller_run:
            self._begin_larger_run(count)
        if self._resuming and not self._position.batch:
            self._restore_random_states("now")
            self._resuming = False
        if self._attempt is not None and self._position.epoch >= count:
            self._attempt.end_call(self.step)
        try:
            while self._position.epoch < count:
                epoch = self._position.epoch
                yield epoch
                if self._attempt is not None and self._attempt.stop.should_end(epoch + 1, count):
                    self._finished = True
                self._position.epoch, self._position.batch = count if self._finished else epoch + 1, 0
                if self._attempt is None:
                    continue
                if self._position.epoch == count:
                    self._save()  # a program that is interrupted behind the loop does not train again
                    self._attempt.end_call(self.step)
                else:
                    self._between_steps()
        finally:
            if self._attempt is not None:
                self._attempt.close()

    def _begin_larger_run(self, count: int) -> None:
        """Go on from a smaller run: in its next epoch, or if it made as many epochs, of less data, from the first."""
        states = {name: schedule.state_dict() for name, schedule in self._named_schedules().items()}
        if self._position.epoch >= count:
            self._position.epoch, states = 0, {}
        self._position.batch, self._position.is_of_smaller_run = 0, False
        for sentence in self._schedules.advance(states):
            _log.warning("warm start: skipped: %s", sentence)

    def _named_schedules(self) -> dict[str, Any]:
        return {f"schedule {n}": prepared.scheduler for n, prepared in enumerate(self._accelerator._schedulers)}

    def finish(self) -> None:
        """Let the present epoch be the last one, as for early stopping. All ranks call it."""
        self._finished = True

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of the present epoch that are left, of a loader that was prepared.

        Raises:
            RunStopped: after the state was saved at a notice. Let it pass.
        """
        attempt, position = self._attempt, self._position
        if attempt is None:
            for batch in loader:
                yield batch
                self.step += bool(self._accelerator.sync_gradients)
            return
        set_epoch = getattr(loader, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(position.epoch)
        batches = _length(loader)
        steps = math.ceil(batches / self._accelerator.gradient_accumulation_steps) if batches else None
        attempt.report(self.step, total_steps=self._epochs * steps if steps else None, steps_per_epoch=steps)
        if self._resuming:
            self._restore_random_states("epoch", loader)
            epoch_states = position.rank_states[self._accelerator.process_index]["epoch"] if position.batch else None
            remaining = self._accelerator.skip_first_batches(loader, position.batch)
        else:
            epoch_states, remaining = None, loader
        epoch_states = epoch_states or _read_states(loader)
        position.epoch_states = epoch_states
        for batch in remaining:
            if self._resuming:
                self._restore_random_states("now")
                self._resuming = False
            yield batch
            position.batch += 1
            if self._accelerator.sync_gradients:
                self.step += 1
                attempt.report(self.step)
                if not self._accelerator.gradient_state.end_of_dataloader:  # else the epoch's body is done first
                    self._between_steps()

    def log(self, **metrics: float) -> None:
        """Report metrics of the present step: numbers, or tensors of one. The job's `stop` ends the loop behind the
        epoch."""
        if self._attempt is not None:
            self._attempt.report(self.step, metrics)
            self._attempt.evaluate(self.step, metrics)

    def _between_steps(self) -> None:
        assert self._attempt is not None  # noqa: S101 - without an agent there is nothing to decide
        decision = self._attempt.decide_between_steps(self.step)
        if decision is StepDecision.GO_ON:
            return
        self._save()
        if decision is StepDecision.STOP:
            raise RunStopped(self.step)

    def _save(self) -> None:
        """Save a checkpoint: under another name first, so that it is complete as soon as it has its own. The marker
        tells the agent so, even if it never saw the other name."""
        assert self._attempt is not None  # noqa: S101 - as above
        accelerator, position = self._accelerator, self._position
        states = {"now": _read_states(None), "epoch": position.epoch_states}
        position.step, position.rank_states = self.step, self._attempt.gather(states)
        folder = self._folder / f"step_{self.step}-{position.epoch}"
        temporary = folder.with_name(f"{folder.name}.tmp")
        if accelerator.is_main_process:
            shutil.rmtree(temporary, ignore_errors=True)
        accelerator.wait_for_everyone()
        settings = accelerator.project_configuration
        automatic, settings.automatic_checkpoint_naming = settings.automatic_checkpoint_naming, False
        try:
            accelerator.save_state(str(temporary))
        finally:
            settings.automatic_checkpoint_naming = automatic
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            call = {"site": self._site, "finished": bool(self._epochs) and position.epoch >= self._epochs}
            (temporary / _CALL).write_text(json.dumps(call))
            (temporary / COMPLETE_MARKER).touch()
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
            for path in _checkpoints(self._folder)[:-_MOST_OWN]:
                shutil.rmtree(path, ignore_errors=True)
        self._attempt.note_saved(self.step, folder)

    def _is_of_as_many_ranks(self) -> bool:
        """Return whether the checkpoint that was loaded is of as many ranks. Else the epoch begins anew."""
        ranks = len(self._position.rank_states)
        if ranks == self._accelerator.num_processes:
            return True
        _log.warning("the checkpoint is of %d ranks: the epoch's data and random numbers begin anew", ranks)
        self._position.batch = 0
        return False

    def _restore_random_states(self, moment: str, loader: Any = None) -> None:
        """Set the random numbers of a moment of the checkpoint: `now`, when it was saved, or `epoch`, when its epoch
        began."""
        states = self._position.rank_states[self._accelerator.process_index][moment]
        if states is None:
            return
        restore_random_states(states["global"])
        generator = getattr(loader, "synchronized_generator", None)
        if generator is not None and states["loader"] is not None:
            generator.set_state(states["loader"])


class _Position:
    """What the loop adds to a checkpoint of Accelerate.

    Attributes:
        epoch: the present epoch, from 0.
        batch: the batches of it that are done.
        step: optimizer steps that are done.
        epoch_states: this rank's random numbers when the epoch began, which order its data; None between two epochs.
        rank_states: the random numbers of each rank.
        is_of_smaller_run: whether the position is that of the smaller run from which a warm start began.

    Args:
        attempt: whose `stop` and steps of earlier loops belong to the state; None without an agent.
    """

    def __init__(self, attempt: FrameworkAttempt | None) -> None:
        self._attempt = attempt
        self.is_of_smaller_run = False
        self.epoch = self.batch = self.step = 0
        self.epoch_states: dict[str, Any] | None = None
        self.rank_states: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        """Return the state, of values that need no pickle."""
        attempt = self._attempt
        return {
            "epoch": self.epoch, "batch": self.batch, "step": self.step, "ranks": self.rank_states,
            "stop": attempt.stop.state_dict() if attempt is not None else None,
            "job": attempt.job if attempt is not None else None,
            "steps_before": attempt.steps_before if attempt is not None else 0,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state."""
        self.epoch, self.batch, self.step = state_dict["epoch"], state_dict["batch"], state_dict["step"]
        self.rank_states = state_dict["ranks"]
        attempt = self._attempt
        self.is_of_smaller_run = attempt is not None and attempt.is_of_smaller_run(state_dict.get("job"))
        if attempt is not None and not self.is_of_smaller_run:
            attempt.stop.load_state_dict(state_dict.get("stop"))
            attempt.steps_before = state_dict.get("steps_before", attempt.steps_before)


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a loop, the newest last."""

    def order(path: Path) -> tuple[int, ...]:
        return tuple(int(number) for number in path.name.removeprefix("step_").split("-"))

    return sorted((path for path in folder.glob("step_*") if path.suffix != ".tmp"), key=order)


def _newest_checkpoint(folder: Path) -> Path | None:
    checkpoints = _checkpoints(folder)
    return checkpoints[-1] if checkpoints else None


def _past_loops(folder: Path) -> dict[int, PastCall]:
    """Return the unnamed loops of earlier attempts, by number."""
    loops = dict[int, PastCall]()
    for path in folder.glob("loop-*"):
        number, newest = path.name.removeprefix("loop-"), _newest_checkpoint(path)
        if newest is not None and number.isdigit():
            file = newest / _CALL  # checkpoints of earlier versions have none
            call: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"site": (), "finished": False}
            loops[int(number)] = PastCall(tuple(call["site"]), call["finished"])
    return loops


def _length(loader: Any) -> int | None:
    """Return the number of batches; None if it is not known."""
    try:
        return len(loader)
    except TypeError:  # loaders of a stream have the method, but no length
        return None


def _read_states(loader: Any) -> dict[str, Any]:
    generator = getattr(loader, "synchronized_generator", None)
    loader_state = generator.get_state() if isinstance(generator, torch.Generator) else None
    return {"global": read_random_states(), "loader": loader_state}
