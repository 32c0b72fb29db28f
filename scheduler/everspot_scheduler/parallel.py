"""Runs many network calls at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar, cast

SEQUENTIAL_UP_TO = 8
"""The most calls that are made one after the other, which takes little time."""
AT_ONCE = 32
T = TypeVar("T")
R = TypeVar("R")


def run_parallel(call: Callable[[T], R], items: Sequence[T], *, sequential_up_to: int = SEQUENTIAL_UP_TO) -> list[R]:
    """Return the results of the calls, in order. All calls are made, even if one fails.

    Up to `sequential_up_to` calls are made one after the other, more at the same time.

    Raises:
        The exception of the first call that failed.
    """
    outcomes: list[tuple[R | None, Exception | None]]
    attempt = partial(_attempt, call)
    if len(items) <= sequential_up_to:
        outcomes = [attempt(item) for item in items]
    else:
        with ThreadPoolExecutor(min(AT_ONCE, len(items)), thread_name_prefix="everspot-act") as pool:
            outcomes = list(pool.map(attempt, items))
    for _, error in outcomes:
        if error is not None:
            raise error
    return [cast(R, result) for result, _ in outcomes]


def _attempt(call: Callable[[T], R], item: T) -> tuple[R | None, Exception | None]:
    """Return the result of a call, or its error: an exception would make `map` cancel the calls that wait."""
    try:
        return call(item), None
    except Exception as error:
        return None, error
