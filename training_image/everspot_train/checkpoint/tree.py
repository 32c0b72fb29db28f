"""Converts state to JSON and tensors, and back, without pickle.

`encode` replaces each tensor of a state by a reference and hands the tensor to a collector. What remains is JSON. So a
reader never executes code, and what cannot be read back is refused when it is written.

Dicts with text keys, lists, text, numbers, booleans and None are JSON as they are. Everything else is an object with
one key that starts with `$`:

    {"$tensor": PATH}                     a tensor, stored under PATH
    {"$parameter": PATH, "grad": BOOL}    a torch.nn.Parameter
    {"$tuple": [...]}  {"$set": [...]}    containers; {"$size": [...]} is a torch.Size
    {"$dict": [[KEY, VALUE], ...]}        a dict with other keys, or with keys that start with `$`
    {"$ordered": [...], "metadata": ...}  an OrderedDict, with the metadata of a module's state
    {"$counter": [...]}                   a collections.Counter
    {"$float": TEXT}                      a number that JSON has not: nan, inf, -inf
    {"$integer": HEXADECIMAL}             an integer with more digits than a reader of JSON takes
    {"$text": BASE64}                     text that is no UTF-8, as a file's name may be
    {"$complex": [REAL, IMAGINARY]}  {"$bytes": BASE64}  {"$bytearray": BASE64}
    {"$dtype": NAME}  {"$device": TEXT}   of torch
    {"$number": DTYPE, "bytes": BASE64}   a number of numpy
    {"$array": DTYPE, "shape": [...], "values": TENSOR}   an array of numpy, with its bytes as a tensor
    {"$sparse": LAYOUT, ...}  {"$quantized": SCHEME, ...}   tensors of other layouts, made of plain ones
    {"$wrapper": CLASS, ...}              a tensor that wraps others, of a class that the program has imported
"""

import base64
import math
import re
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import JsonValue
from torch.nn.parameter import is_lazy

from everspot_train.checkpoint.wrapper_tensors import class_name, is_wrapper, put_together, take_apart

Collect = Callable[[str, torch.Tensor], str]
"""A function that takes a tensor for a path, and returns the path under which it is stored."""
Resolve = Callable[[str], torch.Tensor]
"""A function that returns the tensor that is stored under a path."""

Constant = TypeVar("Constant", torch.dtype, torch.layout)

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
_PACKED = re.compile(r"u?int[1-7]|bits\w+|quint\dx\d")
"""Names of dtypes that torch itself cannot copy, or whose elements share a byte without a dense form."""
_PLAIN = (bool, type(None))
_NO_NUMBERS = "OV"
"""Kinds of numpy's dtypes: objects, and records."""
_INTEGER_BITS = 4096
"""Longer integers are written in hexadecimal digits: Python reads at most 4,300 decimal ones."""
_DEEPEST_JSON = 180
"""The most levels of containers. The reader of a manifest takes 200, of which a manifest has some of its own."""


STORABLE = "a checkpoint holds tensors, numpy arrays, numbers, text, and lists, tuples and dicts of these only"


class UnsupportedValue(Exception):
    """A state holds a value that cannot be stored. `path`: in the state; `kind`: its type; `is_tensor`: of torch."""

    def __init__(self, path: str, kind: str, *, is_tensor: bool = False) -> None:
        super().__init__(f"{path} is {kind}")
        self.path, self.kind, self.is_tensor = path, kind, is_tensor


def find_constant(name: str, kind: type[Constant]) -> Constant:
    """Return the dtype or layout of torch that has this name.

    Raises:
        ValueError: if there is none.
    """
    value = getattr(torch, name, None)
    if not isinstance(value, kind):
        raise ValueError(f"torch has no {kind.__name__} {name}")
    return value


