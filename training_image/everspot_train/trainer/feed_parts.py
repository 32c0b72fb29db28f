"""The protocol of feeds, and what all kinds of feeds need: samplers' epoch numbers, and the number of ranks of a
position."""

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from everspot_train.trainer.ranks import world_size_from_environment

REHEARSE = "`everspot rehearse FILE` tries it on this machine"


@runtime_checkable
class PositionedLoader(Protocol):
    """A loader that keeps its position itself, like torchdata's."""

    def __iter__(self) -> Iterator[Any]: ...

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        ...


class Feed(Protocol):
    """Epochs of batches, with a position that can be saved and restored."""

    @property
    def epoch(self) -> int:
        """The epoch of the newest batch, from 0; before the first batch, the epoch of the position."""
        ...

    def open_epoch(self) -> Iterator[Any]:
        """Make the iterator over the rest of the current epoch. All random numbers that decide the order up to the
        position are drawn before it returns."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and what it depends on."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position, which takes effect with the next epoch that is opened."""
        ...

    def close(self) -> None:
        """End the worker processes."""
        ...


def count_batches(loader: Any) -> int | None:
    """Return the batches of this rank in one epoch, or None if the loader does not know them."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def read_batch_size(loader: Any) -> int | None:
    """Return the samples per batch and process, or None if neither the loader nor its sampler has the number."""
    for source in (getattr(loader, "batch_sampler", None), loader):
        size = getattr(source, "batch_size", None)
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size
    return None


def sampler_parts(loader: Any) -> list[Any]:
    """Return the loader and its samplers, also those within samplers, each once."""
    waiting, parts = [loader], list[Any]()
    while waiting:
        part = waiting.pop(0)
        if part is not None and not any(part is other for other in parts):
            parts.append(part)
            waiting += [getattr(part, name, None) for name in ("batch_sampler", "sampler")]
    return parts


def set_epoch(loader: Any, epoch: int) -> None:
    """Call `set_epoch` of the loader, its samplers and its data set, where there is one."""
    for part in (*sampler_parts(loader), getattr(loader, "dataset", None)):
        method = getattr(part, "set_epoch", None)
        if callable(method):
            method(epoch)


def check_ranks(state: dict[str, Any]) -> None:
    """Refuse a position of another number of ranks.

    Raises:
        ValueError: if it is one.
    """
    now, before = world_size_from_environment(), state.get("world_size")
    if before not in (None, now):
        raise ValueError(
            f"a position of {before} ranks is none of {now}; with resumable_loader or BatchOrder it carries over"
        )
