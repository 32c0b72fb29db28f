"""Repairs: dead owners, and assignments that are half done, over or lost."""

from datetime import datetime

from everspot_core.records import Assignment, JobState, Order
from everspot_core.schedule.actions import Clear, Complete, Expire, Restore, Void, Why
from everspot_core.schedule.conditions import not_now
from everspot_core.schedule.draft import Draft
from everspot_core.schedule.jobs import end_of_waiting
from everspot_core.schedule.view import InstanceView, JobView


def expire_dead_owners(draft: Draft) -> None:
    """Take back each lease that stands still or whose instance is gone."""
    ttl = draft.view.limits.lease_ttl.total_seconds()
    for job in draft.jobs.values():
        record = job.record
        if record is None or not record.state.owned or record.owner is None:
            continue
        owner = draft.instances.get(record.owner)
        if draft.busy(owner, record.owner, job.job_id):
            continue
        if owner is not None and owner.gone:
            why, figures = Why.INSTANCE_GONE, {"step": record.progress.step}
        elif job.stale:
            why, figures = Why.LEASE_EXPIRED, {"step": record.progress.step, "lease_ttl_seconds": int(ttl)}
        else:
            continue
        expire = Expire(job_id=job.job_id, instance_id=record.owner, epoch=record.epoch, why=why, figures=dict(figures))
        draft.do(expire, job=job.job_id, instance=record.owner)


def repair_assignments(draft: Draft) -> None:
    """Clear assignments whose lease is over; complete or give up half-done ones."""
    for instance in draft.instances.values():
        for given in instance.assignment.held if instance.assignment is not None else ():
            if not draft.busy(instance, instance.instance_id, given.job_id or ""):
                _repair(draft, instance, given)


def _repair(draft: Draft, instance: InstanceView, given: Assignment) -> None:
    job = draft.jobs.get(given.job_id or "")
    if job is not None and job.owned_by(given):
        return
    if job is not None and job.state is JobState.PENDING and given.epoch == job.epoch + 1:
        _repair_half(draft, instance, job, given)
    else:
        _clear(draft, instance, given, Why.OWNER_LEFT if job is not None else Why.UNKNOWN_JOB)


def _repair_half(draft: Draft, instance: InstanceView, job: JobView, given: Assignment) -> None:
    if job.job_id in draft.touched_jobs:  # another instance has the other half; this one is cleared once that stands
        draft.touched_instances.add(instance.instance_id)
        return
    wanted = (
        instance.healthy
        and given.order is Order.RUN
        and not draft.view.draining
        and not _backing_off(job, draft.now)
        and end_of_waiting(job, draft.now) is None
        and draft.admission.used_up(job) is None
        and not_now(job, draft.now) is None
    )
    kind, why = (Complete, Why.HALF_DONE) if wanted else (Void, Why.UNWANTED)
    action = kind(job_id=job.job_id, instance_id=instance.instance_id, epoch=given.epoch, why=why)
    draft.do(action, job=job.job_id, instance=instance.instance_id)


def _clear(draft: Draft, instance: InstanceView, given: Assignment, why: Why) -> None:
    clear = Clear(instance_id=instance.instance_id, job_id=given.job_id or "", epoch=given.epoch, why=why)
    draft.do(clear, instance=instance.instance_id)


def restore_assignments(draft: Draft) -> None:
    """Name jobs again in the assignments of owners that have taken their lease back."""
    for job in draft.jobs.values():
        record = job.record
        if record is None or not record.state.owned or job.stale or job.job_id in draft.touched_jobs:
            continue
        owner = draft.instances.get(record.owner or "")
        if owner is None or draft.busy(owner, owner.instance_id, job.job_id):
            continue
        if not owner.idle and (not owner.seated or not job.shares or owner.told(job.job_id) is not None):
            continue
        restore = Restore(
            job_id=job.job_id,
            instance_id=owner.instance_id,
            epoch=record.epoch,
            beside=job.shares and (draft.view.shared or owner.seated),
            why=Why.TAKEN_BACK,
        )
        draft.do(restore, job=job.job_id, instance=owner.instance_id)


def _backing_off(job: JobView, now: datetime) -> bool:
    record = job.record
    return record is not None and record.not_before is not None and record.not_before > now
