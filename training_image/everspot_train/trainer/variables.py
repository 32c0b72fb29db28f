"""Finds the values that a training loop keeps outside of what it tracks: in its variables, closures and objects.

A rehearsal compares them between an undisturbed and an interrupted run, and so names the cause of a difference: a
generator in the data set, an average of the weights, a counter. Nothing is changed, and no property is evaluated.
"""

import functools
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from everspot_train.trainer.digests import GENERATORS, describe, describe_leaf, describe_tensor

_MOST_VALUES = 20_000
_DEEPEST = 9
_LONGEST_CONTAINER = 256  # parts; of a longer one only both ends are looked at, as one value
_LARGE_BYTES = 4 * 2**20  # an array of more is sampled, since the walk is repeated at each step
_OPAQUE = (
    "_thread", "asyncio", "concurrent", "ctypes", "datetime", "everspot_core", "everspot_store", "everspot_train.agent",
    "everspot_train.rundir", "everspot_train.trainer.run", "everspot_train.trainer.checkpointer", "inspect", "io",
    "logging",
    "multiprocessing", "pathlib", "queue", "re", "rich", "socket", "subprocess", "tensorboard", "threading",
    "torch._dynamo", "torch.cuda", "torch.distributed", "torch.profiler", "torch.utils.tensorboard", "tqdm", "wandb",
)  # fmt: skip
"""Modules whose objects hold no training state, but much that differs between two runs."""
_MAIN = ("__main__", "__mp_main__")  # a process that multiprocessing has spawned knows the script by both
_CODE = f"{Path.cwd()}/"
"""The folder of the job's code: the agent starts the program there."""


def user_frames(frame: types.FrameType | None) -> Iterator[tuple[str, types.FrameType]]:
    """Yield the frames of the user's own code that led here, with the name that their variables get."""
    while frame is not None:
        code = frame.f_code
        if is_own(code.co_filename):
            yield ("" if code.co_name == "<module>" else f"{code.co_qualname}."), frame
        frame = frame.f_back


@functools.cache
def is_own(file: str | None) -> bool:
    """Return whether a file of code belongs to the job, and not to Python or to a package."""
    if not file or file.startswith("<"):
        return False
    path = Path(_CODE, file)
    return str(path).startswith(_CODE) and "site-packages" not in path.parts and path.exists()


class Walk:
    """A walk over everything that the user's code can reach.

    Args:
        tracked: ids of objects that the checkpoint holds, and which are compared by themselves.
        loaders: ids of the tracked loader and its parts; only data set and collation hold state of their own.
    """

    def __init__(self, tracked: set[int], loaders: set[int]) -> None:
        self.values: dict[str, str] = {}
        self._tracked, self._loaders = tracked, loaders
        self._visited: set[int] = set()
        self._waiting: deque[tuple[str, Any, int]] = deque()
        self._bare: list[tuple[str, Any, int]] = []

    def look(self, frame: types.FrameType | None) -> dict[str, str]:
        """Return the values by name, each as its kind, a bar, and its text: `generator|numpy.PCG64:…`."""
        for prefix, own in user_frames(frame):
            if prefix:
                self._enter(prefix, dict(own.f_locals))
        modules = {id(module): (name, module) for name, module in reversed(list(sys.modules.items()))}  # the first name
        for name, module in reversed(list(modules.values())):
            if is_own(getattr(module, "__file__", None)):
                self._enter("" if name in _MAIN else f"{name}.", dict(vars(module)))
        main = sys.modules.get("__main__")
        for prefix, own in user_frames(frame):  # a script that runpy runs is no module of sys.modules
            if own.f_globals is not getattr(main, "__dict__", None) and not prefix:
                self._enter("", dict(own.f_globals))
        while (self._waiting or self._bare) and len(self.values) < _MOST_VALUES:
            self._visit(*(self._waiting.popleft() if self._waiting else self._bare.pop()))
        return self.values

    def _enter(self, prefix: str, names: Mapping[str, Any]) -> None:
        for name, value in names.items():
            if not name.startswith("__") and not isinstance(value, types.ModuleType):
                # A tensor that is part of a model is better known by its name there than by that of a loop's variable.
                bare = isinstance(value, torch.Tensor)
                (self._bare if bare else self._waiting).append((f"{prefix}{name}", value, 0))

    def _visit(self, name: str, value: Any, depth: int) -> None:
        kind = _kind(value)
        if id(value) in self._tracked and not isinstance(value, torch.nn.Module):
            return
        if kind == "value":
            self.values.setdefault(name, f"value|{describe_leaf(value)}")
            return
        if id(value) in self._visited or depth > _DEEPEST:
            return
        self._visited.add(id(value))
        if kind is not None:
            self.values[name] = f"{kind}|{_text(value)}"
            return
        parts = _of_loader(value) if id(value) in self._loaders else _parts(value)
        for part, inner in parts:
            if isinstance(inner, str) and part == "…":
                self.values[name] = f"value|{inner}"
            else:
                self._waiting.append((f"{name}{part}", inner, depth + 1))


