"""Readings of the store that all open pages share, with growing pauses while it cannot be read."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from everspot_store import StoreError

from everspot_cli.errors import CliError

T = TypeVar("T")

LONGEST = timedelta(seconds=60)
"""The longest pause after a reading that failed."""
SHARE = 4
"""After a reading that took long there is a pause of so many times as long."""
PATIENCE = timedelta(seconds=1.5)
"""How long a page waits for the first reading. Then it is shown without, and asks again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LastRead(Generic[T]):
    """The last reading. `at`: its market time; both None: nothing yet. `trouble`: why nothing newer could be read, or
    empty."""

    value: T | None = None
    at: datetime | None = None
    trouble: str = ""


def pause(least: timedelta, took: timedelta, failures: int) -> timedelta:
    """Return the pause until the next reading: longer after a long reading, doubled after each failure."""
    if failures:
        longer: timedelta = least * 2 ** min(failures, 16)
        return max(least, min(LONGEST, longer))
    return max(least, took * SHARE)


def in_background(work: Callable[[], None]) -> None:
    """Do some work in a thread that does not outlive the program."""
    threading.Thread(target=work, name="everspot-ui-read", daemon=True).start()


class Reading(Generic[T]):
    """A reading that is repeated when somebody looks, and no oftener than `least`. Thread-safe.

    Without anybody who looks nothing is read. `now`: market time; `start`: begins a reading.
    """

    def __init__(
        self,
        read: Callable[[], T],
        now: Callable[[], datetime],
        least: timedelta,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = in_background,
    ) -> None:
        self._read, self._now, self._least = read, now, least
        self._monotonic, self._start = monotonic, start
        self._state = threading.Condition()
        self._snapshot: LastRead[T] = LastRead()
        self._due, self._failures, self._running = float("-inf"), 0, False

    def current(self) -> LastRead[T]:
        """Return the last reading. A newer one is started if it is due; only the first is waited for."""
        with self._state:
            begin = not self._running and self._monotonic() >= self._due
            self._running = self._running or begin
        if begin:
            self._start(self._once)
        with self._state:
            self._state.wait_for(lambda: self._snapshot != LastRead(), timeout=PATIENCE.total_seconds())
            return self._snapshot

    def stale(self) -> None:
        """Have the store read again at the next request, because something was changed."""
        with self._state:
            self._due = float("-inf")

    def _once(self) -> None:
        began = self._monotonic()
        try:
            value = self._read()
        except Exception as error:
            if not isinstance(error, StoreError | CliError):
                _log.exception("a reading failed")
            self._settle(None, str(error) or type(error).__name__, began)
        else:
            self._settle(value, "", began)

    def _settle(self, value: T | None, trouble: str, began: float) -> None:
        with self._state:
            before, ended = self._snapshot, self._monotonic()
            self._failures = self._failures + 1 if trouble else 0
            last = LastRead(before.value, before.at, trouble) if trouble else LastRead(value, self._now())
            wait = pause(self._least, timedelta(seconds=ended - began), self._failures)
            self._snapshot, self._due, self._running = last, ended + wait.total_seconds(), False
            self._state.notify_all()
