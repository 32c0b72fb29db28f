"""Makes optimizer steps of one or more losses: accumulation, scaling, clipping, schedule."""

from typing import Any

import torch

from everspot_train.trainer.doubts import Doubts
from everspot_train.trainer.errors import NonFiniteLoss
from everspot_train.trainer.precision import MixedPrecision

_MAX_SKIPPED = 64


class Stepper:
    """Applies gradients.

    Args:
        amp: format and scaler.
        optimizer: stepped once per `accumulation` losses.
        scheduler: stepped after each optimizer step that was not skipped by the scaler.
        accumulation: losses per step; their mean is what is minimised.
        clip_norm: largest norm of the gradient; None does not clip.
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
        self._accumulation, self._clip_norm = accumulation, clip_norm
        self._losses: list[torch.Tensor] = []
        self._skipped = 0
        self._scale: float | None = None
        self.doubts = Doubts()

    @property
    def at_boundary(self) -> bool:
        """Whether no gradient is half accumulated."""
        return not self._losses

    @property
    def completes(self) -> bool:
        """Whether the next loss ends a step."""
        return len(self._losses) + 1 == self._accumulation

    def take(self, loss: torch.Tensor, step: int) -> bool:
        """Do the backward pass for one loss, and the step if that completes one. Returns whether it did.

        The scaler leaves out a step with an infinite loss, as it does with any gradient that overflows.

        Raises:
            NonFiniteLoss: on a processor before the optimizer is stepped; on a GPU a few steps later, and at the latest
                before a checkpoint is taken.
        """
        torch.autograd.backward(self._amp.scaler.scale(loss / self._accumulation))
        self._losses.append(loss.detach())
        if len(self._losses) < self._accumulation:
            return False
        self.doubts.add(step, "loss", torch.stack(self._losses).mean(), judged=not self._amp.scaler.is_enabled())
        self._losses = []
        self.doubts.look()
        self._apply(step)
        return True

    def _apply(self, step: int) -> None:
        scaler = self._amp.scaler
        if self._clip_norm is not None:
            scaler.unscale_(self._optimizer)
            parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
            norm = torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm)
            if not scaler.is_enabled():
                self.doubts.add(step, "norm", norm)
                self.doubts.look()
        skipped = self._step_optimizer()
        self._optimizer.zero_grad(set_to_none=True)
        if skipped:
            self._skip(step)
            return
        self._skipped = 0
        if self._scheduler is not None:
            self._scheduler.step()

    def _step_optimizer(self) -> bool:
        """Step the optimizer. Returns whether the scaler left the step out, which its lower scale shows. The scale is
        read after the step, when the scaler has waited for the gradients anyway."""
        scaler = self._amp.scaler
        if not scaler.is_enabled():
            self._optimizer.step()
            return False
        before = self._scale if self._scale is not None else scaler.get_scale()
        scaler.step(self._optimizer)
        scaler.update()
        self._scale = scaler.get_scale()
        return self._scale < before

    def _skip(self, step: int) -> None:
        """Count a step that the scaler left out because its gradients overflow fp16."""
        self._skipped += 1
        if self._skipped >= _MAX_SKIPPED:
            raise NonFiniteLoss(f"{self._skipped} steps in a row overflowed fp16, the last at step {step}; use bf16")
