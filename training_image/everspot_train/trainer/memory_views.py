"""Compares tensors in the same memory: whether they have an element in common."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

_LARGEST_MASK = 1 << 28
"""Elements of memory up to which views with gaps are compared element by element. Larger ones count as overlapping."""


@dataclass(frozen=True)
class MemoryView:
    """The part of a storage that a tensor shows, and how.

    Attributes:
        dtype: of the tensor.
        offset: of its first element, in elements.
        shape: of the tensor.
        strides: of each dimension, in elements.
        conjugated: whether its values are the conjugates of those in memory.
        negated: whether its values are the negatives of those in memory.
    """

    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    conjugated: bool
    negated: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Self | None:
        """Return the view of a tensor; None if the tensor has no elements, or no plain memory of its own."""
        if tensor.layout is not torch.strided or not tensor.numel():
            return None
        try:
            tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # tensors without memory of their own: lazy, functional, sharded
            return None
        bits = tensor.is_conj(), tensor.is_neg()
        return cls(tensor.dtype, int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), *bits)

    @property
    def span_bytes(self) -> tuple[int, int]:
        """The first byte of the storage that it shows, and the one after the last."""
        return self._span(1)

    def overlaps(self, other: "MemoryView") -> bool:
        """Return whether both show a common byte of the same storage."""
        unit = min(self.dtype.itemsize, other.dtype.itemsize)
        (first, end), (other_first, other_end) = self._span(unit), other._span(unit)
        if end <= other_first or other_end <= first:
            return False
        if self._is_dense(unit) and other._is_dense(unit):
            return True
        low, high = min(first, other_first), max(end, other_end)
        if high - low > _LARGEST_MASK:
            return True
        mask = np.zeros(high - low, dtype=np.bool_)
        self._within(mask, low, unit)[...] = True
        return bool(other._within(mask, low, unit).any())

    def _layout(self, unit: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Return offset, shape and strides in units of `unit` bytes."""
        factor = self.dtype.itemsize // unit
        return self.offset * factor, (*self.shape, factor), (*(stride * factor for stride in self.strides), 1)

    def _span(self, unit: int) -> tuple[int, int]:
        """Return the first unit, and the one after the last."""
        offset, shape, strides = self._layout(unit)
        return offset, offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))

    def _is_dense(self, unit: int) -> bool:
        """Return whether it shows each unit of its span."""
        first, end = self._span(unit)
        _, shape, strides = self._layout(unit)
        dimensions = sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1 and stride)
        reached = 1
        for stride, size in dimensions:
            if stride > reached:
                return False
            reached += (size - 1) * stride
        return reached == end - first

    def _within(self, mask: "np.ndarray", low: int, unit: int) -> "np.ndarray":
        offset, shape, strides = self._layout(unit)
        return np.lib.stride_tricks.as_strided(mask[offset - low :], shape, strides)


def find_overlap(views: Iterable[MemoryView]) -> tuple[MemoryView, MemoryView] | None:
    """Return two views of one storage that have a byte in common; None if there are none."""
    reached: list[MemoryView] = []
    for view in sorted(views, key=lambda view: view.span_bytes):
        reached = [other for other in reached if other.span_bytes[1] > view.span_bytes[0]]
        for other in reached:
            if view.overlaps(other):
                return other, view
        reached.append(view)
    return None
