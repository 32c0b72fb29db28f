"""Refuses objects whose state no checkpoint could hold, when `Run.track` gets them."""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from everspot_train.checkpoint.tree import STORABLE, UnsupportedValue, encode, is_sharded, unsupported_kind
from everspot_train.checkpoint.wrapper_tensors import is_wrapper, take_apart
from everspot_train.trainer.errors import UnsafeState, UnsupportedState
from everspot_train.trainer.fingerprints import tensor_signature
from everspot_train.trainer.memory_views import MemoryView, find_overlap
from everspot_train.trainer.ranks import Ranks

log = logging.getLogger("everspot.trainer")
RESERVED = ("precision", "position", "randomness", "run", "modules")
"""Names of the trainer's own pieces of state."""
_DEEPEST = 12
_SHOWN = 3
"""Tensors that an error names."""


def check_tracked(pieces: Mapping[str, Any], ranks: Ranks, *, checkpointed: bool) -> None:
    """Refuse pieces that no checkpoint could hold, and pieces that differ between ranks.

    `checkpointed`: whether the run makes checkpoints. Without any, sharding does no harm.

    Raises:
        UnsupportedState: as `check_sharding`, `check_tensors`, `check_not_empty`, `check_signatures`,
            `check_parameters` and `check_views`.
        UnsafeState: as `check_types`.
    """
    for name, piece in pieces.items() if checkpointed else ():
        check_sharding(name, piece)
        state = _state_now(piece)
        check_tensors(name, state, started=False)
        check_types(name, state)
        check_not_empty(name, piece, state)
    if ranks.world_size > 1:
        states = {n: p.state_dict() for n, p in pieces.items() if isinstance(p, torch.nn.Module)}
        check_signatures(ranks.gather(signature(states)))
    check_parameters(pieces)
    for name, piece in pieces.items():
        check_views(name, piece)


def check_names(others: Mapping[str, Any]) -> None:
    """Refuse names of the trainer's own pieces, and objects without a state.

    Raises:
        ValueError: for such a name.
        TypeError: for such an object.
    """
    reserved = sorted(name for name in others if name in RESERVED)
    if reserved:
        raise ValueError(f"run.track: {', '.join(reserved)} is the trainer's own name: use another one")
    for name, piece in others.items():
        missing = [m for m in ("state_dict", "load_state_dict") if not callable(getattr(piece, m, None))]
        if missing:
            raise TypeError(f"run.track: {name}={type(piece).__name__} has no {' and no '.join(missing)}")


