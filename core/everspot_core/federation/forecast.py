"""Forecasts what a job costs, when it ends at the latest, and whether it gets an instance now, if a cluster finishes
it.

The figures come from the functions of the market that the plan of that cluster uses (`schedule/market`). So a
forecast never promises what the plan of that cluster would not do. The cost assumes that the job alternates between
spot, waiting and on-demand as the market policy would. The latest end assumes that the job goes on-demand immediately,
as the policy does under time pressure.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from everspot_core.capacity.market import Market
from everspot_core.cluster.peers import Peer
from everspot_core.federation.data_locality import NO_INPUTS, Inputs
from everspot_core.federation.decision import UNKNOWN_LENGTH, Forecast
from everspot_core.federation.market import ClusterMarket
from everspot_core.federation.migration import GIGABYTE
from everspot_core.federation.standing import choose_idle, on_idle
from everspot_core.schedule.conditions import start_blocker
from everspot_core.schedule.jobs import HOUR, STARVATION_LIMIT, critical, job_outlook, waiting_since
from everspot_core.schedule.market.failover import failed_over
from everspot_core.schedule.market.lifetimes import DOWNS, UPS, learnt
from everspot_core.schedule.market.offers import Offers, build_need, build_offers, describe_held
from everspot_core.schedule.market.policy import (
    HeldCapacity,
    Need,
    Spot,
    choose_market,
    is_safe,
    strategy_table,
    to_spare,
)
from everspot_core.schedule.market.steering import Steering
from everspot_core.schedule.view import JobView, PoolKey, PoolView

ANSWER_TIME, ANSWER_TIME_UPPER = timedelta(minutes=2), timedelta(minutes=10)
"""The time that a cluster takes to answer an offer: expected, and at most."""
UPPER_FACTOR = 2.0
"""The upper bound of a move's duration, as a multiple of the expected duration."""
COPIED_PER_HOUR = 200.0
"""GB that a scheduler on a small machine copies between two clouds in an hour, through one stream."""
NO_DEADLINE = timedelta(days=365)
"""The deadline that is assumed for a job without one, far enough away to have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCost:
    """The move to another cluster: its price, and its duration from the offer until the job is in that cluster's queue
    with its checkpoint, expected and at most (`upper`). `inputs`: the bytes that the job needs there."""

    usd: float
    expected: timedelta
    upper: timedelta
    inputs: Inputs = NO_INPUTS

    @classmethod
    def for_bytes(cls, gigabytes: float, usd_per_gigabyte: float, gigabytes_per_hour: float) -> "MoveCost":
        """Return the move of this many bytes: the newest checkpoint, and the code and the data that the other cluster
        lacks.

        `usd_per_gigabyte`: the price of the cloud that the bytes leave.
        """
        copying = timedelta(hours=gigabytes / gigabytes_per_hour)
        return cls(
            usd=gigabytes * usd_per_gigabyte,
            expected=ANSWER_TIME + copying,
            upper=ANSWER_TIME_UPPER + UPPER_FACTOR * copying,
        )

    @classmethod
    def for_inputs(cls, inputs: Inputs, usd_per_gigabyte: float, gigabytes_per_hour: float) -> "MoveCost":
        """Return the move of a job with these inputs, as `for_bytes` does for the bytes that are sent."""
        move_cost = cls.for_bytes(inputs.sent_bytes / GIGABYTE, usd_per_gigabyte, gigabytes_per_hour)
        return replace(move_cost, inputs=inputs)

    def __add__(self, other: "MoveCost") -> "MoveCost":
        """Return this move followed by another one, to the cluster that has the job at the end."""
        return MoveCost(
            usd=self.usd + other.usd, expected=self.expected + other.expected, upper=self.upper + other.upper,
            inputs=other.inputs,
        )  # fmt: skip


STAYING = MoveCost(usd=0.0, expected=timedelta(0), upper=timedelta(0))


def move_cost_to(inputs: Inputs, peer: Peer) -> MoveCost:
    """Return the cost of a move between a cluster and its peer, at the price of what is sent between the two."""
    return MoveCost.for_inputs(inputs, peer.egress_usd_per_gb, COPIED_PER_HOUR)


def may_move(job: JobView, now: datetime) -> bool:
    """Return whether a job may be offered to other clusters at all: it has not ended, is not cancelled, is in no
    back-off, and may run now."""
    not_before = job.record.not_before if job.record is not None else None
    if job.state.final or job.cancel or (not_before is not None and not_before > now):
        return False
    return start_blocker(job, now) is None


def forecast_job(
    job: JobView,
    market: ClusterMarket,
    now: datetime,
    *,
    held_pool: PoolKey | None = None,
    move_cost: MoveCost = STAYING,
) -> Forecast:
    """Return the forecast of the job in a cluster.

    `held_pool`: the pool of the instances that it holds there, or that are being launched for it. `move_cost`: the move
    there; for another cluster than the job's own, the changeover is that cluster's.
    """
    if move_cost is not STAYING and market.changeover is not None:
        job = _with_changeover(job, market)
    stock = market.stock(job, now)
    own_types = {held_pool.instance_type} if held_pool is not None and held_pool.market is Market.ON_DEMAND else ()
    offers = build_offers(stock, job, now, own_types)
    pools = (*offers.spot_pools, *offers.on_demand_pools)
    available = [p for p in pools if p.has_capacity(job.nodes)]
    room = [p for p in available if market.fits(job.nodes, p.usd_per_hour)]
    hourly = min((stock.work_usd(p) for p in room or pools), default=None)
    placed, reason, since = held_pool is not None or _placed(job, market, offers, room, now), "", None
    if not placed:
        reason, since = _lack_of_capacity(job, offers, available, room, now)
        if not market.pools:
            reason, since = "none of its instances is free for it", min(now, waiting_since(job))
    done_by = _done_by(job, market, offers, held_pool, move_cost, now)
    estimate = Forecast(
        cluster=market.cluster,
        feasible=held_pool is not None or bool(room),
        placed=placed,
        usd=_usd(job, market, offers, held_pool, move_cost, now),
        on_demand_usd=_on_demand_usd(job, offers, move_cost),
        done_by=done_by,
        restart_by=done_by if held_pool is None else _done_by(job, market, offers, None, move_cost, now),
        usd_per_hour=None if hourly is None else hourly * job.nodes,
        dry_since=since,
        move_usd=move_cost.usd,
        inputs=move_cost.inputs,
        reason=reason,
    )
    idle_instance = choose_idle(job, market.idle, market.promised) if held_pool is None else None
    return estimate if idle_instance is None else on_idle(estimate, job, idle_instance, move_cost.upper, now)


def _placed(job: JobView, market: ClusterMarket, offers: Offers, room: list[PoolView], now: datetime) -> bool:
    """Return whether the plan there would have an instance for a job without one. If the plan would use on-demand, spot
    capacity counts as well."""
    to = Steering(market, now).steer(job, None, offers, moving=False).market
    return to is not None and any(to is Market.ON_DEMAND or p.market is to for p in room)


def _with_changeover(job: JobView, market: ClusterMarket) -> JobView:
    """Return the job as it would be in that cluster, with its changeover."""
    work, changeover = job_outlook(job), market.changeover
    if work is None or changeover is None:
        return job
    changed = replace(work, changeover=changeover.expected, changeover_upper=changeover.upper, changing=timedelta(0))
    return replace(job, outlook=changed)


def _lack_of_capacity(
    job: JobView, offers: Offers, available: list[PoolView], room: list[PoolView], now: datetime
) -> tuple[str, datetime | None]:
    """Return why there is no capacity for the job, and since when (None: no type can ever hold it). With pools in
    `room` the job could run now, and waits for spot by its own choice."""
    pools, waits = (*offers.spot_pools, *offers.on_demand_pools), min(now, waiting_since(job))
    if not pools:
        return "no instance type there can hold it", None
    if available and not room:
        return "the cap leaves no room for it", waits
    if room:
        pools = offers.spot_pools
    dry_moments = [p.behaviour.since for p in pools if not p.behaviour.up and p.behaviour.since is not None]
    since = max(dry_moments, default=waits)
    if any(p.market is Market.SPOT for p in room):
        return "spot there has not lasted long enough for it, and on-demand is not its turn yet", since
    if room:
        return f"none of {len(pools)} spot pools has capacity for it, and on-demand is not its turn yet", since
    return f"none of {len(pools)} pools has capacity for it", since


def _on_demand_usd(job: JobView, offers: Offers, move_cost: MoveCost) -> float | None:
    """Return the cost of the remaining work on the cheapest on-demand pool, with a changeover and the move; None if no
    pool can hold the job."""
    if not offers.on_demand_pools:
        return None
    work = job_outlook(job)
    span = UNKNOWN_LENGTH if work is None else work.remaining + work.changeover
    return span / HOUR * offers.stock.on_demand_usd * job.nodes + move_cost.usd


def _done_by(
    job: JobView, market: ClusterMarket, offers: Offers, held_pool: PoolKey | None, move_cost: MoveCost, now: datetime
) -> datetime | None:
    """Return the latest end on on-demand; None without an on-demand pool that has capacity."""
    work = job_outlook(job)
    if work is None:
        return None
    if held_pool is not None and held_pool.market is Market.ON_DEMAND:
        return now + work.changing + work.remaining_upper / offers.stock.speed(held_pool.instance_type)
    pools = offers.on_demand_pools
    if not pools or not (held_pool or any(market.fits(job.nodes, p.usd_per_hour) for p in pools)):
        return None
    dry = timedelta(0) if offers.stock.on_demand_available else offers.dry * HOUR
    return now + move_cost.upper + dry + market.tick + work.changeover_upper + work.remaining_upper / offers.fastest


def _usd(
    job: JobView, market: ClusterMarket, offers: Offers, held_pool: PoolKey | None, move_cost: MoveCost, now: datetime
) -> float | None:
    """Return the expected cost of the remaining work; None if the job's length is unknown, or no pool can hold it."""
    work, stock = job_outlook(job), offers.stock
    if work is None or not (offers.spot_pools or offers.on_demand_pools):
        return None
    spot = stock.spot(offers.fastest)
    deadline = job.submission.deadline_at or now + NO_DEADLINE
    need = build_need(work, deadline - move_cost.upper, market.tick, now, fastest=offers.fastest, dry=offers.dry)
    has = (
        None
        if held_pool is None
        else describe_held(job, held_pool.market, held_pool.instance_type, work.changing, offers)
    )
    # A cluster without spot capacity now counts with its on-demand price, so that no job moves there to wait for spot.
    no_spot = move_cost is not STAYING and spot is not None and not spot.up
    if spot is None or no_spot or _on_demand_alone(job, market, need, has, spot, now):
        usd = spot.on_demand_usd if spot is not None else stock.on_demand_usd * offers.fastest
        on_demand_now = has is not None and has.market is Market.ON_DEMAND
        each = usd * (need.remaining + (work.changing if on_demand_now else work.changeover) / HOUR)
    else:
        wait = to_spare(need) if job.submission.deadline_at else _patience(job, now)
        begins = (work.changing if has is not None else work.changeover) / HOUR
        each = _alternating(need, spot, has, wait) + spot.usd * begins
    return each * job.nodes + move_cost.usd


