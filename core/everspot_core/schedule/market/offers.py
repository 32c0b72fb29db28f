"""What the pools offer a job, in the terms of the market policy: hours, and dollars for an hour of work."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from math import inf
from typing import NamedTuple

from everspot_core.fit import Shape, fits
from everspot_core.job import Resources
from everspot_core.records import Market
from everspot_core.schedule.jobs import HOUR, outlook_of
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.market.failover import smaller
from everspot_core.schedule.market.policy import Held, Need, Spot
from everspot_core.schedule.market.ranking import REFUSAL_HALF_LIFE, Ranked, rank
from everspot_core.schedule.market.rightsize import TOO_LATE, PricedType, rightsize
from everspot_core.schedule.view import ClusterView, JobView, Outlook, PoolKey, PoolView

INDIFFERENCE = 0.1
"""Where no pool costs so much more than another one for the same work, the cloud's own view of its capacity decides."""


class Acceptable(NamedTuple):
    """Pools of a market that would do, best first. `ordered`: the order makes a difference in what the work costs."""

    pools: tuple[PoolView, ...]
    ordered: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Offers:
    """The pools that can hold one job.

    - `giving`: the on-demand pools among them that would give it what it needs now.
    - `fastest`: the speed of the on-demand pool on which it would be done first. Hours of work are told at that speed.
    - `dry`: the longest time, in hours, for which that pool had no capacity lately.
    - `smaller`: a type that is taken although it lacks something that was asked for.
    """

    job: JobView
    now: datetime
    spot_pools: tuple[PoolView, ...]
    on_demand_pools: tuple[PoolView, ...]
    giving: tuple[PoolView, ...]
    fastest: float
    dry: float
    smaller: str | None

    @cached_property
    def spot(self) -> tuple[Ranked, ...]:
        """The spot pools that would give what the job needs now: the best first, those as dear as on-demand last."""
        giving = (p for p in self.spot_pools if p.gives(self.job.nodes))
        accept = {p.instance_type.name for p in self.spot_pools}  # what is too small is not among them, but the smaller
        ranked = rank(giving, self.job, self.now, must_run=True, accept=accept)
        return tuple(sorted(ranked, key=lambda r: self._dear(r.pool)))

    @cached_property
    def on_demand(self) -> tuple["_Sized", ...]:
        """On-demand that would give what the job needs now, best first."""
        return _sized(self.job, self.giving, self.now)

    def wished(self, market: Market) -> PoolKey | None:
        """The pool of the market where the job's work costs least, be there any capacity now or not."""
        pools = self.spot_pools if market is Market.SPOT else self.on_demand_pools
        return min(((_work_usd(self.job, p), p.key) for p in pools), default=(0.0, None))[1]

    def acceptable(self, market: Market) -> Acceptable:
        """All pools of the market that would do for one launch.

        Spot that costs as much as on-demand, and on-demand that is late, are among them only where all are like that.
        """
        if market is Market.SPOT:
            cheap = [r for r in self.spot if not self._dear(r.pool)] or list(self.spot)
            costs = [r.usd_per_useful_hour for r in cheap]
            return Acceptable(tuple(r.pool for r in cheap), _differ(costs))
        in_time = [s for s in self.on_demand if not s.late] or list(self.on_demand)
        other = any((s.late, s.refused, s.pool.reserved) != (0.0, 0.0, False) for s in in_time)
        return Acceptable(
            tuple(s.pool for s in in_time), len(in_time) > 1 and (other or _differ([s.usd for s in in_time]))
        )

    @cached_property
    def on_demand_usd(self) -> float:
        """Dollars for an hour of work at speed 1 on the cheapest on-demand, be there any now or not."""
        return min((_work_usd(self.job, p) for p in self.on_demand_pools), default=inf)

    def _dear(self, pool: PoolView) -> bool:
        return _work_usd(self.job, pool) >= self.on_demand_usd


class _Sized(NamedTuple):
    """An on-demand pool. `late`: hours that the job takes there at most, if that is too long, else 0; `refused`: how
    fresh its last refusal is; `usd`: what the job costs there, or an hour of its work where its length is unknown.
    """

    pool: PoolView
    late: float
    refused: float
    usd: float


def fitting(asked: Resources, pools: Iterable[PoolView]) -> frozenset[str]:
    """The types among these pools that have what is asked for."""
    types = {p.instance_type.name: p.instance_type for p in pools}
    return frozenset(name for name, kind in types.items() if fits(asked, Shape.of(kind)))


def offers_for(
    job: JobView, pools: Sequence[PoolView], now: datetime, large_enough: frozenset[str] | None = None
) -> Offers:
    """What these pools offer the job. Capacity that was handed out in this plan is no longer among them.

    `large_enough`: the types that have what it asks for, if that is worked out already.
    """
    types = fitting(job.submission.spec.resources, pools) if large_enough is None else large_enough
    lesser = (
        smaller(job, {p.instance_type.name: p.instance_type for p in pools}.values(), now) if job.measured else None
    )
    able = types if not job.speeds else {name for name in types if _speed(job, name) > 0}
    taken = able if lesser is None else able | {lesser.name}
    on_demand = [p for p in pools if p.market is Market.ON_DEMAND and p.instance_type.name in taken]
    # Safety rests on on-demand: not on a type that is too small by what was asked for, unless there is no other.
    on_demand = [p for p in on_demand if p.instance_type.name in able] or on_demand
    giving = tuple(p for p in on_demand if p.gives(job.nodes))
    fastest, dry = _resort(job, giving or on_demand, now)
    return Offers(
        job=job,
        now=now,
        spot_pools=tuple(p for p in pools if p.market is Market.SPOT and p.instance_type.name in taken),
        on_demand_pools=tuple(on_demand),
        giving=giving,
        fastest=fastest,
        dry=dry,
        smaller=lesser.name if lesser is not None else None,
    )


