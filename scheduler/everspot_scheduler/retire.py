"""Moves ended jobs to the archive and ended instances to the ledger, out of the tables that every tick lists."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from everspot_core.jobs.records import JobRecord
from everspot_store import BadDocument, Store

from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observation
from everspot_scheduler.parallel import run_parallel

AT_ONCE = 24
"""The most jobs, and the most instances, that leave in one tick, so that no tick is long."""
NOTIFIED_WITHIN = timedelta(days=1)
"""Real time for which a job stays for its notifications. Only jobs in the tables have notifications."""
_log = logging.getLogger(__name__)


class Retirement:
    """Moves ended jobs and instances. A move may be cut off anywhere, and is then finished later.

    Args:
        has_notifications: Returns whether notifications of a job are still to be sent.
    """

    def __init__(self, store: Store, manifest_watch: ManifestWatch, has_notifications: Callable[[str], bool]) -> None:
        self._store, self._manifest_watch, self._has_notifications = store, manifest_watch, has_notifications
        self._stuck: set[str] = set()
        self._delayed: dict[str, timedelta] = {}

    def retire(self, observation: Observation, facts: Facts, ledger: Ledger) -> None:
        """Move some of the jobs and instances that ended long enough ago.

        Raises:
            StoreError: if the store failed; the rest is moved later.
        """
        self._stuck &= set(observation.records)
        ended = [r.value for name, r in observation.records.items() if self._is_over(name, r.value, observation)]
        self._delayed = {r.job_id: self._delayed[r.job_id] for r in ended if r.job_id in self._delayed}
        over = [record for record in ended if not self._is_delayed(record.job_id)]
        first = sorted(over, key=lambda r: r.changed_at)[:AT_ONCE]
        written = self._store.records.modified([record.job_id for record in first])
        run_parallel(lambda record: self._archive(record, written.get(record.job_id), observation), first)
        retired = [
            name
            for name in {*observation.instances, *observation.assignments}
            if self._is_gone(name, observation, facts, ledger)
        ]
        run_parallel(lambda name: self._file(name, observation), sorted(retired)[:AT_ONCE])

    def _long_ago(self, at: datetime) -> bool:
        clock = self._store.clock
        return clock.to_real(clock.now() - at) >= self._manifest_watch.limits.archive_after

    def _is_over(self, name: str, record: JobRecord, observation: Observation) -> bool:
        """Return whether the job ended long ago, or the record is the rest of an archived job after a crash."""
        if name in self._stuck or name in observation.unreadable_jobs:
            return False
        return name not in observation.jobs or (record.state.final and self._long_ago(record.changed_at))

    def _is_delayed(self, job_id: str) -> bool:
        """Return whether the job stays for its notifications."""
        if not self._has_notifications(job_id):
            return False
        now = self._store.clock.monotonic()
        return now - self._delayed.setdefault(job_id, now) < NOTIFIED_WITHIN

    def _archive(self, record: JobRecord, written_at: datetime | None, observation: Observation) -> None:
        try:
            if record.job_id in observation.jobs:
                job, now = observation.jobs[record.job_id].value, self._store.clock.now()
                self._store.archive.move(job, record, now, written_at)
                _log.info("%s is archived", record.job_id)
            elif not self._store.archive.finish(record.job_id, record):
                _log.error("%s has a record and was never submitted: it is left alone", record.job_id)
                self._stuck.add(record.job_id)
        except BadDocument as error:
            _log.error("%s stays where it is: %s", record.job_id, error)
            self._stuck.add(record.job_id)

    def _is_gone(self, name: str, observation: Observation, facts: Facts, ledger: Ledger) -> bool:
        """Return whether the instance's end is written and long ago, and its heartbeat no longer changes."""
        end = ledger.ends.get(name)
        if end is None or name in observation.unreadable_assignments or not self._long_ago(end.ended_at):
            return False
        silent = name in observation.stale_instances or name not in observation.instances
        return silent and (name not in facts.described or facts.is_gone(name)) and name not in observation.owned()

    def _file(self, name: str, observation: Observation) -> None:
        """Move its last heartbeat to the ledger, for reports, and delete its assignment."""
        heartbeat = observation.instances.get(name)
        if heartbeat is not None:
            self._store.past_instances.create(name, heartbeat.value)
        self._store.assignments.delete(name)
        self._store.instances.delete(name)
        observation.assignments.pop(name, None)