def _text(value: Any) -> str:
    """Return the text of a value without parts. Of a large one a sample counts, since this is repeated at each step."""
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and value.layout == torch.strided:
        if value.numel() * value.element_size() > _LARGE_BYTES:
            return f"{list(value.shape)}~{describe_tensor(value.detach().reshape(-1)[:: value.numel() // 4096])}"
    elif isinstance(value, np.ndarray) and value.nbytes > _LARGE_BYTES:
        return f"{list(value.shape)}~{describe(value.reshape(-1)[:: max(1, value.size // 4096)])}"
    return str(describe_leaf(value))


def _kind(value: Any) -> str | None:
    """Return what a value without parts is: `generator`, `weights`, `tensor`, `array` or `value`; None for others."""
    if isinstance(value, GENERATORS):
        return "generator"
    if isinstance(value, torch.nn.Parameter):
        return "weights"
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, np.ndarray):
        return "array"
    return "value" if describe_leaf(value) is not None else None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a container or object holds, with the ending of its name."""
    if isinstance(value, Mapping):
        if len(value) > _LONGEST_CONTAINER:
            yield "…", _both_ends(value.values(), len(value))
        else:
            yield from ((f"[{key!r}]" if isinstance(key, str | int) else f"[{place}]", part)
                        for place, (key, part) in enumerate(list(value.items())))  # fmt: skip
    elif isinstance(value, list | tuple | deque):
        if len(value) > _LONGEST_CONTAINER:
            yield "…", _both_ends(value, len(value))
        else:
            yield from ((f"[{place}]", part) for place, part in enumerate(list(value)))
    elif isinstance(value, set | frozenset):
        if len(value) <= _LONGEST_CONTAINER:
            yield "…", describe(value)
    elif isinstance(value, types.FunctionType):
        if is_own(value.__code__.co_filename):
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
            yield from ((f".{name}", cell.cell_contents) for name, cell in cells if _filled(cell))
            yield from ((f".default{place}", part) for place, part in enumerate(value.__defaults__ or ()))
            yield from ((f".{name}", part) for name, part in {**(value.__kwdefaults__ or {}), **vars(value)}.items())
    elif isinstance(value, types.MethodType):
        yield ".self", value.__self__
    elif isinstance(value, functools.partial):
        yield from (
            (f".{place}", part) for place, part in enumerate((value.func, *value.args, *value.keywords.values()))
        )
    elif isinstance(value, types.GeneratorType):
        if value.gi_frame is not None and is_own(value.gi_code.co_filename):
            yield from ((f".{name}", part) for name, part in value.gi_frame.f_locals.items())
    elif isinstance(value, type):
        if is_own(getattr(sys.modules.get(value.__module__), "__file__", None) or _class_file(value)):
            yield from ((f".{name}", part) for name, part in vars(value).items() if not name.startswith("__"))
    else:
        yield from _attributes(value)


def _of_loader(value: Any) -> Iterator[tuple[str, Any]]:
    for name in ("dataset", "collate_fn"):
        if (part := getattr(value, name, None)) is not None:
            yield f".{name}", part


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    home = str(type(value).__module__)
    if isinstance(value, types.ModuleType) or any(home == name or home.startswith(f"{name}.") for name in _OPAQUE):
        return
    own = home == "__main__" or is_own(getattr(sys.modules.get(home), "__file__", None) or _class_file(type(value)))
    if isinstance(value, torch.nn.Module):
        names = {**value._parameters, **value._buffers, **value._modules}
        yield from ((f".{name}", part) for name, part in names.items() if part is not None)
        if isinstance(value, torch.nn.modules.module.Module) and not own and home.startswith("torch."):
            return  # of torch's own layers nothing else changes
    if isinstance(value, torch.optim.Optimizer):
        for place, state in enumerate(value.state.values()):
            yield from ((f".state[{place}][{name!r}]", part) for name, part in state.items())
        return
    attributes = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            member = kind.__dict__.get(slot)
            if isinstance(member, types.MemberDescriptorType):
                try:
                    attributes[slot] = member.__get__(value)
                except AttributeError:
                    continue
    for name, part in attributes.items():
        if own or not name.startswith("_"):
            yield f".{name}", part


def _class_file(kind: type) -> str | None:
    """Return the file of a class that runpy's `__main__` holds: that of its first method."""
    for part in vars(kind).values():
        if isinstance(part, types.FunctionType):
            return part.__code__.co_filename
    return None


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _both_ends(values: Any, length: int) -> str:
    listed = list(values)
    ends = [text for text in map(describe_leaf, (*listed[:20], *listed[-20:])) if text is not None]
    return f"{length} values, {describe(ends)}"
