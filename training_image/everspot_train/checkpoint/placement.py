"""Decides in which memory a stored tensor is loaded: in a checkpoint's stream, or on a device in memory of its own."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import torch

from everspot_train.checkpoint.manifest import TensorEntry
from everspot_train.checkpoint.tree import UnsupportedValue, encode, is_sharded

CPU = torch.device("cpu")


class MemoryPlacement:
    """The memory for the tensors of one piece.

    A piece may keep the tensors that it loads. So each has memory of its own, on the device on which it was when it was
    saved.

    Args:
        name: of the piece, with which its paths begin.
        state: of the piece now.
        device: of the run.
        copied: the parts of the state that the piece copies into tensors of its own. They may stay in the stream.
        moved: the parts of the state that the piece moves to a device itself. They are loaded on the CPU.
    """

    def __init__(
        self, name: str, state: Any, device: torch.device, copied: Collection[str] = (), moved: Collection[str] = ()
    ) -> None:
        self._name, self._run_device = name, device
        self._copied, self._moved = frozenset(copied), frozenset(moved)
        if self._copied or self._moved:
            state = {key: part for key, part in state.items() if key not in self._copied | self._moved}
        self._devices = _list_devices(name, state)

    def device(self, path: str, entry: TensorEntry) -> torch.device | None:
        """Return the device for a stored tensor; None for a tensor that may stay in the stream."""
        parts = set(_beginnings(path.removeprefix(f"{self._name}/")))
        if parts & self._copied:
            return None
        if parts & self._moved:
            return CPU
        return choose_device(entry.device, self._devices.get(path), self._run_device)


def choose_device(stored: str | None, current: torch.device | None, run_device: torch.device) -> torch.device:
    """Return the device for a tensor.

    Args:
        stored: the type of the device on which it was saved; None: on a CPU, or by a version that did not store it.
        current: the device of the tensor that the piece has in its place now; None if it has none.
        run_device: of the run.
    """
    if current is not None and current.type != "meta" and stored in (None, current.type):
        return current
    return run_device if stored == run_device.type else CPU


def _beginnings(path: str) -> Iterator[str]:
    """Yield the path, and the path of everything that the tensor is in."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _list_devices(name: str, state: Any) -> dict[str, torch.device]:
    """Return the devices of the tensors in a state, by the paths by which they are stored."""
    devices: dict[str, torch.device] = {}

    def collect(path: str, tensor: Any) -> str:
        devices[path] = (tensor._local_tensor if is_sharded(tensor) else tensor).device
        return path

    with suppress(UnsupportedValue):
        encode(state, name, collect)
    return devices
