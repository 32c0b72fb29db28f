"""Hugging Face's `Trainer`: `train(trainer)` in place of `trainer.train()`.

At a notice the Trainer finishes the step, with an evaluation that belongs to it, saves its own checkpoint, and the
program ends. The next attempt resumes from the newest checkpoint: data position, random numbers, schedule, best model
and the state of callbacks such as `EarlyStoppingCallback`.
"""

import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everspot_core.documents import Document
from everspot_core.jobs.early_stop import EarlyStop
from pydantic import ValidationError
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import TrainOutput, get_last_checkpoint

from everspot_train.frameworks.attempt import FrameworkAttempt, StepDecision
from everspot_train.frameworks.calls import CallLabels, PastCall, read_call_site
from everspot_train.rundir import read_regular
from everspot_train.trainer.errors import RunStopped
from everspot_train.trainer.warm_start import ScheduleAdvance

_MOST_BYTES = 1 << 20
_FINISHED = "everspot-finished.json"
_log = logging.getLogger(__name__)
_labels: dict[Path, CallLabels] = {}
"""The labels of the calls in this process, by the Trainer's `output_dir`."""


class _Finished(Document):
    """The result of a call of `train` that has ended: a file in its folder.

    Attributes:
        checkpoint: the name of the checkpoint with the weights that the call left in the model.
        job: the job that made the call.
        site: the place of the call in the program.
        steps_before: the steps of the program's earlier calls.
    """

    checkpoint: str
    job: str | None = None
    step: int
    train_loss: float
    metrics: dict[str, float]
    early_stop: EarlyStop | None = None
    site: tuple[str, ...] = ()
    steps_before: int = 0


class _AlreadyFinished(Exception):
    """Leaves `Trainer.train` once the weights are loaded, because an earlier attempt has trained to the end."""


def train(
    trainer: Trainer,
    resume_from_checkpoint: str | os.PathLike[str] | bool | None = None,
    *,
    name: str | None = None,
    **options: Any,
) -> TrainOutput:
    """Train as `trainer.train` does, from the newest checkpoint that an earlier attempt has left.

    `output_dir` must lie in the folder `checkpoints`. A second call with the same `output_dir` in one program trains on
    in its subfolder `train-2`, one with a name in `train-NAME`. A call that an earlier attempt has finished loads the
    weights that it left, and returns its result.

    Args:
        resume_from_checkpoint: where the first attempt begins, as of `trainer.train`; True: from none.
        name: tells this call from others of the program, if an attempt may skip some of them.
        options: others of `trainer.train`.

    Raises:
        RunStopped: after the state was saved at a notice. Let it pass.
        ValueError: if `output_dir` lies elsewhere, `save_only_model` leaves out what a resume needs, or the name is not
            allowed.
    """
    attempt = FrameworkAttempt.from_environment()
    if isinstance(resume_from_checkpoint, os.PathLike):
        resume_from_checkpoint = os.fspath(resume_from_checkpoint)
    if attempt is None:
        return trainer.train(resume_from_checkpoint=resume_from_checkpoint, **options)
    arguments = trainer.args
    _check(arguments, attempt)
    output_dir = arguments.output_dir
    place = Path(output_dir).resolve()
    site = read_call_site()
    label = _labels.setdefault(place, CallLabels()).assign(name, site, _past_calls(Path(output_dir)))
    if label != "1":
        arguments.output_dir = str(Path(output_dir) / f"train-{label}")
    arguments.restore_callback_states_from_checkpoint = True  # else the patience of early stopping begins anew
    trainer.pop_callback(TransformersCallback)
    trainer.pop_callback(EverspotCall)
    callback = TransformersCallback(attempt)
    trainer.add_callback(EverspotCall(site, attempt.steps_before))
    trainer.add_callback(callback)  # behind all others: what they want of a step is known by then
    folder = Path(arguments.output_dir)
    attempt.listen()
    try:
        finished = _read_finished(folder)
        if finished is not None and attempt.is_of_smaller_run(finished.job):
            callback.begin_larger_run(finished.step, trainer.lr_scheduler)
        elif finished is not None:
            attempt.stop.report(finished.early_stop)
            attempt.steps_before = finished.steps_before
            attempt.end_call(finished.step)
            return _load_finished(trainer, callback, folder / finished.checkpoint, finished)
        newest = get_last_checkpoint(str(folder)) if folder.is_dir() else None
        if newest is not None:
            attempt.steps_before = _read_call(Path(newest)).get("steps_before", attempt.steps_before)
        first_checkpoint = resume_from_checkpoint if isinstance(resume_from_checkpoint, str) else None
        if newest is not None and first_checkpoint is not None:
            _log.info(
                "training resumes from %s, not from %s, with which the first attempt began", newest, first_checkpoint
            )
        output = trainer.train(resume_from_checkpoint=newest or first_checkpoint, **options)
        if callback.stopped:
            raise RunStopped(trainer.state.global_step)
        if trainer.is_world_process_zero():
            _write_finished(folder, trainer, output, attempt, site)
            attempt.note_saved(output.global_step, folder / _FINISHED)  # the Trainer may have removed its last one
        attempt.end_call(output.global_step)
        return output
    finally:
        arguments.output_dir = output_dir
        attempt.close()


