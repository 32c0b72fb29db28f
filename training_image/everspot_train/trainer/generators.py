"""Finds the random generators that a program holds besides the global ones, and reads and writes their states.

A data set with `self.rng = np.random.default_rng(0)`, a transform with a `random.Random`, a sampler with a
`torch.Generator`, a module's global `rng` that a collate function draws from: each is state that the next batch depends
on. They are found by following what objects refer to, and named by the path to them, which is the same in the next
attempt.
"""

import collections
import functools
import itertools
import logging
import random
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

log = logging.getLogger("everspot.trainer")

RandomGenerator = np.random.Generator | np.random.RandomState | np.random.BitGenerator | random.Random | torch.Generator

# Bounds of the search from one root. A data set may list millions of samples; a generator lies near the top, or in the
# first few.
_MAX_OBJECTS = 20_000
_MAX_ITEMS = 64

_LEAVES = (
    *(str, bytes, bytearray, int, float, complex, type(None), types.ModuleType, types.CodeType, PurePath),
    *(torch.Tensor, np.ndarray, np.generic, torch.dtype, torch.device, torch.optim.Optimizer, types.FrameType),
)
_OPAQUE = ("everspot_train.trainer.run",)  # leads to everything that is tracked, by another path
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_generator(value: Any) -> bool:
    """Return whether `value` is a random generator with a state. The operating system's has none."""
    return isinstance(value, RandomGenerator) and not isinstance(value, random.SystemRandom)


def find_generators(roots: Mapping[str, Any]) -> dict[str, RandomGenerator]:
    """Return the generators that can be reached from `roots`, by the first path to each. The global generators of
    python, numpy and torch are left out."""
    visited: dict[int, Any] = {id(value): value for value in _global_generators()}
    generators: dict[str, RandomGenerator] = {}
    for root in roots.items():
        queue, limit = collections.deque([root]), len(visited) + _MAX_OBJECTS
        while queue and len(visited) < limit:
            path, value = queue.popleft()
            if id(value) in visited:
                continue
            try:
                if isinstance(value, _LEAVES) or type(value).__module__ in _OPAQUE:
                    continue
                visited[id(value)] = value
                if is_generator(value):
                    generators[path] = value
                else:
                    queue.extend([(f"{path}{step}", child) for step, child in _children(value)])
            except Exception as error:  # an object whose attributes raise must not end the training
                log.debug("no random generators are looked for in %s: %s", path, error)
    return generators


def frame_roots(frame: types.FrameType | None) -> dict[str, Any]:
    """Return the variables of a frame's function, and the globals that it names."""
    if frame is None:
        return {}
    named_globals = dict(_named_globals(frame.f_code, frame.f_globals))
    return named_globals | dict(frame.f_locals)


def generator_state(generator: RandomGenerator) -> dict[str, Any]:
    """Return the state of a generator as numbers, text and tensors."""
    if isinstance(generator, torch.Generator):
        return {"kind": "torch", "state": generator.get_state()}
    if isinstance(generator, random.Random):
        version, words, gauss = generator.getstate()
        return {"kind": "python", "state": [version, list(words), gauss]}
    if isinstance(generator, np.random.RandomState):
        return {"kind": "numpy", "state": _plain(generator.get_state(legacy=False))}
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    return {"kind": "numpy", "state": _plain(bits.state)}


def set_generator_state(generator: RandomGenerator, state: Mapping[str, Any]) -> None:
    """Put a state back.

    Raises:
        ValueError: if it is the state of another kind of generator.
        RuntimeError: by torch, if it is that of a generator on another kind of device.
    """
    if state["kind"] != generator_state(generator)["kind"]:
        raise ValueError(f"a {type(generator).__name__} cannot take the state of a generator of {state['kind']}")
    if isinstance(generator, torch.Generator):
        generator.set_state(state["state"])
    elif isinstance(generator, random.Random):
        version, words, gauss = state["state"]
        generator.setstate((version, tuple(words), gauss))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(_arrays(state["state"]))
    else:
        bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
        bits.state = _arrays(state["state"])


