"""The loop's own state: its last loss, its metrics, its place within a step, its end."""

import math
from typing import Any

import torch
from everspot_core.jobs.early_stop import EarlyStop, StopRule, StopTracker
from everspot_core.jobs.reported_values import update_metrics

from everspot_train.trainer.stepper import Stepper


class LoopState:
    """The loop's own state.

    Attributes:
        metrics: the last value of each metric, of those whose last value is finite.
        total_steps: how many steps `batches` was asked for, in this attempt or the one before; None if it never was.
        restored_total_steps: how many steps the loop of the restored checkpoint was asked for; None without one.
        finished: whether the program said that it is finished, or the job's `stop` did.
        epochs: how many epochs `batches` was asked for, in this attempt or the one before; None if it never was.
    """

    def __init__(self, rule: StopRule | None = None) -> None:
        self._stop = StopTracker(rule) if rule is not None else None
        self.metrics: dict[str, float] = {}
        self.total_steps: int | None = None
        self.restored_total_steps: int | None = None
        self.finished = False
        self.epochs: float | None = None
        self._epoch_steps = 0
        self._stepper: Stepper | None = None

    def track(self, stepper: Stepper) -> None:
        """Save and restore the losses of this stepper."""
        self._stepper = stepper

    def log(self, values: dict[str, float]) -> None:
        """Note metrics."""
        self.metrics = update_metrics(self.metrics, values)

    def evaluate(self, step: int, values: dict[str, float]) -> None:
        """Add an evaluation, if these metrics of a step have the one that the job's `stop` names."""
        if self._stop is not None and self._stop.rule.metric in values:
            self._stop.add(step, values[self._stop.rule.metric])

    @property
    def early_stop(self) -> EarlyStop | None:
        """Why the job's `stop` ends the loop; None while it goes on."""
        return self._stop.early_stop if self._stop is not None else None

    @property
    def unreported_metric(self) -> str | None:
        """The metric of the job's `stop`, if the program has never reported it."""
        return self._stop.rule.metric if self._stop is not None and not self._stop.has_evaluations else None

    def plan_epochs(self, epochs: float, steps: int) -> int:
        """Return the steps of a loop over `epochs`. If the attempt before was asked for as many, these are its steps:
        a loader on another number of ranks may round differently. Else they are `steps`."""
        if self.epochs != epochs:
            self.epochs, self._epoch_steps = epochs, steps
        return self._epoch_steps

    def complete(self, step: int) -> bool:
        """Return whether a program may end after this step."""
        return self.finished or self.total_steps is None or step >= self.total_steps

    def state_dict(self) -> dict[str, Any]:
        """Numbers and text; the losses of a step that is half done as tensors."""
        stepper = self._stepper
        if stepper:
            stepper.finite_checks.look(wait=True)
        last_loss = stepper.finite_checks.last_loss if stepper else math.nan
        return {
            "last_loss": last_loss,
            "accumulated": stepper.accumulated if stepper else [],
            "metrics": self.metrics | ({"loss": last_loss} if math.isfinite(last_loss) else {}),
            "finished": self.finished,
            "stop": self._stop.state_dict() if self._stop is not None else None,
            "stopped": self.early_stop is not None,
            "total_steps": self.total_steps,
            "skipped_steps": stepper.skipped_steps if stepper else 0,
            "epochs": self.epochs,
            "epoch_steps": self._epoch_steps,
        }

    def load_smaller_run(self, state: dict[str, Any]) -> None:
        """Take the metrics of a smaller run, and count its skipped steps. Its end, its number of steps and the
        evaluations of its `stop` are not those of this run."""
        self.metrics = dict(state["metrics"])
        if self._stepper is not None:
            self._stepper.finite_checks.last_loss = float(state["last_loss"])
            self._stepper.skipped_steps = state.get("skipped_steps", 0)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.metrics, self.finished = dict(state["metrics"]), bool(state["finished"])
        self.restored_total_steps = state.get("total_steps")  # a checkpoint of an earlier version has none
        if self._stop is not None:
            self._stop.load_state_dict(state.get("stop"))
        if state.get("stopped") and self.early_stop is None:
            self.finished = False  # by a `stop` that the job has no more
        self.epochs, self._epoch_steps = state.get("epochs"), state.get("epoch_steps", 0)
        if self._stepper is not None:
            self._stepper.finite_checks.last_loss = float(state["last_loss"])
            self._stepper.skipped_steps = state.get("skipped_steps", 0)
            losses: list[torch.Tensor] = state["accumulated"]
            self._stepper.accumulated = losses
