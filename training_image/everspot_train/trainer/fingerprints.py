"""Fingerprints of state: short texts that differ if any bit differs, computed where the tensors are.

A cryptographic digest would need every tensor on the host, and takes a second for each GB. These fingerprints are sums
of 64-bit words, each multiplied by a number of its place, so that a GPU computes them at the speed of its memory.
"""

from collections.abc import Mapping
from typing import Any

import torch

from everspot_train.checkpoint.tree import is_sharded
from everspot_train.checkpoint.wrapper_tensors import class_name, is_wrapper, take_apart
from everspot_train.trainer.digests import as_bytes, describe_leaf, digest_bytes, list_parts

_CHUNK = 1 << 20  # words per multiplication: bounds the memory of a fingerprint
_DEEPEST = 12


def tensor_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor in order, on its device. Layout and strides do not count."""
    plain = tensor.detach()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    if plain.is_quantized:
        plain = plain.int_repr()
    return as_bytes(plain.resolve_conj().resolve_neg())


def same_bits(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same bytes in the same order. They are compared as 64-bit words, which is
    several times as fast as by bytes."""
    words, tail = _split_words(tensor_bits(tensor).cpu())
    other_words, other_tail = _split_words(tensor_bits(other).cpu())
    return torch.equal(words, other_words) and torch.equal(tail, other_tail)


def tensor_signature(tensor: torch.Tensor) -> str:
    """Return dtype and shape, such as `float32[3,4]`."""
    return f"{str(tensor.dtype).removeprefix('torch.')}[{','.join(map(str, tensor.shape))}]"


def fingerprint(value: Any) -> str:
    """Return the fingerprint of a state, with all its parts."""
    return _fingerprint(value, shards=True)


def fingerprints(state: Any) -> dict[str, str]:
    """Return the fingerprint of each entry of a state; of a state that is no mapping, one fingerprint.

    They are compared between ranks, so of a tensor that is sharded between ranks (DTensor) only dtype and shape count.
    """
    if not isinstance(state, Mapping):
        return {"": _fingerprint(state, shards=False)}
    return {str(key): _fingerprint(part, shards=False) for key, part in state.items()}


def _fingerprint(value: Any, *, shards: bool) -> str:
    return digest_bytes(repr(list(_parts("", value, 0, shards))).encode())


def _parts(path: str, value: Any, depth: int, shards: bool) -> Any:
    if is_sharded(value):
        yield path, f"{tensor_signature(value)}:{_of_tensor(value._local_tensor) if shards else 'sharded'}"
        return
    if is_wrapper(value):
        yield path, f"{class_name(value)} {tensor_signature(value)}"
        yield from _parts(path, take_apart(value), depth + 1, shards)
        return
    if isinstance(value, torch.Tensor):
        yield path, _of_tensor(value)
        return
    leaf = describe_leaf(value)
    if leaf is not None or depth >= _DEEPEST:
        yield path, leaf or type(value).__name__
        return
    yield path, type(value).__name__
    for name, part in list_parts(value):
        yield from _parts(f"{path}/{name}", part, depth + 1, shards)


@torch.no_grad()
def _of_tensor(tensor: torch.Tensor) -> str:
    head = tensor_signature(tensor)
    if tensor.is_meta or not tensor.numel():
        return head
    words, tail = _split_words(tensor_bits(tensor))
    factors = _factors(min(len(words), _CHUNK), words.device)
    sums = [(part * factors[: len(part)]).sum() for part in words.split(_CHUNK)] if len(words) else []
    numbers = torch.stack(sums).tolist() if sums else []
    return f"{head}:{numbers}:{tail.tolist()}"


def _split_words(bits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return bytes as 64-bit words, and the bytes after the last whole word."""
    whole = bits.numel() // 8 * 8
    words = bits[:whole]
    if words.data_ptr() % 8:  # a view into the middle of another tensor
        words = words.clone()
    return words.view(torch.int64), bits[whole:]


def _factors(length: int, device: torch.device) -> torch.Tensor:
    """Return odd numbers that are spread over 64 bits (Fibonacci hashing's constant as a signed number)."""
    places = torch.arange(1, length + 1, dtype=torch.int64, device=device)
    return places * -7046029254386353131 | 1
