"""Jobs and instances of a small cluster, and the plan's actions for them."""

from datetime import UTC, datetime, timedelta

from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Role,
)
from everspot_core.schedule import (
    Assign,
    InstanceView,
    JobView,
    plan,
)
from view_helpers import cluster_view, instance_view, job_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def job(name: str, *, record: JobRecord | None = None, age_minutes: float = 10, **kw) -> JobView:
    view = {k: kw.pop(k) for k in ("stale", "cancel", "drills", "spent") if k in kw}
    deadline_at = kw.pop("deadline_at", None)
    spec = JobSpec(name=name, recipe="image-classification", **kw)
    submitted = NOW - timedelta(minutes=age_minutes)
    submission = JobSubmission(job_id=name, spec=spec, submitted_at=submitted, deadline_at=deadline_at)
    return job_view(submission=submission, record=record, **view)


def record(name: str, state: JobState, epoch: int = 1, owner: str | None = None, **kw) -> JobRecord:
    return JobRecord(job_id=name, state=state, epoch=epoch, owner=owner, **{"changed_at": NOW, **kw})


def instance(
    iid: str, market: Market = Market.SPOT, *, assignment: Assignment | None = None, shape: tuple = (2, 4, 0), **kw
) -> InstanceView:
    flags = {k: kw.pop(k) for k in ("stale", "is_gone", "ending", "rebalance", "deadline") if k in kw}
    vcpus, memory, gpus = shape
    fields = {
        "instance_id": iid,
        "cluster": "c",
        "role": Role.AGENT,
        "instance_type": f"t{vcpus}-{gpus}",
        "zone": "us-east-1a",
        "market": market,
        "vcpus": vcpus,
        "memory_gib": memory,
        "gpus": gpus,
        "state": InstanceState.READY,
        "booted_at": NOW,
        "updated_at": NOW,
    }
    return instance_view(instance_id=iid, record=InstanceRecord(**{**fields, **kw}), assignment=assignment, **flags)


def assigned_to(iid: str, name: str | None, epoch: int = 1, **kw) -> Assignment:
    return Assignment(instance_id=iid, job_id=name, epoch=epoch, changed_at=NOW, **kw)


def running(name: str, iid: str, epoch: int = 1, market: Market = Market.SPOT, **kw) -> tuple[JobView, InstanceView]:
    order = {k: kw.pop(k) for k in ("order", "reason") if k in kw}
    flags = {k: kw.pop(k) for k in ("is_gone", "ending", "deadline") if k in kw}
    return (
        job(name, record=record(name, JobState.RUNNING, epoch, iid), **kw),
        instance(
            iid,
            market,
            assignment=assigned_to(iid, name, epoch, **order),
            state=InstanceState.BUSY,
            job_id=name,
            epoch=epoch,
            **flags,
        ),
    )


def decide(jobs: list[JobView], instances: list[InstanceView], **kw) -> list:
    return plan(cluster_view(jobs=tuple(jobs), instances=tuple(instances), **kw), NOW)


def assigned(actions: list) -> dict[str, str]:
    return {a.job_id: a.instance_id for a in actions if isinstance(a, Assign)}
