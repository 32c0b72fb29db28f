"""Finds out when jobs lost spot instances, for the plan's failover to on-demand."""

from collections.abc import Mapping
from datetime import datetime

from everspot_core.costs.attempts import attempts
from everspot_core.jobs.records import JobRecord, Market, Reason
from everspot_core.schedule.market.failover import PREEMPTIONS
from everspot_store import Store, Versioned

REMEMBERED = 64
"""The most losses of a job that the plan gets. No day has more that count."""

_BY_THE_CLOUD = (Reason.NOTICE, Reason.LOST)


class Preemptions:
    """Reads the events of jobs that have lost instances often, once after each loss."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._times_by_job: dict[str, tuple[tuple[int, int], tuple[datetime, ...]]] = {}

    def preemption_times(self, records: Mapping[str, Versioned[JobRecord]]) -> dict[str, tuple[datetime, ...]]:
        """Return the times at which jobs that may fail over lost spot instances, oldest first, by job. A job that runs
        on on-demand stays there longer after many losses, so that it needs them, too.

        Raises:
            StoreError: if the events could not be read.
        """
        candidates = {
            name: document.value
            for name, document in records.items()
            if document.value.preemptions >= PREEMPTIONS and not document.value.state.final
        }
        self._times_by_job = {name: entry for name, entry in self._times_by_job.items() if name in records}
        for name, record in candidates.items():
            losses = record.epoch, record.preemptions
            if name not in self._times_by_job or self._times_by_job[name][0] != losses:
                self._times_by_job[name] = (losses, self._read(name))
        return {name: self._times_by_job[name][1] for name in candidates}

    def _read(self, job_id: str) -> tuple[datetime, ...]:
        history = attempts(self._store.events(job_id, brief=True))
        lost = [
            a.end for a in history if a.market == Market.SPOT.value and a.reason in _BY_THE_CLOUD and a.end is not None
        ]
        return tuple(lost[-REMEMBERED:])
