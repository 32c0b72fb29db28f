"""Loaders as people write them, each fresh from a function, and a small loop that trains on any of them.

Samples are pairs of an index and a number drawn for it, so that a loss shows both the order and the augmentation.
"""

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from everspot_train.trainer import resumable_loader
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torchdata import nodes
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

LENGTH, BATCH = 20, 4
MODULE_RNG = np.random.default_rng(1)


class Plain(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), self.draw()])

    def draw(self) -> float:
        return 0.0


class Drawing(Plain):
    """Augments by any function without arguments, as a transform would."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.transform = draw

    def draw(self) -> float:
        return float(self.transform())


class Holding(Plain):
    """Has a numpy generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def draw(self) -> float:
        return float(self.rng.normal())


class Unseeded(Holding):
    def __init__(self) -> None:
        self.rng = np.random.default_rng()


class ByModule(Plain):
    def draw(self) -> float:
        return float(MODULE_RNG.normal())


class ByClass(Plain):
    rng = random.Random(2)

    def draw(self) -> float:
        return self.rng.random()


class Slotted:
    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = np.random.RandomState(4)

    def __call__(self) -> float:
        return float(self.rng.normal())


class AllGlobals(Plain):
    def draw(self) -> float:
        return random.random() + float(np.random.normal()) + torch.rand(1).item()


class Eager(Sampler[int]):
    """Shuffles in `__iter__` itself, and not with its first index."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(LENGTH).tolist())

    def __len__(self) -> int:
        return LENGTH


class OneByOne(Eager):
    """Draws each index when it is asked for, from python's global generator."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(LENGTH):
            yield random.randrange(LENGTH)


class Endless(Eager):
    def __iter__(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(LENGTH).tolist()


class Curriculum(Sampler[list[int]]):
    """Batches whose difficulty rises with the epoch, which `set_epoch` tells it."""

    def __init__(self) -> None:
        self.epoch, self.rng = 0, np.random.default_rng(9)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        pool = min(LENGTH, 8 + 4 * self.epoch)
        for _ in range(5):
            yield self.rng.choice(pool, BATCH, replace=False).tolist()

    def __len__(self) -> int:
        return 5


def add_by_module(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples) + float(MODULE_RNG.normal())


def add_in_closure() -> Callable[[list[torch.Tensor]], torch.Tensor]:
    rng = random.Random(3)
    return lambda samples: torch.stack(samples) + rng.random()


def seed_worker(_: int) -> None:
    """As torch's page on randomness has it."""
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)
    info = get_worker_info()
    assert info is not None
    if isinstance(info.dataset, Holding):
        info.dataset.rng = np.random.default_rng(seed)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def stateful(dataset: Any = None, **options: Any) -> Any:
    options = {"batch_size": BATCH} | options
    return StatefulDataLoader(dataset if dataset is not None else Plain(), **options)


def plain(dataset: Any = None, **options: Any) -> Any:
    options = {"batch_size": BATCH} | options
    return DataLoader(dataset if dataset is not None else Plain(), **options)


def drawing_torch() -> Any:
    own = generator()
    return stateful(Drawing(lambda: torch.rand(1, generator=own).item()), shuffle=True)


WEIGHTS = [1.0 + index for index in range(LENGTH)]
WORKERS: dict[str, Any] = {"num_workers": 2, "shuffle": True}