def is_sharded(value: Any) -> bool:
    """Whether a value is a DTensor. A program that has not imported the module of DTensors has none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def unsupported_kind(tensor: torch.Tensor) -> str | None:
    """Return what a tensor is, if no checkpoint can hold it; None for any other tensor."""
    if is_lazy(tensor):
        return "a parameter without a shape"
    if isinstance(tensor, torch.nn.Parameter):
        tensor = tensor.detach()
    if tensor.is_meta:
        return "a tensor without data"
    if tensor.is_nested:
        return "a nested tensor"
    if is_sharded(tensor):
        return _unsupported_shard(tensor)
    if is_wrapper(tensor):
        parts, _ = take_apart(tensor)
        return next((kind for part in parts.values() if (kind := unsupported_kind(part)) is not None), None)
    if type(tensor) is not torch.Tensor:  # its bytes may not be all of it
        return f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    dtype, layout = (str(value).removeprefix("torch.") for value in (tensor.dtype, tensor.layout))
    if _PACKED.fullmatch(dtype):
        return f"a tensor of dtype {dtype}"
    is_supported = tensor.layout in (torch.strided, torch.sparse_coo) or tensor.layout in _COMPRESSED
    return None if is_supported else f"a tensor of layout {layout}"


def _unsupported_shard(tensor: Any) -> str | None:
    if any(placement.is_partial() for placement in tensor.placements):
        return "a DTensor whose parts are not summed yet"
    local = tensor._local_tensor
    return f"a DTensor of {type(local).__module__}.{type(local).__qualname__}" if is_wrapper(local) else None


def join(path: str, key: object) -> str:
    """Return the path of a part. It is UTF-8, whatever the key is."""
    name = str(key).encode(errors="backslashreplace").decode()
    return f"{path}/{name}" if path else name


def encode(value: Any, path: str, collect: Collect) -> JsonValue:
    """Return the JSON of a state. `path`: of the value, by which its tensors are stored.

    Raises:
        UnsupportedValue: for an object of any other type, a container inside itself, or containers so deep in each
            other that they could not be read back.
    """
    try:
        encoded = _encode(value, path, collect)
        if _is_too_deep(encoded, _DEEPEST_JSON):
            raise UnsupportedValue(path, "containers inside each other, deeper than a checkpoint can hold")
    except RecursionError:
        raise UnsupportedValue(path, "a container inside itself") from None
    return encoded


def _is_too_deep(encoded: JsonValue, levels: int) -> bool:
    if not isinstance(encoded, dict | list):
        return False
    parts = encoded.values() if isinstance(encoded, dict) else encoded
    return levels == 0 or any(_is_too_deep(part, levels - 1) for part in parts)


def decode(value: JsonValue, resolve: Resolve) -> Any:
    """Return the state of which `encode` made `value`.

    Raises:
        ValueError: if `value` is not of this format.
    """
    if isinstance(value, list):
        return [decode(part, resolve) for part in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if not tag.startswith("$"):
        return {key: decode(part, resolve) for key, part in value.items()}
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise ValueError(f"{tag} is not known: was the checkpoint written by a later version?")
    return decoder(value, resolve)


def _encode(value: Any, path: str, collect: Collect) -> JsonValue:
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if kind is str:
        return value if _is_utf8(value) else {"$text": _encode_bytes(value.encode(errors="surrogatepass"))}
    if kind is int:
        return value if value.bit_length() <= _INTEGER_BITS else {"$integer": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, path, collect)
    if (isinstance(value, np.generic) or kind is np.ndarray) and _is_named(value.dtype):
        return _encode_numpy(value, path, collect)
    encoder = _ENCODERS.get(kind)
    if encoder is None:
        raise UnsupportedValue(path, f"{kind.__module__}.{kind.__qualname__}")
    return encoder(value, path, collect)


def _is_named(dtype: Any) -> bool:
    """Return whether the name of a dtype of numpy stands for all of it. An extension's dtype may have none."""
    try:
        return dtype.kind not in _NO_NUMBERS and bool(np.dtype(dtype.str) == dtype)
    except TypeError:
        return False


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _encode_list(value: Sequence[Any], path: str, collect: Collect) -> list[JsonValue]:
    return [_encode(part, join(path, place), collect) for place, part in enumerate(value)]


def _encode_pairs(value: Mapping[Any, Any], path: str, collect: Collect) -> list[JsonValue]:
    return [
        [_encode(key, join(path, key), collect), _encode(part, join(path, key), collect)] for key, part in value.items()
    ]


def _encode_dict(value: dict[Any, Any], path: str, collect: Collect) -> JsonValue:
    if all(type(key) is str and not key.startswith("$") and _is_utf8(key) for key in value):
        return {key: _encode(part, join(path, key), collect) for key, part in value.items()}
    return {"$dict": _encode_pairs(value, path, collect)}


