"""Finds the differences between a state that was stored and the state of the object that took it back."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from everspot_train.checkpoint.tree import is_sharded
from everspot_train.checkpoint.wrapper_tensors import is_wrapper, take_apart
from everspot_train.trainer.digests import describe
from everspot_train.trainer.fingerprints import same_bits, tensor_signature

_NUMBERS = (int, float, np.integer, np.floating, np.bool_)


def differences(stored: Any, current: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each part that differs, and how.

    Tensors are compared by dtype, shape and bits, numbers by value. Whether a container is a list or a tuple, and the
    order of a mapping's keys, do not count; nor does the device.
    """
    if _are_wrappers(stored, current):
        yield from differences(take_apart(stored), take_apart(current), path)
    elif isinstance(stored, torch.Tensor) or isinstance(current, torch.Tensor):
        how = _tensor_difference(stored, current)
        if how is not None:
            yield path, how
    elif isinstance(stored, Mapping) and isinstance(current, Mapping):
        yield from _mapping_differences(stored, current, path)
    elif isinstance(stored, list | tuple) and isinstance(current, list | tuple):
        if len(stored) != len(current):
            yield path, f"had {len(stored)} entries and has {len(current)}"
        for place, (before, after) in enumerate(zip(stored, current, strict=False)):
            yield from differences(before, after, _join(path, place))
    elif isinstance(stored, _NUMBERS) and isinstance(current, _NUMBERS):
        if stored != current and (stored == stored or current == current):  # NaN is the same NaN
            yield path, f"was {stored!r} and is {current!r}"
    else:
        before, after = describe(stored), describe(current)
        if before != after:
            yield path, f"was {before} and is {after}"


def _are_wrappers(stored: Any, current: Any) -> bool:
    """Return whether both are tensors of one class that wraps others, and no DTensors."""
    return is_wrapper(stored) and type(stored) is type(current) and not is_sharded(stored)


def _tensor_difference(stored: Any, current: Any) -> str | None:
    if not isinstance(stored, torch.Tensor) or not isinstance(current, torch.Tensor):
        return f"was {_kind(stored)} and is {_kind(current)}"
    if stored.dtype != current.dtype or stored.shape != current.shape:
        return f"was {tensor_signature(stored)} and is {tensor_signature(current)}"
    if is_sharded(stored) != is_sharded(current):
        return f"({tensor_signature(stored)}) is sharded between ranks before or now, and not both"
    if is_wrapper(stored) != is_wrapper(current):
        return f"was {type(stored).__name__} and is {type(current).__name__}"
    if is_sharded(stored):
        if stored.placements != current.placements:  # type: ignore[attr-defined]
            return f"({tensor_signature(stored)}) is sharded in another way"
        stored, current = stored._local_tensor, current._local_tensor  # type: ignore[attr-defined]
    if stored.is_meta or current.is_meta:
        return None
    with torch.no_grad():
        same = same_bits(stored, current)
    return None if same else f"({tensor_signature(stored)}) has other values"


def _mapping_differences(stored: Mapping[Any, Any], current: Mapping[Any, Any], path: str) -> Iterator[tuple[str, str]]:
    for key, before in stored.items():
        if key in current:
            yield from differences(before, current[key], _join(path, key))
        else:
            yield _join(path, key), "is in the checkpoint and not in the state now"
    for key in current:
        if key not in stored:
            yield _join(path, key), "is in the state now and not in the checkpoint"


def _join(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)


def _kind(value: Any) -> str:
    return tensor_signature(value) if isinstance(value, torch.Tensor) else f"{type(value).__name__} {value!r:.40}"
