"""Restores the state of optimizers exactly, and detects optimizers that the program has not tracked."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from everspot_train.trainer.errors import UnsupportedState
from everspot_train.trainer.trackable import Coverage, iterate_tensors, list_parameters


def restore_dtypes(optimizer: Any, stored: Any) -> None:
    """Restore the number formats of an optimizer's state.

    `torch.optim.Optimizer.load_state_dict` casts each floating-point state to the format of its parameter, also fp32
    master copies and moments of bf16 parameters (`_process_value_according_to_param_policy`). It takes a text for
    a list of values, and puts the `repr` of a generator in its place.
    """
    if not isinstance(optimizer, torch.optim.Optimizer) or not isinstance(stored, Mapping):
        return
    entries = optimizer.state_dict().get("state")
    saved = stored.get("state")
    if isinstance(entries, dict) and isinstance(saved, Mapping):
        for key in entries.keys() & saved.keys():
            entries[key] = _exact(entries[key], saved[key])


def _exact(current: Any, stored: Any) -> Any:
    """Return `current` with the stored tensors where the format differs, and the stored texts. Dicts and lists are
    changed in place, because an optimizer's `state_dict` refers to its own."""
    if isinstance(stored, str | set):
        return stored if isinstance(stored, str) else set(stored)
    if isinstance(current, torch.Tensor) and isinstance(stored, torch.Tensor):
        if current.dtype == stored.dtype or current.shape != stored.shape:
            return current
        return stored.to(current.device, copy=True)
    if isinstance(current, dict) and isinstance(stored, Mapping):
        for key in current.keys() & stored.keys():
            current[key] = _exact(current[key], stored[key])
    elif isinstance(current, list) and isinstance(stored, list | tuple):
        current[:] = [_exact(part, saved) for part, saved in zip(current, stored, strict=False)]
    elif isinstance(current, tuple) and isinstance(stored, list | tuple):
        parts = [_exact(part, saved) for part, saved in zip(current, stored, strict=False)]
        return type(current)(*parts) if hasattr(current, "_fields") else tuple(parts)
    return current


class UntrackedOptimizers:
    """Detects an optimizer that the loop steps by hand and no checkpoint holds.

    An optimizer that makes all its steps within one step of the loop, such as a probe that is trained from scratch in
    each evaluation, has no lasting state.
    """

    def __init__(self, pieces: Mapping[str, Any], step: Callable[[], int]) -> None:
        self._pieces, self._step = pieces, step
        self._first: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._tracked: weakref.WeakSet[Any] = weakref.WeakSet(
            p for p in pieces.values() if isinstance(p, torch.optim.Optimizer)
        )
        self._handle: Any = None

    def begin(self) -> None:
        """The loop begins.

        Raises:
            UnsupportedState: if a schedule changes a tracked optimizer, and is not tracked itself.
        """
        self._check_schedules()
        self._handle = register_optimizer_step_post_hook(self._after_step)

    def end(self) -> None:
        """The loop is over."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if optimizer in self._tracked or self._first.setdefault(optimizer, self._step()) == self._step():
            return
        coverage = Coverage(self._pieces)
        tensors = [
            *list_parameters(optimizer),
            *(t for _, t in iterate_tensors(dict(enumerate(optimizer.state.values())))),
        ]
        if all(coverage.covers(tensor) for tensor in tensors):  # an optimizer inside of another, such as Lookahead's
            self._tracked.add(optimizer)
            return
        raise UnsupportedState(
            f"the loop steps an optimizer ({type(optimizer).__name__}) that is not tracked: a resume would lose its "
            "state. Name it, and the module that it trains: run.track(…, critic=critic, critic_optimizer=optimizer)"
        )

    def _check_schedules(self) -> None:
        for name, piece in self._pieces.items():
            if not isinstance(piece, torch.optim.Optimizer):
                continue
            # torch's schedules wrap the method `step` of their optimizer (LRScheduler.__init__).
            if not getattr(piece.step, "_wrapped_by_lr_sched", False):
                continue
            if not any(_changes(other, piece) for other in self._pieces.values()):
                raise UnsupportedState(
                    f"a learning-rate schedule changes {name}, and is not tracked: a resume would begin it again. "
                    "Name it: run.track(…, scheduler=scheduler), or by any other name if the loop steps it by hand"
                )


def _changes(piece: Any, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a tracked object is, or holds, a schedule of this optimizer."""
    waiting, visited = [piece], set[int]()
    while waiting and len(visited) < 64:
        part = waiting.pop()
        if id(part) in visited or isinstance(part, torch.nn.Module | torch.optim.Optimizer | torch.Tensor):
            continue
        visited.add(id(part))
        if any(getattr(part, name, None) is optimizer for name in ("optimizer", "_optimizer")):
            return True
        values = part if isinstance(part, list | tuple) else getattr(part, "__dict__", {}).values()
        waiting += [v for v in values if hasattr(v, "__dict__") or isinstance(v, list | tuple)]
    return False
