"""Helpers for tests of shared instances: jobs, residents and their hosts."""

from datetime import UTC, datetime, timedelta

from everspot_core.jobs.job import JobSpec, JobSubmission, Priority, Resources
from everspot_core.jobs.records import InstanceRecord, InstanceState, JobRecord, JobState, Market, Role
from everspot_core.schedule import Assign, Hold, InstanceView, JobView, plan
from view_helpers import cluster_view, instance_view, job_view, outlook_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SHAPES = {"gpu8": (96, 768.0, 8, 40.0), "gpu4": (48, 192.0, 4, 24.0), "cpu": (16, 64.0, 0, 0.0)}


def job(name: str, *, age: float = 10, hours: float | None = None, nodes: int = 1, record=None, **need) -> JobView:
    priority = need.pop("priority", Priority.NORMAL)
    spec = JobSpec(name="x", recipe="r", priority=priority, resources=Resources(**{"shared": True, **need}))
    submission = JobSubmission(job_id=name, spec=spec, submitted_at=NOW - timedelta(minutes=age))
    outlook = None
    if hours is not None:
        none, remaining_upper = 0 * HOUR, hours * HOUR
        outlook = outlook_view(
            remaining=remaining_upper / 2, remaining_upper=remaining_upper, changeover=none, changeover_upper=none
        )
    return job_view(submission=submission, record=record, outlook=outlook, nodes=nodes)


def resident(name: str, iid: str, *, hours: float | None = None, **need) -> JobView:
    running = JobRecord(job_id=name, state=JobState.RUNNING, epoch=1, owner=iid, changed_at=NOW)
    return job(name, hours=hours, record=running, **need)


def host(iid: str, kind: str, *residents: JobView, market: Market = Market.SPOT, zone: str = "z", **kw) -> InstanceView:
    vcpus, memory, gpus, gpu_memory = SHAPES[kind]
    record = InstanceRecord(
        instance_id=iid,
        cluster="c",
        role=Role.AGENT,
        instance_type=kind,
        zone=zone,
        market=market,
        vcpus=vcpus,
        memory_gib=memory,
        gpus=gpus,
        gpu_memory_gib=gpu_memory,
        state=InstanceState.BUSY if residents else InstanceState.READY,
        booted_at=NOW,
        updated_at=NOW,
    )
    return instance_view(instance_id=iid, record=record, residents=tuple(r.job_id for r in residents), **kw)


def decide(jobs: list[JobView], instances: list[InstanceView], *, shared: bool = True, **kw) -> dict:
    """Return for each job the instance that it gets (a set for a gang), or the reason for its wait."""
    view = cluster_view(jobs=tuple(jobs), instances=tuple(instances), shared=shared, **kw)
    decided: dict = {}
    for action in plan(view, NOW):
        if isinstance(action, Assign):
            all_of = {action.instance_id, *action.gang}
            decided[action.job_id] = all_of if action.gang else action.instance_id
        elif isinstance(action, Hold):
            decided[action.job_id] = action.cause
    return decided
