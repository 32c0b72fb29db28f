"""The agent's helper threads. Each repeats one action, and none takes decisions."""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from everspot_core.clock import Clock

LOOK_EVERY = timedelta(milliseconds=100)
HELPER_EVERY = timedelta(milliseconds=250)
MEASURE_EVERY = timedelta(seconds=1)
"""The time between two checks whether a sample of the utilization is due."""

_log = logging.getLogger(__name__)


class Repeating:
    """Calls `action` every `interval` in a daemon thread, until `stop`.

    `action` handles the failures that it expects. Any other exception ends the thread and is stored in `failure`. Then
    the agent ends, because otherwise it would hold a lease without renewing it.
    """

    def __init__(self, name: str, interval: timedelta, action: Callable[[], None], clock: Clock) -> None:
        self._interval = interval
        self._action = action
        self._clock = clock
        self._stopping = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present call of the action, without waiting."""
        self._stopping = True

    def join(self, timeout: timedelta) -> None:
        """Wait for the end, at most `timeout`."""
        self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._action()
                self._clock.sleep(self._interval)
        except BaseException as error:
            _log.exception("the thread %s ended", self._thread.name)
            self.failure = error


class DueTimer:
    """A timer for repeated work. Not thread-safe: each timer belongs to one thread."""

    def __init__(self, interval: timedelta, clock: Clock) -> None:
        self._interval = interval
        self._clock = clock
        self._next: timedelta | None = None

    def again_in(self, wait: timedelta) -> None:
        """Make it due after `wait`, if that is sooner, because the work has failed."""
        soon = self._clock.monotonic() + wait
        self._next = min(self._next, soon) if self._next is not None else soon

    def due(self) -> bool:
        """Return whether it is due. If so, it is due again one period from now."""
        now = self._clock.monotonic()
        if self._next is not None and now < self._next:
            return False
        self._next = now + self._interval
        return True


class Background:
    """An action in a thread of its own. An exception of the action is logged."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)
        self._thread.start()

    def wait(self, is_over: Callable[[], bool]) -> bool:
        """Wait until the action has ended, or `is_over` returns True. Return whether the action has ended."""
        while self._thread.is_alive() and not is_over():
            self._thread.join(LOOK_EVERY.total_seconds())
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._action()
        except Exception:
            _log.exception("a background action failed")
