"""Whoever comes between two ticks and is worth a tick at once: a launched instance that reports, a job in quiet times.

A launched instance costs money from its launch, and a job waits for it: while one is on its way the instances are
listed five times in a tick's length, which costs next to nothing for so short a time. In quiet times, in which ticks
are further apart, the jobs are listed as often as there would be ticks.
"""

from collections.abc import Container
from datetime import timedelta

from everspot_store import Store, StoreError

from everspot_scheduler.observe import Observation
from everspot_scheduler.pace import Pace

LOOKS = 5


class Newcomers:
    """Compares listings with what the last tick saw."""

    def __init__(self, store: Store, tick_every: timedelta) -> None:
        self._store, self._tick_every = store, tick_every
        self._seen: Observation | None = None
        self._coming = False
        self._jobs, self._instances = Pace(tick_every), Pace(tick_every / LOOKS)
        self._told: set[str] = set()
        self._looked_at = store.clock.monotonic()

    def seen(self, seen: Observation, *, coming: bool) -> None:
        """A tick is over. `coming`: whether a launched instance has not reported yet."""
        now = self._store.clock.monotonic()
        took = now - self._looked_at
        self._seen, self._coming = seen, coming
        self._told = {name for name in self._told if name not in seen.jobs and name not in seen.instances}
        # Whose ticks take long does not tick all the time.
        self._jobs, self._instances = Pace(self._tick_every), Pace(max(self._tick_every / LOOKS, took))
        for pace in (self._jobs, self._instances):
            pace.called(now)

    def come(self) -> bool:
        """Whether anybody has; each is told of once. A store that does not answer is the next tick's trouble."""
        seen, now = self._seen, self._store.clock.monotonic()
        self._looked_at = now
        if seen is None:
            return False
        try:
            if self._coming and self._instances.due(now):
                self._instances.called(now)
                return self._new(self._store.instances.etags(), seen.instances)
            if self._jobs.due(now):
                self._jobs.called(now)
                return self._new(self._store.jobs.etags(), seen.jobs)
        except StoreError:
            self._seen = None
        return False

    def _new(self, listed: dict[str, str], seen: Container[str]) -> bool:
        """Whether somebody is there who was not. What cannot be read is never seen."""
        found = {name for name in listed if name not in seen and name not in self._told}
        self._told |= found
        return bool(found)
