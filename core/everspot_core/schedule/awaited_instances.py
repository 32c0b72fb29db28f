"""Finds the launched instances for which a job still waits."""

from collections.abc import Iterable

from everspot_core.jobs.records import Reason
from everspot_core.schedule.view import InstanceView, JobView


def awaited(job: JobView, owner: InstanceView | None, own_launches: Iterable[InstanceView]) -> list[InstanceView]:
    """Return the idle instances of the last launch for the job. `own_launches`: all instances launched for it.

    Instances that the job was ordered to leave, and instances older than the one that it holds, do not count.
    """
    record, launched = job.record, list(own_launches)
    left_instance = record.last_owner if record is not None and record.last_reason is Reason.MOVE else None
    # A gang leaves all that was launched with the one that its lease named.
    leaving = {i.launched_at for i in launched if i.instance_id == left_instance and i.launched_at is not None}
    own = owner is not None and owner.launched_for == job.job_id
    begun = owner.launched_at if owner is not None and own else None
    fresh = [
        i
        for i in launched
        if i.idle
        and i.instance_id != left_instance
        and i.launched_at not in leaving
        and (begun is None or (i.launched_at is not None and i.launched_at >= begun))
    ]
    last = max((i.launched_at for i in fresh if i.launched_at is not None), default=None)
    return [i for i in fresh if i.launched_at == last]


def is_going(instance: InstanceView) -> bool:
    """Return whether the cloud has said that it takes the instance, or is taking it."""
    return not instance.is_gone and (instance.ending or instance.notified)
