"""Finds the states of the jobs that other jobs come after."""

import logging
from collections.abc import Mapping

from everspot_core.jobs.records import JobState
from everspot_store import Store

from everspot_scheduler.observe import Observation

Standing = tuple[tuple[str, JobState | None], ...]
"""Earlier jobs with their states, each by the name that the later job uses; None: the job is not known."""
_log = logging.getLogger(__name__)


class Chains:
    """The chains of one cluster. It asks the archive only for jobs that have left the tables, and once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ended: dict[str, JobState | None] = {}

    def predecessor_states(self, observation: Observation) -> Mapping[str, Standing]:
        """Return, for each waiting job, the jobs that it comes after with their states. Jobs that come after none are
        left out."""
        waiting = {
            name: job.value.after
            for name, job in observation.jobs.items()
            if job.value.after
            and (name not in observation.records or observation.records[name].value.state is JobState.PENDING)
        }
        predecessors = {earlier.job_id for after in waiting.values() for earlier in after}
        self._ended = {job: state for job, state in self._ended.items() if job in predecessors}
        states = {job: state for job in predecessors if (state := _state(job, observation)) is not None}
        self._ask_archive(predecessors - set(states) - set(self._ended))
        standing = self._ended | states
        return {
            name: tuple((earlier.name, standing[earlier.job_id]) for earlier in after)
            for name, after in waiting.items()
        }

    def _ask_archive(self, jobs: set[str]) -> None:
        """Look up jobs in the archive. A job is written there before it leaves the tables."""
        if not jobs:
            return
        keys = self._store.archive.keys()
        dossiers = self._store.archive.read(keys[job] for job in jobs if job in keys)
        for job in jobs:
            record = dossiers[job].record if job in dossiers else None
            if job in keys and record is None:
                _log.error("%s cannot be read in the archive: what comes after it waits", job)
                self._ended[job] = JobState.PENDING
            else:
                self._ended[job] = record.state if record is not None else None


def _state(job: str, observation: Observation) -> JobState | None:
    """Return the job's state; None if it has left the tables, or was never there."""
    if job in observation.records:
        return observation.records[job].value.state
    return JobState.PENDING if job in observation.jobs or job in observation.unreadable_jobs else None
