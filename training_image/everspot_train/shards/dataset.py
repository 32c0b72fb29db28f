"""A streamed dataset as a data set with a length, and the order in which its samples are read."""

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from everspot_store import Dataset, DatasetFile
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from everspot_train.prepare.data import DATA_VARIABLE
from everspot_train.rundir import RunContext, RunDir
from everspot_train.shard_cache.cache import open_cached
from everspot_train.shard_cache.traffic import CACHED, FETCHED, STREAMED, TrafficFile
from everspot_train.shards.fetcher import Fetcher
from everspot_train.shards.index import INDEX, OpenShard, read_counts
from everspot_train.shards.readers import Shard, open_shard
from everspot_train.trainer.data import BatchOrder
from everspot_train.trainer.errors import TrainerError

_GIGABYTE = 10**9
_TRIES = 20  # of opening a file that others remove as fast as it is fetched
_STATE_DIGITS = 12  # of a digest: a number that JSON carries exactly


@dataclass(frozen=True)
class Traffic:
    """Bytes of shards that the processes of this attempt have opened: `fetched` from the bucket, or `cached`."""

    fetched: int
    cached: int


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

    Args:
        name: of the dataset.
        cache_gb: the most gigabytes of it on the disk, shared by all jobs of the machine. A reading process has up to
            `window` files open, which may be removed meanwhile and then take space until they are closed.
        window: files that are open at the same time, and whose samples are mixed.
        decode: makes of a sample what the loader gets. A sample is a dictionary of bytes by the endings of their files,
            with `__key__`.
        open_shard: returns the samples of a file, for others than tars and files of one sample: it gets the path in the
            dataset, and a path to open.

    Raises:
        TrainerError: if the job does not stream the dataset, or the samples of a file are not counted.
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
        description = Path(os.environ.get(DATA_VARIABLE, ""), STREAMED, f"{name}.json")
        rundir = RunDir.from_environment()
        context = rundir.read(RunContext) if rundir is not None else None
        if context is None or context.cache_dir is None or not description.is_file():
            raise TrainerError(f"the job does not stream a dataset {name}: name it in `datasets` and in `stream`")
        self._dataset = Dataset.read(description.read_bytes())
        self._traffic_file = TrafficFile(description.parent, name)
        self._folder = Path(context.cache_dir, "shards")
        self._limit = int(cache_gb * _GIGABYTE)
        self._window = window
        self._decode = decode
        self._open_shard = open_shard
        self._files = sorted((f for f in self._dataset.files if f.path != INDEX), key=lambda file: file.path)
        self._reset()
        counts = read_counts(self._read_index(), [file.path for file in self._files])
        self._counts = [counts[file.path] for file in self._files]
        self._ends = list(accumulate(self._counts))
        self._fetcher.close()  # the workers have their own

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self._ends, index)
        sample = self._shard(number)[index - self._ends[number] + self._counts[number]]
        return sample if self._decode is None else self._decode(sample)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_fetcher", "_shards")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def loader(self, batch_size: int, *, seed: int = 0, shuffle: bool = True, **options: Any) -> "DataLoader[Any]":
        """Return a DataLoader whose order can be resumed. `options` are DataLoader's own."""
        digest = self._dataset.digest
        order = ShardOrder(
            self._counts, batch_size, seed=seed, shuffle=shuffle, window=self._window, digest=digest
        )  # fmt: skip
        return DataLoader(self, batch_sampler=order, **options)

    def traffic(self) -> Traffic:
        """Return the bytes that this attempt has fetched and found in the cache, over all of its processes."""
        traffic = self._traffic_file.read()
        return Traffic(fetched=traffic.fetched_bytes, cached=traffic.cached_bytes)

    def _reset(self) -> None:
        """Begin anew in this process: it is a fork of the one that made the data set, or another one."""
        self._pid = os.getpid()
        self._fetcher = Fetcher(self._folder, self._limit)
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
        handle = self._open(file)
        try:
            shard = self._open_shard(file.path, Path(f"/proc/self/fd/{handle}"))
        finally:
            os.close(handle)
        if len(shard) != self._counts[number]:
            raise TrainerError(f"{file.path} has {len(shard)} samples, and {self._counts[number]} by the index")
        self._shards[number] = shard
        return shard

    def _open(self, file: DatasetFile) -> int:
        was_fetched = False
        for _ in range(_TRIES):
            handle = open_cached(self._folder, file.sha256)
            if handle is not None:
                if not was_fetched:
                    self._traffic_file.add(CACHED, file.size)
                return handle
            if self._fetcher.fetch(file.sha256, file.size):
                self._traffic_file.add(FETCHED, file.size)
                was_fetched = True
        raise TrainerError(f"{file.path} is removed from the cache as fast as it is fetched: cache_gb is too small")

    def _read_index(self) -> bytes | None:
        file = next((file for file in self._dataset.files if file.path == INDEX), None)
        if file is None:
            return None
        with os.fdopen(self._open(file), "rb") as index:
            return index.read()
