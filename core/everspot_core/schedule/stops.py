"""Stops jobs: those on instances that the cloud takes, and those that users, budgets or hours stop."""

from datetime import datetime

from everspot_core.jobs.records import JobState, Reason
from everspot_core.schedule.actions import Cordon, DropDrills, Finish, ReasonFigures, Stop, Why
from everspot_core.schedule.conditions import outside_window
from everspot_core.schedule.jobs import end_of_waiting, exhausted_budget, underused
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.view import InstanceView, JobView


def cordon_instances(state: PlanState) -> None:
    """Cordon the instances that the cloud is about to take, and order their jobs to stop, in one write each. An
    instance without a job that was already ordered to leave needs no further order."""
    for instance in state.instances.values():
        assignment = instance.assignment
        if not instance.ending or instance.is_gone:
            continue
        if instance.instance_id in state.touched_instances and not instance.seated:
            continue
        seats = assignment.seat_assignments if assignment is not None else ()
        already_cordoned = assignment is not None and (assignment.cordoned or (instance.leaving and not seats))
        later = instance.deadline is not None and any(h.deadline is None for h in seats)
        if already_cordoned and not later:
            continue
        cordon = Cordon(instance_id=instance.instance_id, deadline=instance.deadline, cause=Why.INTERRUPTION)
        state.do(cordon, instance=instance.instance_id)
        state.touched_jobs |= {h.job_id for h in seats if h.job_id is not None}


def stop_owners(state: PlanState) -> None:
    """Tell owners to give back jobs that are cancelled, out of budget, drained, drilled or outside their hours, jobs
    whose GPUs compute too little, and jobs whose team or environment has used up its budget."""
    for job in state.jobs.values():
        record = job.record
        if record is None or not record.state.owned or job.job_id in state.touched_jobs:
            continue
        owner = state.instances.get(record.owner or "")
        assignment = owner.job_orders(job.job_id) if owner is not None else None
        if owner is None or state.busy(owner, owner.instance_id, job.job_id):
            continue
        if assignment is None or not job.owned_by(assignment) or owner.stops(job.job_id):
            continue
        stop = _stop(state, job, owner)
        if stop is not None:
            state.do(stop, job=job.job_id, instance=owner.instance_id)


def _stop(state: PlanState, job: JobView, owner: InstanceView) -> Stop | None:
    budget = exhausted_budget(job, state.now)
    drills: tuple[str, ...] = ()
    figures: ReasonFigures = {}
    if job.cancel:
        cause, reason = Why.CANCEL, Reason.CANCEL
    elif budget is not None:
        (cause, figures), reason = budget, Reason.BUDGET
    elif (low_use := underused(job)) is not None:
        (cause, figures), reason = low_use, Reason.UNDERUSED
    elif (used_up := state.admission.used_up(job)) is not None:
        (cause, figures), reason = used_up, Reason.CAP
    elif (outside := outside_window(job.submission, state.now)) is not None:
        (cause, figures), reason = outside, Reason.WINDOW
    elif state.view.draining:
        cause, reason = Why.DRAIN, Reason.DRAIN
    elif job.drills:
        cause, reason = Why.DRILL, Reason.DRILL
        drills = tuple(sorted(d.drill_id for d in job.drills))
    else:
        return None
    return Stop(
        job_id=job.job_id,
        instance_id=owner.instance_id,
        epoch=job.epoch,
        reason=reason,
        drills=drills,
        cause=cause,
        figures=figures,
    )


def settle_drills(state: PlanState) -> None:
    """Drop the drills of jobs that are stopping, were stopped by a drill already, or are over.

    A drill of a waiting job is kept until the job runs.
    """
    stopping = {a.job_id for a in state.actions if isinstance(a, Stop) and a.reason is Reason.DRILL}
    for job in state.jobs.values():
        if not job.drills or job.job_id in stopping:
            continue
        done = [d.drill_id for d in job.drills if _fulfilled(state, job, d.at)]
        if done:
            drop = DropDrills(job_id=job.job_id, drills=tuple(sorted(done)), cause=Why.ALREADY_STOPPING)
            state.actions.append(drop)


def _fulfilled(state: PlanState, job: JobView, at: datetime) -> bool:
    record = job.record
    if record is None:
        return False
    if record.state.final:
        return True
    if record.state.owned:
        owner = state.instances.get(record.owner or "")
        return owner is not None and owner.stops(job.job_id)
    return record.last_reason is Reason.DRILL and record.changed_at >= at


def end_waiting_jobs(state: PlanState) -> None:
    """End the waiting jobs that are cancelled or out of budget, or that come after a job that failed."""
    for job in state.jobs.values():
        if job.state is not JobState.PENDING or job.job_id in state.touched_jobs:
            continue
        end = end_of_waiting(job, state.now)
        if end is not None:
            end_state, reason, cause, figures = end
            finish = Finish(
                job_id=job.job_id, epoch=job.epoch, state=end_state, reason=reason, cause=cause, figures=figures
            )
            state.do(finish, job=job.job_id)
