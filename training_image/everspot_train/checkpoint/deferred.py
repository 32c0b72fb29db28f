"""Copies tensors into memory while the loop computes, and verifies that each copy is the tensor as it was at the start.

The pattern is that of `torch.distributed.checkpoint.staging.DefaultStager`: a thread copies, on a GPU with a stream of
its own, and the loop waits for the thread before its optimizer steps. Nothing prevents a program from changing a tensor
in between, so each copy has to prove itself.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

_BATCH_BYTES = 64 << 20
"""The bytes after which the count of copied bytes is written again. A reader takes segments of this size."""
_LIFE_SECONDS = 1.0
"""Time between two signs of life while the copies wait for their verification."""
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class DeferredCopy:
    """The copy of one tensor.

    Attributes:
        path: of the tensor.
        end: of the tensor in the stream, in bytes.
        source: the tensor's memory as words of 64 bits.
        target: its place in the stream, likewise.
        tensor: whose changes torch counts.
        version: of the tensor at the start.
    """

    path: str
    end: int
    source: torch.Tensor
    target: torch.Tensor
    tensor: torch.Tensor
    version: int

    @property
    def is_changed(self) -> bool:
        """Whether an operation of torch has changed the tensor since."""
        return self.version != self.tensor._version


def plan_copy(path: str, at: int, tensor: torch.Tensor, target: torch.Tensor) -> DeferredCopy | None:
    """Return the copy of a tensor, or None if the tensor has to be copied at once: its memory is no row of whole words,
    or torch does not count its changes. `at`: its place in the stream, in bytes."""
    source, target_words = _words(tensor), _words(target)
    is_plain = _strides(tensor) == _strides(target) and not tensor.is_conj() and not tensor.is_neg()
    if source is None or target_words is None or not is_plain or tensor.is_inference():
        return None
    return DeferredCopy(path, at + tensor.nbytes, source, target_words, tensor, tensor._version)


class DeferredCopies:
    """Copies that have begun.

    A thread copies the tensors, and then compares the sum of each copy's words with the sum of the tensor's at the
    start. The counter of `torch.Tensor._version` alone would not do: torch counts a change after it was made, and does
    not count changes through `tensor.data` or a view of numpy.

    Args:
        copies: in the order of the stream.
        size: of the stream, in bytes.
        count: called now and then with the bytes that are complete, from the first one on; never with all of them,
            since only `wait` knows whether they may be used.
        stream: for copies from a GPU; None on a CPU.
    """

    def __init__(
        self,
        copies: Sequence[DeferredCopy],
        size: int,
        count: Callable[[int], None],
        stream: "torch.cuda.Stream | None" = None,
    ) -> None:
        self._copies, self._size, self._count, self._stream = copies, size, count, stream
        self._copied, self._released = threading.Event(), threading.Event()
        self._changed: str | None = None
        self._error: Exception | None = None
        self._done: torch.cuda.Event | None = None
        with torch.no_grad():
            self._sums = torch.stack([copy.source.sum() for copy in copies])
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        self._thread = threading.Thread(target=self._run, name="everspot-copies", daemon=True)
        self._thread.start()

    @property
    def is_copied(self) -> bool:
        """Whether `wait` returns immediately."""
        return self._copied.is_set()

    def wait(self) -> tuple[float, str | None]:
        """Wait until all is copied. Return how many seconds the training stood still for it, and the path of a tensor
        that has changed since the start, if there is one. The program must not change a tensor meanwhile.

        Raises:
            Exception: the error that ended the copies.
        """
        began, reached = time.monotonic(), self._mark()
        self._copied.wait()
        stall = time.monotonic() - began if reached is None else self._idle_seconds(reached)
        self._released.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return stall, self._changed or next((copy.path for copy in self._copies if copy.is_changed), None)

    def _mark(self) -> "torch.cuda.Event | None":
        """Return an event at the present place in the GPU's work; None on a CPU."""
        if self._stream is None:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._stream.device))
        return event

    def _idle_seconds(self, reached: "torch.cuda.Event") -> float:
        """Return how long the GPU has had nothing to do since it reached an event. The loop's thread is ahead of the
        GPU, so that its own waiting time says nothing."""
        if not reached.query():
            return 0.0
        resumed = self._mark()
        assert resumed is not None  # noqa: S101 - there is a stream
        resumed.synchronize()
        return float(reached.elapsed_time(resumed)) / 1000

    def _run(self) -> None:
        try:
            with torch.no_grad(), torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
                self._copy()
        except Exception as error:  # the loop's thread raises it
            self._error = error
        self._copied.set()
        beat = 0
        while not self._released.wait(_LIFE_SECONDS):  # a reader gives up a counter that stands still
            beat += 1
            self._count(self._size - 1 - beat % 2)

    def _copy(self) -> None:
        sums = iter(self._sums.tolist())
        copied: Iterable[tuple[list[DeferredCopy], torch.cuda.Event | None]]
        copied = ((batch, self._copy_batch(batch)) for batch in _batches(self._copies))
        if self._stream is not None:  # a GPU goes on with the next batch while the sums of one are compared
            copied = list(copied)
        for batch, event in copied:
            if event is not None:
                event.synchronize()
            for copy in batch:
                if int(copy.target.sum()) != next(sums):
                    self._changed = self._changed or copy.path
            if batch[-1].end < self._size and self._changed is None:
                self._count(batch[-1].end)

    def _copy_batch(self, batch: Sequence[DeferredCopy]) -> "torch.cuda.Event | None":
        for copy in batch:
            copy.target.copy_(copy.source, non_blocking=True)
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(self._stream)
        return event


def _batches(copies: Sequence[DeferredCopy]) -> Iterator[list[DeferredCopy]]:
    batch, size = list[DeferredCopy](), 0
    for copy in copies:
        batch.append(copy)
        size += copy.source.nbytes
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _words(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the memory of a tensor as words of 64 bits; None if it is no row of them."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or not tensor.numel():
        return None
    strides = sorted(_strides(tensor), key=lambda pair: pair[1])
    expected = 1
    for size, stride in strides:
        if stride != expected:
            return None
        expected *= size
    first = tensor.storage_offset() * tensor.itemsize
    if tensor.nbytes % _WORD_BYTES or first % _WORD_BYTES or tensor.is_quantized:
        return None
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.int64)


def _strides(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Return size and stride of each dimension in which there is more than one element."""
    return [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