def _encode_ordered(value: "OrderedDict[Any, Any]", path: str, collect: Collect) -> JsonValue:
    encoded: dict[str, JsonValue] = {"$ordered": _encode_pairs(value, path, collect)}
    if (metadata := getattr(value, "_metadata", None)) is not None:
        encoded["metadata"] = _encode(metadata, join(path, "_metadata"), collect)
    return encoded


def _encode_bytes(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode()


def _encode_set(value: set[Any], path: str, collect: Collect) -> JsonValue:
    return {"$set": _encode_list(sorted(value, key=repr), path, collect)}


_ENCODERS: dict[type, Callable[[Any, str, Collect], JsonValue]] = {
    dict: _encode_dict,
    list: _encode_list,
    tuple: lambda value, path, collect: {"$tuple": _encode_list(value, path, collect)},
    set: _encode_set,
    torch.Size: lambda value, path, collect: {"$size": list(value)},
    OrderedDict: _encode_ordered,
    Counter: lambda value, path, collect: {"$counter": _encode_pairs(value, path, collect)},
    complex: lambda value, path, collect: {"$complex": [value.real.hex(), value.imag.hex()]},
    bytes: lambda value, path, collect: {"$bytes": _encode_bytes(value)},
    bytearray: lambda value, path, collect: {"$bytearray": _encode_bytes(value)},
    torch.dtype: lambda value, path, collect: {"$dtype": str(value).removeprefix("torch.")},
    torch.device: lambda value, path, collect: {"$device": str(value)},
}


def _encode_numpy(value: Any, path: str, collect: Collect) -> JsonValue:
    if isinstance(value, np.generic):
        return {"$number": value.dtype.str, "bytes": _encode_bytes(value.tobytes())}
    data = bytearray(value.tobytes())  # in the order of C, and not the program's memory, which it may change
    values = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8, device="cpu")
    return {"$array": value.dtype.str, "shape": list(value.shape), "values": {"$tensor": collect(path, values)}}


def _encode_tensor(tensor: torch.Tensor, path: str, collect: Collect) -> JsonValue:
    if isinstance(tensor, torch.nn.Parameter):
        plain = _encode_tensor(tensor.detach(), path, collect)
        return {"$parameter": plain, "grad": tensor.requires_grad}
    if (kind := unsupported_kind(tensor)) is not None:
        raise UnsupportedValue(path, kind, is_tensor=True)
    if is_wrapper(tensor) and not is_sharded(tensor):
        return _encode_wrapper(tensor, path, collect)
    if tensor.is_quantized:
        return _encode_quantized(tensor, path, collect)
    if tensor.layout is torch.strided:
        return {"$tensor": collect(path, tensor)}
    layout = str(tensor.layout).removeprefix("torch.")
    encoded: dict[str, JsonValue] = {"$sparse": layout, "size": list(tensor.shape)}
    if tensor.layout is torch.sparse_coo:
        names: tuple[str, ...] = ("_indices", "_values")
        encoded["coalesced"] = tensor.is_coalesced()
    else:
        names = (*_COMPRESSED[tensor.layout], "values")
    encoded["parts"] = [{"$tensor": collect(join(path, n.strip("_")), getattr(tensor, n)())} for n in names]
    return encoded


def _encode_wrapper(tensor: torch.Tensor, path: str, collect: Collect) -> JsonValue:
    parts, context = take_apart(tensor)
    return {
        "$wrapper": class_name(tensor),
        "parts": [[name, _encode(part, join(path, name), collect)] for name, part in parts.items()],
        "context": _encode(context, join(path, "context"), collect),
        "size": list(tensor.shape),
        "strides": list(tensor.stride()),
    }


def _encode_quantized(tensor: torch.Tensor, path: str, collect: Collect) -> JsonValue:
    encoded: dict[str, JsonValue] = {
        "$quantized": str(tensor.qscheme()).removeprefix("torch."),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "values": {"$tensor": collect(join(path, "values"), tensor.int_repr())},
    }
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return encoded | {"scale": float(tensor.q_scale()).hex(), "zero": int(tensor.q_zero_point())}
    return encoded | {
        "axis": tensor.q_per_channel_axis(),
        "scales": {"$tensor": collect(join(path, "scales"), tensor.q_per_channel_scales())},
        "zeros": {"$tensor": collect(join(path, "zeros"), tensor.q_per_channel_zero_points())},
    }


