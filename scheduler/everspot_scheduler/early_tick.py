"""Detects, between two ticks, the reasons for an early tick: new jobs, and launched instances that report.

A launched instance costs money from its launch on, and a job waits for it. While one is on its way, the instances are
listed five times in a tick's length, which costs little for so short a time. When quiet ticks are further apart, the
jobs are listed as often as there would otherwise be ticks. When idle ticks are further apart still, the wake-up object
is read as often, which costs a twelfth of a listing.
"""

from collections.abc import Container
from datetime import timedelta

from everspot_store import Store, StoreError

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.observer import Observation

LOOKS = 5


class EarlyTick:
    """Compares listings with the last tick's observation."""

    def __init__(self, store: Store, tick_every: timedelta) -> None:
        self._store, self._tick_every = store, tick_every
        self._observation: Observation | None = None
        self._coming = False
        self._jobs, self._instances = Backoff(tick_every), Backoff(tick_every / LOOKS)
        self._reported: set[str] = set()
        self._looked_at = store.clock.monotonic()
        self._token: bytes | None = None
        self.idle = False
        """Whether the scheduler relies on the wake-up object instead of listing jobs."""

    def record_observation(self, observation: Observation, *, coming: bool, idle: bool = False) -> None:
        """Note the observation of a tick that has ended.

        Args:
            observation: Of that tick.
            coming: Whether a launched instance has not reported yet.
            idle: Whether there is nothing to do. The scheduler relies on the wake-up object from the second idle tick
                in a row on, because only that tick has read everything that was written before the object was read.

        Raises:
            StoreError: if the wake-up object could not be read.
        """
        self.idle = idle and self._token is not None
        if not idle:
            self._token = None
        elif self._token is None:
            self._token = self._store.wakeup.token()
        now = self._store.clock.monotonic()
        took = now - self._looked_at
        self._observation, self._coming = observation, coming
        self._reported = {
            name for name in self._reported if name not in observation.jobs and name not in observation.instances
        }
        # A scheduler whose ticks take long must not start the next one immediately.
        self._jobs, self._instances = Backoff(self._tick_every), Backoff(max(self._tick_every / LOOKS, took))
        for backoff in (self._jobs, self._instances):
            backoff.called(now)

    def detect(self) -> bool:
        """Return whether there is a reason for an early tick. Each new name is reported once. If the store does not
        answer, the next tick reports that."""
        observation, now = self._observation, self._store.clock.monotonic()
        self._looked_at = now
        if observation is None:
            return False
        try:
            if self._coming and self._instances.take(now):
                return self._new(self._store.instances.etags(), observation.instances)
            if self.idle and self._jobs.take(now):
                return self._woken()
            if self._jobs.take(now):
                return self._new(self._store.jobs.etags(), observation.jobs)
        except StoreError:
            if not self.idle:  # an idle tick is minutes away: the object is read again
                self._observation = None
        return False

    def _woken(self) -> bool:
        before, self._token = self._token, self._store.wakeup.token()
        return self._token != before

    def _new(self, listed: dict[str, str], observed_names: Container[str]) -> bool:
        """Return whether a listed name is new. A document that cannot be read is in no observation, so its name is
        kept."""
        new_names = {name for name in listed if name not in observed_names and name not in self._reported}
        self._reported |= new_names
        return bool(new_names)
