"""Reads a checkpoint: the trees of its manifest with tensors from its streams, sharded as in the present run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

from everspot_train.checkpoint.manifest import CheckpointManifest, ManifestError, TensorChunk, TensorEntry, stream_name
from everspot_train.checkpoint.memory import read_memory
from everspot_train.checkpoint.placement import CPU
from everspot_train.checkpoint.streams import StreamReader
from everspot_train.checkpoint.tree import decode

Template = Callable[[str, TensorEntry], Any]
"""A function that returns, for the path of a stored tensor, an empty DTensor to read it into; None for a plain one."""
Place = Callable[[str, TensorEntry], torch.device | None]
"""A function that returns, for the path of a stored tensor, the device on which it gets memory of its own; None if it
may stay in the stream."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state in a checkpoint, for one rank.

    Attributes:
        step: optimizer steps done.
        shared: the pieces that all ranks share.
        local: the pieces of this rank.
        own: the parts of shared pieces that differ on this rank.
        took_part: whether this rank took part in the checkpoint. If not, `local` and `own` are the first rank's.
    """

    step: int
    shared: dict[str, Any]
    local: dict[str, Any]
    own: dict[str, Any] = field(default_factory=dict)
    took_part: bool = True


class Loader:
    """One checkpoint in two folders. Tensors are read when they are needed.

    Args:
        manifest: of the checkpoint.
        streams: the folder with the files of the streams.
    """

    def __init__(self, manifest: CheckpointManifest, streams: Path) -> None:
        self.manifest = manifest
        self._folder = streams
        self._mapped: dict[int, torch.Tensor] = {}
        self._reader = StreamReader(manifest, self._stream)

    def read(self, tree: JsonValue, template: Template = lambda *_: None, place: Place = lambda *_: CPU) -> Any:
        """Return the state of a tree.

        Args:
            tree: of the manifest.
            template: says which tensors are sharded now.
            place: says where the other tensors are. One in the stream refers to it as long as it lives.

        Raises:
            ManifestError: if the tree does not fit the manifest.
            OSError: if a stream cannot be read.
        """
        read: dict[str, torch.Tensor] = {}

        def resolve(path: str) -> torch.Tensor:
            if path not in read:
                read[path] = self._tensor(path, template, place)
            return read[path]

        try:
            return decode(tree, resolve)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise ManifestError(f"the manifest contradicts itself: {type(error).__name__}: {error}") from error

    def _tensor(self, path: str, template: Template, place: Place) -> torch.Tensor:
        entry = self.manifest.tensors[path]
        target = template(path, entry)
        if target is not None:
            self._read_into({path: target})
            return target  # type: ignore[no-any-return]
        device, whole = place(path, entry), _whole(entry)
        if whole is not None:
            view = self._reader.view(path, whole)
            return _copy(view, entry.gapped_strides, device) if device is not None else view
        tensor = torch.empty(entry.shape, dtype=entry.torch_dtype, device=CPU)
        self._read_into({path: tensor})
        return tensor.to(device) if device is not None else tensor

    def _read_into(self, targets: Mapping[str, Any]) -> None:
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(dict(targets), self._reader.read_metadata(), is_coordinator=False)
        plan = self._reader.prepare_local_plan(planner.create_local_plan())
        self._reader.read_data(planner.finish_plan(plan), planner).wait()

    def _stream(self, number: int) -> torch.Tensor:
        if number not in self._mapped:
            self._mapped[number] = read_memory(self._folder / stream_name(number), self.manifest.streams[number])
        return self._mapped[number]


def _whole(entry: TensorEntry) -> TensorChunk | None:
    """Return the chunk that holds all of a tensor, if there is one."""
    return next((chunk for chunk in entry.chunks if prod(chunk.sizes) == prod(entry.shape)), None)


def _copy(tensor: torch.Tensor, strides: Sequence[int] | None, device: torch.device) -> torch.Tensor:
    if strides is None:
        return tensor.to(device, copy=True)
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=device).copy_(tensor)
