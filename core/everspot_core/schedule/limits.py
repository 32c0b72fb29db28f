"""What ends a job from outside: its budgets and its author."""

from datetime import datetime

from everspot_core.records import JobState, Reason
from everspot_core.schedule.actions import Figures, Why
from everspot_core.schedule.view import JobView

End = tuple[JobState, Reason, Why, Figures]


def spent_budget(job: JobView, now: datetime) -> tuple[Why, Figures] | None:
    """The first budget that the job has reached, with what was spent of it; None while all of them hold."""
    budget, spent = job.submission.spec.budget, job.spent
    if budget.dollars is not None and spent.dollars >= budget.dollars:
        return Why.DOLLARS, {"spent": round(spent.dollars, 4), "budget": budget.dollars}
    if budget.gpu_hours is not None and spent.gpu_hours >= budget.gpu_hours:
        return Why.GPU_HOURS, {"spent": round(spent.gpu_hours, 4), "budget": budget.gpu_hours}
    waited = now - job.submission.submitted_at
    if budget.wall_clock is not None and waited >= budget.wall_clock:
        return Why.WALL_CLOCK, {"spent": waited.total_seconds(), "budget": budget.wall_clock.total_seconds()}
    return None


def end_of_waiting(job: JobView, now: datetime) -> End | None:
    """Why a job that waits shall not run again, and the state in which it ends; None if it may run."""
    if job.cancel:
        return JobState.CANCELLED, Reason.CANCEL, Why.CANCEL, {}
    budget = spent_budget(job, now)
    if budget is not None:
        return JobState.FAILED, Reason.BUDGET, *budget
    return None
