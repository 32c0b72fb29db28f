"""The capacity of pools for all jobs of one kind. It is computed once for a plan, and not once for each job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from math import inf

from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import Market
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.market.failover import smaller
from everspot_core.schedule.market.policy import Spot
from everspot_core.schedule.market.ranking import just_noticed
from everspot_core.schedule.view import JobView, PoolKey, PoolView

Unions = Mapping[frozenset[PoolKey], Behaviour]

_Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stock:
    """The pools that can hold jobs of one kind. Such jobs have the same needs, number of instances and speeds.

    - `tick`: the longest time until the next decision.
    - `nodes`, `speeds`: of those jobs; a type that is not named has speed 1.
    - `unions`: how several pools have behaved together, as far as is known.
    - `on_demand_available`: the on-demand pools with enough capacity now for one such job.
    - `smaller`: a type that counts although it has less than the jobs ask for.
    """

    now: datetime
    tick: timedelta
    nodes: int
    speeds: Mapping[str, float]
    unions: Unions
    spot_pools: tuple[PoolView, ...]
    on_demand_pools: tuple[PoolView, ...]
    on_demand_available: tuple[PoolView, ...]
    smaller: str | None
    _spot: dict[float, Spot | None] = field(default_factory=dict, init=False, repr=False)

    def speed(self, instance_type: str) -> float:
        """Return work per hour on this type."""
        return self.speeds.get(instance_type, 1.0)

    def work_usd(self, pool: PoolView) -> float:
        """Return dollars for an hour of work at speed 1."""
        return pool.usd_per_hour / self.speed(pool.instance_type.name)

    def cheapest_pool(self, market: Market) -> PoolKey | None:
        """Return the pool of the market where work costs least, with or without capacity now."""
        return self._cheapest_spot if market is Market.SPOT else self._cheapest_on_demand

    @cached_property
    def on_demand_usd(self) -> float:
        """Dollars for an hour of work at speed 1 in the cheapest on-demand pool, with or without capacity now."""
        return min(map(self.work_usd, self.on_demand_pools), default=inf)

    @cached_property
    def spot_available(self) -> tuple[PoolView, ...]:
        """The spot pools with enough capacity now, without those that gave notice lately, unless all of them did."""
        available = [p for p in self.spot_pools if p.has_capacity(self.nodes)]
        return tuple([p for p in available if not just_noticed(p, self.now)] or available)

    @cached_property
    def on_demand_prospects(self) -> tuple[tuple[float, float], ...]:
        """The speeds of the on-demand pools with capacity now (of all, if none has), each with the longest recent time
        in hours for which its pool had no capacity."""
        pools = self.on_demand_available or self.on_demand_pools
        return tuple(dict.fromkeys((self.speed(p.instance_type.name), _driest(p.behaviour, self.now)) for p in pools))

    def spot(self, fastest: float) -> Spot | None:
        """Return spot for these jobs, at the speed `fastest`; None if no spot pool can hold them. Spot counts as up
        only if it is cheaper than on-demand."""
        if fastest not in self._spot:
            self._spot[fastest] = self._spot_at(fastest) if self.spot_pools else None
        return self._spot[fastest]

    def _spot_at(self, fastest: float) -> Spot:
        behaviour, usd = self._together, min(map(self.work_usd, self.spot_available or self.spot_pools))
        on_demand_usd = self.on_demand_usd if self.on_demand_pools else usd * 3
        up = bool(self.spot_available) and usd < on_demand_usd
        return Spot(
            up=up,
            # Capacity that this plan requests for another job is only assumed to exist, so the outage goes on.
            age=behaviour.outage(self.now) if not up else behaviour.age(self.now) if behaviour.up else 0.0,
            ups=behaviour.ups,
            downs=behaviour.downs,
            usd=usd * fastest,
            on_demand_usd=on_demand_usd * fastest,
        )

    @cached_property
    def _together(self) -> Behaviour:
        """How the spot pools have behaved as one; if that is not known, how the steadiest of them has behaved."""
        joint = self.unions.get(frozenset(p.key for p in self.spot_pools))
        if joint is not None:
            return joint
        return max((p.behaviour for p in self.spot_pools), key=_steadiness)

    @cached_property
    def _cheapest_spot(self) -> PoolKey | None:
        return self._cheapest(self.spot_pools)

    @cached_property
    def _cheapest_on_demand(self) -> PoolKey | None:
        return self._cheapest(self.on_demand_pools)

    def _cheapest(self, pools: Iterable[PoolView]) -> PoolKey | None:
        return min(((self.work_usd(p), p.key) for p in pools), default=(0.0, None))[1]


class Stocks:
    """The pools of a view, for each kind of job. Capacity that one job takes is not there for the next."""

    def __init__(self, pools: Sequence[PoolView], unions: Unions, now: datetime, tick: timedelta) -> None:
        """`tick`: the longest time until the next decision."""
        self._pools = {p.key: p for p in pools}
        self._unions, self._now, self._tick = unions, now, tick
        self._types = {p.instance_type.name: p.instance_type for p in pools}
        self._large_enough: dict[_Key, frozenset[str]] = {}
        self._stocks: dict[_Key, Stock] = {}

    def for_job(self, job: JobView) -> Stock:
        """Return the stock for jobs of this job's kind, as it is now."""
        need = job.submission.spec.resources
        want: _Key = need.gpus, need.gpu, need.gpu_memory_gib, need.vcpus, need.memory_gib, need.instance_types
        lesser = smaller(job, self._types.values(), self._now, self._tick) if job.measured else None
        less = lesser.name if lesser is not None else None
        key: _Key = want, job.nodes, tuple(job.speeds.items()) if job.speeds else (), less
        stock = self._stocks.get(key)
        if stock is None:
            if want not in self._large_enough:
                self._large_enough[want] = self._fitting(need)
            stock = self._stocks[key] = self._build(job, self._large_enough[want], less)
        return stock

    def take(self, pool: PoolKey, count: int) -> None:
        """Take `count` instances of the pool for a job."""
        before = self._pools[pool]
        if before.available is None:
            return
        after = self._pools[pool] = replace(before, available=before.available - count)
        changed = {
            s.nodes for s in self._stocks.values() if before.has_capacity(s.nodes) is not after.has_capacity(s.nodes)
        }
        if changed:
            self._stocks = {key: s for key, s in self._stocks.items() if s.nodes not in changed}

    def _fitting(self, requested: Resources) -> frozenset[str]:
        """Return the types that have all that is asked for."""
        return frozenset(name for name, kind in self._types.items() if fits(requested, Shape.from_machine(kind)))

    def _build(self, job: JobView, large_enough: frozenset[str], less: str | None) -> Stock:
        able = large_enough
        if job.speeds:
            able = frozenset(name for name in able if job.speeds.get(name, 1.0) > 0)
        type_names = able if less is None else able | {less}
        own_pools = [p for p in self._pools.values() if p.instance_type.name in type_names]
        on_demand = [p for p in own_pools if p.market is Market.ON_DEMAND]
        # Safety rests on on-demand: not on a type that is too small by what was asked for, unless there is no other.
        on_demand = [p for p in on_demand if p.instance_type.name in able] or on_demand
        return Stock(
            now=self._now,
            tick=self._tick,
            nodes=job.nodes,
            speeds=job.speeds,
            unions=self._unions,
            spot_pools=tuple(p for p in own_pools if p.market is Market.SPOT),
            on_demand_pools=tuple(on_demand),
            on_demand_available=tuple(p for p in on_demand if p.has_capacity(job.nodes)),
            smaller=less,
        )


def _steadiness(behaviour: Behaviour) -> float:
    up = sum(behaviour.ups)
    return (up + 1) / (up + sum(behaviour.downs) + 2)


def _driest(behaviour: Behaviour, now: datetime) -> float:
    present = 0.0 if behaviour.up or behaviour.since is None else behaviour.age(now)
    return max((present, *behaviour.downs))
