"""Decides whether a job takes an idle instance that was launched for another job, rather than have one launched.

Reuse saves the launch, but that does not justify hours on a more expensive market or type. So the instance must be in
the market that the policy chooses for the job now, and the whole job must not cost more there than on the best new
instance.

There is one exception. If the cap leaves no room for a launch, a job of unknown length takes any spot instance that is
cheaper than on-demand. Otherwise a queue of short jobs would have the whole fleet replaced over and over.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property

from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.records import Market
from everspot_core.schedule.jobs import CHANGEOVER, HOUR, critical, job_outlook
from everspot_core.schedule.market.failover import failed_over
from everspot_core.schedule.market.offers import INDIFFERENCE, Offers, build_offers, own_on_demand_types
from everspot_core.schedule.market.steering import Steering
from everspot_core.schedule.market.stock import Stocks
from everspot_core.schedule.provisioning.launch_cap import CapRoom
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, PoolKey, instance_pool


class Reuse:
    """Answers for the jobs and the idle instances of one view."""

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self._view, self._now = view, now
        self._steering = Steering(view, now)
        self._offers: dict[str, Offers] = {}
        self._markets: dict[tuple[str, Market], bool] = {}
        self._full: dict[str, bool] = {}

    @cached_property
    def _stocks(self) -> Stocks:
        return Stocks(self._view.pools, self._view.unions, self._now, self._view.tick)

    @cached_property
    def _room(self) -> CapRoom:
        return CapRoom(self._view)

    @cached_property
    def _own_types(self) -> Mapping[str, set[str]]:
        return own_on_demand_types(self._view.instances)

    @cached_property
    def _usd(self) -> dict[PoolKey, float]:
        return {p.key: p.usd_per_hour for p in self._view.pools}

    def suits(self, job: JobView, instance: InstanceView) -> bool:
        """Return whether the job would rather run there than have an instance launched."""
        record, kind = instance.record, instance_pool(instance)
        return record is not None and kind is not None and self.suits_kind(job, kind, Shape.from_machine(record))

    def suits_kind(self, job: JobView, kind: PoolKey, shape: Shape) -> bool:
        """Return whether the job would rather run on an instance of this pool and shape than have one launched."""
        if job.speeds.get(kind.instance_type, 1.0) <= 0 or not fits(job.submission.spec.resources, shape):
            return False
        return self._would_take_cached(job, kind.market) and self._pays(job, kind) and self._in_time(job, kind)

    def usd(self, job: JobView, instance: InstanceView) -> float:
        """Return dollars for an hour of the job's work there; 0 if unknown."""
        kind = instance_pool(instance)
        return (self._work_usd(job, kind) or 0.0) if kind is not None else 0.0

    def _would_take_cached(self, job: JobView, market: Market) -> bool:
        name = job.job_id, market
        if name not in self._markets:
            self._markets[name] = self._would_take(job, market)
        return self._markets[name]

    def _would_take(self, job: JobView, market: Market) -> bool:
        if market is Market.ON_DEMAND:
            return self._steering.steer(job, None, self._job_offers(job), moving=False).market is Market.ON_DEMAND
        if critical(job):
            return False
        if job.submission.deadline_at is not None:
            return self._steering.is_safe(job, self._job_offers(job))
        return failed_over(job, self._view.pools, self._now, None).market is Market.SPOT

    def _pays(self, job: JobView, kind: PoolKey) -> bool:
        """Return whether the job costs at most as much there as on the best new instance. If none can be launched, spot
        must still be cheaper than on-demand."""
        usd, offers, work = self._work_usd(job, kind), self._job_offers(job), job_outlook(job)
        new_pools = offers.acceptable(kind.market).pools or offers.on_demand_pools
        costs = [offers.stock.work_usd(p) for p in new_pools]
        if usd is None or not costs:
            return True
        if work is None and kind.market is Market.SPOT and usd < offers.stock.on_demand_usd and self._at_cap(job):
            return True
        hours = work.remaining / HOUR if work is not None else CHANGEOVER / HOUR / INDIFFERENCE
        changeover = work.changeover / HOUR if work is not None else CHANGEOVER / HOUR
        return usd * hours <= min(costs) * (hours + changeover)

    def _at_cap(self, job: JobView) -> bool:
        """Return whether the cap leaves no room for a launch for the job."""
        if job.job_id not in self._full:
            launchable = (*self._job_offers(job).spot_pools, *self._job_offers(job).on_demand_pools)
            self._full[job.job_id] = not any(self._room.fits(job.nodes, p.usd_per_hour) for p in launchable)
        return self._full[job.job_id]

    def _in_time(self, job: JobView, kind: PoolKey) -> bool:
        """Return whether the deadline holds there. A spot instance always counts as in time, since on-demand can follow
        it."""
        deadline, work = job.submission.deadline_at, job_outlook(job)
        speed = job.speeds.get(kind.instance_type, 1.0)
        if kind.market is Market.SPOT or deadline is None or work is None or speed >= self._job_offers(job).fastest:
            return True
        return self._now + self._view.tick + work.changeover_upper + work.remaining_upper / speed <= deadline

    def _work_usd(self, job: JobView, kind: PoolKey) -> float | None:
        usd, speed = self._usd.get(kind), job.speeds.get(kind.instance_type, 1.0)
        return usd / speed if usd is not None and speed > 0 else None

    def _job_offers(self, job: JobView) -> Offers:
        if job.job_id not in self._offers:
            stock, own_types = self._stocks.for_job(job), self._own_types.get(job.job_id, ())
            self._offers[job.job_id] = build_offers(stock, job, self._now, own_types)
        return self._offers[job.job_id]
