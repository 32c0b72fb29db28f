"""What a job needs and what it could have, in the terms of its course: hours, and dollars for an hour of work."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.records import Market
from everspot_core.schedule.behaviour import Behaviour
from everspot_core.schedule.course import Held, Need, Spot
from everspot_core.schedule.failover import smaller
from everspot_core.schedule.fit import Shape, fits
from everspot_core.schedule.ranking import Ranked, rank
from everspot_core.schedule.rightsize import Candidate, rightsize
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, Outlook, PoolKey, PoolView

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """The pools for one job. `spot` and `on_demand`: those that would give what it needs now, best first.

    `fastest`: speed of the fastest on-demand type that holds it; hours of work are told at that speed. `dry`: hours for
    which on-demand was not to be had of late, at the worst.
    """

    spot: tuple[Ranked, ...]
    on_demand: tuple[PoolView, ...]
    spot_pools: tuple[PoolView, ...]
    on_demand_pools: tuple[PoolView, ...]
    fastest: float
    dry: float
    smaller: str | None


def prospects(job: JobView, pools: Sequence[PoolView], now: datetime) -> Prospects:
    """What the job could have of these pools, which may be fewer than the view's: some may be handed out already."""
    asked = job.submission.spec.resources
    lesser = smaller(job, {p.instance_type.name: p.instance_type for p in pools}.values(), now)
    accept = {lesser.name} if lesser is not None else set[str]()
    able = [p for p in pools if fits(asked, Shape.of(p.instance_type)) or p.instance_type.name in accept]
    spot = [p for p in able if p.market is Market.SPOT]
    on_demand = [p for p in able if p.market is Market.ON_DEMAND or p.reserved]
    speeds = [_speed(job, p.instance_type.name) for p in on_demand]
    return Prospects(
        spot=tuple(rank((p for p in spot if p.gives(job.nodes)), job, now, must_run=True, accept=accept)),
        on_demand=_sized(job, [p for p in on_demand if p.gives(job.nodes)], now),
        spot_pools=tuple(spot),
        on_demand_pools=tuple(on_demand),
        fastest=max(speeds, default=1.0),
        dry=min((_driest(p.behaviour, now) for p in on_demand), default=0.0),
        smaller=lesser.name if lesser is not None else None,
    )


def need_of(work: Outlook, deadline: datetime, outlet: Prospects, tick: timedelta, now: datetime) -> Need:
    """The need in hours. Where on-demand has run dry, it may be so long in coming again: that is reckoned with."""
    return Need(
        time=(deadline - now) / HOUR,
        left=work.left / HOUR / outlet.fastest,
        left_upper=work.left_upper / HOUR / outlet.fastest,
        changeover=work.changeover / HOUR,
        changeover_upper=work.changeover_upper / HOUR + outlet.dry,
        tick=tick / HOUR,
    )


def held_of(job: JobView, market: Market, instance_type: str, changing: timedelta, outlet: Prospects) -> Held:
    """What it holds, in the terms of its course."""
    speed = _speed(job, instance_type) / outlet.fastest
    return Held(market=market, changing=max(0.0, changing / HOUR), speed=speed)


def spot_of(job: JobView, view: ClusterView, outlet: Prospects, now: datetime) -> Spot | None:
    """Spot as this job can have it; None if no spot pool can hold it. It counts as up only below on-demand's price."""
    if not outlet.spot_pools:
        return None
    offers = [(r.pool.usd_per_hour / _speed(job, r.pool.instance_type.name), r.pool) for r in outlet.spot]
    dear = [p.usd_per_hour / _speed(job, p.instance_type.name) for p in outlet.on_demand_pools]
    asked = [p.usd_per_hour / _speed(job, p.instance_type.name) for p in outlet.spot_pools]
    behaviour = together(view, outlet.spot_pools)
    usd = min((usd for usd, _ in offers), default=min(asked))
    on_demand_usd = min(dear, default=usd * 3)
    up = bool(offers) and usd < on_demand_usd
    return Spot(
        up=up,
        age=behaviour.age(now) if behaviour.up == up else 0.0,
        ups=behaviour.ups,
        downs=behaviour.downs,
        usd=usd * outlet.fastest,
        on_demand_usd=on_demand_usd * outlet.fastest,
    )


def together(view: ClusterView, pools: Iterable[PoolView]) -> Behaviour:
    """How spot has behaved as a whole, there being any of these pools; failing that, as the steadiest of them."""
    chosen = tuple(pools)
    known = view.unions.get(frozenset(p.key for p in chosen))
    if known is not None:
        return known
    return max((p.behaviour for p in chosen), key=lambda b: (sum(b.ups) + 1) / (sum(b.ups) + sum(b.downs) + 2))


def pool_of(instance: InstanceView) -> PoolKey | None:
    """What kind of capacity an instance is, be it there already or only launched."""
    record = instance.record
    if record is None:
        return instance.pool
    return PoolKey(record.instance_type, record.zone, record.market)


def _speed(job: JobView, instance_type: str) -> float:
    return job.speeds.get(instance_type, 1.0)


def _sized(job: JobView, pools: list[PoolView], now: datetime) -> tuple[PoolView, ...]:
    """Reserved ones first, which are paid for anyway; then by what the whole job costs, those that are late last."""
    if len(pools) < 2 or job.outlook is None:
        return tuple(sorted(pools, key=lambda p: (not p.reserved, p.usd_per_hour, p.key)))
    deadline = job.submission.deadline_at
    by_candidate: dict[Candidate, list[PoolView]] = {}
    for pool in sorted(pools, key=lambda p: p.key):
        name = pool.instance_type.name
        candidate = Candidate(
            instance_type=pool.instance_type,
            usd_per_hour=pool.usd_per_hour,
            speed=_speed(job, name),
            measured=name in job.measured_speeds,
        )
        by_candidate.setdefault(candidate, []).append(pool)
    ranked = rightsize(
        by_candidate,
        need=job.submission.spec.resources,
        work=job.outlook,
        time=deadline - now if deadline is not None else None,
        nodes=job.nodes,
    )
    in_order = [p for s in ranked for p in by_candidate[s.candidate]]
    return tuple(sorted(in_order, key=lambda p: not p.reserved))


def _driest(behaviour: Behaviour, now: datetime) -> float:
    present = 0.0 if behaviour.up or behaviour.since is None else behaviour.age(now)
    return max((present, *behaviour.downs))
