"""Runs many network calls at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ALONE = 8
"""The most calls that are made one after the other, which takes little time."""
AT_ONCE = 32
T = TypeVar("T")
R = TypeVar("R")


def run_parallel(call: Callable[[T], R], items: Sequence[T], *, alone: int = ALONE) -> list[R]:
    """Return the results of the calls, in order. All calls are made, even if one fails.

    `alone`: up to this many calls are made one after the other.

    Raises:
        The exception of the first call that failed.
    """
    if len(items) <= alone:
        return [call(item) for item in items]
    with ThreadPoolExecutor(min(AT_ONCE, len(items)), thread_name_prefix="everspot-act") as pool:
        return list(pool.map(call, items))
