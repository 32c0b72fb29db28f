"""Takes tensors that wrap other tensors apart, and makes them again.

Quantized weights and the 8-bit states of optimizers (torchao) are such tensors. Their classes have the two methods of
torch's traceable wrapper subclasses: `__tensor_flatten__` and `__tensor_unflatten__`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch


def is_wrapper(value: Any) -> bool:
    """Whether a value is a tensor that wraps other tensors."""
    kind = type(value)
    if kind is torch.Tensor or not isinstance(value, torch.Tensor):
        return False
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def take_apart(tensor: Any) -> tuple[dict[str, torch.Tensor], Any]:
    """Return the tensors in a wrapper by their names, and what else the wrapper consists of."""
    names, context = tensor.__tensor_flatten__()
    return {name: getattr(tensor, name) for name in names}, context


def class_name(tensor: torch.Tensor) -> str:
    """Return the name by which `put_together` finds the class of a wrapper."""
    kind = type(tensor)
    return f"{kind.__module__}:{kind.__qualname__}"


def put_together(
    name: str, parts: Mapping[str, torch.Tensor], context: Any, size: Sequence[int], strides: Sequence[int]
) -> torch.Tensor:
    """Return a wrapper. Its class must have been imported already, since a checkpoint imports nothing.

    Raises:
        ValueError: if there is no such class of tensors.
    """
    module, _, path = name.partition(":")
    kind: Any = sys.modules.get(module)
    for part in path.split("."):
        kind = getattr(kind, part, None)
    if not isinstance(kind, type) or not issubclass(kind, torch.Tensor) or not hasattr(kind, "__tensor_unflatten__"):
        raise ValueError(f"{module}.{path} is no class of tensors that the program has imported")
    wrapper: torch.Tensor = kind.__tensor_unflatten__(dict(parts), context, torch.Size(size), tuple(strides))
    return wrapper
