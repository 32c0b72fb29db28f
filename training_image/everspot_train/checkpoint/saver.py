"""Copies the tensors of one rank into its stream, as the planner of `torch.distributed.checkpoint` divides them."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan

from everspot_train.checkpoint.manifest import TensorEntry
from everspot_train.checkpoint.memory import DISCARDED, SharedMemory
from everspot_train.checkpoint.streams import StreamLayout, StreamWriter, list_entries
from everspot_train.checkpoint.tree import is_sharded

_log = logging.getLogger(__name__)
_CPU = torch.device("cpu")

Gather = Callable[[Any], list[Any]]
"""A function that returns the values of all ranks."""


@dataclass(frozen=True, slots=True)
class SavedStreams:
    """The streams of all ranks. `entries`: the tensors in them. `sizes`: in bytes."""

    entries: dict[str, TensorEntry]
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class _SavedPlan:
    signature: tuple[object, ...]
    own: SavePlan
    streams: SavedStreams


class Saver:
    """Saves the state of one rank into memory. All ranks call it with the same paths, but for those of their own.

    A tensor that several ranks have is written by one of them. The plan is made once, and again when a tensor is added,
    removed or of another shape.

    Args:
        memory: for this rank's stream.
        rank: of this process.
        gather: returns the values of all ranks.
        device: on which the tensors are that may be copied in the background.
    """

    def __init__(
        self,
        memory: SharedMemory,
        rank: int = 0,
        gather: Gather = lambda value: [value],
        device: torch.device = _CPU,
    ) -> None:
        self.memory = memory
        self._rank, self._gather, self._device = rank, gather, device
        self._stream: torch.cuda.Stream | None = None
        self._lock = threading.Lock()
        self._writer = StreamWriter(memory.reserve, memory.count)
        self._planner = _Planner(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._plan: _SavedPlan | None = None

    def plan(self, tensors: Mapping[str, torch.Tensor], steady: Collection[str] = ()) -> SavedStreams:
        """Assign the tensors to streams, and reserve the memory for them.

        Args:
            tensors: by their paths.
            steady: paths of tensors that seldom change.

        Raises:
            OSError: if there is no memory for them.
        """
        plan = self._planned(dict(tensors), steady)
        self.memory.reserve(plan.streams.sizes[self._rank])
        self.memory.count(0)
        return plan.streams

    def copy(self, deferred: Collection[str] = ()) -> None:
        """Copy the tensors of the last plan. They may be changed when this returns, but for those in `deferred`: of
        these, only when `finish` has returned. Another process may read what has been copied while the rest is being
        copied: see `SharedMemory`."""
        try:
            if deferred and self._copy_beside(deferred):
                return
            self._write(())
        except BaseException:
            self.memory.count(DISCARDED)
            raise

    @property
    def is_copying(self) -> bool:
        """Whether `finish` has to be called."""
        return self._writer.pending is not None

    def finish(self, finished: Callable[[float], None], *, wait: bool = True) -> str | None:
        """Wait until the deferred tensors are copied, in any thread. Return the path of one that was changed meanwhile,
        so that the snapshot was discarded.

        Args:
            finished: called once with the seconds for which training stood still, before the snapshot is complete.
            wait: otherwise return at once if the copies are still under way.

        Raises:
            Exception: the error that ended the copies.
        """
        with self._lock:
            pending = self._writer.pending
            if pending is None or not (wait or pending.is_copied):
                return None
            self._writer.pending = None
            changed: str | None = None
            complete = False
            try:
                stall, changed = pending.wait()
                finished(stall)
                complete = changed is None
            finally:
                self.memory.count(self._size if complete else DISCARDED)
            return changed

    def _copy_beside(self, deferred: Collection[str]) -> bool:
        """Begin copies in the background. Return whether that was possible."""
        try:
            if self._device.type == "cuda" and self._stream is None:
                self._stream = torch.cuda.Stream(self._device)
            self._write(deferred)
        except RuntimeError as error:  # of CUDA: no stream, or no memory for the sums
            _log.warning("the loop waits for the copies of its checkpoint: %s", error)
            return False
        return True

    def _write(self, deferred: Collection[str]) -> None:
        assert self._plan is not None  # noqa: S101 - `plan` comes first
        self._writer.deferred, self._writer.stream = deferred, self._stream
        self._writer.write_data(self._plan.own, self._planner)

    @property
    def _size(self) -> int:
        return self._plan.streams.sizes[self._rank] if self._plan is not None else 0

    def _planned(self, tensors: dict[str, torch.Tensor], steady: Collection[str]) -> _SavedPlan:
        self._planner.set_up_planner(tensors, None, is_coordinator=self._rank == 0)
        signature = _signature(tensors, steady)
        if self._plan is not None and not any(self._gather(signature != self._plan.signature)):
            return self._plan
        self._writer = StreamWriter(self.memory.reserve, self.memory.count, steady)
        local = self._writer.prepare_local_plan(self._planner.create_local_plan())
        plans, metadata = self._planner.create_global_plan(self._gather(local))
        plans = self._writer.prepare_global_plan(plans)
        layouts: list[StreamLayout] = [plan.storage_data for plan in plans]
        entries = list_entries(metadata, [chunk for layout in layouts for chunk in layout.chunks])
        for of_rank in self._gather(_attributes(tensors)):
            for path, attributes in of_rank.items():
                entries[path] = entries[path].model_copy(update=attributes)
        streams = SavedStreams(entries, [layout.size for layout in layouts])
        self._plan = _SavedPlan(signature, self._planner.finish_plan(plans[self._rank]), streams)
        return self._plan


class _Planner(DefaultSavePlanner):
    """Finds plain tensors itself: torch takes 10 µs for each, as long as the copy of a small tensor."""

    def lookup_object(self, index: MetadataIndex) -> Any:
        """See `DefaultSavePlanner`."""
        value = self.state_dict.get(index.fqn)
        return value if type(value) is torch.Tensor else super().lookup_object(index)


def _signature(tensors: Mapping[str, torch.Tensor], steady: Collection[str]) -> tuple[object, ...]:
    return (
        frozenset(steady),
        *(
            (
                path,
                tensor.dtype,
                tensor.shape,
                _local(tensor).shape,
                _local(tensor).stride(),
                _local(tensor).device.type,
            )
            for path, tensor in tensors.items()
        ),
    )


def _local(tensor: Any) -> torch.Tensor:
    local: torch.Tensor = tensor._local_tensor if is_sharded(tensor) else tensor
    return local


def _attributes(tensors: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the placements of sharded tensors, and the devices of tensors that are not on a CPU."""
    attributes: dict[str, dict[str, Any]] = {}
    for path, tensor in tensors.items():
        device = _local(tensor).device.type
        if is_sharded(tensor):
            attributes[path] = {"placements": list(map(str, tensor.placements))}
        if device != _CPU.type:
            attributes[path] = attributes.get(path, {}) | {"device": device}
    return attributes
