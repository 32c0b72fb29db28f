"""Prepares a model for training: memory layout, activation checkpointing, parallelism over ranks, compilation.

The names in the model's `state_dict` stay those of the program's own module, so a checkpoint of one choice can be
loaded with another.

torch's own modules for sharding and checkpointing are imported where they are used: they take a second of processor
time, which every start of a program would pay.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import torch
from everspot_core.jobs.recipes import Parallel
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel

_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_LEAST_BLOCKS = 2  # of one class in one container: fewer are no repetition

Blocks = type[nn.Module] | Sequence[type[nn.Module]]


def set_up_model(
    model: nn.Module,
    device: torch.device,
    world_size: int,
    *,
    channels_last: bool,
    activation_checkpointing: bool | Blocks,
    parallel: Parallel,
    compiler: str | None,
) -> nn.Module:
    """Return the model on `device`, ready to be trained by so many ranks. The order is that of the field: checkpointing
    inside, then sharding, and compilation around everything.

    Args:
        compiler: the backend of `torch.compile`; None does not compile.

    Raises:
        ValueError: if there is no block whose activations could be recomputed.
    """
    model = model.to(device)
    if channels_last and device.type == "cuda":  # on a processor oneDNN may write beyond its buffers with this layout
        model = model.to(memory_format=torch.channels_last)
    if activation_checkpointing:
        checkpoint_activations(model, None if activation_checkpointing is True else activation_checkpointing)
    if world_size > 1 and parallel is Parallel.FSDP2:
        _shard(model, device, world_size)
    elif world_size > 1:
        model = DistributedDataParallel(model)
    if compiler is not None:
        model.compile(backend=compiler)  # in place: neither the object nor a name changes
    return model


def checkpoint_activations(model: nn.Module, classes: Blocks | None) -> None:
    """Have the backward pass recompute the activations inside of blocks, which saves their memory.

    Args:
        classes: the classes of the blocks; None means the blocks that the model repeats.

    Raises:
        ValueError: if the model has no such block, or one holds a BatchNorm or InstanceNorm whose averages would
            count every batch twice.
    """
    block_classes = (classes,) if isinstance(classes, type) else tuple(classes or ())
    blocks = [
        (parent, name, block)
        for parent, name, block in _children(model)
        if block_classes and isinstance(block, block_classes)
    ] or ([] if block_classes else repeated_blocks(model))
    if not blocks:
        names = ", ".join(kind.__name__ for kind in block_classes)
        subject = (
            f"has no module of class {names}" if block_classes else "repeats no block in a ModuleList or Sequential"
        )
        raise ValueError(
            f"activation_checkpointing: {type(model).__name__} {subject}; give the class of its blocks, "
            "activation_checkpointing=Block"
        )
    for _, name, block in blocks:
        norm = next((m for m in block.modules() if isinstance(m, _NormBase) and m.track_running_stats), None)
        if norm is not None:
            raise ValueError(
                f"activation_checkpointing: block {name} holds a {type(norm).__name__}, whose running averages would "
                "count every batch twice: use GroupNorm or LayerNorm, or blocks without it"
            )
    wrapper = import_module("torch.distributed.algorithms._checkpoint.checkpoint_wrapper")
    for parent, name, block in blocks:
        parent.register_module(name, wrapper.checkpoint_wrapper(block))


def plain_name(name: str) -> str:
    """Return the name of a parameter, buffer or module without the wrappers of checkpointing and compilation, as it
    is in a `state_dict`."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    inner = {wrapper.rstrip(".") for wrapper in _WRAPPERS}
    parent, _, last = name.rpartition(".")
    return parent if last in inner else name


def plain_names(module: nn.Module) -> Callable[[str], str]:
    """Return a function that returns the name of a part of this module without the wrappers of checkpointing,
    compilation and DDP, wherever they are in it. An average of a model that DDP wraps has DDP inside."""
    parts = module.named_modules(remove_duplicate=False)
    wrapped = [
        plain_name(f"{path}.") if path else "" for path, part in parts if isinstance(part, DistributedDataParallel)
    ]

    def name_of(name: str) -> str:
        name = plain_name(name)
        for prefix in reversed(wrapped):  # the innermost first: the names of the others stay
            if f"{name}.".startswith(f"{prefix}module."):
                name = f"{prefix}{name[len(prefix) + len('module.') :]}".rstrip(".")
        return name

    return name_of


def gradient_sync(model: nn.Module | None, needed: bool) -> AbstractContextManager[Any]:
    """Return the context of a backward pass, which adds up gradients over the ranks only if that is needed: at the
    last loss of a step."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and isinstance(model, fsdp.FSDPModule):
        model.set_requires_gradient_sync(needed)
        return nullcontext()
    if needed or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def _shard(model: nn.Module, device: torch.device, world_size: int) -> None:
    """Shard each repeated block by itself, so that only one at a time is whole, and then the remaining parameters."""
    fsdp = import_module("torch.distributed.fsdp")
    mesh = import_module("torch.distributed.device_mesh").init_device_mesh(device.type, (world_size,))
    for _, _, block in repeated_blocks(model):
        fsdp.fully_shard(block, mesh=mesh)
    fsdp.fully_shard(model, mesh=mesh)


def _children(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Yield each module with its parent and its name there."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            yield parent, name, child


def repeated_blocks(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """Return the outermost blocks that a container repeats, each with its parent and its name there: modules of one
    class that have parts of their own. Containers themselves are blocks if the model repeats nothing else."""
    return list(_repeated(model, containers=False)) or list(_repeated(model, containers=True))


def _repeated(model: nn.Module, *, containers: bool) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    children = list(model.named_children())
    counts = Counter(type(_inside(child)) for _, child in children)
    for name, child in children:
        block = _inside(child)
        is_block = any(True for _ in block.children()) and (containers or not isinstance(block, _CONTAINERS))
        if isinstance(model, _CONTAINERS) and is_block and counts[type(block)] >= _LEAST_BLOCKS:
            yield model, name, child
        else:
            yield from _repeated(child, containers=containers)


def _inside(module: nn.Module) -> nn.Module:
    """Return the block inside of a checkpoint wrapper."""
    inner = getattr(module, _WRAPPERS[0].rstrip("."), None)
    return inner if isinstance(inner, nn.Module) else module
