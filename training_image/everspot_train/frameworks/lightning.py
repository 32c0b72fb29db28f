"""Lightning: `fit(trainer, model)` in place of `trainer.fit(model)`.

At a notice the Trainer finishes the optimizer step, saves its own checkpoint, and the program ends. The next attempt
resumes from the newest checkpoint. Lightning itself restores the model, optimizers, schedules, loops and callbacks.
Added are the position in the data and the random numbers of each rank.
"""

import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import BaseFinetuning, BatchSizeFinder, Callback, LearningRateFinder

from everspot_train.frameworks.attempt import FrameworkAttempt, StepDecision
from everspot_train.frameworks.calls import CallLabels, PastCall, read_call_site
from everspot_train.frameworks.random_states import read_random_states, restore_random_states
from everspot_train.rundir import COMPLETE_MARKER
from everspot_train.trainer.errors import RunStopped
from everspot_train.trainer.warm_start import ScheduleAdvance

_FOLDER = "everspot"
_MOST_OWN = 2
"""The most checkpoints of its own that a call keeps on the disk."""
_EVALUATED_AT = ("on_validation_end", "on_train_epoch_end")
"""The hooks in which metrics are complete, and in which a `ModelCheckpoint` may save before this callback's turn."""
_STATES_OF_FOLDERS = ("meta.pt", "checkpoint/*_model_states.pt")
"""The files that hold the Trainer's part of a checkpoint that is a folder: of FSDP and ModelParallel, and of
DeepSpeed."""
_log = logging.getLogger(__name__)
_labels = CallLabels()


def fit(
    trainer: Trainer,
    model: LightningModule,
    train_dataloaders: Any = None,
    val_dataloaders: Any = None,
    datamodule: LightningDataModule | None = None,
    ckpt_path: str | Path | None = None,
    *,
    name: str | None = None,
    **options: Any,
) -> None:
    """Train as `trainer.fit` does, from the newest checkpoint that an earlier attempt has left.

    That is one of the call's own, in the folder `checkpoints/everspot`, or one that the Trainer's `ModelCheckpoint`
    has written below `checkpoints`. A `ModelCheckpoint` without a `dirpath` writes into `checkpoints/lightning` unless
    the Trainer's own choice lies below `checkpoints`. A call that an earlier attempt has finished loads what it left,
    and trains no further.

    Args:
        ckpt_path: where the first attempt begins, as of `trainer.fit`.
        name: tells this call from others of the program, if an attempt may skip some of them.
        options: others of `trainer.fit`.

    Raises:
        RunStopped: after the state was saved at a notice. Let it pass.
        ValueError: if a callback would begin training again in each attempt, or the name is not allowed.
    """
    attempt = FrameworkAttempt.from_environment()
    options |= {"train_dataloaders": train_dataloaders, "val_dataloaders": val_dataloaders, "datamodule": datamodule}
    if attempt is None:
        trainer.fit(model, ckpt_path=ckpt_path, **options)
        return
    _check_callbacks(trainer)
    site = read_call_site()
    label = _labels.assign(name, site, _past_calls(attempt.folder / _FOLDER))
    folder = attempt.folder / _FOLDER / f"fit-{label}"
    _keep_users_checkpoints(trainer, attempt.folder, attempt.folder / "lightning" / f"fit-{label}")
    trainer.callbacks = [callback for callback in trainer.callbacks if not isinstance(callback, LightningCallback)]
    callback = LightningCallback(attempt, folder, label, site)
    trainer.callbacks.append(callback)  # behind all others: what they save of a step is saved by then
    newest = _newest_checkpoint(trainer, attempt.folder, folder, label)
    if newest is not None:
        _skip_learning_rate_search(trainer)
    if newest is not None and ckpt_path is not None:
        _log.info("training resumes from %s, not from %s, with which the first attempt began", newest, ckpt_path)
    attempt.listen()
    try:
        with warnings.catch_warnings():  # the position is restored here
            warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch ended")
            trainer.fit(model, ckpt_path=str(newest) if newest is not None else ckpt_path, **options)
        if callback.finished:
            callback.restore_random_numbers()
        else:
            callback.finished = True  # part of the checkpoint: a program that is interrupted later trains no further
            callback.save(trainer)
        attempt.end_call(trainer.global_step)
    finally:
        attempt.close()


