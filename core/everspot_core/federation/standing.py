"""Standing fleets in a federation: their idle instances for jobs of other clusters, and when their own jobs leave.

An idle instance is paid for whether it is used or not. So a job on it has no extra cost, whatever the host's bill of
the visit says.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from everspot_core.capacity.market import Market
from everspot_core.federation.decision import UNKNOWN_LENGTH, Forecast
from everspot_core.jobs.fit import Shape, fits
from everspot_core.schedule.jobs import HOUR, job_outlook, waiting_since
from everspot_core.schedule.placement.capacity import is_free
from everspot_core.schedule.view import ClusterView, InstanceView, JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Free instances of one type and market. `shape`: the resources of the smallest of them. `count`: their number."""

    instance_type: str
    market: Market
    shape: Shape
    count: int


def idle_in(view: ClusterView) -> tuple[Idle, ...]:
    """Return the free instances of the standing fleets; none while the cluster is drained. An instance whose jobs share
    it counts as busy."""
    if view.draining:
        return ()
    records = {job.job_id: job.record for job in view.jobs}
    free_instances: dict[tuple[str, Market], list[InstanceView]] = defaultdict(list)
    for instance in view.instances:
        if instance.launched_for is None and instance.record is not None and is_free(instance, records):
            free_instances[instance.record.instance_type, instance.record.market].append(instance)
    return tuple(
        Idle(
            instance_type=name,
            market=market,
            shape=min(Shape.from_machine(i.record) for i in free if i.record is not None),
            count=len(free),
        )
        for (name, market), free in sorted(free_instances.items())
    )


def choose_idle(job: JobView, idle: Iterable[Idle], promised: int) -> Idle | None:
    """Return the idle instances that the job would go to, or None if there are not enough. On-demand comes before spot,
    then the fastest type first.

    `promised`: instances that other jobs wait for there.
    """
    need = job.submission.spec.resources
    able = [i for i in idle if i.count - promised >= job.nodes and fits(need, i.shape) and _speed(job, i) > 0]
    return max(able, key=lambda i: (i.market is Market.ON_DEMAND, _speed(job, i), i.instance_type), default=None)


def on_idle(base: Forecast, job: JobView, idle: Idle, upper: timedelta, now: datetime) -> Forecast:
    """Return the forecast `base` of a cluster, changed for a job that goes to an idle instance there. `upper`: of the
    move."""
    work, done = job_outlook(job), base.done_by
    if work is not None and idle.market is Market.ON_DEMAND:
        by = now + upper + work.changeover_upper + work.remaining_upper / _speed(job, idle)
        done = by if done is None else min(done, by)
    usd = None if work is None else base.move_usd
    return replace(
        base, feasible=True, placed=True, paid=True, usd=usd, usd_per_hour=0.0, done_by=done, dry_since=None, reason=""
    )


def on_standing(base: Forecast) -> Forecast:
    """Return the forecast `base` of the job's cluster, changed for a job that holds an instance of a standing fleet.
    The instance is paid for anyway, so that leaving it saves nothing."""
    return replace(base, feasible=True, placed=True, paid=True, usd=None if base.usd is None else 0.0)


def standing_home(job: JobView, view: ClusterView, cluster: str, now: datetime) -> Forecast:
    """Return the forecast of a job at a home without elastic capacity.

    Only the standing instances can hold the job. So a waiting job lacks capacity, and the instances that a job holds
    are paid for anyway.
    """
    if job.state.owned:
        return Forecast(cluster=cluster, feasible=True, usd=None, done_by=job.submission.deadline_at)
    need, work = job.submission.spec.resources, job_outlook(job)
    shapes = {Shape.from_machine(t) for t in view.types} | {
        Shape.from_machine(i.record) for i in view.instances if i.record is not None
    }
    never = bool(shapes) and not any(fits(need, shape) for shape in shapes)
    own = [p.usd_per_hour for p in view.pools if fits(need, Shape.from_machine(p.instance_type))]
    span = UNKNOWN_LENGTH if work is None else work.remaining + work.changeover
    return Forecast(
        cluster=cluster,
        feasible=False,
        placed=False,
        usd=None,
        done_by=None,
        on_demand_usd=span / HOUR * min(own) * job.nodes if own else None,
        dry_since=None if never else min(now, waiting_since(job)),
        reason="none of its instance types can hold it" if never else "none of its instances is free for it",
    )


def _speed(job: JobView, idle: Idle) -> float:
    return job.speeds.get(idle.instance_type, 1.0)
