"""The order of jobs under a cap, where not all can have a launch."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from everspot_core.schedule.jobs import job_outlook
from everspot_core.schedule.market.offers import build_need
from everspot_core.schedule.market.policy import is_safe
from everspot_core.schedule.placement.queue import hopeless, precedence, slack
from everspot_core.schedule.view import ClusterView, JobView

_Press = tuple[int, timedelta]
_NONE = timedelta(0)


def sort_by_urgency(jobs: Iterable[JobView], view: ClusterView, now: datetime) -> list[JobView]:
    """Return the jobs by urgency, in the given order within each group.

    First come jobs past their last safe moment; then those with precedence; then those with a deadline, the nearest to
    its last safe moment first; then the others; last, jobs that run and might do better elsewhere. A job that cannot
    meet its deadline any more counts as one without.
    """
    return sorted(jobs, key=lambda job: _press(job, view, now))


def _press(job: JobView, view: ClusterView, now: datetime) -> _Press:
    work, deadline, spare = job_outlook(job), job.submission.deadline_at, slack(job, now)
    if work is None or deadline is None or hopeless(job, now):
        spare = None
    elif not is_safe(build_need(work, deadline, view.tick, now)):
        return 0, spare or _NONE
    if job.state.owned:
        return 4, _NONE
    if precedence(job, now) is not None:
        return 1, _NONE
    return (2, spare) if spare is not None else (3, _NONE)