class LightningCallback(Callback):  # type: ignore[misc]
    """Saves and stops at a notice, keeps the position in the data, and reports steps and metrics. `fit` adds it.

    Attributes:
        finished: whether training has come to its end, in this attempt or an earlier one.
    """

    def __init__(self, attempt: FrameworkAttempt, folder: Path, label: str, site: tuple[str, ...]) -> None:
        self._attempt = attempt
        self._folder = folder
        self._label, self._site = label, site
        self._reported: dict[str, Any] = {}
        self._last_step = 0
        self._rank = 0
        self._epoch_states: list[dict[str, Any]] = []
        self._restored: dict[str, Any] | None = None
        self._is_of_smaller_run = False
        self._counts_on = True  # whether schedules go on where those of the smaller run ended
        self._schedules = ScheduleAdvance({})
        self._trainer: Trainer | None = None
        self._total_steps: int | None = None
        self._epoch_began_at: int | None = None
        self._steps_per_epoch: int | None = None
        self.finished = False

    def state_dict(self) -> dict[str, Any]:
        """Return the random numbers of all ranks: of now, and of the beginning of the epoch, which order its data."""
        rank_states = {"now": read_random_states(), "epoch": self._epoch_states}
        if self._trainer is not None and self._trainer.lightning_module._current_fx_name in _EVALUATED_AT:
            self._evaluate(self._trainer)
        stop = self._attempt.stop.state_dict()
        return {
            "ranks": self._attempt.gather(rank_states), "finished": self.finished, "stop": stop,
            "steps_per_epoch": self._steps_per_epoch, "job": self._attempt.job,
            "call": self._label, "site": list(self._site), "steps_before": self._attempt.steps_before,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` has returned, until training begins."""
        self._restored = state_dict
        self._is_of_smaller_run = self._attempt.is_of_smaller_run(state_dict.get("job"))
        if self._is_of_smaller_run:
            return
        self.finished = bool(state_dict["finished"])
        self._attempt.stop.load_state_dict(state_dict.get("stop"))
        self._steps_per_epoch = state_dict.get("steps_per_epoch")
        self._attempt.steps_before = state_dict.get("steps_before", self._attempt.steps_before)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Let a run that is larger than the one before by its data begin with the first epoch. Lightning restores the
        loops behind this hook."""
        saved_by = checkpoint["callbacks"].get(self.state_key, {}).get("job")
        epoch = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]
        if self._attempt.is_of_smaller_run(saved_by) and 0 <= (trainer.max_epochs or 0) <= epoch["completed"]:
            epoch.update(dict.fromkeys(epoch, 0))
            self._counts_on = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the random numbers with which the first epoch's loader is made."""
        self._rank, self._trainer = trainer.global_rank, trainer
        self._epoch_states = [read_random_states()]
        if self._is_of_smaller_run:  # Lightning restores optimizers and schedules behind this hook
            self._schedules = ScheduleAdvance(_named_schedules(trainer))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go to the position in the data, and report where training begins."""
        self._attempt.listen()  # Lightning's own handler would leave the loop without a checkpoint
        if self._restored is not None:
            self._restore(trainer)
            self._call_epoch_start(trainer)
        states = {name: schedule.state_dict() for name, schedule in _named_schedules(trainer).items()}
        for sentence in self._schedules.advance(states if self._counts_on else {}):
            _log.warning("warm start: skipped: %s", sentence)
        if self.finished:
            trainer.should_stop = True
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
        self._last_step = trainer.global_step
        self._attempt.note_saved(self._last_step)
        if pl_module.automatic_optimization:
            total_steps, batches = trainer.estimated_stepping_batches, trainer.num_training_batches
            self._total_steps = int(total_steps) if 0 <= total_steps < float("inf") else None
            is_known = batches != float("inf")
            self._steps_per_epoch = -(-batches // trainer.accumulate_grad_batches) if is_known else None
        else:
            self._total_steps = self._count_manual_steps(trainer)
        self._report_plan(trainer)

    def _count_manual_steps(self, trainer: Trainer) -> int | None:
        """Return the steps of a module that calls its optimizers itself: any number in a batch, so that a whole epoch
        has to be counted first. None: not known so far."""
        limits = [trainer.max_steps] if trainer.max_steps >= 0 else []
        if self._steps_per_epoch and trainer.max_epochs is not None and trainer.max_epochs >= 0:
            limits.append(self._steps_per_epoch * trainer.max_epochs)
        return min(limits, default=None)

    def _report_plan(self, trainer: Trainer) -> None:
        self._attempt.report(trainer.global_step, total_steps=self._total_steps, steps_per_epoch=self._steps_per_epoch)

    def _restore(self, trainer: Trainer) -> None:
        """Read the epoch's data again up to the position of the checkpoint, and set the random numbers of then."""
        assert self._restored is not None  # noqa: S101 - the caller has looked
        rank_states = self._restored["ranks"]
        if len(rank_states) != trainer.world_size:
            _log.warning("the checkpoint is of %d ranks: data and random numbers begin anew", len(rank_states))
            return
        states = rank_states[self._rank]
        loop = trainer.fit_loop
        fetcher, batches = loop._data_fetcher, loop.epoch_loop.batch_progress.current.ready
        if loop.restarted_mid_epoch and batches and states["epoch"] and not _restores_itself(loop._combined_loader):
            self._epoch_states = states["epoch"]
            for loader in loop._combined_loader.flattened:
                set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
                if set_epoch is not None:
                    set_epoch(loop.epoch_progress.current.processed)
            restore_random_states(self._epoch_states[0])
            iter(fetcher)
            for epoch_state in self._epoch_states[1:]:
                restore_random_states(epoch_state)
            for _ in range(batches):
                next(fetcher)
            fetcher.fetched = 0  # the loop adds these batches itself
        restore_random_states(states["now"])

    def _call_epoch_start(self, trainer: Trainer) -> None:
        """Let the hooks `on_train_epoch_start` run, which Lightning leaves out in the middle of an epoch: what they set
        is lost with the process. They run behind all `on_train_start`, for which Lightning has no hook."""
        loop, advance_start = trainer.fit_loop, trainer.fit_loop.on_advance_start

        def on_advance_start() -> None:
            del loop.on_advance_start
            advance_start()
            if not loop.restarted_mid_epoch:
                return
            states, module = read_random_states(), trainer.lightning_module
            hook, module._current_fx_name = module._current_fx_name, "on_train_epoch_start"
            for callback in trainer.callbacks:
                # These restore themselves, or would search again.
                if callback is not self and not isinstance(callback, BaseFinetuning | LearningRateFinder):
                    callback.on_train_epoch_start(trainer, module)
            module.on_train_epoch_start()
            module._current_fx_name = hook
            restore_random_states(states)

        loop.on_advance_start = on_advance_start

    def restore_random_numbers(self) -> None:
        """Set the random numbers that a call has left which an earlier attempt has finished: what follows it draws
        from them. Lightning calls no hook of training for it."""
        rank_states = self._restored["ranks"] if self._restored is not None else []
        if self._rank < len(rank_states):
            restore_random_states(rank_states[self._rank]["now"])

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the random numbers that order the epoch's data."""
        states = read_random_states()
        self._report_metrics(trainer)  # those of the epoch before are complete by now
        self._epoch_began_at = trainer.global_step if not trainer.fit_loop.is_resuming else None
        if trainer.fit_loop.is_resuming:
            iter(trainer.fit_loop._data_fetcher)  # Lightning's is from before these random numbers
            self._epoch_states = [states]
        elif trainer.current_epoch > 0:
            self._epoch_states = [states]
        else:  # the loader was begun before `on_train_start`
            self._epoch_states = [self._epoch_states[0], states]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save if the agent or the interval asks for it, and stop if the agent does.

        Not before a validation or the end of an epoch, which a resume would leave out: then one step later.
        """
        if trainer.global_step == self._last_step:  # gradients are being accumulated
            return
        self._last_step = trainer.global_step
        self._report_metrics(trainer)
        loop = trainer.fit_loop.epoch_loop
        if loop.batch_progress.is_last_batch or loop._should_check_val_fx(trainer.fit_loop._data_fetcher):
            return
        decision = self._attempt.decide_between_steps(self._last_step)
        if decision is StepDecision.GO_ON or trainer.should_stop or loop._is_training_done:
            return
        self.save(trainer)
        if decision is StepDecision.STOP:
            raise RunStopped(self._last_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report what the validation has found."""
        if not trainer.sanity_checking:
            self._report_metrics(trainer)
            self._stop_early(trainer)

    def _report_metrics(self, trainer: Trainer) -> None:
        """Report the step, and the metrics that were logged since the last report: Lightning repeats older values."""
        metrics = dict(trainer.callback_metrics)
        logged = {name: value for name, value in metrics.items() if self._reported.get(name) is not value}
        self._reported = metrics
        self._attempt.report(trainer.global_step, logged)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Without a validation the metrics of each epoch are the evaluations of the job's `stop`."""
        if not pl_module.automatic_optimization and self._epoch_began_at is not None:
            steps_per_epoch = trainer.global_step - self._epoch_began_at
            if steps_per_epoch != self._steps_per_epoch:
                self._steps_per_epoch = steps_per_epoch or None
                self._total_steps = self._count_manual_steps(trainer)
                self._report_plan(trainer)
        self._stop_early(trainer)

    def _evaluate(self, trainer: Trainer) -> None:
        """Add the metrics of a validation, or of an epoch without one. The hooks between repeat older values."""
        hook = trainer.lightning_module._current_fx_name
        if not trainer.sanity_checking and (hook == "on_validation_end") == trainer.enable_validation:
            self._attempt.evaluate(trainer.global_step, trainer.callback_metrics)

    def _stop_early(self, trainer: Trainer) -> None:
        self._evaluate(trainer)
        if self._attempt.stop.should_end(trainer.global_step, self._total_steps):
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the last step."""
        total_steps = self._total_steps if self._attempt.stop.early_stop is not None else trainer.global_step
        self._attempt.report(trainer.global_step, trainer.callback_metrics, total_steps=total_steps)

    def save(self, trainer: Trainer) -> None:
        """Save a checkpoint of the Trainer, and remove older ones of this callback."""
        ending = "-finished" if self.finished else ""
        path = self._folder / f"step={trainer.global_step}{ending}.ckpt"
        if trainer.is_global_zero and path.is_dir():
            shutil.rmtree(path)  # the rest of a save that was interrupted
        trainer.strategy.barrier()
        trainer.save_checkpoint(path)
        if trainer.is_global_zero and path.is_dir():
            (path / COMPLETE_MARKER).touch()  # also of the files behind those that the agent knows to be the last
        self._attempt.note_saved(trainer.global_step, path)
        if trainer.is_global_zero:
            own = sorted(self._folder.glob("step=*.ckpt"), key=lambda path: path.stat().st_mtime)
            for path in own[:-_MOST_OWN]:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _check_callbacks(trainer: Trainer) -> None:
    if any(isinstance(callback, BatchSizeFinder) for callback in trainer.callbacks):
        raise ValueError(
            "BatchSizeFinder would search again in each attempt, and training begin at step 0: search once, by"
            " Tuner(trainer).scale_batch_size(model), and set the batch size that it returns"
        )


def _skip_learning_rate_search(trainer: Trainer) -> None:
    """Let no `LearningRateFinder` search at the beginning of an attempt that resumes: the search would leave the
    Trainer at step 0. The learning rate comes from the checkpoint."""
    for callback in trainer.callbacks:
        if isinstance(callback, LearningRateFinder):
            callback.on_fit_start = lambda *_: None


def _named_schedules(trainer: Trainer) -> dict[str, Any]:
    return {f"schedule {index}": config.scheduler for index, config in enumerate(trainer.lr_scheduler_configs)}


def _restores_itself(combined_loader: Any) -> bool:
    """Return whether the loaders have a state of their own, which Lightning restores."""
    return all(hasattr(loader, "state_dict") for loader in combined_loader.flattened)


def _keep_users_checkpoints(trainer: Trainer, checkpoints: Path, default: Path) -> None:
    """Let each `ModelCheckpoint` write below the folder that is kept, or warn of it if the user has chosen otherwise.

    Args:
        checkpoints: the folder that is kept.
        default: the folder of a `ModelCheckpoint` that has none, in place of one beside the Trainer's logs.
    """
    for callback in trainer.checkpoint_callbacks:
        if not hasattr(callback, "dirpath"):  # of a class of the user's own
            continue
        dirpath = callback.dirpath
        if dirpath is None:
            root = (trainer.loggers[0].save_dir if trainer.loggers else None) or trainer.default_root_dir
            if not _is_remote(root) and not _is_below(root, checkpoints):
                callback.dirpath = str(default.resolve())
        elif not _is_remote(dirpath) and not _is_below(dirpath, checkpoints):
            _log.warning(
                "what %s writes into %s is lost with the instance: let its dirpath lie below 'checkpoints'",
                type(callback).__name__,
                dirpath,
            )


def _is_below(path: str | Path, folder: Path) -> bool:
    return Path(path).resolve().is_relative_to(folder.resolve())


def _is_remote(path: str | Path) -> bool:
    """Return whether Lightning writes to this path through fsspec, as to a bucket: it is not lost with the instance."""
    return "://" in str(path)


def _past_calls(folder: Path) -> dict[int, PastCall]:
    """Return the unnamed calls of earlier attempts, by number."""
    calls = dict[int, PastCall]()
    for path in folder.glob("fit-*"):
        number = path.name.removeprefix("fit-")
        newest = _find_newest({path}, None) if number.isdigit() else None
        if newest is not None:
            state = _state_of_call(_read_checkpoint(newest))
            calls[int(number)] = PastCall(tuple(state.get("site", ())), bool(state.get("finished")))
    return calls


def _newest_checkpoint(trainer: Trainer, checkpoints: Path, own: Path, label: str) -> Path | None:
    """Return the checkpoint with the most steps: one of this callback, or of a `ModelCheckpoint` of the Trainer."""
    folders = {own}
    for callback in trainer.checkpoint_callbacks:
        dirpath = getattr(callback, "dirpath", None)
        if dirpath is not None and _is_below(dirpath, checkpoints):
            folders.add(Path(dirpath))
    return _find_newest(folders, label)


def _find_newest(folders: set[Path], label: str | None) -> Path | None:
    """Return the checkpoint with the most steps; with a label, none that another call has saved."""
    ranked = []
    for path in {path for folder in folders for path in folder.glob("*.ckpt")}:
        try:
            stored = _read_checkpoint(path)
        except Exception as error:  # of another kind, or not whole: then an older one is taken
            _log.warning("training does not resume from %s, which cannot be read: %s", path, error)
            continue
        is_whole = "loops" in stored and (path.is_dir() or "optimizer_states" in stored)
        if is_whole and label in (None, _state_of_call(stored).get("call", label)):
            ranked.append((stored["global_step"], path.stat().st_mtime_ns, path))
    return max(ranked)[-1] if ranked else None


def _read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the Trainer's part of a checkpoint, which is a file, or one of the files of a folder."""
    if path.is_dir():
        states = [state for pattern in _STATES_OF_FOLDERS for state in sorted(path.glob(pattern))]
        if not states:
            raise FileNotFoundError("the folder has no state of a Trainer")
        path = states[0]
    stored: dict[str, Any] = torch.load(path, map_location="cpu", mmap=True, weights_only=False)  # the program's own
    return stored


def _state_of_call(stored: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = stored.get("callbacks", {}).get(LightningCallback.__qualname__, {})
    return state
