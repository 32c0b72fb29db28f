"""The offers of the pools to a job, in the terms of the market policy: hours, and dollars for an hour of work."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.records import Market
from everspot_core.schedule.awaited_instances import is_going
from everspot_core.schedule.jobs import HOUR, job_outlook
from everspot_core.schedule.market.policy import HeldCapacity, Need
from everspot_core.schedule.market.ranking import REFUSAL_HALF_LIFE, RankedPool, delays, rank
from everspot_core.schedule.market.rightsize import NO_LATER, TOO_LATE, PricedType, rightsize
from everspot_core.schedule.market.stock import Stock
from everspot_core.schedule.view import InstanceView, JobView, Outlook, PoolView, instance_pool

INDIFFERENCE = 0.1
"""If the costs of all pools for the same work differ by at most this fraction, the order of pools does not count."""


class Acceptable(NamedTuple):
    """The pools of a market that would do, best first. `ordered`: whether the order makes a difference to the cost."""

    pools: tuple[PoolView, ...]
    ordered: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Offers:
    """The pools that can hold one job, and their offers to it.

    - `stock`: the pools, as for all jobs of its kind.
    - `fastest`: the speed of the on-demand pool that would finish the job first. Hours of work are at that speed.
    - `dry`: the longest recent time, in hours, for which that pool had no capacity.
    - `attainable`: the speed of the fastest on-demand instance that the job has, or that has capacity now.
    """

    job: JobView
    now: datetime
    stock: Stock
    fastest: float
    dry: float
    attainable: float

    @property
    def spot_pools(self) -> tuple[PoolView, ...]:
        """All spot pools that can hold it, with or without capacity now."""
        return self.stock.spot_pools

    @property
    def on_demand_pools(self) -> tuple[PoolView, ...]:
        """All on-demand pools that can hold it, with or without capacity now."""
        return self.stock.on_demand_pools

    @cached_property
    def spot(self) -> tuple[RankedPool, ...]:
        """The spot pools that have enough capacity now, best first; those as expensive as on-demand come last."""
        available = self.stock.spot_available
        # A job's own types exclude those that are too small, but a smaller type may be taken anyway.
        accept = {p.instance_type.name for p in available}
        ranked = rank(available, self.job, self.now, must_run=True, accept=accept)
        return tuple(sorted(ranked, key=lambda r: self._costs_like_on_demand(r.pool)))

    @cached_property
    def on_demand(self) -> tuple["_SizedPool", ...]:
        """The on-demand pools that have enough capacity now, best first."""
        return _sized(self.job, self.stock, self.now)

    def acceptable(self, market: Market) -> Acceptable:
        """Return all pools of the market that would do for one launch.

        Spot pools as expensive as on-demand, and on-demand pools that miss the deadline, count only without others.
        """
        if market is Market.SPOT:
            cheap = [r for r in self.spot if not self._costs_like_on_demand(r.pool)] or list(self.spot)
            costs = [r.usd_per_useful_hour for r in cheap]
            return Acceptable(tuple(r.pool for r in cheap), _differ(costs))
        in_time = [s for s in self.on_demand if not s.late] or list(self.on_demand)
        other = any((s.late, s.refused, s.pool.reserved) != (0.0, 0.0, False) for s in in_time)
        return Acceptable(
            tuple(s.pool for s in in_time), len(in_time) > 1 and (other or _differ([s.usd for s in in_time]))
        )

    def _costs_like_on_demand(self, pool: PoolView) -> bool:
        return self.stock.work_usd(pool) >= self.stock.on_demand_usd


class _SizedPool(NamedTuple):
    """An on-demand pool, with the job's figures there.

    Attributes:
        late: the most hours that the job takes there, if that misses the deadline, otherwise 0.
        refused: how fresh its last refusal is, from 0 to 1.
        usd: the cost of the job there, or of an hour of work if its length is unknown.
    """

    pool: PoolView
    late: float
    refused: float
    usd: float


def build_offers(stock: Stock, job: JobView, now: datetime, own_types: Iterable[str]) -> Offers:
    """Return the offers for this job, which is of the stock's kind. `own_types`: the types of the on-demand instances
    that it has, as `own_on_demand_types` returns them."""
    fastest, dry = _fastest_prospect(job, stock.on_demand_prospects)
    speeds = [*(speed for speed, _ in stock.on_demand_prospects), *map(stock.speed, own_types)]
    return Offers(job=job, now=now, stock=stock, fastest=fastest, dry=dry, attainable=max(speeds, default=1.0))


def own_on_demand_types(instances: Iterable[InstanceView]) -> Mapping[str, set[str]]:
    """Return, by job, the types of the on-demand instances that it holds or that are on their way to it."""
    types: dict[str, set[str]] = defaultdict(set)
    for instance in instances:
        pool, assignment = instance_pool(instance), instance.assignment
        if pool is None or pool.market is not Market.ON_DEMAND or instance.is_gone or is_going(instance):
            continue
        holders = instance.residents or (assignment.jobs if assignment is not None else ())
        for job_id in holders or (instance.launched_for,):
            if job_id is not None:
                types[job_id].add(pool.instance_type)
    return types


def build_need(
    work: Outlook, deadline: datetime, tick: timedelta, now: datetime, *, fastest: float = 1.0, dry: float = 0.0
) -> Need:
    """Return the need in hours, at the speed `fastest`.

    `tick`: the longest time until the next decision. `dry`: hours that on-demand may take to have capacity. Both count
    in the upper bound of the changeover: an instance that gets ready between two decisions waits for the second one.
    """
    return Need(
        time=(deadline - now) / HOUR,
        remaining=work.remaining / HOUR / fastest,
        remaining_upper=work.remaining_upper / HOUR / fastest,
        changeover=work.changeover / HOUR,
        changeover_upper=(work.changeover_upper + tick) / HOUR + dry,
        tick=tick / HOUR,
    )


def describe_held(
    job: JobView, market: Market, instance_type: str, changing: timedelta, offers: Offers
) -> HeldCapacity:
    """Return the capacity that the job holds, in the terms of the market policy."""
    speed = offers.stock.speed(instance_type) / offers.fastest
    return HeldCapacity(market=market, changing=max(0.0, changing / HOUR), speed=speed)


def _fastest_prospect(job: JobView, prospects: tuple[tuple[float, float], ...]) -> tuple[float, float]:
    """Return the speed and the longest dry spell of the pool that would finish the job first if it had to start there
    now."""
    if len(prospects) < 2:
        return prospects[0] if prospects else (1.0, 0.0)
    work = job_outlook(job)
    remaining = work.remaining_upper / HOUR if work is not None else 0.0
    return min(prospects, key=lambda w: (w[1] + remaining / w[0], -w[0]))


def _sized(job: JobView, stock: Stock, now: datetime) -> tuple[_SizedPool, ...]:
    """Return the pools in this order: those in time first; then those without a recent refusal; then reserved ones,
    which are paid for anyway; then by the cost of the whole job. Of those that are late the earliest comes first."""
    work, deadline, pools = job_outlook(job), job.submission.deadline_at, stock.on_demand_available
    if work is None or len(pools) < 2:
        sized_pools = [_SizedPool(p, 0.0, _refused(p, now), stock.work_usd(p)) for p in pools]
    else:
        later = delays(pools, job)
        by_pool = {p.key: _priced(job, stock, p, later.get(p.key, NO_LATER)) for p in pools}
        time = deadline - now - stock.tick if deadline is not None else None
        sized = rightsize(
            set(by_pool.values()), need=job.submission.spec.resources, work=work, time=time, nodes=job.nodes
        )
        sizes = {s.priced: s for s in sized}
        sized_pools = [
            _SizedPool(p, size.hours_upper if TOO_LATE in size.excluded else 0.0, _refused(p, now), size.usd)
            for p in pools
            for size in [sizes[by_pool[p.key]]]
        ]
    return tuple(sorted(sized_pools, key=lambda s: (s.late, s.refused, not s.pool.reserved, s.usd, s.pool.key)))


def _differ(costs: Sequence[float]) -> bool:
    return bool(costs) and max(costs) > min(costs) * (1 + INDIFFERENCE)


def _priced(job: JobView, stock: Stock, pool: PoolView, later: Changeover) -> PricedType:
    name = pool.instance_type.name
    return PricedType(
        instance_type=pool.instance_type,
        usd_per_hour=pool.usd_per_hour,
        speed=stock.speed(name),
        measured=name in job.measured_speeds,
        later=later,
    )


def _refused(pool: PoolView, now: datetime) -> float:
    """Return how fresh its last refusal is; 0 if that is long ago. So the pools are tried one after the other."""
    if not pool.refused_at:
        return 0.0
    return max(0.0, 1 - abs(now - pool.refused_at[-1]) / (2 * REFUSAL_HALF_LIFE))
