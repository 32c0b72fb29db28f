"""Facts about one job that follow from its view: its remaining work, since when it waits, whether it ends."""

from datetime import datetime, timedelta

from everspot_core.documents import format_duration
from everspot_core.jobs.checkpoint_interval import LONGEST
from everspot_core.jobs.job import LimitAction, Priority
from everspot_core.jobs.lease import MAX_LOSSES_WITHOUT_PROGRESS, idle_attempts_limit, waits_since
from everspot_core.jobs.records import JobRecord, JobState, Reason
from everspot_core.schedule.actions import ReasonFigures, Why
from everspot_core.schedule.stages import is_early, reusable_run
from everspot_core.schedule.view import JobView, Outlook

HOUR = timedelta(hours=1)
STARVATION_LIMIT = timedelta(days=1)
"""A job that has waited this long comes before those that take their turn by fair share."""
CHANGEOVER, CHANGEOVER_UPPER = timedelta(minutes=6), timedelta(minutes=15)
"""The expected length and the upper bound of a changeover where nothing has been measured."""

UNSAVED = (Reason.LOST, Reason.ERROR, Reason.MACHINE, Reason.STALLED)
"""Reasons for which a job may have left an instance without a checkpoint of its last step."""

End = tuple[JobState, Reason, Why, ReasonFigures]


def job_outlook(job: JobView) -> Outlook | None:
    """Return the job's outlook: the driver's measurement, otherwise the author's expectation less the steps that are
    done.

    For a job that does not run, the steps up to its newest checkpoint are done, if its last owner reported that
    checkpoint. None if the job's length is unknown. A job that was just assigned has its whole changeover ahead.
    """
    if job.outlook is not None:
        return job.outlook
    expected = job.submission.spec.expected_duration
    if expected is None:
        return None
    record, done = job.record, 0.0
    if record is not None and record.progress.total_steps:
        done = min(1.0, _steps_done(record) / record.progress.total_steps)
    remaining = expected * (1 - done)
    begins = job.state is JobState.ASSIGNED
    changeover, upper = job.changeover or (CHANGEOVER, CHANGEOVER_UPPER)
    return Outlook(
        remaining=remaining,
        remaining_upper=remaining + _rework_bound(job, expected, done),
        changeover=changeover,
        changeover_upper=upper,
        changing=upper if begins else timedelta(0),
    )


def _steps_done(record: JobRecord) -> int:
    """Return the steps that need not be done again, as far as is known."""
    progress = record.progress
    return progress.step if record.state is JobState.RUNNING or progress.durable_step is None else progress.durable_step


def _rework_bound(job: JobView, expected: timedelta, done: float) -> timedelta:
    """Return the most work that a job has to redo after a loss without notice, if its owner told of no checkpoint: one
    interval of them, the longest where it is chosen automatically. Its progress is that of its last renewal, which may
    be ahead of its last checkpoint."""
    record, policy = job.record, job.submission.spec.checkpoint
    if record is None or record.last_reason not in UNSAVED or record.state is JobState.RUNNING:
        return timedelta(0)
    if record.progress.durable_step is not None:
        return timedelta(0)
    total = record.progress.total_steps
    by_steps = expected * min(1.0, policy.steps / total) if policy.steps and total else None
    by_time = LONGEST if policy.is_auto else policy.interval
    return min([expected * done, *(span for span in (by_time, by_steps) if span is not None)])


def critical(job: JobView) -> bool:
    """Return whether the job goes before normal jobs."""
    return job.submission.spec.priority is Priority.CRITICAL


def waiting_since(job: JobView) -> datetime:
    """Return when the job began to wait, as `lease.waits_since` says; later by the time for which it was withheld."""
    return waits_since(job.record, job.submission) + job.withheld


def earliest_start(job: JobView) -> datetime | None:
    """Return the earliest moment at which a waiting job may begin, by its `start_at` or its back-off; None without
    either."""
    record = job.record
    if record is not None and record.state.owned:
        return None
    moments = (record.not_before if record is not None else None, job.submission.start_at)
    return max((moment for moment in moments if moment is not None), default=None)


