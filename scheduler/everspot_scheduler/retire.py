"""Moves ended jobs to the archive and ended instances to the ledger, out of the tables that every tick lists."""

import logging
from datetime import datetime

from everspot_core.records import JobRecord
from everspot_store import BadDocument, Store

from everspot_scheduler.declaration import Declaration
from everspot_scheduler.facts import Facts
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.observe import Observation
from everspot_scheduler.together import side_by_side

AT_ONCE = 24
"""The most jobs, and the most instances, that leave in one tick, so that no tick is long."""
_log = logging.getLogger(__name__)


class Retirement:
    """Moves ended jobs and instances. A move may be cut off anywhere, and is then finished later."""

    def __init__(self, store: Store, declaration: Declaration) -> None:
        self._store, self._declaration = store, declaration
        self._stuck: set[str] = set()

    def retire(self, seen: Observation, facts: Facts, ledger: Ledger) -> None:
        """Move some of the jobs and instances that ended long enough ago.

        Raises:
            StoreError: if the store failed; the rest is moved later.
        """
        self._stuck &= set(seen.records)
        over = [r.value for name, r in seen.records.items() if self._is_over(name, r.value, seen)]
        side_by_side(lambda record: self._archive(record, seen), sorted(over, key=lambda r: r.changed_at)[:AT_ONCE])
        gone = [name for name in {*seen.instances, *seen.assignments} if self._is_gone(name, seen, facts, ledger)]
        side_by_side(lambda name: self._file(name, seen), sorted(gone)[:AT_ONCE])

    def _long_ago(self, at: datetime) -> bool:
        clock = self._store.clock
        return clock.to_real(clock.now() - at) >= self._declaration.limits.archive_after

    def _is_over(self, name: str, record: JobRecord, seen: Observation) -> bool:
        """Whether the job ended long ago, or the record is what a crash left of an archived one."""
        if name in self._stuck or name in seen.unreadable_jobs:
            return False
        return name not in seen.jobs or (record.state.final and self._long_ago(record.changed_at))

    def _archive(self, record: JobRecord, seen: Observation) -> None:
        try:
            if record.job_id in seen.jobs:
                self._store.archive.move(seen.jobs[record.job_id].value, record, self._store.clock.now())
                _log.info("%s is archived", record.job_id)
            elif not self._store.archive.finish(record.job_id, record):
                _log.error("%s has a record and was never submitted: it is left alone", record.job_id)
                self._stuck.add(record.job_id)
        except BadDocument as error:
            _log.error("%s stays where it is: %s", record.job_id, error)
            self._stuck.add(record.job_id)

    def _is_gone(self, name: str, seen: Observation, facts: Facts, ledger: Ledger) -> bool:
        """Whether the instance's end is written and long ago, and its heartbeat stands still."""
        end = ledger.ends.get(name)
        if end is None or name in seen.unreadable_assignments or not self._long_ago(end.ended_at):
            return False
        silent = name in seen.stale_instances or name not in seen.instances
        return silent and (name not in facts.described or facts.gone(name)) and name not in seen.owned()

    def _file(self, name: str, seen: Observation) -> None:
        """Move its last heartbeat to the ledger, for reports, and delete its assignment."""
        found = seen.instances.get(name)
        if found is not None:
            self._store.past_instances.create(name, found.value)
        self._store.assignments.delete(name)
        self._store.instances.delete(name)
        seen.assignments.pop(name, None)
