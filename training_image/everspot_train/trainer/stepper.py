"""Makes optimizer steps of one or more losses: accumulation, scaling, clipping, schedule."""

import inspect
import logging
import math
from collections.abc import Callable
from typing import Any

import torch

from everspot_train.trainer.errors import NonFiniteLoss, TrainerError
from everspot_train.trainer.finite_checks import FiniteChecks
from everspot_train.trainer.precision import MixedPrecision

log = logging.getLogger("everspot.trainer")

_MAX_SKIPPED = 64
_BATCHES_WITHOUT_STEP = 100  # high enough for loops that leave out bad batches


class Stepper:
    """Applies gradients.

    Args:
        amp: format and scaler.
        optimizer: stepped once per `accumulation` losses.
        scheduler: stepped after each optimizer step that was not skipped by the scaler.
        accumulation: losses per step; their mean is what is minimised.
        clip_norm: largest norm of the gradient; None does not clip.

    Attributes:
        skipped_steps: how many steps the scaler has left out, over all attempts.

    Raises:
        TypeError: for a scheduler or an optimizer that cannot be stepped without an argument.
    """

    def __init__(
        self,
        amp: MixedPrecision,
        optimizer: torch.optim.Optimizer,
        scheduler: Any | None,
        accumulation: int,
        clip_norm: float | None,
    ) -> None:
        self._amp, self._optimizer, self._scheduler = amp, optimizer, scheduler
        self.accumulation, self._clip_norm = accumulation, clip_norm
        self._losses: list[torch.Tensor] = []
        self._skipped_in_a_row = 0
        self.skipped_steps = 0
        self._scale: float | None = None
        self._loop_running = self._stepping = False
        self._batches_since_loss = 0
        self.finite_checks = FiniteChecks()
        _check_scheduler(scheduler)
        _check_optimizer(optimizer)
        self._detect_steps_by_hand()

    @property
    def may_skip(self) -> bool:
        """Whether the scaler leaves out steps that overflow, as it does with fp16."""
        return bool(self._amp.scaler.is_enabled())

    def metrics(self) -> dict[str, float]:
        """Return the loss of the last step, if it is finite, and the number of skipped steps, if any may be skipped."""
        loss = self.finite_checks.last_loss
        metrics = {"loss": loss} if math.isfinite(loss) else {}
        return metrics | ({"skipped_steps": float(self.skipped_steps)} if self.may_skip else {})

    @property
    def at_boundary(self) -> bool:
        """Whether no gradient is half accumulated."""
        return not self._losses

    @property
    def accumulated(self) -> list[torch.Tensor]:
        """The losses of a step that is half done."""
        return list(self._losses)

    @accumulated.setter
    def accumulated(self, losses: list[torch.Tensor]) -> None:
        self._losses = list(losses)

    @property
    def completes(self) -> bool:
        """Whether the next loss ends a step."""
        return len(self._losses) + 1 >= self.accumulation

    def begin_loop(self) -> None:
        """The loop begins: from now on only `take` may step the optimizer."""
        self._loop_running = True

    def end_loop(self) -> None:
        """The loop is over: the program may step the optimizer."""
        self._loop_running = False

    def count_batch(self) -> None:
        """Count a batch, and warn once if the loop does not call `step` for its batches."""
        self._batches_since_loss += 1
        if self._batches_since_loss == _BATCHES_WITHOUT_STEP:
            log.warning(
                "%d batches in a row without run.step(loss): no step is counted, and nothing is checkpointed",
                self._batches_since_loss,
            )

    def take(self, loss: torch.Tensor, step: int) -> bool:
        """Do the backward pass for one loss, and the step if that completes one. Return whether a step was made.

        The scaler leaves out a step with an infinite loss, as it does with any gradient that overflows.

        Raises:
            NonFiniteLoss: on a processor before the optimizer is stepped; on a GPU a few steps later, and at the latest
                before a checkpoint is taken.
        """
        self._batches_since_loss = 0
        torch.autograd.backward(self._amp.scaler.scale(loss / self.accumulation))
        self._losses.append(loss.detach())
        if len(self._losses) < self.accumulation:
            return False
        self.finite_checks.add(step, "loss", self._mean_loss(loss.device), judged=not self._amp.scaler.is_enabled())
        self._losses = []
        self.finite_checks.look()
        self._apply(step)
        return True

    def _mean_loss(self, device: torch.device) -> torch.Tensor:
        return torch.stack([loss.to(device) for loss in self._losses]).mean()

    def _apply(self, step: int) -> None:
        scaler = self._amp.scaler
        if self._clip_norm is not None:
            scaler.unscale_(self._optimizer)
            parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
            norm = torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm)
            if hasattr(norm, "full_tensor"):  # a DTensor: each rank has a part of sharded parameters
                norm = norm.full_tensor()
            if not scaler.is_enabled():
                self.finite_checks.add(step, "norm", norm)
                self.finite_checks.look()
        skipped = self._step_optimizer()
        self._optimizer.zero_grad(set_to_none=True)
        if skipped:
            self._skip(step)
            return
        self._skipped_in_a_row = 0
        if self._scheduler is not None:
            self._scheduler.step()

    def _step_optimizer(self) -> bool:
        """Step the optimizer. Return whether the scaler left the step out, which its lower scale shows. The scale is
        read after the step, when the scaler has waited for the gradients anyway."""
        scaler = self._amp.scaler
        before = None
        if scaler.is_enabled():
            before = self._scale if self._scale is not None else scaler.get_scale()
        self._stepping = True
        try:
            if before is None:
                self._optimizer.step()
                return False
            scaler.step(self._optimizer)
        finally:
            self._stepping = False
        scaler.update()
        self._scale = scaler.get_scale()
        return self._scale < before

    def _skip(self, step: int) -> None:
        """Count a step that the scaler left out because its gradients overflow fp16."""
        self.skipped_steps += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= _MAX_SKIPPED:
            raise NonFiniteLoss(
                f"{self._skipped_in_a_row} steps in a row overflowed fp16, the last at step {step}; use bf16"
            )

    def _detect_steps_by_hand(self) -> None:
        """Detect optimizer steps that the trainer does not make: they would not be counted, and no checkpoint would be
        taken."""

        def after_step(*_: Any) -> None:
            if self._loop_running and not self._stepping:
                raise TrainerError(
                    "the tracked optimizer was stepped by hand: such steps are not counted and never checkpointed. "
                    "Replace loss.backward() and optimizer.step() by run.step(loss)"
                )

        try:
            self._optimizer.register_step_post_hook(after_step)
        except AttributeError:  # a wrapper that is no torch optimizer inside
            log.debug("%s has no step hooks", type(self._optimizer).__name__)


def _check_scheduler(scheduler: Any | None) -> None:
    """Refuse a scheduler whose `step` needs an argument, as ReduceLROnPlateau's does: only the loop has its metric."""
    if scheduler is None:
        return
    required = _required_arguments(scheduler.step)
    if required:
        raise TypeError(
            f"scheduler={type(scheduler).__name__} needs {', '.join(required)} at each step, which only the loop has: "
            f"use run.track(…, plateau=scheduler) instead, and call scheduler.step({required[0]}) in the loop"
        )


def _check_optimizer(optimizer: Any) -> None:
    """Refuse an optimizer whose `step` needs an argument, as LBFGS's needs a closure that does the backward pass."""
    # The class's, because schedulers put a function without `self` bound onto the object.
    step = getattr(type(optimizer), "step", None)
    required = _required_arguments(step)[1:] if inspect.isfunction(step) else []
    if required:
        raise TypeError(
            f"optimizer={type(optimizer).__name__} needs {', '.join(required)} at each step, which run.step does not "
            "give: use another optimizer here; one that the loop steps itself is tracked beside it, run.track(…, "
            "second=optimizer)"
        )


def _required_arguments(function: Callable[..., Any]) -> list[str]:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in positional]
