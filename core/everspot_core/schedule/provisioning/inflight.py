"""Present and arriving instances that will be free for a waiting job about as soon as a launch for it would be ready.

Without this a burst of short jobs launches an instance for each job, and the first instances have run all jobs before
the last ones have booted. A job that waits here holds nothing and is decided about again in every plan. It waits for no
longer than WAITING of a changeover in each estimate, and for one upper bound of a changeover in all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from heapq import heappop, heappush

from everspot_core.jobs.fit import Shape, fits
from everspot_core.schedule.actions import Why
from everspot_core.schedule.awaited_instances import is_going
from everspot_core.schedule.jobs import CHANGEOVER, CHANGEOVER_UPPER, HOUR, critical, waiting_since
from everspot_core.schedule.lengths import Lengths, changeover_bound, expected_changeover
from everspot_core.schedule.market.policy import MarketChoice
from everspot_core.schedule.market.reuse import Reuse
from everspot_core.schedule.market.steering import instance_market
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, PoolKey, instance_pool

WAITING = 1.2
"""A job waits for an instance that is free within this many expected changeovers. A launch takes one."""
BEHIND_NEW = 1
"""How many jobs of unknown length may wait for each instance that one plan launches. If they turn out to be long, each
of them loses a changeover; so a burst of submissions gets an instance for every second job."""
HANDFUL = 10
"""As long as fewer instances that suit it are present or on their way, a job waits for no instance that is on its way,
and one of unknown length waits for none. Such a wait rests on estimates, and to launch a few instances costs little."""


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """An instance that a job may wait for.

    Attributes:
        pool: Its pool.
        instance_id: None if it is launched in this plan.
        hours: Hours until it is free.
    """

    pool: PoolKey
    instance_id: str | None
    hours: float


@dataclass(slots=True)
class _Group:
    """Instances of one pool and shape.

    Attributes:
        launched: They are not of the standing fleets.
        coming: They have not reported.
        free: In how many hours each is free, and its id; a heap.
    """

    pool: PoolKey
    shape: Shape
    launched: bool
    coming: bool
    free: list[tuple[float, str]] = field(default_factory=list)


_Key = tuple[PoolKey, Shape, bool, bool]


class InFlight:
    """The slots of one round of planning. Jobs take them in the order in which they choose."""

    def __init__(self, view: ClusterView, now: datetime, reuse: Reuse) -> None:
        self._view, self._now, self._reuse = view, now, reuse
        self._lengths = Lengths(view, now)
        self._assigned: dict[str, JobView] = {}
        self._seated: set[str] = set()
        self._behind_new = 0
        self._groups: dict[_Key, _Group] | None = None

    def assign(self, job: JobView, names: tuple[str, ...]) -> None:
        """Note that this plan gives these instances to the job."""
        self._assigned |= dict.fromkeys(names, job)
        self._seated.add(job.job_id)

    def launch(self, job: JobView, pool: PoolKey) -> None:
        """Note that this plan launches an instance of the pool for the job."""
        shape, length = self._shapes.get(pool.instance_type), self._lengths.estimate(job)
        if shape is not None and length is not None and job.nodes == 1:
            self._behind_new -= BEHIND_NEW
            self._add(pool, shape, (expected_changeover(job) + length.time) / HOUR, "", launched=True, coming=True)

    def take(self, job: JobView, to: MarketChoice) -> FreeSlot | None:
        """Take the first slot that suits the job. None: the job needs a launch of its own.

        A critical job waits for nobody. Neither does a job at its last safe moment, a gang, or a job known to be long.
        """
        if job.nodes > 1 or critical(job) or to.cause in (Why.LAST_SAFE_MOMENT, Why.UNKNOWN_LENGTH):
            return None
        if self._now - waiting_since(job) > changeover_bound(job):
            return None
        limit = WAITING * expected_changeover(job) / HOUR
        if not any(_is_free_by(group, limit) for group in self._all().values()):
            return None
        length = self._lengths.estimate(job)
        suited = [g for g in self._all().values() if self._suits(job, g)] if length is not None else []
        soon = [g for g in suited if _is_free_by(g, limit)]
        if length is None or not soon:
            return None
        if sum(len(g.free) for g in suited) < HANDFUL:
            soon = [] if length.assumed else [g for g in soon if not g.coming]
        group = min(soon, key=lambda g: g.free[0], default=None)
        if group is None:
            return None
        hours, name = group.free[0]
        if length.assumed and not name:
            if self._behind_new >= 0:
                return None
            self._behind_new += 1
        heappop(group.free)
        heappush(group.free, (hours + length.time / HOUR, name))
        return FreeSlot(pool=group.pool, instance_id=name or None, hours=hours)

    def _suits(self, job: JobView, group: _Group) -> bool:
        if group.launched:
            return self._reuse.suits_kind(job, group.pool, group.shape)
        return fits(job.submission.spec.resources, group.shape)

    def _all(self) -> Mapping[_Key, _Group]:
        if self._groups is None:
            self._groups = {}
            shapes, jobs = self._shapes, {j.job_id: j for j in self._view.jobs}
            for instance in sorted(self._view.instances, key=lambda i: i.instance_id):
                pool = instance_pool(instance)
                shape = Shape.from_machine(instance.record) if instance.record is not None else None
                shape = shape or (shapes.get(pool.instance_type) if pool is not None else None)
                remaining = self._until_free(instance, jobs)
                if pool is not None and shape is not None and remaining is not None:
                    name, launched = instance.instance_id, instance.launched_for is not None
                    coming = instance.record is None
                    self._add(pool, shape, remaining / HOUR, name, launched=launched, coming=coming)
        return self._groups

    def _add(self, pool: PoolKey, shape: Shape, hours: float, name: str, *, launched: bool, coming: bool) -> None:
        self._all()
        assert self._groups is not None  # noqa: S101 - made by the line above
        group = self._groups.setdefault((pool, shape, launched, coming), _Group(pool, shape, launched, coming))
        heappush(group.free, (hours, name))

    @cached_property
    def _by_name(self) -> dict[str, InstanceView]:
        return {i.instance_id: i for i in self._view.instances}

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        return {
            t.name: Shape.from_machine(t) for t in (*self._view.types, *(p.instance_type for p in self._view.pools))
        }

    def _until_free(self, instance: InstanceView, jobs: Mapping[str, JobView]) -> timedelta | None:
        """Return the time until the instance is free. None: nobody should wait for it."""
        assigned = self._assigned.get(instance.instance_id)
        if instance.record is None:
            return self._until_arrival(instance, jobs)
        if not instance.healthy or instance.stopping:
            return None
        if assigned is not None:
            length = self._lengths.estimate(assigned)
            return length.time if length is not None else None
        names = {*instance.residents, *(instance.assignment.jobs if instance.assignment is not None else ())}
        if not names:
            return None  # it is idle, and suits no job that waits
        holders = [jobs[name] for name in names if name in jobs and jobs[name].state.owned]
        times = [self._lengths.remaining(job) for job in holders]
        known_times = [time for time in times if time is not None]
        return max(known_times, default=timedelta(0)) if len(known_times) == len(times) else None

    def _until_arrival(self, instance: InstanceView, jobs: Mapping[str, JobView]) -> timedelta | None:
        """As `_left`, for an instance that has not reported; the job that it was launched for comes first."""
        launched_at, job = instance.launched_at, jobs.get(instance.launched_for or "")
        if launched_at is None or instance.ending or instance.stale or instance.is_gone:
            return None
        expected, upper = (
            (expected_changeover(job), changeover_bound(job)) if job is not None else (CHANGEOVER, CHANGEOVER_UPPER)
        )
        if self._now - launched_at > upper:
            return None
        arrival = max(timedelta(0), launched_at + expected - self._now)
        if job is None or job.state.final or self._has_another(job, instance):
            return arrival if self._view.idle_limit else None
        if job.state.owned or job.nodes > 1:
            return None  # the job moves there
        length = self._lengths.estimate(job)
        return arrival + length.time if length is not None else None

    def _has_another(self, job: JobView, instance: InstanceView) -> bool:
        """Return whether the job has got another instance of the same market, and does not need this one any more."""
        if job.job_id in self._seated:
            return True
        owner = job.record.owner if job.record is not None and job.state.owned else None
        holder = self._by_name.get(owner) if owner is not None else None
        return holder is not None and not is_going(holder) and instance_market(holder) is instance_market(instance)


def _is_free_by(group: _Group, hours: float) -> bool:
    """Return whether an instance of the group is free within so many hours."""
    return bool(group.free) and group.free[0][0] <= hours
