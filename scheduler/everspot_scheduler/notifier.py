"""Sends notifications about jobs and anomalies to people, beside the loop, so that a slow webhook delays no decision.

A notification is recorded after it was sent. So a crash in between sends it twice rather than never.
"""

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from everspot_clouds.base import Cloud
from everspot_core.governance.anomalies import Anomaly
from everspot_core.notify import ANOMALY, Notification, Notifications, Occasion, due, due_anomalies
from everspot_core.records import Request
from everspot_store import BadDocument, Store

from everspot_scheduler.declaration import Declaration
from everspot_scheduler.observe import Observation

TRIES = 6
FIRST_WAIT = timedelta(seconds=30)
"""Real time before the second try to send; it doubles with each further one."""
AT_ONCE = 20
SINCE = "_since/"
"""The prefix of the documents that say since when each occasion is notified. No job's id begins like that."""
_log = logging.getLogger(__name__)


class Notifier:
    """The notifications of one cluster. `look` raises the store's errors."""

    def __init__(self, store: Store, declaration: Declaration, cloud: Cloud) -> None:
        self._store, self._declaration, self._cloud = store, declaration, cloud
        self._told: set[str] | None = None
        self._since: dict[Occasion, datetime] = {}
        self._was_off = False
        self._failed: dict[str, tuple[int, timedelta]] = {}
        self._sending: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="everspot-notify")

    def look(self, seen: Observation, anomalies: Sequence[Anomaly] = ()) -> None:
        """Record what was sent since the last look, and send what is due. `anomalies`: all that are open."""
        settings = self._declaration.manifest.notifications
        if settings is None or (settings.topic_arn is None and settings.webhook_secret_arn is None):
            self._since, self._was_off = {}, True
            return
        if self._told is None:
            self._told = {key for key in self._store.sent_notices.scan() if not key.startswith(SINCE)}
        self._begin(settings.on)
        self._collect(self._told)
        jobs = [
            (job.value, seen.records[name].value if name in seen.records else None)
            for name, job in sorted(seen.jobs.items())
            if name not in seen.unreadable_jobs
        ]
        now, cluster = self._store.clock.now(), self._declaration.manifest.cluster
        unusual = due_anomalies(cluster, anomalies, self._since)
        self._forget(seen, {found.key for found in unusual}, self._told)
        for found in [*unusual, *due(cluster, jobs, now, self._since)]:
            if len(self._sending) >= AT_ONCE:
                return
            if found.key not in self._told and found.key not in self._sending and self._may_try(found):
                self._sending[found.key] = self._pool.submit(self._send, settings, found)

    def close(self) -> None:
        """Send nothing more. It does not wait for what is being sent; the next scheduler sends that again."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, on: Iterable[Occasion]) -> None:
        """Record since when each occasion is notified: from now on, if it was off before. Otherwise people who switch
        notifications on would hear of every job that the tables still hold."""
        for occasion in set(on) - set(self._since):
            key, now = f"{SINCE}{occasion.value}", self._store.clock.now()
            there = None if self._was_off else self._told_already(key)
            if there is None:
                self._store.sent_notices.put(key, Request(at=now))
            self._since[occasion] = there.at if there is not None else now
        for occasion in set(self._since) - set(on):
            self._store.sent_notices.delete(f"{SINCE}{occasion.value}")
            del self._since[occasion]
        self._was_off = False

    def _told_already(self, key: str) -> Request | None:
        """The record of this key; None: there is none that can be read."""
        try:
            found = self._store.sent_notices.get(key)
        except BadDocument as error:  # it may come twice, and stops no tick
            _log.error("%s: it is written anew", error)
            return None
        return found.value if found is not None else None

    def _send(self, settings: Notifications, found: Notification) -> None:
        """Send it, unless another scheduler has sent it meanwhile: two may overlap for a while."""
        if self._told_already(found.key) is None:
            self._cloud.notify(settings, found.subject, found.text, found.data)

    def _may_try(self, found: Notification) -> bool:
        tries, last = self._failed.get(found.key, (0, timedelta()))
        return tries == 0 or self._store.clock.monotonic() - last >= FIRST_WAIT * 2 ** (tries - 1)

    def _collect(self, told: set[str]) -> None:
        for key, sent in [(key, sent) for key, sent in self._sending.items() if sent.done()]:
            del self._sending[key]
            error = sent.exception()
            tries = self._failed.get(key, (0, timedelta()))[0] + 1
            if error is not None and tries < TRIES:
                _log.warning("notification %s not sent, try %d of %d: %s", key, tries, TRIES, error)
                self._failed[key] = (tries, self._store.clock.monotonic())
                continue
            if error is not None:
                _log.error("notification %s given up after %d tries: %s", key, TRIES, error)
            note = "" if error is None else f"not sent: {type(error).__name__}"
            self._store.sent_notices.create(key, Request(at=self._store.clock.now(), note=note))
            told.add(key)
            self._failed.pop(key, None)

    def _forget(self, seen: Observation, unusual: set[str], told: set[str]) -> None:
        """Delete the records about jobs that have left the tables, since these are not notified again, and about
        anomalies that are over, since these may come again."""
        gone = {key for key in told if not key.startswith(ANOMALY) and key.partition("/")[0] not in seen.jobs}
        over = {key for key in told if key.startswith(ANOMALY)} - unusual
        for key in over if seen.unreadable_jobs else gone | over:
            self._store.sent_notices.delete(key)
            told.discard(key)
