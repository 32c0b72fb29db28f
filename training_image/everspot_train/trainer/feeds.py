"""Chooses the feed for a loader that `Run.track` gets, or refuses the loader.

A position is only half of what the next batch depends on. The order of an epoch follows from random numbers that were
drawn when the epoch began, from the loader's own generator, a sampler's, or the global one. A feed keeps these, too,
and draws the same ones when it goes to a position.
"""

import logging
import math
from collections.abc import Callable, Generator, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from everspot_train.trainer.data import BatchOrder
from everspot_train.trainer.errors import TrainerError
from everspot_train.trainer.feed_parts import REHEARSE, Feed, PositionedLoader, count_batches
from everspot_train.trainer.sampled import OrderedFeed, SampledFeed
from everspot_train.trainer.stateful import StatefulFeed

log = logging.getLogger("everspot.trainer")

_ROUNDING = 1e-6  # batches: 0.1 epochs of 30 batches are 3, also where the product is a little less


def steps_of_epochs(epochs: float, loader: Any, accumulation: int) -> int:
    """Return the optimizer steps that so many epochs make, at least one. Losses are accumulated across the end of an
    epoch. Batches at the very end that are too few for a step are not read.

    Raises:
        ValueError: if `epochs` is not above zero, or the loader does not know its length.
    """
    if not 0 < epochs < math.inf:
        raise ValueError(f"epochs ({epochs}) must be a number above zero")
    batches = count_batches(loader)
    if not batches:
        raise ValueError(
            f"epochs=… needs a loader with a length, and this {type(loader).__name__} has none: give total_steps"
        )
    whole = math.floor(epochs * batches + _ROUNDING)
    return max(1, whole // accumulation)


def read_epochs(feed: Feed, batches: Iterator[Any], epoch_over: Callable[[], None]) -> Generator[Any, None, None]:
    """Yield `batches`, those of the open epoch, and the batches of further epochs without end.

    `epoch_over`: called at the end of each epoch.

    Raises:
        TrainerError: if an epoch has no batch.
    """
    empty = 0
    while empty < 2:  # once is right after a checkpoint at the end of an epoch
        empty += 1
        for batch in batches:
            empty = 0
            yield batch
        epoch_over()
        batches = feed.open_epoch()
    raise TrainerError("the loader has no batch to give")


def as_feed(loader: Any) -> Feed:
    """Return the loader of `Run.track` as a feed with a position.

    Raises:
        TypeError: if it has no position.
    """
    order = getattr(loader, "batch_sampler", None)
    if isinstance(order, BatchOrder):
        return OrderedFeed(loader, order)
    if isinstance(loader, DataLoader) and _is_sampled(loader):
        return SampledFeed(loader)
    if isinstance(loader, PositionedLoader):
        log.warning(
            "the position and the random numbers of a %s are its own affair and cannot be proven here; %s",
            type(loader).__name__,
            REHEARSE,
        )
        return StatefulFeed(loader)
    raise TypeError(
        f"a {type(loader).__name__} does not know its position; use everspot_train.trainer.resumable_loader, "
        "a DataLoader over a data set with a length, or a loader with state_dict and load_state_dict"
    )


def _is_sampled(loader: "DataLoader[Any]") -> bool:
    """Return whether a loader's position is a number of index batches: a map-style data set without a state of its own,
    and no class of the program's own that keeps another position."""
    if isinstance(loader.dataset, IterableDataset) or hasattr(loader.dataset, "state_dict"):
        return False
    own_state = type(loader).__dict__.get("state_dict") is not None
    return not own_state or type(loader).__module__.startswith("torchdata.")
