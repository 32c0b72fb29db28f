"""The transitions of an assignment: give a job an instance, alone or shared, remove the job, or order it to stop.

Each function takes the present assignment (None if none is stored) and returns the next one. Schedulers write it
conditionally, so two schedulers never assign the same resources. `now` is market time, for time stamps.

The share of a shared instance's cost is fixed when a job gets its seat: the largest of its fractions of vCPUs, memory
and GPUs, but at most the part that earlier seats left. So all shares add up to at most 1. The fleet bears the cost that
no share covers, such as boot and idle time.
"""

from datetime import datetime

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.instances import InstanceRecord
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import Assignment, Order, Reason, Seat

_EPSILON_GIB = 1e-6
"""The tolerance for rounding errors of memory, GiB."""


def assign_alone(old: Assignment | None, instance_id: str, job_id: str, epoch: int, now: datetime) -> Assignment | None:
    """Give a job a whole instance. Return None if the instance has another job."""
    old = old or _empty(instance_id, now)
    if old.jobs:
        return None
    return old.model_copy(update={"job_id": job_id, "epoch": epoch, "changed_at": now, **_RUNS})


def seat(
    old: Assignment | None, instance: InstanceRecord, job_id: str, epoch: int, need: Resources, now: datetime
) -> Assignment | None:
    """Give a job a seat on a shared instance. Return None if the free resources do not suffice, or if a job has the
    instance alone."""
    old = old or _empty(instance.instance_id, now)
    used_gpus = {index for s in old.seats for index in s.gpus}
    free = [index for index in range(instance.gpus) if index not in used_gpus]
    if old.job_id is not None or job_id in old.jobs or not fits(need, Shape.from_machine(instance)):
        return None
    vcpus, memory = sum(s.vcpus for s in old.seats), sum(s.memory_gib for s in old.seats)
    if vcpus + need.vcpus > instance.vcpus or memory + need.memory_gib > instance.memory_gib + _EPSILON_GIB:
        return None
    if len(free) < need.gpus:
        return None
    seat = Seat(
        job_id=job_id,
        epoch=epoch,
        vcpus=need.vcpus,
        memory_gib=need.memory_gib,
        gpus=tuple(free[: need.gpus]),
        share=max(0.0, min(largest_share(need, instance), 1.0 - sum(s.share for s in old.seats))),
        changed_at=now,
    )
    return old.model_copy(update={"seats": (*old.seats, seat), "changed_at": now})


def largest_share(need: Resources, instance: InstanceRecord | InstanceType) -> float:
    """Return the fraction of an instance that a job occupies: the largest over vCPUs, memory and GPUs."""
    parts = [need.vcpus / instance.vcpus, need.memory_gib / instance.memory_gib]
    if instance.gpus:
        parts.append(need.gpus / instance.gpus)
    return min(1.0, max(parts))


def remove_job(old: Assignment, job_id: str, epoch: int, now: datetime) -> Assignment:
    """Remove the job. An order to leave stays until the instance is gone."""
    if (old.job_id, old.epoch) == (job_id, epoch):
        empty = Assignment(instance_id=old.instance_id, cordoned=old.cordoned, changed_at=now)
        leave_order = {"order": old.order, "reason": old.reason} if old.order is Order.LEAVE else {}
        return empty.model_copy(update=leave_order)
    seats = tuple(s for s in old.seats if (s.job_id, s.epoch) != (job_id, epoch))
    return old.model_copy(update={"seats": seats, "changed_at": now})


def stop(
    old: Assignment, job_id: str, epoch: int, reason: Reason, deadline: datetime | None, now: datetime
) -> Assignment:
    """Order the owner of one job to give it back. Other jobs of the instance continue."""
    stop_order = {"order": Order.STOP, "reason": reason, "deadline": deadline, "changed_at": now}
    if (old.job_id, old.epoch) == (job_id, epoch):
        return old.model_copy(update=stop_order)
    seats = [s.model_copy(update=stop_order) if (s.job_id, s.epoch) == (job_id, epoch) else s for s in old.seats]
    return old.model_copy(update={"seats": tuple(seats), "changed_at": now})


def cordon(old: Assignment | None, instance_id: str, deadline: datetime | None, now: datetime) -> Assignment:
    """Cordon an instance that the cloud reclaims: it gets no new job, and all its jobs stop by the deadline."""
    old = old or _empty(instance_id, now)
    stop_order = {"order": Order.STOP, "reason": Reason.NOTICE, "deadline": deadline, "changed_at": now}
    seats = tuple(s.model_copy(update=stop_order) for s in old.seats)
    alone = stop_order if old.job_id is not None else {}
    return old.model_copy(update={"cordoned": True, "changed_at": now, "seats": seats, **alone})


def leave(old: Assignment | None, instance_id: str, reason: Reason, now: datetime) -> Assignment:
    """Order the instance to give back all its jobs and to power itself off."""
    old = old or _empty(instance_id, now)
    return old.model_copy(update={"order": Order.LEAVE, "reason": reason, "deadline": None, "changed_at": now})


def restored(assignment: Assignment | None, old: Assignment | None, job_id: str, epoch: int) -> Assignment | None:
    """Return the assignment with a job's seat and orders restored from `old`, or None if its resources are taken.

    An order to leave stays. On a cordoned instance the job is ordered to stop immediately.
    """
    if assignment is None or old is None:
        return assignment
    if old.order is Order.LEAVE:
        return assignment.model_copy(update={"order": Order.LEAVE, "reason": old.reason})
    if old.cordoned:
        return stop(assignment, job_id, epoch, Reason.NOTICE, None, assignment.changed_at)
    return assignment


_RUNS = {"order": Order.RUN, "reason": None, "deadline": None}


def _empty(instance_id: str, now: datetime) -> Assignment:
    return Assignment(instance_id=instance_id, changed_at=now)
