"""Calls that wait for other clusters' networks, beside the scheduler's loop."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from everspot_store import StoreDenied, StoreMissing, StoreUnavailable

_log = logging.getLogger(__name__)


class BackgroundCalls:
    """Runs calls of one kind, one call of a name at a time.

    `threads`: the most concurrent calls; 0: the caller makes each call itself.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="everspot-peer-call") if threads else None
        self._under_way: dict[str, Future[None]] = {}
        self._lock = Lock()

    def begin(self, name: str, call: Callable[[], None]) -> None:
        """Begin a call, unless one of this name is under way. Its errors are logged, and the caller may begin it
        again."""
        if self._pool is None:
            return _run_and_log(name, call)
        with self._lock:
            self._under_way = {n: future for n, future in self._under_way.items() if not future.done()}
            if name not in self._under_way:
                self._under_way[name] = self._pool.submit(_run_and_log, name, call)
        return None

    def cancel(self, name: str) -> bool:
        """Drop a call that still waits for a thread. Return whether none of this name runs."""
        with self._lock:
            future = self._under_way.get(name)
            return future is None or future.done() or future.cancel()

    def is_under_way(self, name: str) -> bool:
        """Return whether a call of this name waits for a thread or runs."""
        with self._lock:
            future = self._under_way.get(name)
            return future is not None and not future.done()


def _run_and_log(name: str, call: Callable[[], None]) -> None:
    try:
        call()
    except StoreDenied as error:
        _log.critical("%s: a store refuses it: check the credentials and the role: %s", name, error)
    except (StoreUnavailable, StoreMissing) as error:
        _log.warning("%s is tried again: %s", name, error)
    except Exception:
        _log.exception("%s failed, and is tried again", name)
