"""Chooses the market for a job: by its deadline if it has one, otherwise by how often it was preempted."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from everspot_core.jobs.records import Market
from everspot_core.jobs.timing import BadZone, finish
from everspot_core.schedule.actions import ReasonFigures, Why
from everspot_core.schedule.jobs import HOUR, STARVATION_LIMIT, critical, job_outlook, waiting_since
from everspot_core.schedule.lengths import changeover_bound
from everspot_core.schedule.market.failover import failed_over
from everspot_core.schedule.market.offers import Offers, build_need, describe_held
from everspot_core.schedule.market.policy import MarketChoice, Need, Spot, choose_market, is_safe, to_spare
from everspot_core.schedule.view import InstanceView, JobView, Outlook, PoolView, instance_pool

NO_TIME = timedelta(0)
LATE = 0.1
"""A job that misses its deadline by more than this fraction of the time that it had, and by more than a changeover, on
the fastest on-demand instance that it has or could have now, is late: the deadline no longer justifies on-demand.
Below, the estimate may be wrong by as much."""


class MarketContext(Protocol):
    """The facts that the policy needs beside a job and its offers. A `ClusterView` has them, and so has a
    `ClusterMarket`."""

    @property
    def pools(self) -> Iterable[PoolView]:
        """All pools."""

    @property
    def tick(self) -> timedelta:
        """The next decision comes after this time at the latest."""


class Steering:
    """The market policy for the jobs of one view."""

    def __init__(self, view: MarketContext, now: datetime) -> None:
        self._view, self._now = view, now

    def steer(
        self,
        job: JobView,
        on: InstanceView | None,
        offers: Offers,
        *,
        moving: bool,
        early: timedelta = NO_TIME,
    ) -> MarketChoice:
        """Return the market that suits the job.

        `on`: the instance that it holds (`moving`), or that is on its way to it (not `moving`). `early`: assume that
        the deadline is this much earlier.
        """
        if critical(job):
            return MarketChoice(market=Market.ON_DEMAND, cause=Why.CRITICAL, figures={"market": Market.ON_DEMAND.value})
        spot, need, work = offers.stock.spot(offers.fastest), self._need(job, offers), job_outlook(job)
        if need is None and not _of_unknown_length(job):
            return self._without_deadline(job, on, offers, spot)
        if need is None or work is None:
            up = spot is not None and spot.up
            current_market = instance_market(on) if on is not None else Market.SPOT if up else Market.ON_DEMAND
            return MarketChoice(market=current_market, cause=Why.UNKNOWN_LENGTH)
        current = None
        if on is not None:
            changing = work.changing if moving else self._changing(on, work)
            current = describe_held(job, instance_market(on), _type(on), changing, offers)
        return choose_market(replace(need, time=need.time - early / HOUR), current, spot)

    def is_safe(self, job: JobView, offers: Offers) -> bool:
        """Return whether there is time for spot; always true without a deadline, or if the job's length is unknown."""
        need = self._need(job, offers)
        return need is None or is_safe(need)

    def on_demand_at(self, job: JobView, offers: Offers) -> datetime | None:
        """Return the latest moment at which on-demand is launched for a job without an instance, if no spot comes.
        On-demand may pay sooner. None if no on-demand pool can hold it, or if the moment has passed."""
        if not offers.on_demand_pools or _of_unknown_length(job):
            return None
        need = self._need(job, offers)
        at: datetime | None
        try:
            if need is None:
                end, window = waiting_since(job) + STARVATION_LIMIT, job.submission.spec.window
                at = window.opens(end) if window is not None else end
            else:
                at = self._after_spare_time(job, to_spare(need) * HOUR)
        except BadZone:  # it never runs here
            return None
        return at if at is not None and at > self._now else None

    def risk(self, job: JobView, offers: Offers) -> MarketChoice:
        """Return the reason to give if on-demand is needed and has no capacity."""
        need = self._need(job, offers)
        if need is None:
            tried = len(offers.spot_pools) + len(offers.on_demand_pools)
            return MarketChoice(market=Market.ON_DEMAND, cause=Why.NO_CAPACITY, figures={"tried": tried})
        figures: ReasonFigures = {"left_hours": need.remaining_upper, "time_hours": need.time}
        return MarketChoice(market=Market.ON_DEMAND, cause=Why.AT_RISK, figures=figures)

    def _without_deadline(
        self, job: JobView, on: InstanceView | None, offers: Offers, spot: Spot | None
    ) -> MarketChoice:
        """Return the market for a job without a deadline, by how often it was preempted."""
        since = on.launched_at if on is not None and instance_market(on) is Market.ON_DEMAND else None
        preference = failed_over(job, self._view.pools, self._now, since)
        if preference.market is Market.ON_DEMAND:
            return MarketChoice(market=Market.ON_DEMAND, cause=preference.cause, figures=preference.figures)
        if spot is not None and (spot.up or (on is not None and instance_market(on) is Market.SPOT)):
            return MarketChoice(market=Market.SPOT, cause=preference.cause, figures=preference.figures)
        if on is not None:
            return runs_well(instance_market(on))
        if spot is None:
            return MarketChoice(market=Market.ON_DEMAND, cause=Why.NO_SPOT)
        figures: ReasonFigures = {"rank": 0, "market": Market.ON_DEMAND.value}
        if offers.spot:
            return MarketChoice(market=Market.ON_DEMAND, cause=Why.OTHER_MARKET, figures=figures)
        waited = self._now - waiting_since(job)
        if waited >= STARVATION_LIMIT:
            return MarketChoice(market=Market.ON_DEMAND, cause=Why.WAITED_LONG, figures={"hours": waited / HOUR})
        figures = {"hours": waited / HOUR, "limit_hours": STARVATION_LIMIT / HOUR}
        return MarketChoice(market=None, cause=Why.NO_SPOT_YET, figures=figures)

    def _need(self, job: JobView, offers: Offers) -> Need | None:
        """Return the need by the job's deadline; None without a deadline, for unknown length, or if the job is LATE."""
        deadline, work = job.submission.deadline_at, job_outlook(job)
        if deadline is None or work is None:
            return None
        need = build_need(work, deadline, self._view.tick, self._now, fastest=offers.fastest, dry=offers.dry)
        tolerance = LATE * ((deadline - job.submission.submitted_at) / HOUR)
        lateness = work.remaining / HOUR / offers.attainable - need.time
        return None if lateness > max(tolerance, need.changeover_upper) else need

    def _after_spare_time(self, job: JobView, spare_time: timedelta) -> datetime | None:
        """Return when a waiting job has no more spare time. The spare time only passes within the job's hours, and not
        in the last part of a window, in which no changeover ends: as in its shortened deadline."""
        changeover = changeover_bound(job)
        end = finish(self._now, max(NO_TIME, spare_time), changeover, job.submission.spec.window)
        return end - changeover if end is not None else None

    def _changing(self, instance: InstanceView, work: Outlook) -> timedelta:
        """Return the longest time until the instance on its way works; at least until the next decision."""
        begun = instance.launched_at or self._now
        return max(self._view.tick, work.changeover_upper - (self._now - begun))


def instance_market(instance: InstanceView) -> Market:
    """Return the instance's market. An unknown one counts as on-demand, so that no job leaves it by mistake."""
    kind = instance_pool(instance)
    return kind.market if kind is not None else Market.ON_DEMAND


def runs_well(market: Market) -> MarketChoice:
    """Return the choice to stay where it is."""
    return MarketChoice(market=market, cause=Why.RUNS_WELL, figures={"market": market.value})


def _of_unknown_length(job: JobView) -> bool:
    """Return whether the job has a deadline, and nothing is known of its length."""
    return job.submission.deadline_at is not None and job_outlook(job) is None


def _type(instance: InstanceView) -> str:
    kind = instance_pool(instance)
    return kind.instance_type if kind is not None else ""
