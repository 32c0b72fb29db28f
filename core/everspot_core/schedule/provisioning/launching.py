"""Which pools are asked for the instances that a job needs: the best, and those that would do instead of it."""

from dataclasses import replace
from datetime import datetime

from everspot_core.records import Market
from everspot_core.schedule.actions import Launch, Why
from everspot_core.schedule.market.failover import PREEMPTIONS
from everspot_core.schedule.market.offers import Offers, offers_for
from everspot_core.schedule.market.policy import MarketChoice
from everspot_core.schedule.provisioning.launches import Launches
from everspot_core.schedule.view import ClusterView, JobView, PoolView


class Launching:
    """The pools, less what this plan has launched of them. What a pool gives to one job is not counted for the next."""

    def __init__(self, view: ClusterView, now: datetime, launches: Launches) -> None:
        self._now, self._launches = now, launches
        self._pools = list(view.pools)

    def offers(self, job: JobView) -> Offers:
        """What is left for the job."""
        return offers_for(job, self._pools, self._now)

    def launch(self, job: JobView, to: MarketChoice, offers: Offers) -> Launch | None:
        """Instances of the market; None if no pool has enough. Pools that failed in this round come in question only
        where there are no others.
        """
        able = offers.acceptable(Market.SPOT if to.market is Market.SPOT else Market.ON_DEMAND)
        pools = [p for p in able.pools if p.key not in self._launches.failed] or list(able.pools)
        if not pools:
            return None
        self._take(pools[0], job.nodes)
        first = pools[0].key
        less = first.instance_type == offers.smaller
        return Launch(
            job_id=job.job_id,
            instance_type=first.instance_type,
            zone=first.zone,
            market=first.market,
            ranked=tuple(p.key for p in pools),
            ordered=able.ordered,
            count=job.nodes,
            why=Why.SMALLER_TYPE if less else to.why,
            figures={"preemptions": PREEMPTIONS} if less else to.figures,
        )

    def _take(self, pool: PoolView, count: int) -> None:
        if pool.available is not None:
            at = next(n for n, p in enumerate(self._pools) if p.key == pool.key)
            self._pools[at] = replace(pool, available=pool.available - count)
