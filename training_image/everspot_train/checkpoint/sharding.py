"""Decides how a stored tensor is sharded when it is loaded: like the tensor of the object that loads it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from everspot_train.checkpoint.manifest import TensorEntry
from everspot_train.checkpoint.tree import encode, is_sharded

_OF_PARAMETER = re.compile(r"state/(\d+)/")
"""In the state of an optimizer: the path of what belongs to a parameter, by the parameter's number."""
_PLACEMENT = re.compile(r"S\((\d+)\)|R")


class Sharding:
    """The sharded tensors of one piece as it is now.

    A tensor with a counterpart in the piece's own state is sharded as that one. The state of an optimizer is made at
    the first step only, so there a tensor with the shape of its parameter is sharded as the parameter. Any other tensor
    that was sharded when it was saved is sharded in the same way, over the ranks that there are now.

    Args:
        name: of the piece, with which its paths begin.
        piece: the object.
        state: its state now.
        sharded: any sharded parameter of the run, whose mesh and device other tensors get; None if there is none, so
            that all tensors are whole.
    """

    def __init__(self, name: str, piece: Any, state: Any, sharded: Any) -> None:
        self._name, self._sharded = name, sharded
        self._parameters = list(_parameters(piece)) if sharded is not None else []
        self._counterparts = dict(_sharded_tensors(name, state)) if sharded is not None else {}

    def template(self, path: str, entry: TensorEntry) -> Any:
        """Return an empty DTensor for a stored tensor, or None if the tensor is whole on each rank."""
        if self._sharded is None:
            return None
        model = self._counterparts.get(path)
        if model is None:
            parameter = self._parameter(path)
            if is_sharded(parameter) and tuple(parameter.shape) == entry.shape:
                model = parameter
        if model is not None:
            return _empty(entry, model, model.placements)
        placements = _parse(entry.placements or [])
        fits = placements and len(placements) == self._sharded.device_mesh.ndim
        return _empty(entry, self._sharded, placements) if fits else None

    def _parameter(self, path: str) -> Any:
        match = _OF_PARAMETER.match(path.removeprefix(f"{self._name}/"))
        number = int(match.group(1)) if match else len(self._parameters)
        return self._parameters[number] if number < len(self._parameters) else None


def find_sharded(pieces: Mapping[str, Any]) -> Any:
    """Return any sharded parameter of these pieces, or None."""
    for piece in pieces.values():
        if isinstance(piece, torch.nn.Module):
            for parameter in piece.parameters():
                if is_sharded(parameter):
                    return parameter
    return None


def _parameters(piece: Any) -> Iterator[torch.Tensor]:
    """The parameters of an optimizer, in the order in which its state numbers them."""
    groups = getattr(piece, "param_groups", None)
    for group in groups if isinstance(groups, list) else ():
        yield from group.get("params", ()) if isinstance(group, dict) else ()


def _sharded_tensors(name: str, state: Any) -> dict[str, Any]:
    tensors: dict[str, Any] = {}

    def collect(path: str, tensor: torch.Tensor) -> str:
        if is_sharded(tensor):
            tensors[path] = tensor
        return path

    encode(state, name, collect)
    return tensors


def _empty(entry: TensorEntry, model: Any, placements: Sequence[Any]) -> Any:
    """Return an empty DTensor on the mesh of another one, and in the memory in which the other one has its shard: with
    the CPU offload of FSDP2 that is main memory, while the mesh is one of GPUs. `DTensor.from_local` would move it."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, mesh = torch.Size(entry.shape), model.device_mesh
    sizes, _ = compute_local_shape_and_global_offset(shape, mesh, placements)
    local = torch.empty(sizes, dtype=entry.torch_dtype, device=model._local_tensor.device)
    strides = torch.empty(shape, device="meta").stride()
    spec = DTensorSpec(mesh, tuple(placements), tensor_meta=TensorMeta(shape, strides, entry.torch_dtype))
    return DTensor(local, spec, requires_grad=False)


def _parse(placements: list[str]) -> list[Any]:
    """Return the placements that these texts name; none, if one of them is of another kind."""
    from torch.distributed.tensor import Replicate, Shard

    matches = [_PLACEMENT.fullmatch(text) for text in placements]
    if not all(matches):
        return []
    return [Shard(int(match.group(1))) if match.group(1) else Replicate() for match in matches if match]
