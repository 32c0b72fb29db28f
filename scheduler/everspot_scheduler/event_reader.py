"""Reads the events of jobs, once for each change of a job's owner."""

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from everspot_core.costs.attempts import attempts
from everspot_core.jobs.records import Event, EventKind, JobRecord
from everspot_store import Store

from everspot_scheduler.parallel import run_parallel

LATE_EVENTS = timedelta(minutes=10)
"""Real time in which the events of a job are read again after its release, if none of them names the end. An agent
releases its job also if it could not write that event."""

_Standing = tuple[int, bool, str | None]


class Histories:
    """The events of the jobs of one cluster, without the events of trainers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._histories: dict[str, tuple[_Standing, list[Event]]] = {}
        self._first_read: dict[str, tuple[_Standing, timedelta]] = {}

    def read(self, records: Iterable[JobRecord]) -> Mapping[str, list[Event]]:
        """Return the events of these jobs. A job's list is the same object as long as it has no new events.

        If an owner has taken a job back or released it, its events are read until they say so, which is a little after
        the record does.

        Raises:
            StoreError: if they could not be read.
        """
        requested = list(records)
        run_parallel(self._read, [r for r in requested if self._has_more(r)])
        return {r.job_id: self._histories[r.job_id][1] for r in requested}

    def forget(self, but: Collection[str]) -> None:
        """Forget the events of all other jobs."""
        for job in self._histories.keys() - set(but):
            del self._histories[job], self._first_read[job]

    def _has_more(self, record: JobRecord) -> bool:
        """Return whether the job may have new events since they were read."""
        standing, events = self._histories.get(record.job_id, (None, []))
        if standing != _standing(record):
            return True
        if record.state.owned:
            return _seems_lost(record.epoch, events)
        waited = self._store.clock.monotonic() - self._first_read[record.job_id][1]
        return waited < LATE_EVENTS and _lacks_end(events)

    def _read(self, record: JobRecord) -> None:
        standing, now = _standing(record), self._store.clock.monotonic()
        self._histories[record.job_id] = standing, self._store.events(record.job_id, brief=True)
        if self._first_read.get(record.job_id, (None, now))[0] != standing:
            self._first_read[record.job_id] = standing, now


def _standing(record: JobRecord) -> _Standing:
    """Return the part of the record that changes when an attempt begins or ends."""
    return record.epoch, record.state.owned, record.owner


def _lacks_end(events: Iterable[Event]) -> bool:
    """Return whether the last ownership of a job has no end in its events."""
    history = attempts(events)
    return bool(history) and history[-1].end is None


def _seems_lost(epoch: int, events: Iterable[Event]) -> bool:
    """Return whether, by its events, this ownership was lost and not taken back since."""
    own_events = [e for e in events if e.epoch == epoch]
    lost = max((e.at for e in own_events if e.kind is EventKind.LOST), default=None)
    return lost is not None and not any(e.data.get("reclaimed") and e.at >= lost for e in own_events)
