"""A streamed dataset as a data set with a length, and the order in which its samples are read."""

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from everspot_train.shards.index import INDEX, OpenShard, read_counts, select_shards
from everspot_train.shards.readers import Shard, open_shard
from everspot_train.shards.sources import Traffic, open_source
from everspot_train.trainer.data import BatchOrder
from everspot_train.trainer.errors import TrainerError

_GIGABYTE = 10**9
_STATE_DIGITS = 12  # of a digest: a number that JSON carries exactly


class ShardOrder(BatchOrder):
    """A batch sampler that reads a few shards at a time: the shards in a random order, and in each window of shards the
    samples in a random order. See `BatchOrder` for the other arguments.

    Args:
        counts: the number of samples in each shard.
        batch_size: samples per batch and rank.
        window: shards whose samples are mixed with each other.
        digest: of the dataset; a position belongs to it.
    """

    def __init__(self, counts: Sequence[int], batch_size: int, *, window: int = 4, digest: str = "0", **options: Any):
        self._counts = tuple(counts)
        self._window = window
        self._dataset = int(digest[:_STATE_DIGITS], 16)
        if window < 1:
            raise ValueError(f"window ({window}) must be at least 1")
        super().__init__(sum(counts), batch_size, **options)

    def order_indices(self) -> NDArray[np.int64]:
        """Return the samples of the present epoch, in their order."""
        if not self.shuffle:
            return np.arange(self.length)
        random = np.random.default_rng([self.seed, self.epoch])
        begins = np.concatenate([[0], np.cumsum(self._counts)])
        shards = random.permutation(len(self._counts))
        windows = [shards[first : first + self._window] for first in range(0, len(shards), self._window)]
        ranges = [np.concatenate([np.arange(begins[s], begins[s + 1]) for s in window]) for window in windows]
        return np.concatenate([random.permutation(indices) for indices in ranges])

    def state_dict(self) -> dict[str, int]:
        """Return the position, and what it depends on."""
        return super().state_dict() | {"window": self._window, "dataset": self._dataset}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a position.

        Raises:
            ValueError: if it is a position in another dataset or another order.
        """
        for name, value in (("window", self._window), ("dataset", self._dataset)):
            if state.get(name) != value:
                raise ValueError(f"data {name} was {state.get(name)} and is {value} now: another order")
        super().load_state_dict(state)


class ShardedDataset(TorchDataset[Any]):
    """The samples of a dataset that the job streams.

    Outside of a job it reads the folder `EVERSPOT_DATA/NAME`, or else the newest version in the bucket of the cluster
    that `EVERSPOT_STORE` names: the same samples in the same order.

    Args:
        name: of the dataset.
        cache_gb: the most gigabytes of it on the disk, shared by all jobs of the machine. A reading process has up to
            `window` files open, which may be removed meanwhile and then take space until they are closed.
        window: files that are open at the same time, and whose samples are mixed.
        decode: makes of a sample what the loader gets. A sample of a tar, or of a file that is one sample, is a
            dictionary of bytes by the endings of their files, with `__key__`; one of a table is a dictionary by column.
        open_shard: returns the samples of a file, for other formats: it gets the path in the dataset, and a path to
            open.

    Raises:
        TrainerError: if the dataset is not to be had, or the samples of a file are not counted.
    """

    def __init__(
        self,
        name: str,
        *,
        cache_gb: float,
        window: int = 4,
        decode: Callable[[Any], Any] | None = None,
        open_shard: OpenShard = open_shard,
    ) -> None:
        self._source = open_source(name, int(cache_gb * _GIGABYTE))
        self._window = window
        self._decode = decode
        self._open_shard = open_shard
        names = set(select_shards((file.path for file in self._source.files), open_shard))
        self._files = sorted((f for f in self._source.files if f.path in names), key=lambda file: file.path)
        self._reset()
        counts = read_counts(self._read_index(), [file.path for file in self._files])
        self._counts = [counts[file.path] for file in self._files]
        self._ends = list(accumulate(self._counts))
        self._source.close()  # the workers have their own

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self._ends, index)
        sample = self._shard(number)[index - self._ends[number] + self._counts[number]]
        return sample if self._decode is None else self._decode(sample)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_shards"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def loader(
        self, batch_size: int, *, seed: int = 0, shuffle: bool = True, drop_last: bool = True, **options: Any
    ) -> "DataLoader[Any]":
        """Return a DataLoader whose order can be resumed. `options` are DataLoader's own."""
        digest = self._source.digest
        order = ShardOrder(
            self._counts, batch_size, seed=seed, shuffle=shuffle, drop_last=drop_last, window=self._window,
            digest=digest,
        )  # fmt: skip
        return DataLoader(self, batch_sampler=order, **options)

    def traffic(self) -> Traffic:
        """Return the bytes that this attempt has fetched and found in the cache, over all of its processes."""
        return self._source.traffic()

    def _reset(self) -> None:
        """Begin anew in this process: it is a fork of the one that made the data set, or another one."""
        self._pid = os.getpid()
        self._shards: OrderedDict[int, Shard] = OrderedDict()

    def _shard(self, number: int) -> Shard:
        if self._pid != os.getpid():
            self._reset()
        if number in self._shards:
            self._shards.move_to_end(number)
            return self._shards[number]
        while len(self._shards) >= self._window:
            self._shards.popitem(last=False)
        file = self._files[number]
        with self._source.opened(file) as path:
            shard = self._open_shard(file.path, path)
        if len(shard) != self._counts[number]:
            raise TrainerError(
                f"{file.path} has {len(shard)} samples, and {self._counts[number]} by the index: run "
                "everspot_train.shards.write_index(folder), and `everspot data put` again"
            )
        self._shards[number] = shard
        return shard

    def _read_index(self) -> bytes | None:
        file = next((file for file in self._source.files if file.path == INDEX), None)
        if file is None:
            return None
        with self._source.opened(file) as path:
            return path.read_bytes()
