"""Runs many network calls at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

ALONE = 8
"""So few calls are made one after the other: no tick is long for them."""
AT_ONCE = 32
T = TypeVar("T")
R = TypeVar("R")


def side_by_side(call: Callable[[T], R], things: Sequence[T], *, alone: int = ALONE) -> list[R]:
    """What the calls return, in order. All are made, also where one fails. `alone`: so few are made one by one.

    Raises:
        Whatever the first one that failed has raised.
    """
    if len(things) <= alone:
        return [call(thing) for thing in things]
    with ThreadPoolExecutor(min(AT_ONCE, len(things)), thread_name_prefix="everspot-act") as pool:
        return list(pool.map(call, things))
