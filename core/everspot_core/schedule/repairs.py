"""Repairs: dead owners, and assignments that are half done, over or lost."""

from datetime import datetime

from everspot_core.jobs.records import Assignment, JobState, Order
from everspot_core.schedule.actions import (
    ClearAssignment,
    CompleteAssignment,
    Expire,
    RestoreAssignment,
    VoidAssignment,
    Why,
)
from everspot_core.schedule.conditions import start_blocker
from everspot_core.schedule.jobs import end_of_waiting
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.view import InstanceView, JobView


def expire_dead_owners(state: PlanState) -> None:
    """Take back each lease that is no longer renewed or whose instance is gone."""
    ttl = state.view.limits.lease_ttl.total_seconds()
    for job in state.jobs.values():
        record = job.record
        if record is None or not record.state.owned or record.owner is None:
            continue
        owner = state.instances.get(record.owner)
        if state.busy(owner, record.owner, job.job_id):
            continue
        if owner is not None and owner.is_gone:
            cause, figures = Why.INSTANCE_GONE, {"step": record.progress.step}
        elif job.stale:
            cause, figures = Why.LEASE_EXPIRED, {"step": record.progress.step, "lease_ttl_seconds": int(ttl)}
        else:
            continue
        expire = Expire(
            job_id=job.job_id, instance_id=record.owner, epoch=record.epoch, cause=cause, figures=dict(figures)
        )
        state.do(expire, job=job.job_id, instance=record.owner)


def repair_assignments(state: PlanState) -> None:
    """Clear assignments whose lease is over; complete or give up half-done ones."""
    for instance in state.instances.values():
        for assignment in instance.assignment.seat_assignments if instance.assignment is not None else ():
            if not state.busy(instance, instance.instance_id, assignment.job_id or ""):
                _repair(state, instance, assignment)


def _repair(state: PlanState, instance: InstanceView, assignment: Assignment) -> None:
    job = state.jobs.get(assignment.job_id or "")
    if job is not None and job.owned_by(assignment):
        return
    if job is not None and job.state is JobState.PENDING and assignment.epoch == job.epoch + 1:
        _repair_half(state, instance, job, assignment)
    else:
        _clear(state, instance, assignment, Why.OWNER_LEFT if job is not None else Why.UNKNOWN_JOB)


def _repair_half(state: PlanState, instance: InstanceView, job: JobView, assignment: Assignment) -> None:
    if job.job_id in state.touched_jobs:  # another instance has the other half; this one is cleared once that stands
        state.touched_instances.add(instance.instance_id)
        return
    is_wanted = (
        instance.healthy
        and assignment.order is Order.RUN
        and not state.view.draining
        and not _backing_off(job, state.now)
        and end_of_waiting(job, state.now) is None
        and state.admission.used_up(job) is None
        and start_blocker(job, state.now) is None
    )
    kind, cause = (CompleteAssignment, Why.HALF_DONE) if is_wanted else (VoidAssignment, Why.UNWANTED)
    action = kind(job_id=job.job_id, instance_id=instance.instance_id, epoch=assignment.epoch, cause=cause)
    state.do(action, job=job.job_id, instance=instance.instance_id)


def _clear(state: PlanState, instance: InstanceView, assignment: Assignment, cause: Why) -> None:
    clear = ClearAssignment(
        instance_id=instance.instance_id, job_id=assignment.job_id or "", epoch=assignment.epoch, cause=cause
    )
    state.do(clear, instance=instance.instance_id)


def restore_assignments(state: PlanState) -> None:
    """Name jobs again in the assignments of owners that have taken their lease back."""
    for job in state.jobs.values():
        record = job.record
        if record is None or not record.state.owned or job.stale or job.job_id in state.touched_jobs:
            continue
        owner = state.instances.get(record.owner or "")
        if owner is None or state.busy(owner, owner.instance_id, job.job_id):
            continue
        if not owner.idle and (not owner.seated or not job.shares or owner.job_orders(job.job_id) is not None):
            continue
        restore = RestoreAssignment(
            job_id=job.job_id,
            instance_id=owner.instance_id,
            epoch=record.epoch,
            shares=job.shares and (state.view.shared or owner.seated),
            cause=Why.TAKEN_BACK,
        )
        state.do(restore, job=job.job_id, instance=owner.instance_id)


def _backing_off(job: JobView, now: datetime) -> bool:
    record = job.record
    return record is not None and record.not_before is not None and record.not_before > now
