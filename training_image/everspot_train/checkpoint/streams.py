"""Writes and reads the streams of a checkpoint for the planners of `torch.distributed.checkpoint`.

Each rank has one stream: the tensors, or shards of tensors, that the planner has assigned to it, one after another. The
writer copies them into memory, from which another process uploads them. The reader finds them in a file.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from os import PathLike
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from everspot_train.checkpoint.deferred import DeferredCopies, DeferredCopy, plan_copy
from everspot_train.checkpoint.manifest import CheckpointManifest, ManifestError, TensorChunk, TensorEntry
from everspot_train.checkpoint.tree import UnsupportedValue

ALIGNMENT = 64
"""Bytes. A tensor begins at a multiple of this, a cache line, which is also a multiple of the size of any element."""


_COUNT_BYTES = 64 << 20
"""The bytes after which the count of copied bytes is written again. A reader takes segments of this size."""


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item of a plan with its place in the stream. `strides`: as in `TensorChunk`."""

    item: WriteItem
    at: int
    strides: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class StreamLayout:
    """The layout of one stream. `size`: in bytes."""

    stream: int
    items: tuple[PlacedItem, ...]
    size: int

    def chunk(self, placed: PlacedItem) -> TensorChunk:
        """Return the manifest's description of an item."""
        assert placed.item.tensor_data is not None  # noqa: S101 - see lay_out
        chunk = placed.item.tensor_data.chunk
        return TensorChunk(
            offsets=tuple(chunk.offsets),
            sizes=tuple(chunk.sizes),
            stream=self.stream,
            at=placed.at,
            strides=placed.strides,
        )

    @property
    def chunks(self) -> Iterator[tuple[str, TensorChunk]]:
        """The chunks with the paths of their tensors."""
        return ((placed.item.index.fqn, self.chunk(placed)) for placed in self.items)


