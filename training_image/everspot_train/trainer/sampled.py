"""Feeds over DataLoaders of map-style data sets: draw the order again up to a position, and seed the workers."""

import copy
import hashlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from everspot_train.trainer.data import BatchOrder
from everspot_train.trainer.digests import describe
from everspot_train.trainer.feed_parts import REHEARSE, PositionedLoader, check_ranks, sampler_parts, set_epoch
from everspot_train.trainer.generators import find_generators, generator_state, set_generator_state
from everspot_train.trainer.randomness import RandomStream
from everspot_train.trainer.ranks import rank_from_environment, world_size_from_environment
from everspot_train.trainer.workers import SeededDataset, WorkerStart, generator_seeds, number_batches

log = logging.getLogger("everspot.trainer")

_END = object()
_MAX_AHEAD = 10_000  # the most batches of indices by which workers are ahead of the loop


class OrderedFeed:
    """A loader over a `BatchOrder` that moves the position with each batch that it yields."""

    def __init__(self, loader: Iterable[Any], order: BatchOrder) -> None:
        self._order = order
        self._loader = SeededLoader(loader) if isinstance(loader, DataLoader) else loader

    @property
    def epoch(self) -> int:
        """The epoch of the newest batch, from 0."""
        return self._order.epoch

    def open_epoch(self) -> Iterator[Any]:
        """Return the batches from the position to the end of the epoch."""
        order = self._order
        if not isinstance(self._loader, SeededLoader):
            return self._counted(iter(self._loader))
        entropy = (order.seed, order.epoch, order.rank)
        return self._counted(self._loader.open(order, entropy, order.consumed // order.stride))

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._order.advance()
            yield batch
        self._order.next_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        state: dict[str, Any] = dict(self._order.state_dict())
        return state | {"seeds": self._loader.seeds} if isinstance(self._loader, SeededLoader) else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self._order.load_state_dict(state)
        if isinstance(self._loader, SeededLoader):
            self._loader.seeds = state.get("seeds", self._loader.seeds)

    def close(self) -> None:
        """Let go of worker processes."""
        if isinstance(self._loader, SeededLoader):
            self._loader.close()


class SampledFeed:
    """A DataLoader over a map-style data set, whatever chooses its indices.

    The position is the number of batches read. The state keeps what decides the order of the epoch: the states of all
    generators that the loader holds at its beginning, and the seed of the stream that replaces the global generators
    while indices are drawn. A resume draws the indices again up to the position, without reading a sample, and compares
    their digest.
    """

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self._original = loader
        self._loader = SeededLoader(loader)
        self._epoch = self._batches = self._seed = 0
        self._start: dict[str, Any] = {}
        self._digest = ""
        self._samplers: _SamplerStates | None = None
        self._pending: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the newest batch, from 0."""
        return self._epoch if self._pending is None else int(self._pending.get("epoch", 0))

    def open_epoch(self) -> Iterator[Any]:
        """Return the batches from the position to the end of the epoch."""
        state, self._pending = self._pending, None
        if state is not None and "batches" not in state:  # of an earlier version, by torchdata itself
            return self._of_earlier_version(state)
        generators = find_generators({"loader": self._original})
        if state is None:
            # Drawn from the global generator, as samplers do, so that the program's seed decides the order.
            self._seed = int(torch.empty((), dtype=torch.int64).random_().item())
            self._start = {path: generator_state(generator) for path, generator in generators.items()}
        else:
            self._epoch, self._batches, self._seed = state["epoch"], state["batches"], state["seed"]
            self._start = state["generators"]
            for path in self._start.keys() & generators.keys():
                set_generator_state(generators[path], self._start[path])
        set_epoch(self._original, self._epoch)
        states = _SamplerStates(self._original, None if state is None else state.get("samplers"))
        indices = _Indices(self._loader.indices, RandomStream(self._seed), self._batches, states)
        self._samplers = states
        self._digest = indices.digest_at(self._batches)
        if state is not None and self._digest != state["digest"]:
            log.warning(
                "the %s gives another order than before the interruption: it depends on something that is not in the "
                "checkpoint. %s",
                _describe_sampler(self._original),
                REHEARSE,
            )
        entropy = (self._seed, self._epoch, rank_from_environment())
        batches = self._loader.open(indices, entropy, self._batches)
        states.restore_latest()
        return self._counted(batches, indices)

    def _counted(self, batches: Iterator[Any], indices: "_Indices | None") -> Iterator[Any]:
        for batch in batches:
            self._batches += 1
            if indices is not None:
                self._digest = indices.digest_at(self._batches)
                if not indices.in_use:
                    raise TypeError(
                        f"a {type(self._original).__name__} does not read by its own sampler, so its position is not "
                        "known; give run.track the DataLoader that it wraps"
                    )
            yield batch
        self._epoch, self._batches = self._epoch + 1, 0

    def _of_earlier_version(self, state: dict[str, Any]) -> Iterator[Any]:
        assert isinstance(self._original, PositionedLoader)  # noqa: S101 - only such a loader had a state
        self._original.load_state_dict(state)
        return self._counted(iter(self._original), None)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and what the order depends on."""
        if self._pending is not None:
            return self._pending
        return {
            "epoch": self._epoch,
            "batches": self._batches,
            "seed": self._seed,
            "generators": self._start,
            "digest": self._digest,
            "samplers": self._samplers.state_dict() if self._samplers is not None else None,
            "seeds": self._loader.seeds,
            "world_size": world_size_from_environment(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position.

        Raises:
            ValueError: if it is a position of another number of ranks.
        """
        check_ranks(state)
        self._pending = state
        self._loader.seeds = state.get("seeds", self._loader.seeds)

    def close(self) -> None:
        """Let go of worker processes."""
        self._loader.close()


class SeededLoader:
    """A copy of a DataLoader whose indices and seeds the trainer decides. The program's own stays as it is."""

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self._loader = copy.copy(loader)
        self._in_batches = loader.batch_sampler is not None
        self.indices: Any = loader.batch_sampler if self._in_batches else loader.sampler
        self.seeds = generator_seeds(dataset=loader.dataset, collate_fn=loader.collate_fn)
        self._source = _Replaceable(self.indices)
        # torch refuses to set these attributes of a loader, so that nobody expects an effect on a running iterator.
        self._loader.__dict__["batch_sampler" if self._in_batches else "sampler"] = self._source
        self._loader.__dict__["_iterator"] = None

    def open(self, indices: Iterable[Any], entropy: tuple[int, ...], first: int) -> Iterator[Any]:
        """Return an iterator over `indices`. The workers' random numbers follow from `entropy` and the batch's
        number."""
        attributes = self._loader.__dict__
        # A DataLoader draws a number from its generator, or from the global one, whenever it is iterated, which a run
        # that is resumed in the middle of an epoch does once more than one that was not. The program's own generator
        # stays with its sampler.
        seed = int(np.random.SeedSequence(_unsigned(entropy)).generate_state(1)[0])
        attributes["generator"] = torch.Generator().manual_seed(seed)
        if not self._loader.num_workers:
            self._source.indices = indices
            return iter(self._loader)
        self._source.indices = _Numbered(indices, _unsigned(entropy), first)
        if not isinstance(self._loader.dataset, SeededDataset):
            attributes["dataset"] = SeededDataset(self._loader.dataset, self._loader.collate_fn, self.seeds)
            attributes["worker_init_fn"] = WorkerStart(self._loader.worker_init_fn)
        return iter(self._loader)

    def close(self) -> None:
        """Drop the iterator that a loader keeps, and with it its workers."""
        self._loader.__dict__["_iterator"] = None


def _unsigned(entropy: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(number % 2**64 for number in entropy)


class _Replaceable(Sampler[Any]):
    """The sampler of a loader, with indices that are replaced at each epoch. In all else it is the loader's own."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.indices = inner, inner

    def __iter__(self) -> Iterator[Any]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "state_dict", "load_state_dict"):  # torchdata would keep its own state of it
            raise AttributeError(name)
        return getattr(self.inner, name)


class _Numbered:
    def __init__(self, indices: Iterable[Any], entropy: tuple[int, ...], first: int) -> None:
        self._indices, self._entropy, self._first = indices, entropy, first

    def __iter__(self) -> Iterator[Any]:
        return number_batches(iter(self._indices), self._entropy, self._first)


class _Indices:
    """The indices of one epoch from a position on, drawn on a stream of their own, with a digest of those before each.

    Args:
        source: the loader's sampler.
        stream: stands for the global generators while indices are drawn.
        skip: the number of index batches to draw and leave out immediately.
        states: of the samplers that have a state.
    """

    def __init__(self, source: Iterable[Any], stream: RandomStream, skip: int, states: "_SamplerStates") -> None:
        self._states = states
        self._stream, self._hash = stream, hashlib.blake2b(digest_size=8)
        self._digests = {0: self._hash.hexdigest()}
        self._drawn = 0
        self._draws_once = _draws_once(source)
        self.in_use = False
        with stream.active():
            self._iterator = iter(source)
        for _ in range(skip):
            if self._draw() is _END:
                break

    def __iter__(self) -> Iterator[Any]:
        self.in_use = True
        while (indices := self._draw()) is not _END:
            yield indices

    def digest_at(self, count: int) -> str:
        """Return the digest of the first `count` batches of indices, and forget the digests before it."""
        for number in [number for number in self._digests if number < count]:
            del self._digests[number]
        return self._digests.get(count, "")

    def _draw(self) -> Any:
        self._states.before_draw(self._drawn)
        if self._draws_once and self._drawn:
            indices = next(self._iterator, _END)
        else:
            with self._stream.active():
                indices = next(self._iterator, _END)
        self._states.after_draw()
        if indices is not _END:
            self._drawn += 1
            text = repr(indices)
            if " at 0x" not in text:  # an address says nothing in another process
                self._hash.update(text.encode())
            self._digests[self._drawn] = self._hash.hexdigest()
            self._digests.pop(self._drawn - _MAX_AHEAD, None)
        return indices


class _SamplerStates:
    """The states of the program's samplers in one epoch: at its beginning, and whenever the loop changed one, as a
    curriculum does. On a resume they change at the same draws.

    Args:
        loader: whose samplers they are.
        saved: of the epoch that goes on; None for a new one.
    """

    def __init__(self, loader: Any, saved: dict[str, Any] | None) -> None:
        parts = {id(part): part for part in sampler_parts(loader)[1:] if _has_state(part)}
        self._parts = list(parts.values())
        self._changes: dict[int, list[Any]] = {}
        self._replayed_to = self._next = 0
        self._last: list[Any] | None = None
        self._now: list[Any] | None = None
        if saved is not None and len(saved["start"]) == len(self._parts):
            self._load(saved["start"])
            self._changes, self._replayed_to, self._now = dict(saved["changes"]), saved["next"], saved["now"]
        self._start = self._read()

    def before_draw(self, number: int) -> None:
        """Repeat the state change of the earlier attempt at this draw, or record a change of this attempt."""
        if not self._parts:
            return
        if number < self._replayed_to:
            if number in self._changes:
                self._load(self._changes[number])
        elif self._last is not None and describe(now := self._read()) != describe(self._last):
            self._changes[number] = now
        self._next = number + 1

    def after_draw(self) -> None:
        """Record the state that the sampler itself has changed."""
        self._last = self._read()

    def restore_latest(self) -> None:
        """Restore the states that the loop had left, once everything is drawn again."""
        if self._now is not None:
            self._load(self._now)

    def state_dict(self) -> dict[str, Any]:
        """Return the states, and at which draw they changed."""
        return {"start": self._start, "changes": dict(self._changes), "next": self._next, "now": self._read()}

    def _read(self) -> list[Any]:
        return [copy.deepcopy(part.state_dict()) for part in self._parts]

    def _load(self, states: list[Any]) -> None:
        for part, state in zip(self._parts, states, strict=True):
            part.load_state_dict(copy.deepcopy(state))


def _has_state(part: Any) -> bool:
    """Return whether a sampler is the program's own and has a state. torchdata's samplers count their draws, as this
    module does."""
    own = not type(part).__module__.startswith(("torch.", "torchdata."))
    return own and hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def _draws_once(sampler: Any) -> bool:
    """Return whether a sampler draws from the global generators only before its first index, as all of torch's do."""
    parts = (sampler, getattr(sampler, "sampler", None)) if type(sampler).__name__ == "BatchSampler" else (sampler,)
    return all(type(part).__module__.startswith(("torch.", "torchdata.")) for part in parts)


def _describe_sampler(loader: Any) -> str:
    """Name what chooses the indices of a loader."""
    sampler = loader.sampler if type(loader.batch_sampler).__name__ == "BatchSampler" else loader.batch_sampler
    return type(sampler if sampler is not None else loader.sampler).__name__
