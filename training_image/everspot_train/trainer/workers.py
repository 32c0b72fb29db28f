"""Random numbers of DataLoader workers that depend on the batch alone, and not on the worker or on when it was started.

torch seeds a worker once, when an epoch's iterator is made. A run that resumes in the middle of an epoch makes another
iterator, with other workers at other batches. Here each batch has a number, and the worker that makes the batch seeds
its generators from that number first.
"""

import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from everspot_train.trainer.generators import find_generators, generator_state, reseed_generator

_Seeds = Mapping[str, int]


@dataclass(frozen=True)
class NumberedBatch:
    """A worker's request: a batch's indices, and the numbers that seed its generators."""

    indices: Any
    entropy: tuple[int, ...]


def number_batches(batches: Iterable[Any], entropy: tuple[int, ...], first: int) -> Iterator[NumberedBatch]:
    """Give each batch of indices its number, beginning with `first`."""
    for number, indices in enumerate(batches, first):
        yield NumberedBatch(indices, (*entropy, number))


def generator_seeds(**roots: Any) -> dict[str, int]:
    """Return a number for the present state of each generator that workers will copy, so that a program's own seed
    decides what they draw."""
    states = {path: generator_state(generator) for path, generator in find_generators(roots).items()}
    return {path: zlib.crc32(repr(_flat(state)).encode()) for path, state in states.items()}


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _flat(item) for name, item in value.items()}
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


class SeededDataset(torch.utils.data.Dataset[Any]):
    """A map-style data set in a worker that seeds every generator it can reach before it makes a batch.

    Args:
        dataset: the program's own.
        collate_fn: what makes a batch of samples; it may hold generators, too.
        seeds: by `generator_seeds`, of the same two.
    """

    def __init__(self, dataset: Any, collate_fn: Any, seeds: _Seeds) -> None:
        self.dataset, self._collate_fn, self._seeds = dataset, collate_fn, seeds
        self._searches = 0
        self._generators: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, batch: NumberedBatch) -> Any:
        self._seed(batch.entropy)
        return self.dataset[batch.indices]

    def __getitems__(self, batch: NumberedBatch) -> Any:
        """Read a whole batch, as torch's fetcher asks for it."""
        self._seed(batch.entropy)
        whole = getattr(self.dataset, "__getitems__", None)
        return whole(batch.indices) if whole else [self.dataset[index] for index in batch.indices]

    def _seed(self, entropy: tuple[int, ...]) -> None:
        words = np.random.SeedSequence(entropy).generate_state(3)
        random.seed(int(words[0]))
        np.random.seed(int(words[1]))
        torch.default_generator.manual_seed(int(words[2]))
        if self._searches < 2:  # again after the first batch, which may have made some
            self._searches += 1
            self._generators = dict(find_generators({"dataset": self.dataset, "collate_fn": self._collate_fn}))
        for path, generator in self._generators.items():
            own = self._seeds.get(path, 0)
            reseed_generator(generator, (*entropy, own, zlib.crc32(path.encode())))


@dataclass(frozen=True)
class WorkerStart:
    """A `worker_init_fn` that shows the program's own one the program's own data set."""

    inner: Callable[[int], Any] | None

    def __call__(self, worker: int) -> None:
        """Begin in the worker of this number."""
        info = torch.utils.data.get_worker_info()
        if info is not None and isinstance(info.dataset, SeededDataset):
            object.__setattr__(info, "dataset", info.dataset.dataset)
        if self.inner is not None:
            self.inner(worker)
