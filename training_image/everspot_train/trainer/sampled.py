"""Feeds over DataLoaders of map-style data sets: draw the order again up to a position, and seed the workers."""

import copy
import hashlib
import itertools
import logging
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Sampler

from everspot_train.trainer.data import BatchOrder
from everspot_train.trainer.feed_parts import (
    REHEARSE,
    PositionedLoader,
    check_ranks,
    read_batch_size,
    sampler_parts,
    set_epoch,
)
from everspot_train.trainer.generators import find_generators, generator_state, set_generator_state
from everspot_train.trainer.randomness import RandomStream
from everspot_train.trainer.ranks import rank_from_environment, world_size_from_environment
from everspot_train.trainer.verification import differences
from everspot_train.trainer.workers import SeededDataset, WorkerStart, generator_seeds, number_batches

log = logging.getLogger("everspot.trainer")

_END = object()
_MAX_AHEAD = 10_000  # the most batches of indices by which workers are ahead of the loop
_LARGEST_REPEATED = 1 << 16
"""Bytes of a sampler's state up to which each change by the loop is kept, to be repeated at a resume."""
_MOST_REPEATED = 1 << 24
"""Bytes of all such changes in one epoch."""


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

    The position is the number of samples read, or of batches where the loader does not make them itself. The state
    keeps what decides the order of the epoch: the states of all generators that the loader holds at its beginning, and
    the seed of the stream that replaces the global generators while indices are drawn. A resume draws the indices
    again, without reading a sample, and compares their digest. It draws all that were drawn before, also those ahead of
    the position that workers had asked for, so that samplers and their generators go on from where they were, whatever
    the number of workers is now.
    """

    def __init__(self, loader: "DataLoader[Any]") -> None:
        self._original = loader
        self._loader = SeededLoader(loader)
        self._batch_size = read_batch_size(loader)
        self._unit = self._batch_size  # samples per draw of this epoch, as it was begun
        self._epoch = self._consumed = self._seed = 0
        self._start: dict[str, Any] = {}
        self._digest = ""
        self._indices: _Indices | None = None
        self._pending: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the newest batch, from 0."""
        return self._epoch if self._pending is None else int(self._pending.get("epoch", 0))

    def open_epoch(self) -> Iterator[Any]:
        """Return the batches from the position to the end of the epoch. Workers start with the first of them."""
        state, self._pending = self._pending, None
        if state is not None and "batches" not in state:  # of an earlier version, by torchdata itself
            return self._of_earlier_version(state)
        generators = find_generators({"loader": self._original})
        if state is None:
            # Drawn from the global generator, as samplers do, so that the program's seed decides the order.
            self._seed, self._unit = int(torch.empty((), dtype=torch.int64).random_().item()), self._batch_size
            self._start = {path: generator_state(generator) for path, generator in generators.items()}
        else:
            self._epoch, self._seed, self._start = state["epoch"], state["seed"], state["generators"]
            self._unit = state.get("batch_size", self._batch_size)
            self._consumed = state["batches"] * (self._unit or 1) + state.get("offset", 0)
            for path in self._start.keys() & generators.keys():
                set_generator_state(generators[path], self._start[path])
        set_epoch(self._original, self._epoch)
        states = _SamplerStates(self._original, None if state is None else state.get("samplers"))
        indices = _Indices(self._loader.draws(self._unit), RandomStream(self._seed), states)
        if state is not None:
            indices.repeat(self._position, self._loader.count_drawn(state))
            self._digest = indices.digest_at(self._position)
            self._compare(state["digest"], states)
        states.restore_latest()
        self._indices = indices
        return self._read(indices)

    @property
    def _position(self) -> int:
        """The draws of which all samples were read."""
        return self._consumed // (self._unit or 1)

    def _compare(self, digest: str, states: "_SamplerStates") -> None:
        if self._digest == digest:
            return
        sampler = _describe_sampler(self._original)
        if states.are_changed:
            log.warning(
                "the loop changes the state of the %s, which is too large to keep each change of it: the resume goes "
                "on with its newest state, but not with what its iterator has computed from an older one. %s",
                sampler,
                REHEARSE,
            )
            return
        log.warning(
            "the %s gives another order than before the interruption: it depends on something that is not in the "
            "checkpoint. %s",
            sampler,
            REHEARSE,
        )

    def _read(self, indices: "_Indices") -> Iterator[Any]:
        size, unit = self._batch_size or 1, self._unit or 1
        entropy = (self._seed, self._epoch, rank_from_environment())
        offset = self._consumed % unit
        draws = _resize(indices, offset, size, self._loader.drops_last) if offset or size != unit else indices
        yield from self._counted(self._loader.open(draws, entropy, self._consumed // size), indices)

    def _counted(self, batches: Iterator[Any], indices: "_Indices | None") -> Iterator[Any]:
        for batch in batches:
            self._consumed += self._batch_size or 1
            if indices is not None:
                self._digest = indices.digest_at(self._position)
                if not indices.in_use:
                    raise TypeError(
                        f"a {type(self._original).__name__} does not read by its own sampler, so its position is not "
                        "known; give run.track the DataLoader that it wraps"
                    )
            yield batch
        self._epoch, self._consumed = self._epoch + 1, 0

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
            "batches": self._position,
            "offset": self._consumed % (self._unit or 1),
            "batch_size": self._unit,
            "drawn": self._indices.drawn if self._indices is not None else 0,
            "seed": self._seed,
            "generators": self._start,
            "digest": self._digest,
            "samplers": self._indices.state_dict() if self._indices is not None else None,
            "seeds": self._loader.seeds,
            "world_size": world_size_from_environment(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position.

        Raises:
            ValueError: if it is a position of another number of ranks, or one in batches of another size that a sampler
                of the program's own makes.
        """
        check_ranks(state)
        size = state.get("batch_size", self._batch_size)
        if size != self._batch_size and not (size and self._batch_size and self._loader.can_resize):
            raise ValueError(
                f"a position in batches of {size} samples is none in batches of {self._batch_size}; with a sampler "
                "instead of a batch_sampler, or with resumable_loader, it carries over"
            )
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
        self.can_resize = isinstance(self.indices, BatchSampler) and _is_library(self.indices)
        self.seeds = generator_seeds(dataset=loader.dataset, collate_fn=loader.collate_fn)
        self._source = _Replaceable(self.indices)
        # torch refuses to set these attributes of a loader, so that nobody expects an effect on a running iterator.
        self._loader.__dict__["batch_sampler" if self._in_batches else "sampler"] = self._source
        self._loader.__dict__["_iterator"] = None
        if not getattr(loader, "in_order", True):
            log.warning("in_order=False is ignored: a position counts the batches in the order of the sampler")
            self._loader.__dict__["in_order"] = True

    @property
    def drops_last(self) -> bool:
        """Whether a last batch that is too small is left out."""
        return bool(getattr(self.indices, "drop_last", False))

    def draws(self, size: int | None) -> Any:
        """Return what chooses the indices, in batches of this size if `can_resize`."""
        if not self.can_resize or size in (None, self.indices.batch_size):
            return self.indices
        return BatchSampler(self.indices.sampler, size, self.drops_last)

    def count_drawn(self, state: dict[str, Any]) -> int:
        """Return how many times indices were drawn before, also for the workers. A state of an earlier version does
        not hold the number, and is taken for one of a loader with as many workers."""
        if (drawn := state.get("drawn")) is not None:
            return int(drawn)
        prefetched = self._loader.num_workers * (self._loader.prefetch_factor or 0)
        return max(int(state["batches"]) + prefetched, int((state.get("samplers") or {}).get("next", 0)))

    def open(self, indices: Iterable[Any], entropy: tuple[int, ...], first: int) -> Iterator[Any]:
        """Return an iterator over `indices`. The workers' random numbers follow from `entropy` and the batch's
        number."""
        attributes = self._loader.__dict__
        # A DataLoader draws a number from its generator, or from the global one, whenever it is iterated, which a run
        # that is resumed in the middle of an epoch does once more than one that was not. The program's own generator
        # stays with its sampler.
        seed = int(np.random.SeedSequence(_unsigned(entropy)).generate_state(1)[0])
        attributes["generator"] = torch.Generator(torch.get_default_device()).manual_seed(seed)
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


def _resize(draws: Iterable[Any], skip: int, size: int, drop_last: bool) -> Iterator[list[Any]]:
    """Yield the indices of `draws` in batches of another size, without the first `skip` of them."""
    samples = itertools.islice(itertools.chain.from_iterable(draws), skip, None)
    while batch := list(itertools.islice(samples, size)):
        if len(batch) == size or not drop_last:
            yield batch


class _Indices:
    """The indices of one epoch from a position on, drawn on a stream of their own, with a digest of those before each.

    Args:
        source: the loader's sampler.
        stream: stands for the global generators while indices are drawn.
        states: of the samplers that have a state.
    """

    def __init__(self, source: Iterable[Any], stream: RandomStream, states: "_SamplerStates") -> None:
        self._states = states
        self._stream, self._hash = stream, hashlib.blake2b(digest_size=8)
        self._digests = {0: self._hash.hexdigest()}
        self._ahead: dict[int, Any] = {}
        self._drawn = 0
        self._ended = False
        self._draws_once = _draws_once(source)
        self.in_use = False
        with stream.active():
            self._iterator = iter(source)

    @property
    def drawn(self) -> int:
        """The number of draws, with the one that has shown the end of the epoch."""
        return self._drawn + self._ended

    def repeat(self, position: int, drawn: int) -> None:
        """Draw so many times, and keep the indices that are ahead of the position."""
        while self.drawn < drawn and not self._ended:
            self._draw()
        self._forget(position)
        if self._states.draws is not None:  # the changes by the loop, on which they depend, are not repeated
            self._ahead = dict(enumerate(self._states.draws["ahead"], position))
            self._stream.load_state_dict(self._states.draws["stream"])

    def __iter__(self) -> Iterator[Any]:
        self.in_use = True
        yield from list(self._ahead.values())
        while not self._ended and (indices := self._draw()) is not _END:
            yield indices

    def digest_at(self, count: int) -> str:
        """Return the digest of the first `count` batches of indices, and forget those before it."""
        self._forget(count)
        return self._digests.get(count, "")

    def state_dict(self) -> dict[str, Any]:
        """Return the states of the samplers, and what was drawn where their changes are not kept."""
        state = self._states.state_dict(self.drawn)
        if state["changes"] is None:
            state["draws"] = {"ahead": list(self._ahead.values()), "stream": self._stream.state_dict()}
        return state

    def _forget(self, count: int) -> None:
        for table in (self._digests, self._ahead):
            for number in [number for number in table if number < count]:
                del table[number]

    def _draw(self) -> Any:
        self._states.before_draw(self._drawn)
        if self._draws_once and self._drawn:
            indices = next(self._iterator, _END)
        else:
            with self._stream.active():
                indices = next(self._iterator, _END)
        self._states.after_draw()
        if indices is _END:
            self._ended = True
            return indices
        text = repr(indices)
        if " at 0x" not in text:  # an address says nothing in another process
            self._hash.update(text.encode())
        self._ahead[self._drawn] = indices
        self._drawn += 1
        self._digests[self._drawn] = self._hash.hexdigest()
        self._digests.pop(self._drawn - _MAX_AHEAD, None)
        self._ahead.pop(self._drawn - _MAX_AHEAD, None)
        return indices


class _SamplerStates:
    """The states of the program's samplers in one epoch: at its beginning, now, and whenever the loop changed one, as a
    curriculum does. On a resume they change at the same draws.

    Large states, such as a weight for each sample, are not compared and not kept for each draw. A resume then goes on
    with the newest state, the newest random numbers and the indices that were drawn ahead.

    Args:
        loader: whose samplers they are.
        saved: of the epoch that goes on; None for a new one.

    Attributes:
        draws: of the resumed state, what was drawn ahead of the position; None if all of it is drawn again.
    """

    def __init__(self, loader: Any, saved: dict[str, Any] | None) -> None:
        parts = {id(part): part for part in sampler_parts(loader)[1:] if _has_state(part)}
        self._parts = list(parts.values())
        self._changes: dict[int, list[Any]] | None = {}
        self._repeated_to = self._bytes = 0
        self._last: bytes | None = None
        self._now: list[Any] | None = None
        self.draws: dict[str, Any] | None = None
        if saved is not None and len(saved["start"]) == len(self._parts):
            self._load(saved["start"])
            self._now, self.draws = saved["now"], saved.get("draws")
            self._changes = None if saved["changes"] is None else dict(saved["changes"])
            self._repeated_to = saved.get("next", 0)
        self._start = self._read()
        self._is_large = self._snapshot() is None
        if self._is_large and not self._changes:  # an earlier version kept the changes of large states, too
            self._changes = None

    @property
    def are_changed(self) -> bool:
        """Whether the loop had changed a state, which drawing again does not change, before the interruption."""
        repeats = self._now is None or self._changes is not None
        return not repeats and next(differences(self._now, self._read()), None) is not None

    def before_draw(self, number: int) -> None:
        """Repeat the state change of the earlier attempt at this draw, or record a change of this attempt."""
        if not self._parts or self._changes is None:
            return
        if number < self._repeated_to:
            if number in self._changes:
                self._load(self._changes[number])
        elif self._is_large:
            self._changes = None
        elif self._last is not None and (now := self._snapshot()) != self._last:
            self._bytes += len(now or self._last)
            self._changes[number] = self._read()
            if now is None or self._bytes > _MOST_REPEATED:
                self._changes = None

    def after_draw(self) -> None:
        """Record the state that the sampler itself has changed."""
        if self._parts and self._changes is not None:
            self._last = self._snapshot()

    def restore_latest(self) -> None:
        """Restore the states that the loop had left, once everything is drawn again."""
        if self._now is not None:
            self._load(self._now)

    def state_dict(self, drawn: int) -> dict[str, Any]:
        """Return the states, and at which of the draws they changed."""
        changes = None if self._changes is None else dict(self._changes)
        return {"start": self._start, "changes": changes, "next": drawn, "now": self._read()}

    def _snapshot(self) -> bytes | None:
        """Return bytes that differ where the states differ; None if the states are large."""
        try:
            text = pickle.dumps([part.state_dict() for part in self._parts])
        except Exception:  # a stranger's class may raise anything; the checkpoint names what it cannot hold
            return None
        return text if len(text) <= _LARGEST_REPEATED else None

    def _read(self) -> list[Any]:
        return [copy.deepcopy(part.state_dict()) for part in self._parts]

    def _load(self, states: list[Any]) -> None:
        for part, state in zip(self._parts, states, strict=True):
            part.load_state_dict(copy.deepcopy(state))


def _has_state(part: Any) -> bool:
    """Return whether a sampler is the program's own and has a state. torchdata's samplers count their draws, as this
    module does."""
    return not _is_library(part) and hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def _draws_once(sampler: Any) -> bool:
    """Return whether a sampler draws from the global generators only before its first index, as all of torch's do."""
    parts = (sampler, getattr(sampler, "sampler", None)) if type(sampler).__name__ == "BatchSampler" else (sampler,)
    return all(map(_is_library, parts))


def _is_library(part: Any) -> bool:
    return type(part).__module__.startswith(("torch.", "torchdata."))


def _describe_sampler(loader: Any) -> str:
    """Name what chooses the indices of a loader."""
    sampler = loader.sampler if type(loader.batch_sampler).__name__ == "BatchSampler" else loader.batch_sampler
    return type(sampler if sampler is not None else loader.sampler).__name__
