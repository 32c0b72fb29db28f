"""Loads what fits of the checkpoint of another, smaller run, and says what does not.

A promoted trial of a sweep goes on from its checkpoint in the rung before. If the field that makes it larger changes a
shape or the number of samples, the parts that do not fit begin as in a new run. A schedule of the learning rate is that
of the larger run, at the step that the smaller run has reached.
"""

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from everspot_train.trainer.errors import StateMismatch
from everspot_train.trainer.loop_state import LoopState

Load = Callable[[str, Any, Any], None]
"""A function that loads the state of a piece and verifies it. Raises `StateMismatch`."""
_SHOWN = 5
"""Entries of a module that the log names."""


def load_fitting(pieces: Iterable[tuple[str, Any, Mapping[str, Any]]], load: Load) -> list[str]:
    """Load each piece as far as it fits. Return what is skipped, a sentence each.

    An optimizer is loaded only if all modules fit, because its state belongs to their weights.

    Args:
        pieces: name, piece, and the stored states in which its own is looked up.
        load: loads one of them.
    """
    skipped: list[str] = []
    ordered = sorted(pieces, key=lambda entry: not isinstance(entry[1], torch.nn.Module))
    schedules = ScheduleAdvance({name: piece for name, piece, _ in ordered})
    for name, piece, stored in ordered:
        if name not in stored:
            skipped.append(f"the checkpoint has no {name}")
            continue
        state = stored[name]
        if name in schedules:
            continue
        if isinstance(piece, LoopState):
            piece.load_smaller_run(state)
            continue
        if isinstance(piece, torch.nn.Module):
            state, misfits = _select_fitting(piece, state)
            skipped += [f"{name}: {misfit}" for misfit in misfits]
        elif isinstance(piece, torch.optim.Optimizer) and skipped:
            skipped.append(f"{name}: its state belongs to other weights")
            continue
        before = _copy_state(piece)
        try:
            load(name, piece, state)
        except StateMismatch as error:
            skipped.append(str(error))
            if before is not None:
                with suppress(StateMismatch):
                    load(name, piece, before)
    return skipped + schedules.advance({name: stored[name] for name, _, stored in ordered if name in stored})


class ScheduleAdvance:
    """Brings schedules to the step of a smaller run, by as many calls of `step` as that run made.

    Their stored states end with the smaller run, so of these only the number of steps is used. `ReduceLROnPlateau`,
    which follows a metric and has no end, is none of them. Make it before anything is loaded: it remembers the
    schedules, and the settings of their optimizers, such as the learning rate, as they are at the beginning.

    Args:
        pieces: objects by name. Those that are no schedules are ignored.
    """

    def __init__(self, pieces: Mapping[str, Any]) -> None:
        self._schedules = {
            name: piece
            for name, piece in pieces.items()
            if isinstance(piece, LRScheduler) and not isinstance(piece, ReduceLROnPlateau)
        }
        self._initial_states = {name: copy.deepcopy(piece.state_dict()) for name, piece in self._schedules.items()}
        self._settings = [
            (optimizer, [_copy_settings(group) for group in optimizer.param_groups])
            for optimizer in {id(s.optimizer): s.optimizer for s in self._schedules.values()}.values()
        ]

    def __contains__(self, name: str) -> bool:
        return name in self._schedules

    def advance(self, states: Mapping[str, Any]) -> list[str]:
        """Step each schedule as often as its stored state says. Return what is skipped, a sentence each."""
        for optimizer, settings in self._settings:
            for group, values in zip(optimizer.param_groups, settings, strict=False):
                group.update(values)
        for name, schedule in self._schedules.items():
            schedule.load_state_dict(copy.deepcopy(self._initial_states[name]))
        counts = {name: _count_steps(states.get(name)) for name in self._schedules}
        skipped = []
        with warnings.catch_warnings():  # torch warns of a schedule that is stepped before the optimizer
            warnings.simplefilter("ignore")
            for step in range(max(counts.values(), default=0)):
                for name in [name for name, count in counts.items() if step < count]:
                    try:
                        self._schedules[name].step()
                    except ValueError as error:  # the schedule is over
                        skipped.append(f"{name}: {error}")
                        counts[name] = 0
        return skipped


def _copy_settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in group.items() if name != "params"}


def _count_steps(state: Any) -> int:
    count = state.get("last_epoch") if isinstance(state, Mapping) else None
    return count if isinstance(count, int) else 0


def _select_fitting(module: torch.nn.Module, stored: Any) -> tuple[Any, list[str]]:
    """Return the module's state with the stored entries that have its names and shapes, and what does not fit."""
    current = module.state_dict()
    if not isinstance(stored, Mapping):
        return current, ["it was no module"]
    misfits = []
    for key, value in current.items():
        if key not in stored:
            misfits.append(f"{key} is new")
        elif _shape(stored[key]) != _shape(value):
            misfits.append(f"{key} was {_shape(stored[key])} and is {_shape(value)}")
        else:
            current[key] = stored[key]
    misfits += [f"{key} is gone" for key in stored if key not in current]
    more = len(misfits) - _SHOWN
    return current, [*misfits[:_SHOWN], *([f"and {more} more entries"] if more > 0 else [])]


def _shape(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__


def _copy_state(piece: Any) -> Any:
    """Return a copy of a piece's state; None if it has none yet."""
    try:
        return copy.deepcopy(piece.state_dict())
    except Exception:  # whatever a program's own piece may raise before its first step
        return None
