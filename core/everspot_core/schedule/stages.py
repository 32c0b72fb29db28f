"""Decides about cached stages that wait: whether another job of the same stage is awaited, or has computed it."""

from datetime import datetime

from everspot_core.jobs.job import JobSubmission, Priority
from everspot_core.jobs.records import JobState
from everspot_core.schedule.view import JobView, StageRun


def stage_ahead(job: JobView) -> StageRun | None:
    """Return the job of the same stage whose end a waiting job awaits; None if it awaits none.

    A job that is critical or has a deadline awaits no job that has no instance yet.
    """
    is_urgent = job.submission.spec.priority is Priority.CRITICAL or job.submission.deadline_at is not None
    for run in job.same_stage:
        waits = run.state is JobState.PENDING and run.may_begin and not is_urgent
        if waits or (run.state is not None and run.state.owned):
            return run
    return None


def reusable_run(job: JobView, now: datetime) -> StageRun | None:
    """Return the job of the same stage whose outputs a waiting job gets in place of a run; None if it has to run, or
    must not begin yet."""
    if any(state is not JobState.SUCCEEDED for _, state in job.after) or is_early(job.submission, now):
        return None
    return next((run for run in job.same_stage if run.state is JobState.SUCCEEDED), None)


def is_early(submission: JobSubmission, now: datetime) -> bool:
    """Return whether the job's start is later than now."""
    return submission.start_at is not None and now < submission.start_at
