"""One optimizer step out of one or more losses: accumulation, scaling, clipping, schedule."""

import math
from typing import Any

import torch

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

    @property
    def at_boundary(self) -> bool:
        """Whether no gradient is half accumulated."""
        return not self._losses

    @property
    def completes(self) -> bool:
        """Whether the next loss ends a step."""
        return len(self._losses) + 1 == self._accumulation

    def take(self, loss: torch.Tensor, step: int) -> float | None:
        """Backward pass for one loss. When that completes a step: apply it, and return the mean loss.

        Raises:
            NonFiniteLoss: before the optimizer is stepped.
        """
        torch.autograd.backward(self._amp.scaler.scale(loss / self._accumulation))
        self._losses.append(loss.detach())
        if len(self._losses) < self._accumulation:
            return None
        mean = torch.stack(self._losses).mean().item()  # the only moment at which a GPU is waited for
        self._losses = []
        if not math.isfinite(mean):
            raise NonFiniteLoss(f"the loss is {mean} at step {step}; the optimizer was not stepped with it")
        self._apply(step)
        return mean

    def _apply(self, step: int) -> None:
        scaler = self._amp.scaler
        if self._clip_norm is not None:
            scaler.unscale_(self._optimizer)
            parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
            norm = torch.nn.utils.clip_grad_norm_(parameters, self._clip_norm)
            if not scaler.is_enabled() and not torch.isfinite(norm):
                raise NonFiniteLoss(f"the gradient's norm is {norm.item()} at step {step}; the loss itself was finite")
        scale = scaler.get_scale()
        scaler.step(self._optimizer)
        scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        if scaler.get_scale() < scale:
            self._skip(step)
            return
        self._skipped = 0
        if self._scheduler is not None:
            self._scheduler.step()

    def _skip(self, step: int) -> None:
        """The scaler found gradients that overflow fp16, left the step out and lowered its scale."""
        self._skipped += 1
        if self._skipped >= _MAX_SKIPPED:
            raise NonFiniteLoss(f"{self._skipped} steps in a row overflowed fp16, the last at step {step}; use bf16")
