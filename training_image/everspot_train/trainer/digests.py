"""Describes values by short texts that are equal only if the values are equal to the last bit.

A text names the kind of the value (dtype and shape of a tensor, type of a generator), so that a reader of two texts
sees how the values differ. No text holds a memory address.
"""

import dataclasses
import enum
import hashlib
import random
from collections import deque
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch

from everspot_train.checkpoint.wrapper_tensors import is_wrapper, take_apart

_LONGEST_INTEGER = 4096  # bits; Python writes no more than 4,300 decimal digits
_LONGEST = 60  # characters of a text that are shown as they are
_DEEPEST = 12
_PLAIN = (type(None), bool, int, complex, torch.dtype, torch.device, torch.Size, type(Ellipsis), range, slice)
GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random, torch.Generator)


def digest_bytes(data: bytes) -> str:
    """Return 16 hexadecimal digits for these bytes."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a strided tensor in order, without a copy where it is contiguous."""
    flat = tensor.contiguous().reshape(-1)
    # With less than two elements a tensor is contiguous whatever its stride, and then it has no view as bytes.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def describe_tensor(tensor: torch.Tensor) -> str:
    """Return dtype, shape and a digest of the bits. Layout in memory, device and `requires_grad` do not count."""
    head = f"{str(tensor.dtype).removeprefix('torch.')}[{','.join(map(str, tensor.shape))}]"
    with torch.no_grad():
        plain = tensor.detach()
        to_local = getattr(plain, "to_local", None)
        if callable(to_local):
            plain = to_local()
        if is_wrapper(plain):
            return f"{head}:{digest_bytes(describe(take_apart(plain)).encode())}"
        if plain.is_meta:
            return head
        if plain.ndim == 0 and not plain.is_quantized and not plain.is_sparse and not plain.is_complex():
            number = plain.item()  # exact, as text: python's floats hold all dtypes of one number
            return f"{head}:{number!r}" if number == number else f"{head}:nan"
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        if plain.is_quantized:
            plain = plain.int_repr()
        bits = as_bytes(plain.resolve_conj().resolve_neg().cpu())
    return f"{head}:{digest_bytes(bits.numpy().tobytes())}"


def describe_array(array: np.ndarray[Any, Any]) -> str:
    """Return dtype, shape and a digest of the bits; of an array of objects, the digest of their descriptions."""
    head = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    if array.dtype.hasobject:
        return f"{head}:{digest_bytes(describe(array.tolist()).encode())}"
    return f"{head}:{digest_bytes(np.ascontiguousarray(array).tobytes())}"


def describe_generator(generator: Any) -> str:
    """Return the type of a random generator and a digest of its state."""
    if isinstance(generator, torch.Generator):
        return f"torch.Generator:{describe_tensor(generator.get_state()).rpartition(':')[2]}"
    if isinstance(generator, random.Random):
        try:
            state: Any = generator.getstate()
        except NotImplementedError:  # SystemRandom has no state: each number is new
            return "random.SystemRandom"
        return f"random.Random:{digest_bytes(repr(state).encode())}"
    if isinstance(generator, np.random.RandomState):
        return f"numpy.RandomState:{digest_bytes(describe(generator.get_state(legacy=False)).encode())}"
    source = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    return f"numpy.{type(source).__name__}:{digest_bytes(describe(source.state).encode())}"


def describe_leaf(value: Any) -> str | None:
    """Return the text for a value without parts, or None if it has parts or is of an unknown type."""
    if isinstance(value, torch.Tensor):
        return describe_tensor(value)
    if isinstance(value, np.ndarray):
        return describe_array(value)
    if isinstance(value, GENERATORS):
        return describe_generator(value)
    if isinstance(value, float):  # numpy's float64 too
        return f"{float(value)!r}" if value == value else f"nan:{float(value).hex()}"
    if isinstance(value, np.generic):
        return f"{value.dtype}:{value!r}"
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value) is int:
        return repr(value) if value.bit_length() <= _LONGEST_INTEGER else hex(value)
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, str):
        return (
            repr(value)
            if len(value) <= _LONGEST
            else f"str[{len(value)}]:{digest_bytes(value.encode(errors='replace'))}"
        )
    if isinstance(value, bytes | bytearray):
        return f"bytes[{len(value)}]:{digest_bytes(bytes(value))}"
    return None


def describe(value: Any) -> str:
    """Return one text for a value with all its parts, as a batch is one."""
    leaf = describe_leaf(value)
    if leaf is not None:
        return leaf
    flat = flatten("", value)
    return digest_bytes(repr(sorted(flat.items())).encode())


def flatten(name: str, value: Any, depth: int = 0) -> dict[str, str]:
    """Return the text of each part of a value by the part's path, such as `model/0.weight`.

    Keys of a mapping and elements of a set are sorted, because their order is no part of the state. Of an object of an
    unknown type its attributes count.
    """
    leaf = describe_leaf(value)
    if leaf is not None:
        return {name: leaf}
    parts = list(list_parts(value)) if depth < _DEEPEST else []
    flat = {name: f"{type(value).__name__}[{len(parts)}]"} if not parts or isinstance(value, set | frozenset) else {}
    for key, part in parts:
        flat |= flatten(f"{name}/{key}" if name else key, part, depth + 1)
    return flat


def list_parts(value: Any) -> Iterable[tuple[str, Any]]:
    """Return the parts of a container or object with their names."""
    if isinstance(value, Mapping):
        return sorted(((str(key), part) for key, part in value.items()), key=lambda pair: pair[0])
    if isinstance(value, set | frozenset):
        return ((str(place), text) for place, text in enumerate(sorted(describe(part) for part in value)))
    if isinstance(value, list | tuple | deque):
        return ((str(place), part) for place, part in enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return [("name", f"{value.__module__}.{value.__qualname__}")]
    if hasattr(value, "__array_interface__"):  # an image of PIL
        return [("array", np.asarray(value))]
    return _reduced(value)


def _reduced(value: Any) -> list[tuple[str, Any]]:
    """Return what pickle would store of an object. Iterators of lists and ranges show their position so, unmoved."""
    try:
        reduced = value.__reduce_ex__(2)
    except Exception:  # whatever a stranger's class raises: it cannot be stored
        return sorted(getattr(value, "__dict__", {}).items())
    if isinstance(reduced, str):
        return [("name", reduced)]
    _, arguments, *optional = reduced
    state, items, pairs = (*optional, None, None, None)[:3]
    parts = [("class", type(value)), ("new", [part for part in arguments if part is not type(value)]), ("state", state)]
    return [*parts, *([("items", list(items))] if items else []), *([("pairs", list(pairs))] if pairs else [])]