def _on_demand_alone(
    job: JobView, market: ClusterMarket, need: Need, has: HeldCapacity | None, spot: Spot, now: datetime
) -> bool:
    """Return whether the plan would have the job on on-demand, and keep it there."""
    if critical(job):
        return True
    if job.submission.deadline_at is None:
        return failed_over(job, market.pools, now, None).market is Market.ON_DEMAND
    to = choose_market(need, has, spot)
    return to.market is Market.ON_DEMAND and (to.final or not is_safe(need))


def _alternating(need: Need, spot: Spot, has: HeldCapacity | None, wait: float) -> float:
    """Return the dollars for the remaining work by the best strategy of alternating between the markets.

    The price of a strategy is an average over many spells, but the present spell is a single one and may be long. While
    spot lasts, the job works there. In an outage it waits as long as the strategy does, at most for `wait` (hours);
    then it works on on-demand. The time that it waits is lost, so that the remaining work must be done faster.
    """
    table = strategy_table(need, spot)
    if spot.up or (has is not None and has.market is Market.SPOT):
        age = spot.age if spot.up else 0.0
        now = min(need.remaining, learnt(UPS, spot.ups, age).residual(age))
        return now * spot.usd + (need.remaining - now) * table.usd_at(_after(need, now, now).mean_pace)
    outage = learnt(DOWNS, spot.downs, spot.age).residual(spot.age)
    waiting = 0.0
    if has is None:
        waiting = max(0.0, min(outage, wait, table.best(need.pace).wait - spot.age))
    early = min(need.remaining, outage - waiting)
    usd = table.usd_at(_after(need, early + waiting, early).mean_pace)
    return early * spot.on_demand_usd + (need.remaining - early) * usd


def _after(need: Need, hours: float, work: float) -> Need:
    """Return the remaining need after `hours`, in which `work` hours of work were done."""
    return replace(
        need,
        time=need.time - hours,
        remaining=need.remaining - work,
        remaining_upper=need.remaining_upper - work,
    )


def _patience(job: JobView, now: datetime) -> float:
    """Return the hours for which a job without a deadline still waits for spot."""
    return max(0.0, (STARVATION_LIMIT - (now - waiting_since(job))) / HOUR)
