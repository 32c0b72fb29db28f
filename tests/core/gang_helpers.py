"""Helpers for tests of gangs: jobs, and instances that are free or busy for some hours."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from everspot_core.jobs.job import JobSpec, JobSubmission, Resources
from everspot_core.jobs.records import Assignment, InstanceRecord, InstanceState, JobRecord, JobState, Market, Role
from everspot_core.schedule import InstanceView, JobView, Outlook
from view_helpers import instance_view, job_view, outlook_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TYPES = {"a": 2, "b": 4, "c": 8}
"""vCPUs by type."""


def work(hours: float | None) -> Outlook | None:
    """A quarter of the hours is changeover, by upper bounds; half as much is expected."""
    if hours is None:
        return None
    remaining_upper, change = 0.75 * hours * HOUR, 0.25 * hours * HOUR
    return outlook_view(
        remaining=remaining_upper / 2, remaining_upper=remaining_upper, changeover=change / 2, changeover_upper=change
    )


def job(name: str, nodes: int = 1, hours: float | None = None, *, age: float = 10, vcpus: int = 1, **kw) -> JobView:
    """A waiting job of so many minutes of age that is done after so many hours at the latest."""
    view = {k: kw.pop(k) for k in ("record",) if k in kw}
    spec = JobSpec(name="x", recipe="r", resources=Resources(vcpus=vcpus), **kw)
    submission = JobSubmission(job_id=name, spec=spec, submitted_at=NOW - timedelta(minutes=age))
    return job_view(submission=submission, nodes=nodes, outlook=work(hours), **view)


def free(iid: str, kind: str = "a", market: Market = Market.SPOT, zone: str = "z", **kw) -> InstanceView:
    record = InstanceRecord(
        instance_id=iid,
        cluster="c",
        role=Role.AGENT,
        instance_type=kind,
        zone=zone,
        market=market,
        vcpus=TYPES[kind],
        memory_gib=kw.pop("memory_gib", 8),
        state=InstanceState.READY,
        booted_at=NOW,
        updated_at=NOW,
    )
    return instance_view(instance_id=iid, record=record, **kw)


def busy(iid: str, hours: float | None, kind: str = "a", **kw) -> tuple[JobView, InstanceView]:
    """An instance with a job that is done after so many hours at the latest; None: nobody knows."""
    name, instance = f"on-{iid}", free(iid, kind)
    running = JobRecord(job_id=name, state=JobState.RUNNING, epoch=1, owner=iid, changed_at=NOW)
    outlook = None
    if hours is not None:
        spans = {
            "remaining": hours * HOUR / 2,
            "remaining_upper": hours * HOUR,
            "changeover": HOUR,
            "changeover_upper": HOUR,
        }
        outlook = outlook_view(**spans)
    record = instance.record.model_copy(update={"state": InstanceState.BUSY, "job_id": name, "epoch": 1})
    assignment = Assignment(instance_id=iid, job_id=name, epoch=1, changed_at=NOW, **kw)
    return replace(job(name, record=running), outlook=outlook), replace(instance, record=record, assignment=assignment)