def reseed_generator(generator: RandomGenerator, entropy: Iterable[int]) -> None:
    """Put a generator into the state that follows from `entropy` alone."""
    sequence = np.random.SeedSequence(list(entropy))
    seed = int(sequence.generate_state(1, np.uint64)[0])
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, random.Random):
        generator.seed(seed)
    elif isinstance(generator, np.random.RandomState):
        generator.seed(seed % 2**32)
    else:
        bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
        bits.state = type(bits)(sequence).state


def _global_generators() -> list[Any]:
    numpy_global = np.random.mtrand._rand
    devices = torch.cuda.default_generators if torch.cuda.is_available() else ()
    return [random._inst, numpy_global, numpy_global._bit_generator, torch.default_generator, *devices]


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a value refers to, with the step of the path that leads there. Nothing is called."""
    if isinstance(value, Mapping):
        if isinstance(value, dict):
            for key, item in itertools.islice(value.items(), _MAX_ITEMS):
                if isinstance(key, str | int):
                    yield f"[{key!r}]", item
    elif isinstance(value, list | tuple | collections.deque):
        for number, item in enumerate(itertools.islice(value, _MAX_ITEMS)):
            yield f"[{number}]", item
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, types.MethodType | types.BuiltinMethodType):
        yield from ((".__self__", value.__self__), ("", getattr(value, "__func__", None)))
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, type):
        yield from _of_class(value)
    if not isinstance(value, types.FunctionType | type):
        yield from _of_instance(value)


def _of_instance(value: Any) -> Iterator[tuple[str, Any]]:
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        for name, item in list(attributes.items()):
            if name not in ("_parameters", "_buffers"):  # a model's tensors
                yield f".{name}", item
    for owner in type(value).__mro__:
        for name, slot in list(vars(owner).items()):
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    yield f".{name}", slot.__get__(value)
                except AttributeError:  # not bound yet
                    continue
        yield f".<{owner.__name__}>", owner


def _of_class(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the objects that one of the program's own classes refers to: its attributes, and the globals of its
    methods."""
    if _is_library_module(owner.__module__):
        return
    for name, item in list(vars(owner).items()):
        function = item.__func__ if isinstance(item, staticmethod | classmethod) else item
        function = function.fget if isinstance(function, property) else function
        if isinstance(function, types.FunctionType) or is_generator(item):
            yield f".{name}", function


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f".<{name}>", cell.cell_contents
        except ValueError:  # not bound yet
            continue
    yield from ((".__defaults__", function.__defaults__), (".__kwdefaults__", function.__kwdefaults__))
    if not code.co_filename.startswith((*_LIBRARIES, "<frozen")):
        for name, value in _named_globals(code, function.__globals__):
            yield f".<{name}>", value


def _named_globals(code: types.CodeType, variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the global variables that a piece of code names, and variables of the program's own modules."""
    names = list(_names(code))
    for name in names:
        value = variables.get(name)
        if isinstance(value, types.ModuleType):
            inside = vars(value)
            yield from ((f"{name}.{inner}", inside[inner]) for inner in names if is_generator(inside.get(inner)))
        elif value is not None:
            yield name, value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


@functools.cache
def _is_library_module(name: str) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return name in sys.builtin_module_names or (file is not None and file.startswith(_LIBRARIES))


def _plain(value: Any) -> Any:
    """Return a state of numpy without arrays, which a checkpoint cannot hold."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "bytes": torch.frombuffer(bytearray(value.tobytes()), dtype=torch.uint8)}
    return value.item() if isinstance(value, np.generic) else value


def _arrays(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"dtype", "bytes"}:
        return np.frombuffer(value["bytes"].numpy().tobytes(), dtype=value["dtype"]).copy()
    return {name: _arrays(item) for name, item in value.items()}
