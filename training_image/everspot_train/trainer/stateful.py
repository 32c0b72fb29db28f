"""Feeds over loaders that keep their position themselves."""

import contextlib
import itertools
import logging
from collections.abc import Iterator
from typing import Any

import torch

from everspot_train.trainer.digests import describe
from everspot_train.trainer.feed_parts import REHEARSE, PositionedLoader, check_ranks, count_batches, set_epoch
from everspot_train.trainer.generators import find_generators, generator_state, set_generator_state
from everspot_train.trainer.randomness import RandomStream
from everspot_train.trainer.ranks import world_size_from_environment

log = logging.getLogger("everspot.trainer")

_END = object()


class StatefulFeed:
    """A loader that keeps its position itself, such as torchdata's over an iterable data set, or the program's own.

    The loader runs on a stream of random numbers of its own, so that its draws do not mix with the loop's. The random
    state at the beginning of the epoch is kept, too: a loader that draws its order then draws the same order again.
    """

    def __init__(self, loader: PositionedLoader) -> None:
        self._loader = loader
        self._epoch = self._batches = 0
        self._length = count_batches(loader)
        self._stream: RandomStream | None = None
        self._generators: dict[str, Any] = {}
        self._start: dict[str, Any] = {}
        self._draws_later = False
        self._evidence: tuple[str, tuple[str, ...]] | None = None
        self._pending: dict[str, Any] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the newest batch, from 0."""
        return self._epoch if self._pending is None else int(self._pending.get("epoch", 0))

    def open_epoch(self) -> Iterator[Any]:
        """Return the batches from the position to the end of the epoch."""
        state, self._pending = self._pending, None
        if self._stream is None:
            self._stream = RandomStream(int(torch.empty((), dtype=torch.int64).random_().item()))
        self._generators = dict(find_generators({"loader": self._loader}))
        if state is not None and "draws_later" not in state:  # of an earlier version: the loader's state alone
            self._loader.load_state_dict(state)
            state = None
        if state is not None:
            return self._resume(state)
        self._start = self._random_state()
        set_epoch(self._loader, self._epoch)
        return self._counted(self._iterate())

    def _resume(self, state: dict[str, Any]) -> Iterator[Any]:
        self._epoch, self._batches, self._length = state["epoch"], state["batches"], state["length"]
        self._start, self._draws_later = state["start"], state["draws_later"]
        if self._batches == self._length:
            return self._resume_at_end(state)
        self._set_random_state(self._start)
        set_epoch(self._loader, self._epoch)
        replayed = state["feed"] is None or (self._epoch == 0 and self._batches == 1)
        if not replayed:
            self._loader.load_state_dict(state["feed"])
        with _one_epoch(self._loader):
            batches = self._iterate()
        if replayed:
            for _ in range(self._batches):
                self._next(batches)
        self._set_random_state(state["now"])
        # A generator function that shuffles and then yields has drawn nothing yet, and must draw its order again. A
        # loader that augments each batch must not.
        return self._counted(batches, draw_again=not replayed and not self._draws_later)

    def _resume_at_end(self, state: dict[str, Any]) -> Iterator[Any]:
        """Yield the next epoch, if the loader begins it by itself; nothing if the loader stays at its end."""
        self._loader.load_state_dict(state["feed"])
        self._set_random_state(state["now"])
        set_epoch(self._loader, self._epoch + 1)
        with _one_epoch(self._loader):
            batches = self._iterate()
        batch = self._next(batches)
        if batch is _END:
            self._set_random_state(state["now"])
            return self._counted(iter(()))
        self._epoch, self._batches, self._start = self._epoch + 1, 0, state["now"]
        return self._counted(itertools.chain([batch], batches))

    def _iterate(self) -> Iterator[Any]:
        assert self._stream is not None  # noqa: S101 - an epoch was opened
        with self._stream.active():
            return iter(self._loader)

    def _next(self, batches: Iterator[Any]) -> Any:
        assert self._stream is not None  # noqa: S101 - an epoch was opened
        with self._stream.active():
            return next(batches, _END)

    def _counted(self, batches: Iterator[Any], *, draw_again: bool = False) -> Iterator[Any]:
        """Yield the batches and count them. `draw_again`: the first is read with the random state of the epoch's
        beginning."""
        first = True
        while True:
            now = self._random_state() if draw_again and first else None
            if now is not None:
                self._set_random_state(self._start)
            position = self._random_position()
            batch = self._next(batches)
            if now is not None:
                self._set_random_state(now)
            if batch is _END:
                break
            if self._batches and not first and not self._draws_later:
                self._draws_later = self._random_position() != position
            first = False
            self._batches += 1
            self._prove_position(batch)
            yield batch
        self._length = self._batches
        self._epoch, self._batches = self._epoch + 1, 0

    def _prove_position(self, batch: Any) -> None:
        """Warn if the first two batches differ and nothing that a checkpoint holds does."""
        if self._epoch or self._batches > 2 or self._stream is None:
            return
        with self._stream.active():
            state = describe(self._loader.state_dict())
        device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        evidence = (state, describe(self._random_state()), describe(device))
        before, self._evidence = self._evidence, (describe(batch), evidence)
        if self._batches == 2 and before is not None and before[0] != describe(batch) and before[1] == evidence:
            log.warning(
                "state_dict() of the %s stays the same from batch to batch: a resumed run will not go on where it was "
                "stopped. It must hold the position; %s",
                type(self._loader).__name__,
                REHEARSE,
            )

    def _random_state(self) -> dict[str, Any]:
        assert self._stream is not None  # noqa: S101 - an epoch was opened
        own = {path: generator_state(generator) for path, generator in self._generators.items()}
        return {"stream": self._stream.state_dict(), "generators": own}

    def _set_random_state(self, state: dict[str, Any]) -> None:
        assert self._stream is not None  # noqa: S101 - an epoch was opened
        self._stream.load_state_dict(state["stream"])
        for path in state["generators"].keys() & self._generators.keys():
            set_generator_state(self._generators[path], state["generators"][path])

    def _random_position(self) -> tuple[Any, ...]:
        """Return a value that changes with each draw."""
        if self._draws_later or self._stream is None:
            return ()
        return self._stream.position, repr([generator_state(g) for g in self._generators.values()])

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and what the order depends on."""
        if self._pending is not None or self._stream is None:
            return self._pending or {}
        with self._stream.active():
            feed = self._loader.state_dict()
        return {
            "feed": None if _is_only_counted(feed) else feed,
            "epoch": self._epoch,
            "batches": self._batches,
            "length": self._length,
            "start": self._start,
            "now": self._random_state(),
            "draws_later": self._draws_later,
            "world_size": world_size_from_environment(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position.

        Raises:
            ValueError: if it is a position of another number of ranks.
        """
        check_ranks(state)
        self._pending = state

    def close(self) -> None:
        """Do nothing: the loader is the program's own."""


def _is_only_counted(state: Any) -> bool:
    """Return whether torchdata's loader only counts the batches of an iterable data set. Such a loader reads them again
    at a resume and counts them twice, so the second resume has a wrong position (torchdata 0.11)."""
    if not isinstance(state, dict):
        return False
    fetchers = [state]
    if isinstance(state.get("_snapshot"), dict):
        fetchers = list(state["_snapshot"].get("_worker_snapshots", {}).values())
    fetchers = [f for f in fetchers if isinstance(f, dict) and isinstance(f.get("fetcher_state"), dict)]
    return bool(fetchers) and all(
        f["fetcher_state"].get("dataset_iter_state") is None and f.get("dataset_state") is None for f in fetchers
    )


@contextlib.contextmanager
def _one_epoch(loader: Any) -> Iterator[None]:
    """Keep a loader of torchdata.nodes, which is resumed at the end of an epoch, from beginning the next by itself."""
    restarts = getattr(loader, "restart_on_stop_iteration", None)
    if not restarts:
        yield
        return
    loader.restart_on_stop_iteration = False
    try:
        yield
    finally:
        loader.restart_on_stop_iteration = restarts