SAMPLED: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: stateful(shuffle=True),
    "shuffled, not dropped": lambda: stateful(shuffle=True, batch_size=3, drop_last=False),
    "own generator": lambda: stateful(shuffle=True, generator=generator()),
    "weighted": lambda: stateful(sampler=WeightedRandomSampler(WEIGHTS, LENGTH)),
    "weighted by own generator": lambda: stateful(
        sampler=WeightedRandomSampler(WEIGHTS, LENGTH, generator=generator())
    ),
    "subset": lambda: stateful(sampler=SubsetRandomSampler(range(16))),
    "with replacement": lambda: stateful(sampler=RandomSampler(Plain(), replacement=True, num_samples=40)),
    "batch sampler": lambda: stateful(batch_size=1, batch_sampler=BatchSampler(RandomSampler(Plain()), BATCH, True)),
    "single samples": lambda: stateful(batch_size=None, sampler=RandomSampler(Plain())),
    "sequential": lambda: stateful(sampler=SequentialSampler(Plain())),
    "distributed": lambda: stateful(sampler=DistributedSampler(Plain(), num_replicas=1, rank=0)),
    "torchdata's distributed": lambda: stateful(sampler=StatefulDistributedSampler(Plain(), num_replicas=1, rank=0)),
    "eager sampler": lambda: stateful(sampler=Eager()),
    "index by index": lambda: stateful(sampler=OneByOne()),
    "endless sampler": lambda: stateful(sampler=Endless()),
    "curriculum": lambda: stateful(batch_size=1, batch_sampler=Curriculum()),
    "torch's own loader": lambda: plain(shuffle=True),
    "torch's own, own generator": lambda: plain(AllGlobals(), shuffle=True, generator=generator()),
    "torch's own, weighted": lambda: plain(AllGlobals(), sampler=WeightedRandomSampler(WEIGHTS, LENGTH)),
    "index by index, all globals": lambda: plain(AllGlobals(), sampler=OneByOne()),
}

GENERATORS: dict[str, Callable[[], Any]] = {
    "resumable": lambda: resumable_loader(Holding(), BATCH),
    "numpy's": lambda: stateful(Holding(), shuffle=True),
    "not seeded": lambda: plain(Unseeded(), shuffle=True),
    "python's": lambda: stateful(Drawing(random.Random(1).random), shuffle=True),
    "torch's": drawing_torch,
    "numpy's old": lambda: stateful(Drawing(np.random.RandomState(1).normal), shuffle=True),
    "philox": lambda: plain(Drawing(np.random.Generator(np.random.Philox(3)).normal), shuffle=True),
    "in slots": lambda: plain(Drawing(Slotted()), shuffle=True),
    "partial": lambda: plain(Drawing(functools.partial(np.random.default_rng(2).normal, 1.0, 2.0)), shuffle=True),
    "in a list of transforms": lambda: plain(Drawing(Several([Slotted(), Slotted()])), shuffle=True),
    "of a module": lambda: plain(ByModule(), shuffle=True),
    "of a class": lambda: plain(ByClass(), shuffle=True),
    "collate function": lambda: plain(shuffle=True, collate_fn=add_by_module),
    "closure": lambda: plain(shuffle=True, collate_fn=add_in_closure()),
    "shared with the sampler": lambda: shared_generator(),
}


class Several:
    def __init__(self, draws: list[Callable[[], float]]) -> None:
        self.draws = draws

    def __call__(self) -> float:
        return sum(draw() for draw in self.draws)


def shared_generator() -> Any:
    own = generator()
    return stateful(Drawing(lambda: torch.rand(1, generator=own).item()), shuffle=True, generator=own)


IN_WORKERS: dict[str, Callable[[], Any]] = {
    "resumable": lambda: resumable_loader(Holding(), BATCH, num_workers=2),
    "resumable, persistent": lambda: resumable_loader(AllGlobals(), BATCH, num_workers=2, persistent_workers=True),
    "globals": lambda: stateful(AllGlobals(), **WORKERS),
    "torch's own": lambda: plain(AllGlobals(), **WORKERS),
    "persistent": lambda: stateful(AllGlobals(), persistent_workers=True, generator=generator(), **WORKERS),
    "torch's own, persistent": lambda: plain(Holding(), persistent_workers=True, generator=generator(), **WORKERS),
    "own generators": lambda: plain(Holding(), collate_fn=add_in_closure(), **WORKERS),
    "seeded by worker": lambda: stateful(Holding(), worker_init_fn=seed_worker, **WORKERS),
    "single samples": lambda: plain(AllGlobals(), batch_size=None, **WORKERS),
    "not seeded, weighted": lambda: plain(Unseeded(), num_workers=1, sampler=WeightedRandomSampler(WEIGHTS, LENGTH)),
}


class Positioned(IterableDataset[torch.Tensor]):
    """An iterable data set with a position, which shuffles by epoch."""

    def __init__(self, noise: float = 1.0) -> None:
        self.at, self.epoch, self.noise = 0, 0, noise

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[torch.Tensor]:
        order = np.random.default_rng([3, self.epoch]).permutation(LENGTH)
        while self.at < LENGTH:
            self.at += 1
            yield torch.tensor([float(order[self.at - 1]), self.noise * torch.rand(1).item()])
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


