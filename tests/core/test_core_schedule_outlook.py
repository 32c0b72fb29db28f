"""The remaining work of a job, from its driver's measurement or its author's expectation."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.jobs.job import CheckpointPolicy
from everspot_core.jobs.records import JobRecord, JobState, Progress, Reason
from everspot_core.schedule.jobs import job_outlook
from provision_helpers import HOUR, NOW, job, outlook

LENGTH = timedelta(hours=8)


def record(step: int = 0, total: int | None = None, state: JobState = JobState.RUNNING) -> JobRecord:
    progress = Progress(step=step, total_steps=total)
    return JobRecord(job_id="j", state=state, epoch=1, owner="i-0", progress=progress, changed_at=NOW)


def test_what_was_measured_comes_first():
    measured = outlook(3.0, upper=4.0)
    assert job_outlook(job(work=measured, expected_duration=LENGTH, record=record(5, 10))) is measured


def test_without_any_word_nothing_is_known():
    assert job_outlook(job()) is None
    assert job_outlook(job(record=record(5, 10))) is None


@pytest.mark.parametrize(
    ("job_record", "hours"),
    [
        (None, 8.0),
        (record(), 8.0),
        (record(5), 8.0),
        (record(0, 10), 8.0),
        (record(5, 20), 6.0),
        (record(20, 20), 0.0),
        (record(30, 20), 0.0),
    ],
)
def test_what_the_author_expects_less_the_steps_that_are_done(job_record, hours):
    work = job_outlook(job(expected_duration=LENGTH, record=job_record))
    assert work is not None
    assert work.remaining == work.remaining_upper == hours * HOUR
    assert timedelta(0) < work.changeover <= work.changeover_upper


def test_a_job_that_has_not_said_that_it_runs_is_still_changing_over():
    work = job_outlook(job(expected_duration=LENGTH, record=record(state=JobState.ASSIGNED)))
    assert work is not None
    assert work.changing == work.changeover_upper
    runs = job_outlook(job(expected_duration=LENGTH, record=record(1, 10)))
    assert runs is not None
    assert runs.changing == timedelta(0)


@pytest.mark.parametrize(
    ("reason", "state", "checkpoint", "again"),
    [
        (Reason.LOST, JobState.PENDING, {}, HOUR),  # the longest that is chosen automatically
        (Reason.LOST, JobState.ASSIGNED, {"every": "30m"}, timedelta(minutes=30)),
        (Reason.LOST, JobState.PENDING, {"every": "30d"}, 4 * HOUR),  # all that was done
        (Reason.LOST, JobState.PENDING, {"steps": 100}, 0.8 * HOUR),
        (Reason.LOST, JobState.PENDING, {"steps": 100, "every": "10m"}, timedelta(minutes=10)),
        (Reason.LOST, JobState.RUNNING, {}, timedelta(0)),  # the job reports its progress
        (Reason.NOTICE, JobState.PENDING, {}, timedelta(0)),
    ],
)
def test_what_was_lost_without_a_notice_may_have_to_be_done_again(reason, state, checkpoint, again):
    lost_record = record(500, 1000, state).model_copy(update={"last_reason": reason})
    view = job(expected_duration=LENGTH, record=lost_record)
    spec = view.submission.spec.model_copy(update={"checkpoint": CheckpointPolicy.model_validate(checkpoint)})
    work = job_outlook(replace(view, submission=view.submission.model_copy(update={"spec": spec})))
    assert work is not None
    assert (work.remaining, work.remaining_upper) == (4 * HOUR, 4 * HOUR + again)


@pytest.mark.parametrize(
    ("reason", "state", "hours"),
    [
        (Reason.NOTICE, JobState.PENDING, 4.8),
        (Reason.LOST, JobState.PENDING, 4.8),  # the job reports its checkpoint, so no interval has to be assumed lost
        (Reason.ERROR, JobState.ASSIGNED, 4.8),
        (Reason.NOTICE, JobState.RUNNING, 4.0),  # later work is only in memory
    ],
)
def test_of_a_job_that_does_not_run_its_newest_checkpoint_is_done(reason, state, hours):
    job_record = record(500, 1000, state)
    progress = job_record.progress.model_copy(update={"durable_step": 400})
    job_record = job_record.model_copy(update={"last_reason": reason, "progress": progress})
    work = job_outlook(job(expected_duration=LENGTH, record=job_record))
    assert work is not None
    assert (work.remaining, work.remaining_upper) == (hours * HOUR, hours * HOUR)