def need_of(
    work: Outlook, deadline: datetime, tick: timedelta, now: datetime, *, fastest: float = 1.0, dry: float = 0.0
) -> Need:
    """The need in hours, at the speed `fastest`. Where on-demand has run dry it may take `dry` hours: they
    are reckoned with.
    """
    return Need(
        time=(deadline - now) / HOUR,
        left=work.left / HOUR / fastest,
        left_upper=work.left_upper / HOUR / fastest,
        changeover=work.changeover / HOUR,
        changeover_upper=work.changeover_upper / HOUR + dry,
        tick=tick / HOUR,
    )


def held_of(job: JobView, market: Market, instance_type: str, changing: timedelta, offers: Offers) -> Held:
    """What it holds, in the terms of the market policy."""
    speed = _speed(job, instance_type) / offers.fastest
    return Held(market=market, changing=max(0.0, changing / HOUR), speed=speed)


def spot_of(job: JobView, view: ClusterView, offers: Offers, now: datetime) -> Spot | None:
    """Spot as this job can have it; None if no spot pool can hold it. It counts as up only below on-demand's price."""
    if not offers.spot_pools:
        return None
    behaviour = together(view, offers.spot_pools)
    giving = [r.pool for r in offers.spot] or offers.spot_pools
    usd = min(_work_usd(job, p) for p in giving)
    on_demand_usd = offers.on_demand_usd if offers.on_demand_pools else usd * 3
    up = bool(offers.spot) and usd < on_demand_usd
    return Spot(
        up=up,
        age=behaviour.age(now) if behaviour.up == up else 0.0,
        ups=behaviour.ups,
        downs=behaviour.downs,
        usd=usd * offers.fastest,
        on_demand_usd=on_demand_usd * offers.fastest,
    )


def together(view: ClusterView, pools: Iterable[PoolView]) -> Behaviour:
    """How spot has behaved as a whole, there being any of these pools; failing that, as the steadiest of them."""
    chosen = tuple(pools)
    known = view.unions.get(frozenset(p.key for p in chosen))
    if known is not None:
        return known
    return max((p.behaviour for p in chosen), key=lambda b: (sum(b.ups) + 1) / (sum(b.ups) + sum(b.downs) + 2))


def _speed(job: JobView, instance_type: str) -> float:
    return job.speeds.get(instance_type, 1.0)


def _work_usd(job: JobView, pool: PoolView) -> float:
    """Dollars for an hour of work at speed 1."""
    return pool.usd_per_hour / _speed(job, pool.instance_type.name)


def _resort(job: JobView, pools: Sequence[PoolView], now: datetime) -> tuple[float, float]:
    """Speed and driest spell of the pool on which the job would be done first if it had to go there now."""
    work = outlook_of(job)
    left = work.left_upper / HOUR if work is not None else 0.0
    ways = [(_speed(job, p.instance_type.name), _driest(p.behaviour, now)) for p in pools]
    return min(ways, key=lambda w: (w[1] + left / w[0], -w[0]), default=(1.0, 0.0))


def _sized(job: JobView, pools: Sequence[PoolView], now: datetime) -> tuple[_Sized, ...]:
    """Those first that are in time, then those that did not refuse of late, then reserved ones, which are paid for
    anyway; of equals what the whole job costs decides. Of those that are late, the earliest first.
    """
    work, deadline = outlook_of(job), job.submission.deadline_at
    if work is None or len(pools) < 2:
        found = [_Sized(p, 0.0, _refused(p, now), _work_usd(job, p)) for p in pools]
    else:
        by_pool = {p.key: _priced(job, p) for p in pools}
        time = deadline - now if deadline is not None else None
        sized = rightsize(
            set(by_pool.values()), need=job.submission.spec.resources, work=work, time=time, nodes=job.nodes
        )
        sizes = {s.priced: s for s in sized}
        found = [
            _Sized(p, size.hours_upper if TOO_LATE in size.excluded else 0.0, _refused(p, now), size.usd)
            for p in pools
            for size in [sizes[by_pool[p.key]]]
        ]
    return tuple(sorted(found, key=lambda s: (s.late, s.refused, not s.pool.reserved, s.usd, s.pool.key)))


def _differ(costs: Sequence[float]) -> bool:
    return bool(costs) and max(costs) > min(costs) * (1 + INDIFFERENCE)


def _priced(job: JobView, pool: PoolView) -> PricedType:
    name = pool.instance_type.name
    return PricedType(
        instance_type=pool.instance_type,
        usd_per_hour=pool.usd_per_hour,
        speed=_speed(job, name),
        measured=name in job.measured_speeds,
    )


def _refused(pool: PoolView, now: datetime) -> float:
    """How fresh its last refusal is; 0 if that is long ago. So one after the other is tried, and then again."""
    if not pool.refused_at:
        return 0.0
    return max(0.0, 1 - (now - pool.refused_at[-1]) / (2 * REFUSAL_HALF_LIFE))


def _driest(behaviour: Behaviour, now: datetime) -> float:
    present = 0.0 if behaviour.up or behaviour.since is None else behaviour.age(now)
    return max((present, *behaviour.downs))
