"""Losses and norms that are still on their way from the device: looked at when they arrive, never waited for.

To read a number of a GPU means to wait until it has done all that was asked of it so far; done in front of every step,
that keeps the next one from being prepared meanwhile. So the number is copied beside the computation and judged a few
steps later. What makes that safe: every number is judged before a checkpoint is taken, so that no checkpoint holds
what a number that is none has done to the weights.
"""

import math
from collections import deque
from dataclasses import dataclass

import torch

from everspot_train.trainer.errors import NonFiniteLoss

_MOST = 64
"""So many steps may be undecided; then the oldest is waited for."""


@dataclass(frozen=True)
class _Doubt:
    step: int
    name: str
    host: torch.Tensor
    arrived: "torch.cuda.Event | None"
    judged: bool

    def here(self) -> bool:
        return self.arrived is None or bool(self.arrived.query())


class Doubts:
    """The numbers of one run, in order. `known_loss`: the newest loss that has arrived; NaN before the first."""

    def __init__(self) -> None:
        self._waiting: deque[_Doubt] = deque()
        self.known_loss = math.nan

    def add(self, step: int, name: str, value: torch.Tensor, *, judged: bool = True) -> None:
        """A number of `step` was computed. One that is not `judged` may be infinite."""
        value = value.detach()
        if value.device.type != "cuda":
            self._waiting.append(_Doubt(step, name, value, None, judged))
            return
        host = torch.empty((), dtype=value.dtype, pin_memory=True)
        host.copy_(value, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(value.device))
        self._waiting.append(_Doubt(step, name, host, arrived, judged))

    def look(self, *, wait: bool = False) -> None:
        """Judge what has arrived; everything, if `wait`. On a processor everything has.

        Raises:
            NonFiniteLoss: if a judged number is not finite.
        """
        while self._waiting:
            first = self._waiting[0]
            if not first.here():
                if not wait and len(self._waiting) <= _MOST:
                    return
                assert first.arrived is not None  # noqa: S101 - else it were here
                first.arrived.synchronize()
            self._waiting.popleft()
            self._judge(first)

    def _judge(self, doubt: _Doubt) -> None:
        value = float(doubt.host)
        if doubt.name == "loss":
            self.known_loss = value
        if not doubt.judged or math.isfinite(value):
            return
        kept = (
            "the optimizer was not stepped with it" if doubt.arrived is None else "no checkpoint holds what came of it"
        )
        if doubt.name == "loss":
            raise NonFiniteLoss(f"the loss is {value} at step {doubt.step}; {kept}")
        raise NonFiniteLoss(f"the gradient's norm is {value} at step {doubt.step}; {kept}")
