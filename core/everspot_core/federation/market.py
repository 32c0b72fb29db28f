"""The known market of a cluster, for jobs of other clusters."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from everspot_core.federation.standing import Idle
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.records import JobState
from everspot_core.schedule.conditions import start_blocker
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.market.stock import Stock, Stocks
from everspot_core.schedule.tariff import EPSILON, Tariff
from everspot_core.schedule.view import ClusterView, JobView, PoolKey, PoolView


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """The capacity that may still be launched under a cap: instances, and dollars an hour (None: any amount)."""

    instances: int
    usd_per_hour: float | None

    @classmethod
    def under(
        cls, instances: int, usd_per_hour: float | None, *, launched: int, launched_usd: float | None
    ) -> "Headroom":
        """Return the headroom under a cap of `instances` and of dollars an hour (None: any amount), less the launched
        capacity.

        `launched_usd` is None if a price is unknown. A cap in dollars then leaves no headroom.
        """
        usd_left = usd_per_hour
        if usd_per_hour is not None:
            usd_left = usd_per_hour - launched_usd if launched_usd is not None else 0.0
        return cls(instances=instances - launched, usd_per_hour=usd_left)

    def fits(self, count: int, usd_per_hour: float) -> bool:
        """Return whether `count` instances at this price each may be launched."""
        limit = self.usd_per_hour
        return count <= self.instances and (limit is None or count * usd_per_hour <= limit + EPSILON)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterMarket:
    """The pools of a cluster, and the headroom under its cap.

    - `cluster`: its name.
    - `unions`: the behavior of sets of pools, each taken as one pool. Other sets are joined from their pools.
    - `tick`: the longest time between two decisions of its scheduler.
    - `changeover`: of a job that moves there; None: the changeover that was measured for the job in its present
      cluster.
    - `headroom`: under its cap; None: there is no cap.
    - `promised`: instances that jobs wait for there, or that are promised to jobs on their way from other clusters.
      This many instances of each pool, of the headroom and of the idle instances are not available to others.
    - `idle`: the idle instances of its standing fleets.
    """

    cluster: str
    pools: tuple[PoolView, ...]
    unions: Mapping[frozenset[PoolKey], Behaviour]
    tick: timedelta
    changeover: Changeover | None = None
    headroom: Headroom | None = None
    promised: int = 0
    idle: tuple[Idle, ...] = ()
    _stocks: dict[datetime, Stocks] = field(default_factory=dict, init=False, repr=False)
    _joined: dict[int, Stock] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_view(
        cls, cluster: str, view: ClusterView, *, changeover: Changeover | None = None, promised: int = 0
    ) -> "ClusterMarket":
        """Return the market of the cluster with this view. `changeover`, `promised`: as the fields."""
        return cls(
            cluster=cluster,
            pools=view.pools,
            unions=view.unions,
            tick=view.tick,
            changeover=changeover,
            headroom=_headroom(view),
            promised=promised,
        )

    def stock(self, job: JobView, now: datetime) -> Stock:
        """Return the capacity of the pools for jobs of this job's kind."""
        if now not in self._stocks:
            self._stocks.clear()
            self._joined.clear()
            self._stocks[now] = Stocks([self._without_promised(p) for p in self.pools], self.unions, now, self.tick)
        stock = self._stocks[now].for_job(job)
        if id(stock) not in self._joined:  # the stocks live as long as this object, so the id stays unique
            self._joined[id(stock)] = self._together(stock)
        return self._joined[id(stock)]

    def _together(self, stock: Stock) -> Stock:
        """Return the stock with the joint behavior of its spot pools."""
        spot = frozenset(p.key for p in stock.spot_pools)
        if not spot or spot in self.unions:
            return stock
        return replace(stock, unions={spot: joined(p.behaviour for p in stock.spot_pools)})

    def fits(self, count: int, usd_per_hour: float) -> bool:
        """Return whether `count` instances at this price each fit under the cap."""
        room = self.headroom
        return room is None or replace(room, instances=room.instances - self.promised).fits(count, usd_per_hour)

    def _without_promised(self, pool: PoolView) -> PoolView:
        if pool.available is None or not self.promised:
            return pool
        return replace(pool, available=max(0, pool.available - self.promised))


def waited_for(view: ClusterView, now: datetime) -> int:
    """Return how many instances the jobs of a cluster that may run now still wait for. Instances that are being
    launched for them do not count."""
    coming = {i.launched_for for i in view.instances if i.launched}
    waiting = (j for j in view.jobs if j.state is JobState.PENDING and not j.cancel and j.job_id not in coming)
    return sum(j.nodes for j in waiting if start_blocker(j, now) is None)


def joined(pools: Iterable[Behaviour]) -> Behaviour:
    """Return the joint behavior of these pools: up while any of them is up."""
    turns = sorted((at, n, up) for n, pool in enumerate(pools) for at, up in _turns(pool))
    behaviour, up_now = Behaviour(), dict[int, bool]()
    for at, n, up in turns:
        up_now[n] = up
        behaviour = behaviour.observe(any(up_now.values()), at)
    return behaviour


def _turns(pool: Behaviour) -> Iterator[tuple[datetime, bool]]:
    """Yield the moments at which the pool went up or down, the latest first, and last the moment from which on it is
    known."""
    if pool.since is None:
        return
    at, up = pool.since, pool.up
    ups, downs = list(pool.ups), list(pool.downs)
    yield at, up
    while downs if up else ups:
        up = not up
        at -= timedelta(hours=(ups if up else downs).pop())
        yield at, up


def _headroom(view: ClusterView) -> Headroom | None:
    """Return the headroom under the view's cap; None without a cap."""
    if view.cap is None:
        return None
    launched, usd = Tariff(view).launched()
    return Headroom.under(view.cap.instances, view.cap.usd_per_hour, launched=launched, launched_usd=usd)
