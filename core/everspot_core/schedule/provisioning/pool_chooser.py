"""Chooses the pools of a launch: the best one, and its substitutes."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.lower_precision import exceeds
from everspot_core.jobs.records import Market
from everspot_core.schedule.actions import Hold, Launch, ReasonFigures, Refuse, Why
from everspot_core.schedule.admission import Admission
from everspot_core.schedule.jobs import job_outlook
from everspot_core.schedule.market.failover import PREEMPTIONS
from everspot_core.schedule.market.offers import Acceptable, Offers, build_offers, own_on_demand_types
from everspot_core.schedule.market.policy import MarketChoice
from everspot_core.schedule.market.stock import Stocks
from everspot_core.schedule.provisioning.feasibility import refusal
from everspot_core.schedule.provisioning.launch_cap import CapRoom
from everspot_core.schedule.provisioning.pending_launches import Launches
from everspot_core.schedule.provisioning.suspension import suspensions_in
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, PoolKey, PoolView

UNKNOWN_LENGTH = timedelta(days=7)
"""The time for which a job of unknown length is assumed to hold its instance, where others reserve room under the cap.
After as long a wait a job comes before all others."""


class PoolChooser:
    """The pools of all types that are not suspended, less the capacity that this plan has launched from them, so that
    no capacity counts for two jobs."""

    def __init__(self, view: ClusterView, now: datetime, launches: Launches, admission: Admission) -> None:
        self._now, self._launches, self._admission = now, launches, admission
        self._lasting_changeover, self._tick = view.lasting_changeover, view.tick
        suspensions = suspensions_in(view, now)
        self._suspended = {
            p.instance_type.name: (p.instance_type, suspensions[p.instance_type.name])
            for p in view.pools
            if p.instance_type.name in suspensions
        }
        sound_pools = [p for p in view.pools if p.instance_type.name not in self._suspended]
        self._stocks = Stocks(sound_pools, view.unions, now, view.tick)
        self._own_types = own_on_demand_types(view.instances)
        self._room = CapRoom(view)
        self._at_cap: dict[str, ReasonFigures] = {}

    def offers(self, job: JobView) -> Offers:
        """Return the offers that are left for the job."""
        return build_offers(self._stocks.for_job(job), job, self._now, self._own_types.get(job.job_id, ()))

    def hold_for_suspension(self, job: JobView) -> Hold | None:
        """Return the hold of a job that one of the suspended types could hold; None if none of them could."""
        shape = job.submission.spec.resources
        for name in sorted(self._suspended):
            kind, suspension = self._suspended[name]
            if fits(shape, Shape.from_machine(kind)):
                return Hold(job_id=job.job_id, cause=Why.TYPE_SUSPENDED, figures=suspension.figures)
        return None

    def refusal(self, job: JobView, offers: Offers) -> Refuse | None:
        """Return the refusal of a job whose deadline is infeasible. No job is refused for a suspension, which ends."""
        if self.hold_for_suspension(job) is not None:
            return None
        return refusal(job, offers, self._now, self._tick, self._lasting_changeover)

    def launch(self, job: JobView, to: MarketChoice, offers: Offers) -> Launch | None:
        """Return a launch in the market; None if no pool has enough instances, or none of these fits under the cap."""
        able = self._able(to, offers)
        pools = [p for p in able.pools if self._fits(job, p, offers)]
        if not pools:
            if able.pools:
                cheapest = min(able.pools, key=lambda pool: pool.usd_per_hour)
                until = self._gone_by(job, cheapest.key, offers)
                self._at_cap[job.job_id] = self._room.figures(job.nodes, cheapest.usd_per_hour, until)
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
            cause=_why_smaller(job, pools[0]) if less else to.cause,
            figures={"preemptions": PREEMPTIONS} if less else to.figures,
        )

    def fits_instead(self, job: JobView, to: MarketChoice, offers: Offers, instances: Iterable[InstanceView]) -> bool:
        """Return whether the job's launch would fit under the cap if these launched instances were gone."""
        able, given_up = self._able(to, offers), list(instances)
        return any(self._fits(job, p, offers, without=given_up) for p in able.pools)

    def at_cap(self, job: JobView) -> MarketChoice | None:
        """Return the reason of a job for which there is capacity but no room under the cap; None for all others."""
        figures = self._at_cap.get(job.job_id)
        return MarketChoice(market=None, cause=Why.AT_CAP, figures=figures) if figures is not None else None

    @property
    def pressed(self) -> bool:
        """Whether a job waits for room under the cap."""
        return bool(self._at_cap)

    def reserve(self, job: JobView, offers: Offers, since: datetime | None) -> None:
        """Reserve room for the on-demand instance that a job with a deadline may need later, against later jobs; unless
        the cap can never fit the instance.

        Args:
            since: When the instance is launched at the latest; None: at any moment.
        """
        usd = min((p.usd_per_hour for p in offers.on_demand_pools), default=0.0)
        if job.submission.deadline_at is not None and self._room.ever(job.nodes, usd):
            self._room.reserve(job.nodes, usd, since)

    def keep_room(self, job: JobView, offers: Offers) -> None:
        """Keep room that becomes free for this job, so that later jobs do not take it bit by bit; unless the cap can
        never fit the job in a pool that has capacity now. Without one the job would not use the room."""
        pools = (*offers.acceptable(Market.SPOT).pools, *offers.acceptable(Market.ON_DEMAND).pools)
        if any(self._room.ever(job.nodes, p.usd_per_hour) for p in pools):
            self._room.close()

    def _gone_by(self, job: JobView, pool: PoolKey, offers: Offers) -> datetime:
        """Return when an instance of the pool that the job gets now has ended again at the latest. The second
        changeover is for the end of the instance. A job with hours ends no later than that: it gives its instance back
        when they end, and its next one is judged anew."""
        work, speed = job_outlook(job), offers.stock.speed(pool.instance_type)
        if work is None or speed <= 0:
            return self._now + UNKNOWN_LENGTH
        return self._now + work.remaining_upper / speed + 2 * work.changeover_upper

    def _fits(self, job: JobView, pool: PoolView, offers: Offers, *, without: Iterable[InstanceView] = ()) -> bool:
        until = self._gone_by(job, pool.key, offers)
        return self._room.fits(job.nodes, pool.usd_per_hour, without, until=until)

    def _able(self, to: MarketChoice, offers: Offers) -> Acceptable:
        """Return the acceptable pools; those that failed in this round only if there are no others."""
        able = offers.acceptable(Market.SPOT if to.market is Market.SPOT else Market.ON_DEMAND)
        sound = tuple(p for p in able.pools if p.key not in self._launches.failed)
        return able._replace(pools=sound or able.pools)


def _why_smaller(job: JobView, pool: PoolView) -> Why:
    """Return why the job gets a smaller type: unchanged, or in mixed precision only."""
    used = job.measured.gpu_memory_gib if job.measured is not None else None
    return Why.SMALLER_MIXED if exceeds(used, pool.instance_type.gpu_memory_gib) else Why.SMALLER_TYPE