def _decode_ordered(value: dict[str, Any], resolve: Resolve) -> "OrderedDict[Any, Any]":
    ordered = OrderedDict(_decode_pairs(value["$ordered"], resolve))
    if "metadata" in value:
        ordered._metadata = decode(value["metadata"], resolve)  # type: ignore[attr-defined]
    return ordered


def _decode_pairs(pairs: list[list[JsonValue]], resolve: Resolve) -> list[tuple[Any, Any]]:
    return [(decode(key, resolve), decode(part, resolve)) for key, part in pairs]


def _decode_parameter(value: dict[str, Any], resolve: Resolve) -> torch.nn.Parameter:
    return torch.nn.Parameter(decode(value["$parameter"], resolve), requires_grad=value["grad"])


def _decode_number(value: dict[str, Any], resolve: Resolve) -> Any:
    dtype, data = np.dtype(value["$number"]), base64.b64decode(value["bytes"])
    return np.frombuffer(data, dtype)[0] if dtype.itemsize else dtype.type()  # an empty text has no bytes


def _decode_array(value: dict[str, Any], resolve: Resolve) -> Any:
    data = decode(value["values"], resolve).cpu().numpy().tobytes()
    dtype = np.dtype(value["$array"])
    return np.frombuffer(bytearray(data), dtype).reshape(value["shape"]) if data else np.empty(value["shape"], dtype)


def _decode_sparse(value: dict[str, Any], resolve: Resolve) -> torch.Tensor:
    parts, size, layout = decode(value["parts"], resolve), value["size"], find_constant(value["$sparse"], torch.layout)
    if layout is torch.sparse_coo:
        indices, values = parts
        return torch.sparse_coo_tensor(indices, values, size, is_coalesced=value["coalesced"], check_invariants=True)
    outer, inner, values = parts
    return torch.sparse_compressed_tensor(outer, inner, values, size, layout=layout, check_invariants=True)


def _decode_quantized(value: dict[str, Any], resolve: Resolve) -> torch.Tensor:
    values = decode(value["values"], resolve)
    if "scale" in value:
        scale = float.fromhex(value["scale"])
        return torch._make_per_tensor_quantized_tensor(values, scale, value["zero"])
    scales, zeros = decode(value["scales"], resolve), decode(value["zeros"], resolve)
    return torch._make_per_channel_quantized_tensor(values, scales, zeros, value["axis"])


def _decode_wrapper(value: dict[str, Any], resolve: Resolve) -> torch.Tensor:
    parts, context = dict(_decode_pairs(value["parts"], resolve)), decode(value["context"], resolve)
    return put_together(value["$wrapper"], parts, context, value["size"], value["strides"])


_DECODERS: dict[str, Callable[[dict[str, Any], Resolve], Any]] = {
    "$tensor": lambda value, resolve: resolve(value["$tensor"]),
    "$parameter": _decode_parameter,
    "$tuple": lambda value, resolve: tuple(decode(value["$tuple"], resolve)),
    "$set": lambda value, resolve: set(decode(value["$set"], resolve)),
    "$size": lambda value, resolve: torch.Size(value["$size"]),
    "$dict": lambda value, resolve: dict(_decode_pairs(value["$dict"], resolve)),
    "$ordered": _decode_ordered,
    "$counter": lambda value, resolve: Counter(dict(_decode_pairs(value["$counter"], resolve))),
    "$float": lambda value, resolve: float(value["$float"]),
    "$integer": lambda value, resolve: int(value["$integer"], 16),
    "$text": lambda value, resolve: base64.b64decode(value["$text"]).decode(errors="surrogatepass"),
    "$complex": lambda value, resolve: complex(*map(float.fromhex, value["$complex"])),
    "$bytes": lambda value, resolve: base64.b64decode(value["$bytes"]),
    "$bytearray": lambda value, resolve: bytearray(base64.b64decode(value["$bytearray"])),
    "$dtype": lambda value, resolve: find_constant(value["$dtype"], torch.dtype),
    "$device": lambda value, resolve: torch.device(value["$device"]),
    "$number": _decode_number,
    "$array": _decode_array,
    "$sparse": _decode_sparse,
    "$quantized": _decode_quantized,
    "$wrapper": _decode_wrapper,
}
