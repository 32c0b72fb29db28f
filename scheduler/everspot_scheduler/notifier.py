"""Sends notifications about jobs and anomalies to people, beside the loop, so that a slow webhook delays no decision.

A notification is recorded after it was sent. So a crash in between sends it twice rather than never.
"""

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from everspot_clouds.base import Cloud
from everspot_core.cluster.notify import ANOMALY, Notification, Notifications, Occasion, due, due_anomalies
from everspot_core.governance.anomalies import Anomaly
from everspot_core.jobs.records import Request
from everspot_store import BadDocument, Store

from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observation

TRIES = 6
FIRST_WAIT = timedelta(seconds=30)
"""Real time before the second try to send; it doubles with each further one."""
AT_ONCE = 20
SINCE = "_since/"
"""The prefix of the documents that say since when each occasion is notified. No job's id begins like that."""
_log = logging.getLogger(__name__)


class Notifier:
    """The notifications of one cluster. `look` raises the store's errors."""

    def __init__(self, store: Store, manifest_watch: ManifestWatch, cloud: Cloud) -> None:
        self._store, self._manifest_watch, self._cloud = store, manifest_watch, cloud
        self._sent: set[str] | None = None
        self._since: dict[Occasion, datetime] = {}
        self._was_off = False
        self._failed: dict[str, tuple[int, timedelta]] = {}
        self._sending: dict[str, Future[None]] = {}
        self._reached: dict[str, set[Notifications]] = {}
        self._pending: set[str] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="everspot-notify")

    def look(self, observation: Observation, anomalies: Sequence[Anomaly] = ()) -> None:
        """Record the messages that were sent since the last call, and send the due ones. `anomalies`: all that are
        open."""
        settings = self._manifest_watch.manifest.notifications
        if settings is None or (settings.topic_arn is None and settings.webhook_secret_arn is None):
            self._since, self._was_off, self._pending = {}, True, set()
            return
        if self._sent is None:
            self._sent = {key for key in self._store.sent_notices.scan() if not key.startswith(SINCE)}
        self._begin(settings.on)
        self._collect(self._sent)
        jobs = [
            (job.value, observation.records[name].value if name in observation.records else None)
            for name, job in sorted(observation.jobs.items())
            if name not in observation.unreadable_jobs
        ]
        now, cluster = self._store.clock.now(), self._manifest_watch.manifest.cluster
        unusual = due_anomalies(cluster, anomalies, self._since)
        self._forget(observation, {notification.key for notification in unusual}, self._sent)
        of_jobs = due(cluster, jobs, now, self._since)
        self._pending = {str(each.data["job_id"]) for each in of_jobs if each.key not in self._sent}
        for notification in [*unusual, *of_jobs]:
            if len(self._sending) >= AT_ONCE:
                return
            if (
                notification.key not in self._sent
                and notification.key not in self._sending
                and self._may_try(notification)
            ):
                self._sending[notification.key] = self._pool.submit(self._send, settings, notification)

    def is_pending(self, job_id: str) -> bool:
        """Return whether a due notification of the job is neither sent nor given up. Before a `look`, any job may have
        one."""
        return self._pending is None or job_id in self._pending

    def close(self) -> None:
        """Send nothing more. Messages that are being sent are not waited for; the next scheduler sends them again."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, on: Iterable[Occasion]) -> None:
        """Record since when each occasion is notified: from now on, if it was off before. Otherwise people who switch
        notifications on would hear of every job that the tables still hold."""
        for occasion in set(on) - set(self._since):
            key, now = f"{SINCE}{occasion.value}", self._store.clock.now()
            since = None if self._was_off else self._sent_record(key)
            if since is None:
                self._store.sent_notices.put(key, Request(at=now))
            self._since[occasion] = since.at if since is not None else now
        for occasion in set(self._since) - set(on):
            self._store.sent_notices.delete(f"{SINCE}{occasion.value}")
            del self._since[occasion]
        self._was_off = False

    def _sent_record(self, key: str) -> Request | None:
        """Return the record of this key; None if there is no readable record."""
        try:
            document = self._store.sent_notices.get(key)
        except BadDocument as error:  # it may come twice, and stops no tick
            _log.error("%s: it is written anew", error)
            return None
        return document.value if document is not None else None

    def _send(self, settings: Notifications, notification: Notification) -> None:
        """Send it to each recipient, unless another scheduler has sent it meanwhile: two may overlap for a while.

        A recipient that fails hides the notification from no other one, and only that recipient is tried again.

        Raises:
            The error of the first recipient that failed.
        """
        if self._sent_record(notification.key) is not None:
            return
        reached, errors = self._reached.setdefault(notification.key, set()), list[Exception]()
        for recipient in settings.by_recipient():
            if recipient in reached:
                continue
            try:
                self._cloud.notify(recipient, notification.subject, notification.text, notification.data)
                reached.add(recipient)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _may_try(self, notification: Notification) -> bool:
        tries, last = self._failed.get(notification.key, (0, timedelta()))
        return tries == 0 or self._store.clock.monotonic() - last >= FIRST_WAIT * 2 ** (tries - 1)

    def _collect(self, sent_keys: set[str]) -> None:
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
            sent_keys.add(key)
            self._failed.pop(key, None)
            self._reached.pop(key, None)

    def _forget(self, observation: Observation, unusual: set[str], sent_keys: set[str]) -> None:
        """Delete the records about jobs that have left the tables, since these are not notified again, and about
        anomalies that are over, since these may come again."""
        ended = {
            key for key in sent_keys if not key.startswith(ANOMALY) and key.partition("/")[0] not in observation.jobs
        }
        over = {key for key in sent_keys if key.startswith(ANOMALY)} - unusual
        for key in over if observation.unreadable_jobs else ended | over:
            self._store.sent_notices.delete(key)
            sent_keys.discard(key)
