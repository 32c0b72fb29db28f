"""Reads the store once a tick.

The cost of a look depends on the present documents and on what has changed: a listing for each table, and a read for
each document with a new ETag, many at a time. The ETag of a heartbeat is enough to show that its instance lives. The
heartbeat itself is read only when it could decide something.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Assignment, InstanceRecord, JobRecord, JobState, Order, Request
from everspot_store import BadDocument, Store, Versioned

from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.staleness import Staleness

BEATS_UNREAD = 6
"""The beats for which the heartbeat of an instance without a job may stay unread while no job waits."""
BUSY_READS = 100
"""The most heartbeats of busy instances that a tick reads, the least recently read first. A busy instance writes a
heartbeat every five minutes, and immediately for news such as a notice. With a tick of 5 s the bound is reached from
6,000 instances on, or if so many are interrupted at the same time."""
_BRANCHES = 6
_log = logging.getLogger(__name__)


@dataclass
class Observation:
    """The store as it was read in one tick. Code that changes a document puts the new version here."""

    assignments: dict[str, Versioned[Assignment]]
    records: dict[str, Versioned[JobRecord]]
    instances: Mapping[str, Versioned[InstanceRecord]]
    cancels: Mapping[str, Versioned[Request]]
    drills: dict[str, Versioned[Request]]
    jobs: Mapping[str, Versioned[JobSubmission]]
    draining: bool
    stale_records: frozenset[str]
    stale_instances: frozenset[str]
    unreadable_jobs: frozenset[str] = frozenset()
    unreadable_assignments: frozenset[str] = frozenset()
    written: set[str] = field(default_factory=set)

    def owned(self) -> set[str]:
        """Return the instances that hold a job's lease."""
        return {r.value.owner for r in self.records.values() if r.value.state.owned and r.value.owner}

    def renewing(self) -> set[str]:
        """Return the instances that renew a job's lease, which shows that they live, more often than a heartbeat
        does."""
        owned = (r.value for job, r in self.records.items() if job not in self.stale_records and r.value.state.owned)
        return {record.owner for record in owned if record.owner}

    def reports(self) -> list[tuple[str, datetime]]:
        """Return when each instance reported last, by its heartbeat and by the lease that it renews."""
        renewals = [(r.value.owner, r.value.changed_at) for r in self.records.values() if r.value.state.owned]
        beats = [(name, beat.value.updated_at) for name, beat in self.instances.items()]
        return [*beats, *((owner, at) for owner, at in renewals if owner is not None)]

    def digest(self) -> int:
        """Return a hash that changes with everything that may call for a decision, but not with heartbeats and
        progress."""
        states = frozenset((name, r.value.state, r.value.epoch) for name, r in self.records.items())
        assignments = frozenset((name, a.etag) for name, a in self.assignments.items())
        requests = (frozenset(self.cancels), frozenset(self.drills), self.draining)
        return hash((states, assignments, requests, frozenset(self.jobs), frozenset(self.instances)))


class Observer:
    """Looks at one cluster, tick by tick. Raises the store's errors."""

    def __init__(self, store: Store, manifest_watch: ManifestWatch) -> None:
        self._store, self._manifest_watch = store, manifest_watch
        # The longest gap between two ticks that counts as staleness. A longer gap is an outage of the store or of this
        # machine.
        longest_gap = manifest_watch.limits.lease_ttl / 2
        self._records, self._instances = Staleness(longest_gap), Staleness(longest_gap)
        self._pool = ThreadPoolExecutor(_BRANCHES, thread_name_prefix="everspot-look")
        self._read_at: dict[str, timedelta] = {}
        self._read: dict[str, str] = {}  # the ETags of what was read

    def look(self) -> Observation:
        """Read the store.

        Assignments are read before records, and records before jobs. So the documents that an assignment names were
        read after it: a lease that has ended is not taken up again, and every job has its record.

        Raises:
            StoreError: if the store cannot be read; nothing is known then.
        """
        store, clock, ttl = self._store, self._store.clock, self._manifest_watch.limits.lease_ttl
        beats = self._pool.submit(self._heartbeats)
        cancels, drills = self._pool.submit(store.cancels.scan), self._pool.submit(store.drills.scan)
        draining = self._pool.submit(self._draining)
        assignments = store.assignments.scan()
        before = clock.monotonic()
        records = store.records.scan()
        self._records.observe(records, before, clock.monotonic())
        jobs = store.jobs.scan()
        listed, before, after = beats.result()
        self._instances.observe({name: _Tag(etag) for name, etag in listed.items()}, before, after)
        now = clock.now()
        waiting = any(
            (name not in records or records[name].value.state is JobState.PENDING)
            and (job.value.start_at is None or job.value.start_at <= now)
            for name, job in jobs.items()
        )
        return Observation(
            assignments=dict(assignments),
            records=dict(records),
            instances=self._read_beats(listed, assignments, waiting),
            cancels=cancels.result(),
            drills=dict(drills.result()),
            draining=draining.result(),
            jobs=jobs,
            stale_records=self._records.stale(ttl),
            stale_instances=self._instances.stale(ttl),
            unreadable_jobs=store.jobs.unreadable | store.records.unreadable,
            unreadable_assignments=store.assignments.unreadable,
        )

    def _heartbeats(self) -> tuple[dict[str, str], timedelta, timedelta]:
        before = self._store.clock.monotonic()
        return self._store.instances.etags(), before, self._store.clock.monotonic()

    def _read_beats(
        self, listed: Mapping[str, str], assignments: Mapping[str, Versioned[Assignment]], waiting: bool
    ) -> dict[str, Versioned[InstanceRecord]]:
        """Return the heartbeats: the newest ones, but of instances without a job only recent ones while no job
        waits."""
        now, unread = self._store.clock.monotonic(), BEATS_UNREAD * self._manifest_watch.limits.beat_every
        busy = {name for name, a in assignments.items() if _takes_no_other(a.value, waiting)}
        changed = [name for name in busy & self._read.keys() & listed.keys() if self._read[name] != listed[name]]
        # A heartbeat that changed between its listing and its first reading has no entry in _read_at. It sorts first.
        later = set(sorted(changed, key=lambda name: self._read_at.get(name, timedelta.min))[BUSY_READS:])

        def keep(name: str) -> bool:
            if name in busy:
                return name in later
            return not waiting and name in self._read_at and now - self._read_at[name] < unread

        beats = self._store.instances.documents(listed, keep=keep)
        self._read = {name: doc.etag for name, doc in beats.items()}
        current = {name: now for name, doc in beats.items() if doc.etag == listed[name]}
        self._read_at = {name: at for name, at in self._read_at.items() if name in beats} | current
        return beats

    def _draining(self) -> bool:
        try:
            return self._store.drain_request() is not None
        except BadDocument as error:  # somebody asked for a drain, if not in words that can be read
            _log.error("%s", error)
            return True


def _takes_no_other(assignment: Assignment, waiting: bool) -> bool:
    """Return whether an instance has work, and no job could be put on it: beside seats there may be room for one."""
    return (assignment.job_id is not None and assignment.order is Order.RUN) or (bool(assignment.seats) and not waiting)


@dataclass(frozen=True, slots=True)
class _Tag:
    etag: str