def lay_out(stream: int, plan: SavePlan, steady: Collection[str] = ()) -> StreamLayout:
    """Assign a place to each item of a plan. Tensors in `steady`, which seldom change, come first, so that whole
    segments of the stream stay the same from one checkpoint to the next.

    Raises:
        UnsupportedValue: for an item that is not a tensor.
    """
    placed, at = list[PlacedItem](), 0
    for item in sorted(plan.items, key=lambda item: item.index.fqn not in steady):
        if item.type is WriteItemType.BYTE_IO or item.tensor_data is None:
            raise UnsupportedValue(item.index.fqn, "an object that is not a tensor")
        data = item.tensor_data
        placed.append(PlacedItem(item, at, _dense_strides(data.chunk.sizes, data.properties.strides)))
        size = prod(data.chunk.sizes) * data.properties.dtype.itemsize
        at = -(-(at + size) // ALIGNMENT) * ALIGNMENT
    return StreamLayout(stream, tuple(placed), at)


class StreamWriter(StorageWriter):
    """Copies the tensors of a plan into memory.

    Args:
        memory: a function that returns writable memory of a number of bytes, as a tensor of uint8.
        count: called now and then with the bytes that are complete, from the first one on.
        steady: paths of tensors that seldom change.

    Attributes:
        deferred: paths of tensors that may be copied after `write_data` has returned.
        stream: for such copies from a GPU; None on a CPU.
        pending: the copies that were under way when `write_data` returned.
    """

    def __init__(
        self, memory: Callable[[int], torch.Tensor], count: Callable[[int], None], steady: Collection[str] = ()
    ) -> None:
        self._memory, self._count, self._steady = memory, count, steady
        self.deferred: Collection[str] = ()
        self.stream: torch.cuda.Stream | None = None
        self.pending: DeferredCopies | None = None
        self._views: list[torch.Tensor] = []
        self._results: list[WriteResult] = []
        self._views_of: tuple[StreamLayout, torch.Tensor] | None = None
        self.entries: dict[str, TensorEntry] = {}

    def reset(self, checkpoint_id: str | PathLike[str] | None = None) -> None:
        """See `StorageWriter`."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """See `StorageWriter`."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """See `StorageWriter`."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """See `StorageWriter`. Lays out the stream of each rank."""
        return [replace(plan, storage_data=lay_out(stream, plan, self._steady)) for stream, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """See `StorageWriter`. All data but that of `deferred` has been copied when this returns, so the caller may
        change the tensors. The rest is `pending`."""
        layout: StreamLayout = plan.storage_data
        memory = self._memory(layout.size)
        if self._views_of is None or layout is not self._views_of[0] or memory is not self._views_of[1]:
            self._views = [_view(memory, placed) for placed in layout.items]
            self._results = [
                WriteResult(index=placed.item.index, size_in_bytes=view.nbytes, storage_data=layout.chunk(placed))
                for placed, view in zip(layout.items, self._views, strict=True)
            ]
            self._views_of = layout, memory
        with torch.no_grad():
            copies = self._copy(layout, planner)
        if copies:
            self.pending = DeferredCopies(copies, layout.size, self._count, self.stream)
        else:
            self._count(layout.size)
        results: Future[list[WriteResult]] = Future()
        results.set_result(self._results)
        return results

    def _copy(self, layout: StreamLayout, planner: SavePlanner) -> list[DeferredCopy]:
        """Copy the tensors that are not deferred, and return the copies of the others."""
        devices, counted, copies = set[torch.device](), 0, list[DeferredCopy]()
        for placed, view in zip(layout.items, self._views, strict=True):
            source = planner.resolve_data(placed.item)
            assert isinstance(source, torch.Tensor)  # noqa: S101 - no other item is laid out
            source, path = source.detach(), placed.item.index.fqn
            copy = plan_copy(path, placed.at, source, view) if path in self.deferred else None
            if copy is not None:
                copies.append(copy)
                continue
            source = source.resolve_conj().resolve_neg()
            devices |= {source.device} if source.is_cuda else set()
            for at, target, part in _divide(placed.at, view, source):
                if at - counted >= _COUNT_BYTES and not copies:
                    _synchronize(devices)
                    counted = at
                    self._count(counted)
                target.copy_(part, non_blocking=True)
        _synchronize(devices)
        return copies

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """See `StorageWriter`. The result is in `entries`."""
        written = [result for of_rank in results for result in of_rank]
        self.entries = list_entries(metadata, [(result.index.fqn, result.storage_data) for result in written])

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | PathLike[str]) -> bool:
        """See `StorageWriter`. Streams have no id."""
        return False


class StreamReader(StorageReader):
    """Reads the tensors of a plan from streams.

    Args:
        manifest: of the checkpoint.
        streams: a function that returns a stream's bytes by its number, as a tensor of uint8.
    """

    def __init__(self, manifest: CheckpointManifest, streams: Callable[[int], torch.Tensor]) -> None:
        self._manifest, self._streams = manifest, streams
        self._metadata = manifest.metadata()

    def view(self, path: str, chunk: TensorChunk) -> torch.Tensor:
        """Return a chunk of a tensor as it lies in its stream, without a copy."""
        dtype = self._manifest.tensors[path].torch_dtype
        return _as_tensor(self._streams(chunk.stream), chunk.at, dtype, chunk.sizes, chunk.strides)

    def reset(self, checkpoint_id: str | PathLike[str] | None = None) -> None:
        """See `StorageReader`."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """See `StorageReader`."""
        return self._metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """See `StorageReader`."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """See `StorageReader`."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """See `StorageReader`."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """See `StorageReader`. All data has been read when this returns."""
        with torch.no_grad():
            for item in plan.items:
                if item.type is LoadItemType.BYTE_IO:
                    raise ManifestError(f"{item.storage_index.fqn} is no tensor")
                chunk = self._metadata.storage_data[item.storage_index]
                source = _narrow(self.view(item.storage_index.fqn, chunk), item.storage_offsets, item.lengths)
                target = planner.resolve_tensor(item).detach()
                target.copy_(source)
                planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | PathLike[str]) -> bool:
        """See `StorageReader`. Streams have no id."""
        return False


def list_entries(metadata: Metadata, chunks: Iterable[tuple[str, TensorChunk]]) -> dict[str, TensorEntry]:
    """Return the tensors of the manifest. `chunks`: of all ranks, with the paths of their tensors."""
    by_path: dict[str, list[TensorChunk]] = {}
    for path, chunk in chunks:
        by_path.setdefault(path, []).append(chunk)
    return {
        path: TensorEntry(
            dtype=str(tensor.properties.dtype).removeprefix("torch."),
            shape=tuple(tensor.size),
            chunks=by_path[path],
            gapped_strides=_gapped_strides(tensor.size, tensor.properties.strides),
        )
        for path, tensor in metadata.state_dict_metadata.items()
        if isinstance(tensor, TensorStorageMetadata)
    }


def _divide(at: int, view: torch.Tensor, source: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Divide the copy of a large tensor, so that its first bytes are counted while the last ones are copied.

    Args:
        at: the place of the tensor in the stream, in bytes.
        view: of its place in the memory.
        source: the tensor itself.

    Yields:
        Place, view and source of each part.
    """
    rows = len(view) if view.ndim else 1
    if view.nbytes <= _COUNT_BYTES or rows == 1 or not view.is_contiguous():
        yield at, view, source
        return
    row_bytes = view.nbytes // rows
    count = max(1, _COUNT_BYTES // row_bytes)
    for first in range(0, rows, count):
        yield at + first * row_bytes, view[first : first + count], source[first : first + count]


def _synchronize(devices: Iterable[torch.device]) -> None:
    """Wait until all copies from these devices have arrived."""
    for device in devices:
        torch.cuda.current_stream(device).synchronize()


def _view(memory: torch.Tensor, placed: PlacedItem) -> torch.Tensor:
    data = placed.item.tensor_data
    assert data is not None  # noqa: S101 - see lay_out
    return _as_tensor(memory, placed.at, data.properties.dtype, data.chunk.sizes, placed.strides)


def _as_tensor(
    memory: torch.Tensor, at: int, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int] | None
) -> torch.Tensor:
    size = prod(sizes) * dtype.itemsize
    flat = memory[at : at + size].view(dtype)
    return flat.view(tuple(sizes)) if strides is None else flat.as_strided(tuple(sizes), tuple(strides))


def _narrow(tensor: torch.Tensor, offsets: Sequence[int], lengths: Sequence[int]) -> torch.Tensor:
    for dimension, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        tensor = tensor.narrow(dimension, offset, length)
    return tensor


def _dense_strides(sizes: Sequence[int], strides: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the strides of a tensor that fills its memory in another order than a contiguous one, such as one in
    channels-last format; None for any other tensor, which is stored contiguous."""
    if strides is None or len(strides) != len(sizes) or prod(sizes) == 0:
        return None
    expected, contiguous = 1, True
    for dimension in sorted(range(len(sizes)), key=lambda d: (strides[d], sizes[d])):
        if sizes[dimension] != 1 and strides[dimension] != expected:
            return None
        expected *= sizes[dimension]
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        contiguous = contiguous and (size == 1 or stride == expected)
        expected *= size
    return None if contiguous else tuple(strides)


def _gapped_strides(sizes: Sequence[int], strides: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the strides of a tensor with unused memory between its elements, such as every second column of another
    one, and None for any other. A sum over such a tensor has other bits than a sum over a contiguous one."""
    if strides is None or len(strides) != len(sizes) or prod(sizes) == 0:
        return None
    reached = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size > 1):
        if stride < reached:  # elements share their memory
            return None
        reached += (size - 1) * stride
    return tuple(strides) if reached > prod(sizes) else None
