"""Loads what fits of the checkpoint of another, smaller run, and says what does not.

A promoted trial of a sweep goes on from its checkpoint in the rung before. If the field that makes it larger changes a
shape or the number of samples, the parts that do not fit begin as in a new run.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch

from everspot_train.trainer.errors import StateMismatch

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
    for name, piece, stored in ordered:
        if name not in stored:
            skipped.append(f"the checkpoint has no {name}")
            continue
        state = stored[name]
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
    return skipped


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
