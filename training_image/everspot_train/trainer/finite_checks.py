"""Checks losses and norms for NaN and infinity when they arrive from the device, without waiting for them.

Reading a number from a GPU waits for all of its queued work. At every step, this would delay the preparation of the
next step. So the number is copied asynchronously and checked a few steps later. Every number is checked before a
checkpoint is taken, so no checkpoint holds weights after a non-finite number.
"""

import math
from collections import deque
from dataclasses import dataclass

import torch

from everspot_train.trainer.errors import NonFiniteLoss

_MOST = 64
"""The most steps whose numbers may be unchecked; beyond that, the oldest is waited for."""


@dataclass(frozen=True)
class _PendingCheck:
    step: int
    name: str
    host: torch.Tensor
    arrived: "torch.cuda.Event | None"
    judged: bool

    def here(self) -> bool:
        return self.arrived is None or bool(self.arrived.query())


class FiniteChecks:
    """The losses and norms of one run, in order. `last_loss`: the newest loss that has arrived; NaN before the
    first."""

    def __init__(self) -> None:
        self._waiting: deque[_PendingCheck] = deque()
        self.last_loss = math.nan

    def add(self, step: int, name: str, value: torch.Tensor, *, judged: bool = True) -> None:
        """Add a number of `step`. `judged`: whether it must be finite."""
        value = value.detach()
        if value.device.type != "cuda":
            self._waiting.append(_PendingCheck(step, name, value, None, judged))
            return
        host = torch.empty((), dtype=value.dtype, pin_memory=True)
        host.copy_(value, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(value.device))
        self._waiting.append(_PendingCheck(step, name, host, arrived, judged))

    def look(self, *, wait: bool = False) -> None:
        """Check the numbers that have arrived, or all of them with `wait`. On a processor all have arrived.

        Raises:
            NonFiniteLoss: if a number that must be finite is not.
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

    def _judge(self, check: _PendingCheck) -> None:
        value = float(check.host)
        if check.name == "loss":
            self.last_loss = value
        if not check.judged or math.isfinite(value):
            return
        consequence = (
            "the optimizer was not stepped with it" if check.arrived is None else "no checkpoint holds what came of it"
        )
        if check.name == "loss":
            raise NonFiniteLoss(f"the loss is {value} at step {check.step}; {consequence}")
        raise NonFiniteLoss(f"the gradient's norm is {value} at step {check.step}; {consequence}")
