"""Submits the next run of a series as soon as the last one has ended, to begin at its time.

So a series always has exactly one job that has not ended. Nothing else has to be stored, and to cancel that job ends
the series. The id of the next run follows from that of the last, and the job is created only if absent. So any number
of schedulers create it once. It is created before the last run leaves the tables.
"""

import logging

from everspot_core.jobs.final_metrics import final_metrics
from everspot_core.jobs.job import JobSubmission, Series
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Reason, Request
from everspot_core.jobs.series import next_id, next_run
from everspot_store import Store, StoreError

from everspot_scheduler.observer import Observation

_log = logging.getLogger(__name__)


class RecurringJobs:
    """The series of one cluster."""

    def __init__(self, store: Store, scheduler_id: str) -> None:
        self._store, self._id = store, scheduler_id
        self._repeated: set[str] = set()

    def go_on(self, observation: Observation) -> None:
        """Submit the next runs of series whose last run has ended. A cancelled run ends its series, whatever has been
        submitted meanwhile, and so does a run that never began because a job that it comes after had failed.

        Raises:
            StoreError: if the store failed; the next tick tries again.
        """
        ended = {
            name: (observation.jobs[name].value, document.value)
            for name, document in observation.records.items()
            if document.value.state.final
            and name in observation.jobs
            and observation.jobs[name].value.series is not None
        }
        self._repeated &= set(ended)
        for name, (submission, record) in ended.items():
            assert submission.series is not None  # noqa: S101 - as just seen
            if name in observation.cancels:
                self._cancel_later_runs(submission.series, observation.cancels[name].value, observation)
                continue
            if name in self._repeated or _over(submission, record):
                continue
            if not self._is_there(submission.series, observation):
                self._submit(submission, record)
            self._repeated.add(name)

    def _cancel_later_runs(self, series: Series, request: Request, observation: Observation) -> None:
        """Pass on a cancel that was written after the next run had been submitted."""
        for name, document in observation.jobs.items():
            other, record = document.value.series, observation.records.get(name)
            is_later = other is not None and other.id == series.id and other.run > series.run
            is_live = record is None or not record.value.state.final
            if is_later and is_live and name not in observation.cancels:
                _log.info("%s is cancelled with run %d of its series", name, series.run)
                self._store.cancels.create(name, request)

    def _is_there(self, series: Series, observation: Observation) -> bool:
        following = next_id(series)
        return following in observation.jobs or following in self._store.archive.keys()  # noqa: SIM118 - a method

    def _submit(self, last: JobSubmission, record: JobRecord) -> None:
        events = self._store.events(last.job_id, brief=True)
        following = next_run(
            last,
            final_metrics(record, events),
            self._store.clock.now(),
            succeeded=record.state is JobState.SUCCEEDED,
        )
        if following is None or self._store.jobs.create(following.job_id, following) is None:
            return
        _log.info("%s is submitted after %s, to begin at %s", following.job_id, last.job_id, following.start_at)
        try:
            self._store.event_writer(following.job_id, 0, self._id).emit(
                EventKind.SUBMITTED, by=following.submitted_by, after=last.job_id
            )
        except StoreError as error:  # the job is there, and runs without
            _log.error("that %s was submitted is missing in its history: %s", following.job_id, error)


def _over(last: JobSubmission, record: JobRecord) -> bool:
    """Return whether the series ends with this run. It does too if the run ended without an attempt before it was to
    begin, since the next runs would do the same. The clocks of an agent and of the scheduler that assigned the run may
    differ, so a run that had an attempt has begun, whatever its times say."""
    early = last.start_at is not None and record.epoch == 0 and record.changed_at < last.start_at
    return early or record.state is JobState.CANCELLED or record.last_reason is Reason.AFTER
