"""Requests to follow a job's log. The reader renews its request, and meanwhile the agent uploads the log more often."""

import threading
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.jobs.records import Request

from everspot_store.table import Table

RENEW_EVERY = timedelta(seconds=30)
"""The time between two renewals of a request."""
EXPIRES_AFTER = timedelta(seconds=90)
"""A request that was not renewed for so long, by the agent's own clock, has expired."""


class LogFollowers:
    """The requests at `follows/{job}.json`, for readers of logs and for agents. Thread-safe."""

    def __init__(self, table: Table[Request], clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._lock = threading.Lock()
        self._last_change: dict[str, tuple[str, timedelta]] = {}
        self._renewed: dict[str, timedelta] = {}

    def renew(self, job_id: str, by: str = "") -> None:
        """Renew the request if the last renewal is older than `RENEW_EVERY`. Most calls write nothing."""
        now = self._clock.monotonic()
        with self._lock:
            last = self._renewed.get(job_id)
            if last is not None and now - last < RENEW_EVERY:
                return
            self._renewed[job_id] = now
        self._table.put(job_id, Request(at=self._clock.now(), by=by))

    def end(self, job_id: str) -> None:
        """Delete the request. Another reader of the same job writes it again at its next renewal."""
        self._table.delete(job_id)

    def is_followed(self, job_id: str) -> bool:
        """Return whether the request was renewed within `EXPIRES_AFTER`, by this clock. It costs one read."""
        request, now = self._table.get(job_id), self._clock.monotonic()
        with self._lock:
            if request is None:
                self._last_change.pop(job_id, None)
                return False
            change = self._last_change.get(job_id)
            if change is None or change[0] != request.etag:
                change = self._last_change[job_id] = (request.etag, now)
            return now - change[1] < EXPIRES_AFTER
