"""Finds the tensors that only an optimizer's step changes, and ends their copies before the step."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from everspot_train.checkpoint.tree import is_sharded
from everspot_train.trainer.trackable import iterate_tensors, list_parameters


class StepWindow:
    """The time from a checkpoint to the next step of an optimizer, in which weights and the state of optimizers do not
    change.

    Args:
        pieces: the tracked objects by name.
        close: called before each step of a tracked optimizer, in the thread that steps it.
        device: on which tensors may be copied in the window.
    """

    def __init__(self, pieces: Mapping[str, Any], close: Callable[[], None], device: torch.device) -> None:
        self._pieces, self._device = pieces, device
        self._close = close
        self._optimizers = [piece for piece in pieces.values() if self._hook(piece)]

    def stable_paths(self, tensors: Mapping[str, torch.Tensor]) -> Collection[str]:
        """Return the paths of the tensors that do not change in the window, if the program does not change them
        itself: the parameters and the state of optimizers with hooks."""
        stepped = set[int]()
        for optimizer in self._optimizers:
            stepped |= {_memory(parameter) for parameter in list_parameters(optimizer)}
            stepped |= {_memory(tensor) for _, tensor in iterate_tensors(dict(enumerate(optimizer.state.values())))}
        others = [piece for piece in self._pieces.values() if all(piece is not o for o in self._optimizers)]
        stepped -= {_memory(parameter) for piece in others for parameter in list_parameters(piece)}
        stepped -= {_memory(b) for m in others if isinstance(m, torch.nn.Module) for b in m.buffers()}
        return {path for path, tensor in tensors.items() if self._is_here(tensor) and _memory(tensor) in stepped}

    def _is_here(self, tensor: torch.Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.device == self._device

    def _hook(self, piece: Any) -> bool:
        if not isinstance(piece, torch.optim.Optimizer):
            return False
        try:
            piece.register_step_pre_hook(lambda *_: self._close())
        except AttributeError:  # a wrapper that is no torch optimizer inside
            return False
        return True


def _memory(tensor: Any) -> int:
    """Return what identifies the memory of a tensor; of a shard on this rank."""
    local = tensor._local_tensor if is_sharded(tensor) else tensor
    return local.untyped_storage()._cdata if local.layout is torch.strided else 0
