"""Reads the store once and makes of it, and of the cloud's word, the view that the plan is made from."""

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from everspot_core.job import JobSubmission
from everspot_core.manifest import Manifest
from everspot_core.records import Assignment, InstanceRecord, InstanceState, JobRecord, Request
from everspot_core.schedule import ClusterView, Drill, InstanceView, JobView, Spent
from everspot_store import BadDocument, Store, Versioned

from everspot_scheduler.facts import Facts
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.staleness import Staleness

_log = logging.getLogger(__name__)


@dataclass
class Observation:
    """The store as it was read in one tick. Whoever changes a document puts the new version here."""

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
        """Instances that hold a job's lease."""
        return {r.value.owner for r in self.records.values() if r.value.state.owned and r.value.owner}


class Observer:
    """Looks at one cluster, tick by tick. Bounded: one listing per table, one read for each changed document."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store, self._limits = store, manifest.limits
        self._records, self._instances = Staleness(), Staleness()

    def look(self) -> Observation:
        """Read the store.

        Assignments are read before records, records before jobs: what an assignment names has then been read after
        it, so that a lease found to be over is over for good.

        Raises:
            StoreError: if the store cannot be read; nothing is known then.
        """
        store, clock, ttl = self._store, self._store.clock, self._limits.lease_ttl
        assignments = store.assignments.scan()
        before = clock.monotonic()
        records = store.records.scan()
        self._records.observe(records, before, clock.monotonic())
        before = clock.monotonic()
        instances = store.instances.scan()
        self._instances.observe(instances, before, clock.monotonic())
        return Observation(
            assignments=dict(assignments),
            records=dict(records),
            instances=instances,
            cancels=store.cancels.scan(),
            drills=dict(store.drills.scan()),
            draining=self._draining(),
            jobs=store.jobs.scan(),
            stale_records=self._records.stale(ttl),
            stale_instances=self._instances.stale(ttl),
            unreadable_jobs=store.jobs.unreadable | store.records.unreadable,
            unreadable_assignments=store.assignments.unreadable,
        )

    def _draining(self) -> bool:
        try:
            return self._store.drain_request() is not None
        except BadDocument as error:  # somebody asked for a drain, if not in words that can be read
            _log.error("%s", error)
            return True

    def view(
        self,
        seen: Observation,
        facts: Facts,
        ledger: Ledger,
        spent: Mapping[str, Spent] | None = None,
        losses: Mapping[str, tuple[datetime, ...]] | None = None,
    ) -> ClusterView:
        """What the plan may know. `spent`: by job, of those whose budget asks for it; `losses`: by job, when it lost
        spot instances, of those that have lost often.

        A job whose submission or record cannot be read is left out, and so is an instance whose assignment cannot be,
        or names such a job: taken for absent, they would mean a job that waits and an instance that is free.
        """
        drills: dict[str, list[Drill]] = defaultdict(list)
        for name, request in seen.drills.items():
            job_id, _, drill_id = name.partition("/")
            drills[job_id].append(Drill(drill_id=drill_id, at=request.value.at))
        jobs = tuple(
            JobView(
                submission=job.value,
                record=seen.records[name].value if name in seen.records else None,
                stale=name in seen.stale_records and name not in seen.written,
                cancel=name in seen.cancels,
                drills=tuple(sorted(drills.get(name, []), key=lambda d: d.drill_id)),
                spent=(spent or {}).get(name, Spent()),
                preempted_at=(losses or {}).get(name, ()),
            )
            for name, job in seen.jobs.items()
            if name not in seen.unreadable_jobs
        )
        names = set(seen.instances) | set(seen.assignments) | set(facts.warned)
        names -= seen.unreadable_assignments
        names -= {n for n, given in seen.assignments.items() if given.value.job_id in seen.unreadable_jobs}
        return ClusterView(
            jobs=jobs,
            instances=tuple(_instance(n, seen, facts, ledger) for n in sorted(names)),
            draining=seen.draining,
            types=ledger.types(),
            limits=self._limits,
        )


def _instance(name: str, seen: Observation, facts: Facts, ledger: Ledger) -> InstanceView:
    record = seen.instances[name].value if name in seen.instances else None
    last_word = record is not None and record.state is InstanceState.GONE
    forgotten = name in ledger.ends and name not in facts.described
    return InstanceView(
        instance_id=name,
        record=record,
        assignment=seen.assignments[name].value if name in seen.assignments else None,
        stale=name in seen.stale_instances,
        gone=facts.gone(name) or last_word or forgotten,
        doomed=facts.doomed(name),
        shaky=name in facts.shaky,
        deadline=facts.warned.get(name),
    )
