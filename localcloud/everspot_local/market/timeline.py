"""Scheduled calls: one thread carries out what is due.

It carries out one call at a time, and it keeps nothing across a restart.
"""

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from everspot_local.market.clock import MarketClock

log = logging.getLogger(__name__)


class Timeline:
    """Calls scheduled at moments of market time, carried out in order while the market's lock is held.

    The thread sleeps until the next one is due, so an idle market costs no processor time.
    """

    def __init__(self, clock: MarketClock, lock: threading.RLock) -> None:
        self._clock = clock
        self._lock = lock
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._wake = threading.Condition()
        self._stopped = False
        self._generation = 0
        self._thread = threading.Thread(target=self._run, name="everspot-market", daemon=True)

    def start(self) -> None:
        """Start carrying out scheduled calls."""
        self._thread.start()

    def stop(self) -> None:
        """Stop carrying out calls, and wait for the present one."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def clear(self) -> None:
        """Remove all scheduled calls."""
        with self._wake:
            self._due.clear()
            self._generation += 1

    def at(self, moment: datetime, call: Callable[[], None]) -> None:
        """Schedule a call at a moment of market time, or immediately if that has passed."""
        with self._wake:
            heapq.heappush(self._due, (moment, next(self._order), call))
            self._wake.notify()

    def after(self, delay: timedelta, call: Callable[[], None]) -> None:
        """Schedule a call after a span of market time."""
        self.at(self._clock.now() + delay, call)

    def _run(self) -> None:
        while (due := self._next()) is not None:
            generation, call = due
            try:
                with self._lock:
                    if generation == self._generation:  # else it was forgotten while this waited for the lock
                        call()
            except Exception:
                log.exception("the market could not carry out %s", call)

    def _next(self) -> tuple[int, Callable[[], None]] | None:
        with self._wake:
            while not self._stopped:
                wait = self._clock.real_until(self._due[0][0]) if self._due else None
                if wait == 0:
                    return self._generation, heapq.heappop(self._due)[2]
                self._wake.wait(wait)
        return None
