"""Reading several things of the store at the same time: each waits for the network, none for the others."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def side_by_side(*calls: Callable[[], Any]) -> list[Any]:
    """What each call answers, in order. The first error of any is raised when all have ended."""
    with ThreadPoolExecutor(len(calls), thread_name_prefix="everspot-read") as pool:
        running = [pool.submit(call) for call in calls]
    return [call.result() for call in running]