class Buffered(IterableDataset[torch.Tensor]):
    """An iterable data set without a position: a shuffle buffer on python's global generator."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        buffer: list[int] = []
        for index in range(LENGTH):
            buffer.append(index)
            if len(buffer) == 6:
                yield torch.tensor([float(buffer.pop(random.randrange(6))), random.random()])
        random.shuffle(buffer)
        for index in buffer:
            yield torch.tensor([float(index), 0.0])


class OwnFeed:
    """Position and order as people write them: the order is drawn anew from the global generator, or from its own."""

    def __init__(self, rng: Any = None) -> None:
        self.at, self.rng = 0, rng

    def __iter__(self) -> Iterator[torch.Tensor]:
        order = torch.randperm(LENGTH).tolist() if self.rng is None else self.rng.permutation(LENGTH).tolist()
        while self.at < LENGTH:
            self.at += BATCH
            yield torch.tensor([[float(index), 1.0] for index in order[self.at - BATCH : self.at]])
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Synthetic:
    """An endless feed whose only state is that of the generators it draws from."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield torch.randn(BATCH, 2) + random.random()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Pair:
    """Two loaders side by side, as for semi-supervised training."""

    def __init__(self) -> None:
        self.shuffled = stateful(shuffle=True)
        self.other = stateful(sampler=WeightedRandomSampler(WEIGHTS, LENGTH))

    def __iter__(self) -> Iterator[torch.Tensor]:
        for first, other in zip(self.shuffled, self.other, strict=True):
            yield torch.cat([first, other])

    def state_dict(self) -> dict[str, Any]:
        return {"one": self.shuffled.state_dict(), "other": self.other.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shuffled.load_state_dict(state["one"])
        self.other.load_state_dict(state["other"])


class Cycled:
    """Goes round and round over a loader, without end."""

    def __init__(self) -> None:
        self.loader = stateful(shuffle=True)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return itertools.chain.from_iterable(itertools.repeat(self.loader))

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self.loader.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)


def node_loader() -> Any:
    dataset = Plain()
    node = nodes.MapStyleWrapper(dataset, sampler=RandomSampler(dataset))
    return nodes.Loader(nodes.Mapper(nodes.Batcher(node, BATCH), torch.stack))


STATEFUL: dict[str, Callable[[], Any]] = {
    "iterable with a position": lambda: stateful(Positioned()),
    "iterable without a position": lambda: stateful(Buffered()),
    "iterable without a position, in workers": lambda: stateful(Buffered(), num_workers=2),
    "iterable with a position, in a worker": lambda: stateful(Positioned(0.0), num_workers=1),
    "own feed": OwnFeed,
    "own feed, own generator": lambda: OwnFeed(np.random.default_rng(8)),
    "synthetic": Synthetic,
    "pair": Pair,
    "cycled": Cycled,
    "nodes": node_loader,
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x / LENGTH)
        return result


class Mixup:
    """Mixes a batch with a shuffled copy of itself, as people do on the processor with numpy."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(21)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        share = float(self.rng.beta(0.4, 0.4))
        return share * x + (1 - share) * x[torch.from_numpy(self.rng.permutation(len(x)))]


def mixup_by_module(x: torch.Tensor) -> torch.Tensor:
    return x + float(MODULE_RNG.normal())


def mixup_in_closure() -> Callable[[torch.Tensor], torch.Tensor]:
    own = random.Random(4)
    weights = generator()

    def change(x: torch.Tensor) -> torch.Tensor:
        return x * own.random() + torch.rand(1, generator=weights)

    return change


LOOPS: dict[str, Callable[[], Callable[[torch.Tensor], torch.Tensor]]] = {
    "an object's": Mixup,
    "a module's": lambda: mixup_by_module,
    "a closure's": mixup_in_closure,
    "a partial's": lambda: functools.partial(shift, np.random.default_rng(6)),
}


def shift(rng: np.random.Generator, x: torch.Tensor) -> torch.Tensor:
    return x + float(rng.normal())
