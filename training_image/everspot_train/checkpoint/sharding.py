"""Decides how a stored tensor is sharded when it is loaded: like the tensor of the object that loads it."""

import re
from collections.abc import Iterator, Mapping
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
        mesh: the mesh of any sharded tensor of the run; None if there is none, so that all tensors are whole.
    """

    def __init__(self, name: str, piece: Any, state: Any, mesh: Any) -> None:
        self._name, self._mesh = name, mesh
        self._parameters = list(_parameters(piece)) if mesh is not None else []
        self._counterparts = dict(_sharded_tensors(name, state)) if mesh is not None else {}

    def template(self, path: str, entry: TensorEntry) -> Any:
        """Return an empty DTensor for a stored tensor, or None if the tensor is whole on each rank."""
        if self._mesh is None:
            return None
        model = self._counterparts.get(path)
        if model is None:
            parameter = self._parameter(path)
            if is_sharded(parameter) and tuple(parameter.shape) == entry.shape:
                model = parameter
        if model is not None:
            return _empty(entry, model.device_mesh, model.placements)
        placements = _parse(entry.placements or [])
        return _empty(entry, self._mesh, placements) if placements and len(placements) == self._mesh.ndim else None

    def _parameter(self, path: str) -> Any:
        match = _OF_PARAMETER.match(path.removeprefix(f"{self._name}/"))
        number = int(match.group(1)) if match else len(self._parameters)
        return self._parameters[number] if number < len(self._parameters) else None


def find_mesh(pieces: Mapping[str, Any]) -> Any:
    """Return the mesh of any sharded parameter of these pieces, or None."""
    for piece in pieces.values():
        if isinstance(piece, torch.nn.Module):
            for parameter in piece.parameters():
                if is_sharded(parameter):
                    return parameter.device_mesh  # type: ignore[attr-defined]
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


def _empty(entry: TensorEntry, mesh: Any, placements: Any) -> Any:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape = torch.Size(entry.shape)
    sizes, _ = compute_local_shape_and_global_offset(shape, mesh, placements)
    local = torch.empty(sizes, dtype=entry.torch_dtype, device=mesh.device_type)
    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=strides)


def _parse(placements: list[str]) -> list[Any]:
    """Return the placements that these texts name; none, if one of them is of another kind."""
    from torch.distributed.tensor import Replicate, Shard

    matches = [_PLACEMENT.fullmatch(text) for text in placements]
    if not all(matches):
        return []
    return [Shard(int(match.group(1))) if match.group(1) else Replicate() for match in matches if match]
