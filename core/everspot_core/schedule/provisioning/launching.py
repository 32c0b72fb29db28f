"""Which pools are asked for the instances that a job needs: the best, and those that would do instead of it."""

from collections.abc import Iterable
from datetime import datetime

from everspot_core.records import Market
from everspot_core.schedule.actions import Figures, Launch, Why
from everspot_core.schedule.admission import Admission
from everspot_core.schedule.market.failover import PREEMPTIONS
from everspot_core.schedule.market.offers import Acceptable, Offers, offers_of
from everspot_core.schedule.market.policy import MarketChoice
from everspot_core.schedule.market.stock import Stocks
from everspot_core.schedule.provisioning.launches import Launches
from everspot_core.schedule.provisioning.room import Room
from everspot_core.schedule.view import ClusterView, InstanceView, JobView


class Launching:
    """The pools, less what this plan has launched of them. What a pool gives to one job is not counted for the next."""

    def __init__(self, view: ClusterView, now: datetime, launches: Launches, admission: Admission) -> None:
        self._now, self._launches, self._admission = now, launches, admission
        self._stocks = Stocks(view.pools, view.unions, now)
        self._room = Room(view)
        self._at_cap: dict[str, Figures] = {}

    def offers(self, job: JobView) -> Offers:
        """What is left for the job."""
        return offers_of(self._stocks.of(job), job, self._now)

    def launch(self, job: JobView, to: MarketChoice, offers: Offers) -> Launch | None:
        """Instances of the market; None if no pool has enough, or none that has leaves the cap."""
        able = self._able(to, offers)
        pools = [p for p in able.pools if self._room.fits(job.nodes, p.usd_per_hour)]
        if not pools:
            if able.pools:
                usd = min(p.usd_per_hour for p in able.pools)
                self._at_cap[job.job_id] = self._room.figures(job.nodes, usd)
            return None
        usd, gpus = max(p.usd_per_hour for p in pools), max(p.instance_type.gpus for p in pools)
        self._room.take(job.nodes, usd)
        self._stocks.take(pools[0].key, job.nodes)
        self._admission.charge(job, usd * job.nodes, gpus * job.nodes)
        first = pools[0].key
        less = first.instance_type == offers.stock.smaller
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

    def fits_instead(self, job: JobView, to: MarketChoice, offers: Offers, of: Iterable[InstanceView]) -> bool:
        """Whether it is these launched instances alone that take the room from what the job needs now."""
        able, given_up = self._able(to, offers), list(of)
        return any(self._room.fits(job.nodes, p.usd_per_hour, without=given_up) for p in able.pools)

    def at_cap(self, job: JobView) -> MarketChoice | None:
        """What is to be said to a job for which there is capacity, and no room under the cap; None for all others."""
        figures = self._at_cap.get(job.job_id)
        return MarketChoice(market=None, why=Why.AT_CAP, figures=figures) if figures is not None else None

    @property
    def pressed(self) -> bool:
        """Whether somebody waits for room under the cap."""
        return bool(self._at_cap)

    def reserve(self, job: JobView, offers: Offers) -> None:
        """Room for the on-demand that a job with a deadline may need later: those behind it do not get it."""
        if job.submission.deadline_at is not None:
            usd = min((p.usd_per_hour for p in offers.on_demand_pools), default=0.0)
            self._room.reserve(job.nodes, usd)

    def keep_room(self, job: JobView, offers: Offers) -> None:
        """The room that becomes free is this job's: nobody behind it takes it away bit by bit. Not for one for which
        there will never be enough.
        """
        pools = (*offers.spot_pools, *offers.on_demand_pools)
        if any(self._room.ever(job.nodes, p.usd_per_hour) for p in pools):
            self._room.close()

    def _able(self, to: MarketChoice, offers: Offers) -> Acceptable:
        """Pools that failed in this round come in question only where there are no others."""
        able = offers.acceptable(Market.SPOT if to.market is Market.SPOT else Market.ON_DEMAND)
        sound = tuple(p for p in able.pools if p.key not in self._launches.failed)
        return able._replace(pools=sound or able.pools)
