"""Finds the cached stages whose end no other job should await, because the plan holds them back for now."""

from dataclasses import replace
from datetime import datetime

from everspot_core.jobs.records import JobState
from everspot_core.schedule.admission import Admission
from everspot_core.schedule.jobs import earliest_start
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.view import JobView


def await_no_held_stages(state: PlanState) -> None:
    """Let no job await an identical stage that cannot begin now: jobs that it comes after have not succeeded, its
    back-off is not over, or a budget of its team is too small.

    Another team, whose budget pays for the stage, would otherwise wait until the next month. Both jobs may compute the
    stage then, which costs less than the wait.
    """
    jobs = state.view.jobs
    awaited = {run.job_id for job in jobs if job.state is JobState.PENDING for run in job.same_stage}
    if not awaited:
        return
    held_ids = {job.job_id for job in jobs if job.job_id in awaited and _is_held(job, state.admission, state.now)}
    if held_ids:
        state.replace_jobs(_without(job, held_ids) for job in jobs)


def _is_held(job: JobView, admission: Admission, now: datetime) -> bool:
    if job.state is not JobState.PENDING:
        return False
    start = earliest_start(job)
    is_early = start is not None and now < start
    comes_after = any(state is not JobState.SUCCEEDED for _, state in job.after)
    return is_early or comes_after or admission.hold(job) is not None


def _without(job: JobView, held_ids: set[str]) -> JobView:
    """Return the job with those of its `same_stage` that are held back marked so."""
    if all(run.job_id not in held_ids for run in job.same_stage):
        return job
    runs = (replace(run, may_begin=run.may_begin and run.job_id not in held_ids) for run in job.same_stage)
    return replace(job, same_stage=tuple(runs))
