"""State of modules that their `state_dict` leaves out and the next step depends on.

Non-persistent buffers; gradients that are accumulated over several steps, as for a second optimizer that the loop steps
by hand; which parameters are frozen; and which modules are in evaluation mode.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from everspot_train.checkpoint.tree import is_sharded
from everspot_train.checkpoint.wrapper_tensors import is_wrapper
from everspot_train.trainer.model_setup import plain_names

_BUFFER_PATH = "modules: {}/buffers/{}"
_BUFFER = re.compile(_BUFFER_PATH.format(r"\w+", ".+"))


class ModuleState:
    """The state of the tracked modules that their `state_dict` leaves out. `modules`: by tracked name.

    Buffers are loaded immediately. Gradients, frozen parameters and modes take effect in `apply_pending`, when the loop
    begins, so that code between the program's start and its loop does not change them.
    """

    def __init__(self, modules: Mapping[str, torch.nn.Module]) -> None:
        self._modules = dict(modules)
        self._pending: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and names by module. Only values that differ from the default are listed."""
        if self._pending is not None:
            return self._pending
        return {name: _extra_state(module) for name, module in self._modules.items()}

    def templates(self) -> dict[str, Any]:
        """Return the state with the parameters in the places of their gradients, which are sharded as they are."""
        state = self.state_dict()
        for name, module in self._modules.items():
            plain = plain_names(module)
            state[name] = state[name] | {"gradients": {plain(n): p for n, p in module.named_parameters()}}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load buffers, and keep the rest for `apply_pending`."""
        for name, module in self._modules.items():
            _load_buffers(module, state.get(name, {}).get("buffers", {}))
        self._pending = state

    def apply_pending(self, *, last: bool = True) -> None:
        """Put gradients, frozen parameters and modes into effect: the loop begins. `last`: False if a later loop of the
        program may begin with them again."""
        state = self._pending
        if last:
            self._pending = None
        for name, module in self._modules.items():
            if state is not None and name in state:
                _apply(module, state[name])


def find_uneven_buffers(signatures: Sequence[Mapping[str, str]]) -> set[str]:
    """Return the paths of the buffers whose shape or dtype is not the same on every rank. `signatures`: one of each
    rank, with the state of `ModuleState` under the name `modules`."""
    buffers = filter(_BUFFER.fullmatch, set[str]().union(*signatures))
    return {path for path in buffers if len({of_rank.get(path) for of_rank in signatures}) > 1}


def leave_out_buffers(state: Mapping[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Return the state of `ModuleState` without the buffers of these paths."""
    return {
        name: part
        | {"buffers": {n: b for n, b in part["buffers"].items() if _BUFFER_PATH.format(name, n) not in paths}}
        for name, part in state.items()
    }


def unexpand_buffers(module: torch.nn.Module) -> None:
    """Give each element of the buffers memory of its own. Nothing can be loaded into a buffer that `expand` has made,
    since several of its elements are at the same place."""
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and not is_sharded(buffer) and _is_expanded(buffer):
                part._buffers[name] = buffer.clone(memory_format=torch.contiguous_format)


@torch.no_grad()
def leave_memory(module: torch.nn.Module, loaded: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Give the parameters and buffers memory of their own, where the module has kept loaded tensors instead of copying
    them, as `load_state_dict(assign=True)` and torch's observers of quantization do. One such tensor would keep all of
    the checkpoint in memory. `loaded`: the tensors with their paths."""
    storages = {_storage(tensor) for _, tensor in loaded} - {None}
    owned: dict[int, torch.Tensor] = {}
    for part in module.modules():
        for parameter in part._parameters.values():
            if parameter is not None and _storage(parameter) in storages:
                parameter.data = parameter.detach().clone()  # stays the parameter that an optimizer has
        for name, buffer in part._buffers.items():
            if buffer is not None and _storage(buffer) in storages:
                part._buffers[name] = owned.setdefault(
                    id(buffer), buffer.clone()
                )  # one copy of a buffer with two names


def _storage(tensor: torch.Tensor) -> int | None:
    """Return what identifies a tensor's memory; None for a tensor that has none of its own."""
    if is_lazy(tensor) or is_sharded(tensor) or is_wrapper(tensor) or tensor.layout is not torch.strided:
        return None
    return int(tensor.untyped_storage()._cdata)


def _is_expanded(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and any(
        size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _extra_state(module: torch.nn.Module) -> dict[str, Any]:
    plain = plain_names(module)
    stored_names = {plain(name) for name in module.state_dict(keep_vars=True)}
    parameters = {plain(n): p for n, p in module.named_parameters()}
    buffers = ((plain(n), b) for n, b in module.named_buffers(remove_duplicate=False))
    return {
        "buffers": {n: b.detach() for n, b in buffers if n not in stored_names},
        "gradients": {n: p.grad.detach() for n, p in parameters.items() if p.grad is not None},
        "frozen": [n for n, p in parameters.items() if not p.requires_grad],
        "evaluating": list(dict.fromkeys(plain(n) for n, m in module.named_modules() if not m.training)),
    }


@torch.no_grad()
def _load_buffers(module: torch.nn.Module, buffers: Mapping[str, torch.Tensor]) -> None:
    plain = plain_names(module)
    owners = {plain(name): part for name, part in module.named_modules()}  # the wrapped module comes last
    for path, stored in buffers.items():
        parent, _, name = plain(path).rpartition(".")
        owner = owners.get(parent)
        if owner is None:
            continue  # a part that another version of the module had; its weights are refused by name
        current = owner._buffers.get(name)
        if current is not None and (current.shape, current.dtype) == (stored.shape, stored.dtype):
            current.copy_(stored)
            continue
        device = current.device if current is not None else next((p.device for p in module.parameters()), stored.device)
        if name not in owner._buffers:  # registered by the loop or by a forward pass
            owner._non_persistent_buffers_set.add(name)
        owner._buffers[name] = stored.to(device, copy=True)  # such as a cache that grows with its input


def _apply(module: torch.nn.Module, state: Mapping[str, Any]) -> None:
    plain = plain_names(module)
    frozen, evaluating = set(map(plain, state["frozen"])), set(map(plain, state["evaluating"]))
    gradients = {plain(name): gradient for name, gradient in state["gradients"].items()}
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(plain(name) not in frozen)
        stored = gradients.get(plain(name))
        if stored is not None and is_sharded(stored) and not is_sharded(parameter):
            stored = stored.full_tensor()
        parameter.grad = None if stored is None else stored.to(parameter.device, copy=True)
    for name, part in module.named_modules():
        part.training = plain(name) not in evaluating
