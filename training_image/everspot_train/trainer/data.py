"""The order of samples, as a pure function of seed and epoch, with the position as state.

The position counts the batches that the training loop got, not those that a loader has prefetched.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from everspot_train.trainer.ranks import rank_from_environment, world_size_from_environment

log = logging.getLogger("everspot.trainer")


class BatchOrder:
    """A batch sampler for `DataLoader(…, batch_sampler=order)` that can go on in the middle of an epoch.

    The position counts samples over all ranks, so that it is also valid for another number of ranks.

    Args:
        length: number of samples.
        batch_size: samples per batch and rank.
        seed: together with the epoch number it gives the order.
        shuffle: False keeps the samples in their order.
        drop_last: leave out the last, smaller batch. With several ranks it must be True.
        rank: this process; None asks RANK.
        world_size: number of processes; None asks WORLD_SIZE.

    Raises:
        ValueError: for settings that give no batch, or ranks of different length.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self.shuffle, self.drop_last = shuffle, drop_last
        self.rank = rank_from_environment() if rank is None else rank
        self.world_size = world_size_from_environment() if world_size is None else world_size
        self.epoch = 0
        self.consumed = 0
        self._unit = 1
        self._epoch_samples = 0  # of the checkpoint: what an epoch had at the beginning of the run
        if self.world_size > 1 and not drop_last:
            raise ValueError("drop_last must be True with several ranks: each must have as many batches as the others")
        if batch_size < 1 or len(self) < 1:
            raise ValueError(f"{length} samples give no batch of {batch_size} on each of {self.world_size} ranks")

    @property
    def stride(self) -> int:
        """Samples per batch over all ranks."""
        return self.batch_size * self.world_size

    def align(self, accumulation: int) -> None:
        """Leave out the end of an epoch that makes no whole optimizer step of so many batches. The samples of a step
        then do not depend on the size of its batches. An epoch that is shorter than one step stays as it is."""
        self._unit = accumulation if self.drop_last and self.length >= accumulation * self.stride else 1

    def __len__(self) -> int:
        """Batches per epoch and rank."""
        whole = self.length // (self.stride * self._unit) * self._unit
        if self._epoch_samples:
            whole = self._epoch_samples // self.stride
        return whole if self.drop_last else -(-self.length // self.stride)

    def __iter__(self) -> Iterator[list[int]]:
        """Return the batches of this rank from the position to the end of the epoch."""
        indices = self.order_indices()
        end = len(self) * self.stride if self.drop_last else self.length
        starts = range(self.consumed, end, self.stride)
        if self.drop_last:  # a position left by another number of ranks need not lie on a multiple of the stride
            starts = range(self.consumed, end - self.stride + 1, self.stride)
        offset = self.rank * self.batch_size
        size = self.batch_size
        return (indices[s + offset : s + offset + size].tolist() for s in starts)

    def order_indices(self) -> NDArray[np.int64]:
        """Return the samples of the present epoch, in their order."""
        if not self.shuffle:
            return np.arange(self.length)
        return np.random.default_rng([self.seed, self.epoch]).permutation(self.length)

    def advance(self) -> None:
        """Move the position: the training loop has got one batch on every rank."""
        self.consumed += self.stride

    def next_epoch(self) -> None:
        """Begin the next epoch."""
        self.epoch, self.consumed = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """Return the position, and what it depends on."""
        state = {"seed": self.seed, "length": self.length, "epoch": self.epoch, "consumed": self.consumed}
        return state | ({"epoch_samples": self._epoch_samples or len(self) * self.stride} if self.drop_last else {})

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a position. An epoch keeps the number of samples that it had, also in batches of another size or on
        another number of ranks.

        Raises:
            ValueError: if it is a position in another data set or another order.
        """
        for name in ("seed", "length"):
            if state[name] != getattr(self, name):
                raise ValueError(f"data {name} was {state[name]} and is {getattr(self, name)} now: another order")
        self.epoch, self.consumed = state["epoch"], state["consumed"]
        if not self.drop_last or state.get("epoch_samples", 0) < self.stride:
            return
        self._epoch_samples = state["epoch_samples"]
        if remainder := self._epoch_samples % self.stride:
            log.warning(
                "an epoch had %d samples, which batches of %d on %d ranks do not divide: it ends %d samples earlier "
                "now, and the steps from there on have other samples than before",
                self._epoch_samples,
                self.batch_size,
                self.world_size,
                remainder,
            )


class TensorLoader:
    """Batches of tensors in memory. For small data it is many times faster than loading sample by sample."""

    def __init__(self, tensors: Sequence[torch.Tensor], order: BatchOrder) -> None:
        self.tensors, self.batch_sampler = tuple(tensors), order

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        for indices in self.batch_sampler:
            chosen = torch.tensor(indices)
            yield tuple(t[chosen] for t in self.tensors)


def resumable_loader(
    dataset: Any, batch_size: int, *, seed: int = 0, shuffle: bool = True, drop_last: bool = True, **options: Any
) -> "DataLoader[Any]":
    """Return a DataLoader over a map-style data set whose order can be resumed. `options` are DataLoader's own."""
    order = BatchOrder(len(dataset), batch_size, seed=seed, shuffle=shuffle, drop_last=drop_last)
    return DataLoader(dataset, batch_sampler=order, **options)
