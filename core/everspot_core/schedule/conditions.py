"""Decides when a job may run, by the conditions of its author: other jobs, a start, hours, and the cache of stages."""

from dataclasses import replace
from datetime import datetime, timedelta

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord, JobState
from everspot_core.jobs.timing import BadZone, effective
from everspot_core.schedule.actions import ReasonFigures, Why
from everspot_core.schedule.lengths import changeover_bound
from everspot_core.schedule.stages import is_early, stage_ahead
from everspot_core.schedule.view import ClusterView, JobView


def start_blocker(job: JobView, now: datetime) -> tuple[Why, ReasonFigures] | None:
    """Return the reason for which a waiting job may not begin yet; None if it may."""
    waits = [name for name, state in job.after if state is not JobState.SUCCEEDED]
    if waits:
        return Why.AFTER, {"jobs": ", ".join(waits)}
    start = job.submission.start_at
    if start is not None and is_early(job.submission, now):
        return Why.NOT_YET, {"start": _minute(start)}
    closed = outside_window(job.submission, now)
    if closed is not None:
        return closed
    if job.awaits is not None and not job.epoch:
        return Why.SAME_NAME, {"job": job.awaits}
    ahead = stage_ahead(job)
    return (Why.SAME_STAGE, {"job": ahead.job_id}) if ahead is not None else None


def outside_window(submission: JobSubmission, now: datetime) -> tuple[Why, ReasonFigures] | None:
    """Return the reason of a job that is outside its hours; None for all others. If its time zone is not known here, it
    never runs."""
    window = submission.spec.window
    if window is None:
        return None
    try:
        opens = window.opens(now)
    except BadZone as error:
        return Why.OUTSIDE_WINDOW, {"window": str(window), "opens": f"never: {error} to the scheduler"}
    return (Why.OUTSIDE_WINDOW, {"window": str(window), "opens": f"at {_minute(opens)}"}) if opens > now else None


def waited_for_instance(job: JobSubmission, record: JobRecord | None, since: datetime, now: datetime) -> timedelta:
    """Return how long a waiting job has lacked only an instance: since `since` and its last attempt, without the time
    before its start, in its back-off and outside its hours."""
    moments = [since, job.start_at, *([record.changed_at, record.not_before] if record is not None else [])]
    begin = max(moment for moment in moments if moment is not None)
    if begin >= now:
        return timedelta(0)
    window = job.spec.window
    try:
        return now - begin if window is None else window.open_time(begin, now)
    except BadZone:  # it never runs here
        return now - begin


def shorten_deadlines_by_windows(view: ClusterView, now: datetime) -> ClusterView:
    """Return the view with the closed hours of each job's window subtracted from its time to the deadline, so that the
    rest of the plan need not know of windows."""
    if not any(j.submission.spec.window is not None and j.submission.deadline_at is not None for j in view.jobs):
        return view
    awaiting = {instance.launched_for for instance in view.instances}
    return replace(
        view,
        jobs=tuple(
            _shorten_deadline(job, now, view.lasting_changeover, awaits_instance=job.job_id in awaiting)
            for job in view.jobs
        ),
    )


def _shorten_deadline(
    job: JobView, now: datetime, lasting_changeover: timedelta | None, *, awaits_instance: bool
) -> JobView:
    """Return the job with a deadline that its changeovers of today allow, and the one by which it may be refused: a
    deadline that was feasible at submission is not given up because changeovers count with more now.

    `awaits_instance`: an instance is on its way to the job, so that part of its changeover has passed.
    """
    window, deadline = job.submission.spec.window, job.submission.deadline_at
    if window is None or deadline is None or job.state.final:
        return job
    try:
        bound = changeover_bound(job)
        bounds = [b for b in (bound, lasting_changeover, job.submission.changeover_bound) if b is not None]
        starting = not job.state.owned
        due = effective(deadline, now, bound, window, starting=starting and not awaits_instance)
        accepted = effective(deadline, now, min(bounds), window, starting=starting)
    except BadZone:
        return job
    submission = job.submission.model_copy(update={"deadline_at": due})
    return replace(job, submission=submission, accepted_deadline_at=accepted)


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