class EverspotCall(TrainerCallback, ExportableState):  # type: ignore[misc]
    """The call to which a checkpoint belongs, in its `trainer_state.json`.

    Args:
        site: the place of the call in the program.
        steps_before: the steps of the program's earlier calls.
    """

    def __init__(self, site: Sequence[str], steps_before: int) -> None:
        self._call = {"site": list(site), "steps_before": steps_before}

    def state(self) -> dict[str, Any]:
        """Return the state, from which the Trainer makes the callback again."""
        return {"args": self._call, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Add the callback to the state: that of a checkpoint without it makes the Trainer's next save fail."""
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """Saves and stops at a notice, and reports steps and metrics. `train` adds it to a Trainer.

    Attributes:
        stopped: whether training was stopped for the agent, and is not over.
        skip: whether to leave `Trainer.train` as soon as the weights are loaded.
    """

    def __init__(self, attempt: FrameworkAttempt) -> None:
        self._attempt = attempt
        self._stopping = False
        self._save_after_epoch = False
        self._saved_step: int | None = None
        self._training = False
        self.stopped = False
        self.skip = False
        self._smaller_run_steps = 0
        self._schedules = ScheduleAdvance({})

    def begin_larger_run(self, steps: int, schedule: Any) -> None:
        """Prepare for the checkpoint of a smaller run. Its evaluations do not count, and a schedule is that of the
        larger run.

        Args:
            steps: of the smaller run.
            schedule: the user's own; None: the Trainer makes one, which does not depend on what is loaded.
        """
        self._smaller_run_steps, self._schedules = steps, ScheduleAdvance({"schedule": schedule})

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Report where training begins."""
        if self.skip:
            raise _AlreadyFinished
        self._training, self._saved_step = True, state.global_step
        for logs in state.log_history:  # of the attempts before, as far as the checkpoint
            if logs["step"] > self._smaller_run_steps:
                self._attempt.evaluate(logs["step"], logs)
        if state.global_step == self._smaller_run_steps:
            for sentence in self._schedules.advance({"schedule": context["lr_scheduler"].state_dict()}):
                _log.warning("warm start: skipped: %s", sentence)
        # The path is that of the machine on which the checkpoint was saved, and the Trainer drops what is not there.
        best = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
        if state.best_global_step and best.is_dir():
            state.best_model_checkpoint = str(best)
        steps_per_epoch = None
        try:
            batches = len(context["train_dataloader"])
            steps_per_epoch = float(math.ceil(batches / args.gradient_accumulation_steps))
        except (KeyError, TypeError):  # a stream has no length
            pass
        self._attempt.report(state.global_step, total_steps=state.max_steps, steps_per_epoch=steps_per_epoch)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Ask the Trainer for a checkpoint if the agent asks for one, or for a stop.

        At the last step of an epoch it is saved once the epoch is over: a checkpoint from before the epoch's evaluation
        would skip that evaluation at a resume.
        """
        self._attempt.report(state.global_step)
        decision = self._attempt.decide_between_steps()
        self._stopping = decision is StepDecision.STOP
        self._stop_early(state, control)
        self._save_at_end(state, control)
        control.should_save = control.should_save or decision is not StepDecision.GO_ON
        if control.should_save and state.epoch is not None and float(state.epoch).is_integer():
            control.should_save, self._save_after_epoch = False, True

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Save what an early stop leaves."""
        self._stop_early(state, control)
        self._save_at_end(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Save what was put off, and what the end of training leaves."""
        if self.stopped:  # in the middle of the epoch, whose end comes in the next attempt
            control.should_evaluate = control.should_save = control.should_log = False
            return
        control.should_save = control.should_save or self._save_after_epoch
        self._save_after_epoch = False
        self._save_at_end(state, control)

    def _save_at_end(self, state: TrainerState, control: TrainerControl) -> None:
        if self._training and control.should_training_stop and self._saved_step != state.global_step:
            control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any) -> None:
        """Stop behind the checkpoint, unless training ends with it."""
        self._saved_step = state.global_step
        self._attempt.note_saved(state.global_step, Path(args.output_dir) / f"checkpoint-{state.global_step}")
        self._stopping = self._stopping or self._attempt.decide_between_steps() is StepDecision.STOP
        if self._stopping and not control.should_training_stop:
            self.stopped = control.should_training_stop = True
            # The checkpoint holds it. Here it would be loaded, and with save_total_limit=1 the new one be deleted.
            state.best_model_checkpoint = None

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **context: Any
    ) -> None:
        """Report metrics. Programs log on the first rank alone, too, so that nothing is decided here."""
        if self.stopped:
            return
        self._attempt.report(state.global_step, logs or {})
        if self._training:
            self._attempt.evaluate(state.global_step, logs or {})

    def _stop_early(self, state: TrainerState, control: TrainerControl) -> None:
        """End training if the job's `stop` says so. All ranks call it."""
        if self._training and not self.stopped and self._attempt.stop.should_end(state.global_step, state.max_steps):
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **context: Any
    ) -> None:
        """Report the last step."""
        self._training = False
        goes_on = self.stopped or self._attempt.stop.early_stop is not None
        self._attempt.report(state.global_step, total_steps=state.max_steps if goes_on else state.global_step)


