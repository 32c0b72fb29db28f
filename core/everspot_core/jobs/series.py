"""Computes the next run of a series of jobs."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from everspot_core.jobs.job import JobSubmission, PrecedingJob, Series
from everspot_core.jobs.timing import BadZone, Window

_DAY = timedelta(days=1)


def next_id(series: Series) -> str:
    """Return the id of the run after this one. Every scheduler computes the same id."""
    return f"{series.id}-{series.run + 1}"


def next_run(
    last: JobSubmission, metrics: Mapping[str, float], now: datetime, *, succeeded: bool
) -> JobSubmission | None:
    """Return the run after one that has ended with these metrics; None if it belongs to no series.

    The run begins `every` after the scheduled start of the last run, by the clocks of its window's zone. If several
    such times have passed meanwhile, only the latest counts, and the run begins immediately, with its whole time to the
    deadline ahead. If the last run succeeded and `skip_if` holds of the last two successful runs, the run begins
    another `every` later. It has the code, the datasets and the packages of the last run. With `continue_from` it reads
    the outputs of the last successful run.

    Args:
        succeeded: whether the last run succeeded.
    """
    spec, series = last.spec, last.series
    if series is None or spec.every is None:
        return None
    planned = last.start_at or last.submitted_at
    condition = spec.skip_if
    # The metrics of a failed run are those of an unfinished model.
    skipped = (
        succeeded
        and condition is not None
        and condition.skips(series.before.get(condition.metric), metrics.get(condition.metric))
    )
    time_to_deadline = last.deadline_at - max(planned, last.submitted_at) if last.deadline_at is not None else None
    start = _next_start(planned, now, spec.every, spec.window, skipped=skipped)
    return last.model_copy(
        update={
            "job_id": next_id(series),
            "submitted_at": now,
            "start_at": start,
            "deadline_at": max(start, now) + time_to_deadline if time_to_deadline is not None else None,
            "series": Series(id=series.id, run=series.run + 1, before=dict(metrics) if succeeded else series.before),
            "after": _continue(last, succeeded=succeeded),
            "retry_of": None,
        }
    )


def _next_start(
    planned: datetime, now: datetime, every: timedelta, window: Window | None, *, skipped: bool
) -> datetime:
    """Return the start of the next run. An interval of whole days follows the clocks of the window's zone, so that the
    runs stay at the same distance from the window's opening when clocks are put forward or back."""
    runs = max(1, (now - planned) // every)
    if window is None or every % _DAY:
        return planned + every * (runs + skipped)
    days = every // _DAY
    try:
        while window.shift(planned, days * (runs + 1)) <= now:
            runs += 1
        while runs > 1 and window.shift(planned, days * runs) > now:
            runs -= 1
        return window.shift(planned, days * (runs + skipped))
    except BadZone:  # a job of such a window never runs, and its series is cancelled by a person
        return planned + every * (runs + skipped)


def continued_from(submission: JobSubmission) -> str | None:
    """Return the run of its series whose outputs a job continues from; None if it begins from scratch."""
    name = submission.spec.name
    is_continued = submission.spec.continue_from is not None
    return next((e.job_id for e in submission.after if e.name == name), None) if is_continued else None


def _continue(last: JobSubmission, *, succeeded: bool) -> list[PrecedingJob]:
    """Return the `after` of the next run."""
    if last.spec.continue_from is None or not succeeded:
        return last.after
    name = last.spec.name
    return [*(e for e in last.after if e.name != name), PrecedingJob(name=name, job_id=last.job_id)]
