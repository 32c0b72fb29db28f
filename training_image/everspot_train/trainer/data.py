"""The order of samples, as a pure function of seed and epoch, with the position as state.

The position counts what the training loop has been given, and not what a loader has prefetched.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch.utils.data import DataLoader

from everspot_train.trainer.ranks import rank_from_environment, world_size_from_environment


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
        if self.world_size > 1 and not drop_last:
            raise ValueError("drop_last must be True with several ranks: each must have as many batches as the others")
        if batch_size < 1 or len(self) < 1:
            raise ValueError(f"{length} samples give no batch of {batch_size} on each of {self.world_size} ranks")

    @property
    def _stride(self) -> int:
        return self.batch_size * self.world_size

    def __len__(self) -> int:
        """Batches per epoch and rank."""
        return self.length // self._stride if self.drop_last else -(-self.length // self._stride)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of this rank from the position to the end of the epoch."""
        indices = np.arange(self.length)
        if self.shuffle:
            indices = np.random.default_rng([self.seed, self.epoch]).permutation(self.length)
        end = len(self) * self._stride if self.drop_last else self.length
        starts = range(self.consumed, end, self._stride)
        if self.drop_last:  # a position left by another number of ranks need not lie on a multiple of the stride
            starts = range(self.consumed, end - self._stride + 1, self._stride)
        mine = self.rank * self.batch_size
        return iter([indices[s + mine : s + mine + self.batch_size].tolist() for s in starts])

    def advance(self) -> None:
        """Move the position: the training loop has got one batch on every rank."""
        self.consumed += self._stride

    def next_epoch(self) -> None:
        """Begin the next epoch."""
        self.epoch, self.consumed = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """The position, and what it depends on."""
        return {"seed": self.seed, "length": self.length, "epoch": self.epoch, "consumed": self.consumed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a position.

        Raises:
            ValueError: if it is a position in another data set or another order.
        """
        for name in ("seed", "length"):
            if state[name] != getattr(self, name):
                raise ValueError(f"data {name} was {state[name]} and is {getattr(self, name)} now: another order")
        self.epoch, self.consumed = state["epoch"], state["consumed"]


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
    """A DataLoader over a map-style data set whose order can be resumed. `options` are DataLoader's own."""
    order = BatchOrder(len(dataset), batch_size, seed=seed, shuffle=shuffle, drop_last=drop_last)
    return DataLoader(dataset, batch_sampler=order, **options)


@runtime_checkable
class Feed(Protocol):
    """An iterable over the rest of the current epoch with its position as state, like torchdata's
    StatefulDataLoader."""

    def __iter__(self) -> Iterator[Any]: ...

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        ...


class OrderedFeed:
    """A loader over a `BatchOrder` that moves the position with each batch that it yields."""

    def __init__(self, loader: Iterable[Any], order: BatchOrder) -> None:
        self.loader, self.order = loader, order
        self.state_dict, self.load_state_dict = order.state_dict, order.load_state_dict

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.loader, DataLoader):
            # Without a generator of its own, a DataLoader draws a number from the global one whenever it is iterated,
            # which a run that is resumed in the middle of an epoch does once more than one that was not.
            entropy = np.random.SeedSequence([self.order.seed, self.order.epoch, self.order.rank])
            self.loader.generator = torch.Generator().manual_seed(int(entropy.generate_state(1)[0]))
        for batch in self.loader:
            self.order.advance()
            yield batch
        self.order.next_epoch()


def batch_size_of(loader: Any) -> int | None:
    """Samples per batch and process, if the loader or its sampler has the number; else None."""
    for source in (getattr(loader, "batch_sampler", None), loader):
        size = getattr(source, "batch_size", None)
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size
    return None


def as_feed(loader: Any) -> Feed:
    """The loader given to `Run.track`, as a feed with a position.

    Raises:
        TypeError: if it has no position.
    """
    order = getattr(loader, "batch_sampler", None)
    if isinstance(order, BatchOrder):
        return OrderedFeed(loader, order)
    if isinstance(loader, Feed):
        return loader
    raise TypeError(
        f"a {type(loader).__name__} does not know its position; use everspot_train.trainer.resumable_loader, "
        "a DataLoader with batch_sampler=BatchOrder(…), or a loader with state_dict and load_state_dict"
    )