def _check(arguments: TrainingArguments, attempt: FrameworkAttempt) -> None:
    problems = []
    if not Path(arguments.output_dir).resolve().is_relative_to(attempt.folder.resolve()):
        problems.append(f"output_dir={arguments.output_dir!r} is lost with the instance: let it be 'checkpoints'")
    if arguments.save_only_model:
        problems.append("save_only_model=True leaves out the optimizer, without which no attempt can resume")
    if problems:
        raise ValueError("TrainingArguments: " + "; ".join(problems))


def _read_finished(folder: Path) -> _Finished | None:
    try:
        finished = _Finished.read(read_regular(folder / _FINISHED, _MOST_BYTES))
    except (OSError, ValidationError):
        return None
    return finished if (folder / finished.checkpoint).is_dir() else None


def _past_calls(folder: Path) -> dict[int, PastCall]:
    """Return the unnamed calls of earlier attempts, by number."""
    calls = dict[int, PastCall]()
    for path in (folder, *folder.glob("train-*")):
        number = "1" if path == folder else path.name.removeprefix("train-")
        if not number.isdigit():
            continue
        finished = _read_finished(path)
        newest = get_last_checkpoint(str(path)) if path.is_dir() else None
        if finished is not None:
            calls[int(number)] = PastCall(finished.site, is_finished=True)
        elif newest is not None:
            calls[int(number)] = PastCall(tuple(_read_call(Path(newest)).get("site", ())), is_finished=False)
    return calls


def _read_call(checkpoint: Path) -> dict[str, Any]:
    """Return what `EverspotCall` has stored in a checkpoint; nothing in those of earlier versions."""
    try:
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    except (OSError, ValueError, TypeError):  # the Trainer will say what is wrong with it
        return {}
    call: dict[str, Any] = state.stateful_callbacks.get(EverspotCall.__name__, {}).get("args", {})
    return call


def _load_finished(
    trainer: Trainer, callback: TransformersCallback, checkpoint: Path, finished: _Finished
) -> TrainOutput:
    callback.skip = True
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint))
    except _AlreadyFinished:
        trainer.is_in_train = False
    return TrainOutput(finished.step, finished.train_loss, finished.metrics)


def _write_finished(
    folder: Path, trainer: Trainer, output: TrainOutput, attempt: FrameworkAttempt, site: tuple[str, ...]
) -> None:
    """Note the result, for attempts that are interrupted in the code behind the call."""
    state, arguments = trainer.state, trainer.args
    best = state.best_model_checkpoint if arguments.load_best_model_at_end else None
    checkpoint = Path(best).name if best else f"checkpoint-{state.global_step}"
    if not (folder / checkpoint).is_dir():
        return
    metrics = {name: float(value) for name, value in output.metrics.items() if isinstance(value, int | float)}
    finished = _Finished(
        checkpoint=checkpoint, step=output.global_step, train_loss=output.training_loss, metrics=metrics,
        early_stop=attempt.stop.early_stop, job=attempt.job, site=site, steps_before=attempt.steps_before,
    )  # fmt: skip
    temporary = folder / f"{_FINISHED}.tmp"
    temporary.write_bytes(finished.to_json())
    temporary.replace(folder / _FINISHED)