def iterate_tensors(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a state with their paths. Of a tensor that wraps others, these are its parts."""
    if is_wrapper(value) and not is_sharded(value) and not value.is_nested:
        yield from iterate_tensors(take_apart(value)[0], path, depth)
    elif isinstance(value, torch.Tensor):
        yield path, value
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from iterate_tensors(part, f"{path}/{key}" if path else str(key), depth + 1)
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from iterate_tensors(part, f"{path}/{place}" if path else str(place), depth + 1)


def check_sharding(name: str, piece: Any, state: Any = None) -> None:
    """Refuse a piece whose tensors are sharded between ranks in a way that cannot be saved.

    `state`: its state, where it is at hand.

    Raises:
        UnsupportedState: for modules of FSDP1, ZeRO's optimizer, and tensors of the class ShardedTensor. A DTensor, as
            `fully_shard` and tensor parallelism make them, can be saved.
    """
    if isinstance(piece, torch.nn.Module):
        fsdp = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
        if fsdp is not None and any(isinstance(module, fsdp) for module in piece.modules()):
            raise UnsupportedState(_sharded(name, "a module of it", "FullyShardedDataParallel"))
        tensors = [*piece.named_parameters(), *piece.named_buffers()]
    else:
        zero = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
        if zero is not None and isinstance(piece, zero.ZeroRedundancyOptimizer):  # has no state_dict before a gathering
            raise UnsupportedState(_sharded(name, "its state", "ZeroRedundancyOptimizer"))
        groups = getattr(piece, "param_groups", None) or []
        tensors = [
            (f"parameter {n}", p)
            for n, p in enumerate(p for group in groups if isinstance(group, dict) for p in group.get("params", ()))
        ]
    tensors += list(iterate_tensors(state))
    kinds = _sharded_kinds()
    for path, tensor in tensors if kinds else []:
        if isinstance(tensor, kinds):
            raise UnsupportedState(_sharded(name, repr(path), type(tensor).__name__))


def check_tensors(name: str, state: Any, *, started: bool) -> None:
    """Refuse tensors that cannot be stored.

    Args:
        name: of the piece.
        state: of the piece.
        started: whether training has started. Before, tensors may still be without data or shape.

    Raises:
        UnsupportedState: with the path and kind of each such tensor, such as a nested one.
    """
    problems = [
        f"{path!r} is {kind}"
        for path, tensor in iterate_tensors(state)
        if (started or not (tensor.is_meta or is_lazy(tensor))) and (kind := unsupported_kind(tensor)) is not None
    ]
    if problems:
        more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UnsupportedState(
            f"{name}: {', '.join(problems[:_SHOWN])}{more}, which no checkpoint can hold: keep the tensors of which it "
            "is made instead, as the values and offsets of a nested tensor"
        )


def check_types(name: str, state: Any) -> None:
    """Refuse a state that holds objects which could not be read back.

    Raises:
        UnsafeState: with the path and the type of the first one.
    """
    try:
        encode(state, name, lambda path, tensor: path)
    except UnsupportedValue as error:
        if error.is_tensor:  # `check_tensors` decides on it
            return
        raise UnsafeState(f"{name!r} holds {error.kind} at {error.path!r}: {STORABLE}") from None


def check_not_empty(name: str, piece: Any, state: Any) -> None:
    """Refuse a metric of torchmetrics, whose numbers are not in its `state_dict` unless it is told otherwise. Warn of
    another module with an empty `state_dict` that has tensors as attributes, which may be constants.

    Raises:
        UnsupportedState: for such a metric.
    """
    if not isinstance(piece, torch.nn.Module) or state is None or state:
        return
    words = f"{name} ({type(piece).__name__}) has an empty state_dict, so that no checkpoint holds anything of it"
    if callable(getattr(piece, "persistent", None)):
        raise UnsupportedState(f"{words}: call {name}.persistent(True), or leave it out of run.track")
    if any(isinstance(value, torch.Tensor) for module in piece.modules() for value in vars(module).values()):
        log.warning("%s: if its tensors change in training, register them as buffers", words)


def check_parameters(pieces: Mapping[str, Any]) -> None:
    """Refuse an optimizer whose parameters are in no tracked object: they would start again at each resume.

    Raises:
        UnsupportedState: if there is one.
    """
    covered = Coverage(pieces)
    for name, piece in pieces.items():
        missing = [p for p in list_parameters(piece) if not covered.covers(p)]
        if missing:
            shapes = ", ".join(map(tensor_signature, missing[:3]))
            raise UnsupportedState(
                f"{name}: {len(missing)} of its parameters ({shapes}) belong to nothing that is tracked: no checkpoint "
                "would hold them. Track their module too, run.track(…, critic=critic); parameters of no module as "
                "torch.nn.ParameterList([…])"
            )


def check_views(name: str, piece: Any) -> None:
    """Refuse a piece whose state has different tensors in the same memory, such as a tensor and its conjugate, or two
    slices that overlap: after a resume a change of one would no longer change the other. The same tensor under two
    names is one tensor after a resume, too. A module copies what it loads into its own tensors, which stay as they are.

    Raises:
        UnsupportedState: with the first such pair.
    """
    if isinstance(piece, torch.nn.Module):
        return
    views: dict[int, dict[MemoryView, str]] = {}
    for path, tensor in iterate_tensors(_state_now(piece)):
        if not is_sharded(tensor) and (view := MemoryView.of(tensor)) is not None:
            views.setdefault(tensor.untyped_storage()._cdata, {}).setdefault(view, path)
    for paths in views.values():
        pair = find_overlap(paths)
        if pair is not None:
            first, second = sorted(paths[view] for view in pair)
            raise UnsupportedState(
                f"{name}: {first!r} and {second!r} are different views of the same memory, which a resume would "
                "separate: return one tensor from state_dict, and make the other one of it in load_state_dict"
            )


def list_parameters(piece: Any) -> list[torch.Tensor]:
    """Return the parameters of an optimizer; of anything else, none."""
    if isinstance(piece, torch.nn.Module):
        return []
    groups = getattr(piece, "param_groups", None)
    if not isinstance(groups, list):
        return []
    return [p for group in groups if isinstance(group, dict) for p in group.get("params", ())]


class Coverage:
    """The tensors that a checkpoint of these pieces holds."""

    def __init__(self, pieces: Mapping[str, Any]) -> None:
        self._ids: set[int] = set()
        self._places: set[tuple[torch.device, int]] = set()
        self._unknown = False
        for piece in pieces.values():
            if isinstance(piece, torch.nn.Module):
                # Non-persistent buffers are kept, too.
                self._add(piece.parameters())
                self._add(piece.buffers())
                continue
            try:
                state = piece.state_dict()
            except Exception:  # a user's class may raise anything before its first use
                self._unknown = True
                continue
            self._add(tensor for _, tensor in iterate_tensors(state))

    def covers(self, tensor: torch.Tensor) -> bool:
        """Return whether a checkpoint holds the tensor, or another tensor with the same memory."""
        if self._unknown or id(tensor) in self._ids:
            return True
        place = _place(tensor)
        return place is not None and place in self._places

    def _add(self, tensors: Any) -> None:
        for tensor in tensors:
            self._ids.add(id(tensor))
            place = _place(tensor)
            if place is not None:
                self._places.add(place)


def signature(states: Mapping[str, Any]) -> dict[str, str]:
    """Return dtype and shape of each tensor by piece and path."""
    return {
        f"{name}: {path}": tensor_signature(t) for name, state in states.items() for path, t in iterate_tensors(state)
    }


def check_signatures(signatures: Sequence[Mapping[str, str]]) -> None:
    """Refuse tensors that differ in shape or dtype between ranks. `signatures`: one of each rank.

    Raises:
        UnsupportedState: with the first such tensor.
    """
    first = signatures[0]
    for rank, other in enumerate(signatures[1:], 1):
        for path in sorted(first.keys() | other.keys()):
            here, on_rank = first.get(path, "missing"), other.get(path, "missing")
            if here != on_rank:
                raise UnsupportedState(
                    f"{path} is {here} on rank 0 and {on_rank} on rank {rank}: a tensor that differs between ranks in "
                    "shape or dtype cannot be saved. Use run.prepare(model), which gives each rank the whole model "
                    "(DDP), or torch.distributed.fsdp.fully_shard, which makes DTensors"
                )


def _state_now(piece: Any) -> Any:
    """Return the state of a piece with the buffers that it leaves out; None if it has no state yet."""
    try:
        state = piece.state_dict()
    except Exception:  # a user's class may raise anything before its first use
        return None
    if not isinstance(piece, torch.nn.Module) or not isinstance(state, Mapping):
        return state
    return dict(piece.named_buffers()) | dict(state)


def _place(tensor: torch.Tensor) -> tuple[torch.device, int] | None:
    try:
        pointer = tensor.data_ptr()
    except RuntimeError:  # tensors without memory of their own: lazy, functional, sharded
        return None
    return (tensor.device, pointer) if pointer else None


def _sharded_kinds() -> tuple[type, ...]:
    """Return the classes of sharded tensors that cannot be saved; none if their module was not imported."""
    module = sys.modules.get("torch.distributed._shard.sharded_tensor")
    kind = getattr(module, "ShardedTensor", None)
    return (kind,) if isinstance(kind, type) else ()


def _sharded(name: str, path: str, kind: str) -> str:
    return (
        f"{name}: {path} is sharded between ranks ({kind}), which cannot be saved. Use run.prepare(model), which gives "
        "each rank the whole model (DDP), or torch.distributed.fsdp.fully_shard, with an optimizer of torch.optim"
    )