def exhausted_budget(job: JobView, now: datetime) -> tuple[Why, ReasonFigures] | None:
    """Return the first of its own budgets that the job has reached, with the amount spent; None if it has reached
    none."""
    budget, spent = job.submission.spec.budget, job.spent
    if budget.dollars is not None and spent.dollars >= budget.dollars:
        return Why.DOLLARS, {"spent": round(spent.dollars, 4), "budget": budget.dollars}
    if budget.gpu_hours is not None and spent.gpu_hours >= budget.gpu_hours:
        return Why.GPU_HOURS, {"spent": round(spent.gpu_hours, 4), "budget": budget.gpu_hours}
    submitted = job.submission.submitted_at
    waited = now - max(job.submission.start_at or submitted, submitted)  # a late run of a series starts in the past
    if budget.wall_clock is not None and waited >= budget.wall_clock:
        return Why.WALL_CLOCK, {"spent": waited.total_seconds(), "budget": budget.wall_clock.total_seconds()}
    return None


def underused(job: JobView) -> tuple[Why, ReasonFigures] | None:
    """Return how little the GPUs of a running job compute, if its file says that it then ends; otherwise None."""
    limits, record = job.submission.spec.limits, job.record
    if limits is None or limits.then is not LimitAction.END or record is None or record.state is not JobState.RUNNING:
        return None
    share = record.progress.low_gpu_share
    if share is None:
        return None
    span = format_duration(limits.span)
    return Why.UNDERUSED, {"share": 100 * share, "limit": limits.gpu_utilization_below, "span": span}


def end_of_waiting(job: JobView, now: datetime) -> End | None:
    """Return the end of a waiting job that shall not run again: state and reason; None if it may run."""
    if job.cancel:
        return JobState.CANCELLED, Reason.CANCEL, Why.CANCEL, {}
    budget = exhausted_budget(job, now)
    if budget is not None:
        return JobState.FAILED, Reason.BUDGET, *budget
    stuck = _stuck(job)
    if stuck is not None:
        return stuck
    lacking = broken(job)
    if lacking is not None:
        return JobState.FAILED, Reason.AFTER, *lacking
    skipped = _skipped(job, now)
    if skipped is not None:
        return skipped
    run = reusable_run(job, now)
    if run is not None:
        return JobState.SUCCEEDED, Reason.REUSED, Why.REUSED, {"job": run.producer}
    return None


def _skipped(job: JobView, now: datetime) -> End | None:
    """Return the end of a waiting job that its `run_if` skips, or that comes after a skipped one; None if it may run.

    A job that has had an instance is not judged again.
    """
    name = next((name for name, state in job.after if state is JobState.SKIPPED), None)
    if name is not None:
        return JobState.SKIPPED, Reason.AFTER, Why.AFTER_SKIPPED, {"job": name}
    if job.epoch or is_early(job.submission, now):
        return None
    if job.missing_metric is not None:
        return JobState.FAILED, Reason.CONDITION, Why.METRIC_MISSING, {"words": job.missing_metric}
    if job.condition_result is not None and not job.condition_result.is_met:
        return JobState.SKIPPED, Reason.CONDITION, Why.CONDITION, {"words": job.condition_result.words}
    return None


def _stuck(job: JobView) -> End | None:
    """Return the end of a waiting job that cannot make progress on any other instance; None if it could."""
    record = job.record
    if job.head_epoch is not None and job.head_epoch > job.epoch:
        figures: ReasonFigures = {"head": job.head_epoch, "epoch": job.epoch}
        return JobState.FAILED, Reason.SUPERSEDED, Why.HEAD_AHEAD, figures
    if record is not None and record.last_reason is Reason.LOST and record.fruitless >= MAX_LOSSES_WITHOUT_PROGRESS:
        losses: ReasonFigures = {"times": record.fruitless, "ended": record.fruitless_ended}
        return JobState.FAILED, Reason.NO_PROGRESS, Why.LOST_OFTEN, losses
    if record is not None and record.idle_attempts >= idle_attempts_limit(job.submission.spec):
        attempts: ReasonFigures = {"times": record.idle_attempts, "reason": str(record.last_reason)}
        return JobState.FAILED, Reason.NO_PROGRESS, Why.IDLE_ATTEMPTS, attempts
    return None


def broken(job: JobView) -> tuple[Why, ReasonFigures] | None:
    """Return the reason why a waiting job will never begin: a job that it comes after did not succeed, or is unknown.
    None if there is no such reason."""
    for name, state in job.after:
        if state is None:
            return Why.AFTER_FAILED, {"job": name, "state": "is not known"}
        if state in (JobState.FAILED, JobState.CANCELLED):
            return Why.AFTER_FAILED, {"job": name, "state": "failed" if state is JobState.FAILED else "was cancelled"}
    return None
