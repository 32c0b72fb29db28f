"""Decides when a normal job leaves spot, when it goes back, and when a smaller type will do.

After PREEMPTIONS losses within WINDOW it fails over to on-demand. Once on on-demand it stays for a while, and goes back
when spot has been up for as long without a break in some pool. That while is STAY, doubled with every PREEMPTIONS
losses of one day, so with each failover. So no job moves more than MOVES_A_DAY times in any day, whatever spot does.
Everything follows from the times at which the job was preempted and from how the pools behaved. Nothing else is stored.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.job import Resources
from everspot_core.jobs.lower_precision import HEADROOM, MIXED, may_lower
from everspot_core.jobs.records import Market
from everspot_core.schedule.actions import ReasonFigures, Why
from everspot_core.schedule.jobs import critical, job_outlook
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.view import JobView, MeasuredUse, PoolView

PREEMPTIONS = 3
WINDOW = timedelta(hours=2)
STAY = timedelta(hours=1)
DAY = timedelta(days=1)
MOVES_A_DAY = 20
"""The most moves between the markets in a day: there and back for each of ten stays on on-demand. The first nine last
3 x 1 + 3 x 2 + 3 x 4 = 21 h. The tenth lasts 8 h, so that an eleventh begins on the next day. The test of failover
measures it."""


@dataclass(frozen=True, slots=True)
class Preference:
    """The market that a job prefers, and why."""

    market: Market
    cause: Why
    figures: ReasonFigures = field(default_factory=dict)


_SPOT = Preference(Market.SPOT, Why.PREFERRED_MARKET, {"rank": 0, "market": Market.SPOT.value})


def failed_over(job: JobView, pools: Iterable[PoolView], now: datetime, since: datetime | None) -> Preference:
    """Return the market for a job that is not steered by a deadline.

    `since`: when it began on the on-demand instance that it holds; None while it waits, or holds a spot instance. Only
    pools that it fits count. Where none has been looked at, a failover holds for a DAY.
    """
    if critical(job):
        return Preference(Market.ON_DEMAND, Why.CRITICAL, {"market": Market.ON_DEMAND.value})
    if not job.preempted_at and since is None:
        return _SPOT
    failover = _last_failover(job.preempted_at, now)
    if failover is None and since is None:
        return _SPOT
    stay = _stay(job.preempted_at, now)
    behaviours = [p.behaviour for p in pools if _counts(p, job)]
    for begun, stay_if_unknown in ((failover, DAY), (since, stay)):
        if begun is None:
            continue
        up = max((_longest_up(b, begun + stay, now) for b in behaviours), default=now - begun)
        if now < begun + stay or up < (stay if behaviours else stay_if_unknown):
            return _stay_on_demand(failover, up, stay)
    return Preference(Market.SPOT, Why.BACK_TO_SPOT, {"up_hours": _hours(up), "needed_hours": _hours(stay)})


def _counts(pool: PoolView, job: JobView) -> bool:
    need = job.submission.spec.resources
    is_known_spot = pool.market is Market.SPOT and pool.behaviour.since is not None
    return is_known_spot and fits(need, Shape.from_machine(pool.instance_type))


def _stay_on_demand(failover: datetime | None, up: timedelta, stay: timedelta) -> Preference:
    if failover is None:
        figures: ReasonFigures = {"up_hours": _hours(up), "needed_hours": _hours(stay)}
        return Preference(Market.ON_DEMAND, Why.STAY_ON_DEMAND, figures)
    return Preference(Market.ON_DEMAND, Why.FAILED_OVER, {"preemptions": PREEMPTIONS, "window_hours": _hours(WINDOW)})


def smaller(job: JobView, types: Iterable[InstanceType], now: datetime, tick: timedelta) -> InstanceType | None:
    """Return a type that has less than the job asked for, but more than it was seen to use, and is fast enough.

    Only a job that has failed over lately gets one, and only types whose speed for the job is known count. The result
    is the fastest type that keeps the deadline by the upper bounds, even if its instance is used a `tick` later; None
    if no type does. Types with less GPU memory than the measured use of the job count only if there is no other type,
    and if the job allows mixed precision.
    """
    measured = job.measured
    if measured is None or job_outlook(job) is None or _last_failover(job.preempted_at, now) is None:
        return None
    spec = job.submission.spec
    requested = spec.resources
    offered = sorted(types, key=lambda t: t.name)
    arches = {t.arch for t in offered if fits(requested, Shape.from_machine(t))}
    deadline = job.submission.deadline_at
    able = [
        t
        for t in offered
        if not fits(requested, Shape.from_machine(t))
        and (not arches or t.arch in arches)
        and job.speeds.get(t.name, 0.0) > 0
        and (deadline is None or latest_end_on(job, t, now) + tick <= deadline)
    ]
    for factor in (1.0, MIXED) if may_lower(spec, measured.mixed) else (1.0,):
        used = _used(requested, measured, factor)
        holding = [t for t in able if fits(used, Shape.from_machine(t))]
        if holding:
            return max(holding, key=lambda t: job.speeds[t.name])
    return None


def latest_end_on(job: JobView, instance_type: InstanceType, now: datetime) -> datetime:
    """Return the latest end of the job if it changes to a type of known speed now.

    Raises:
        ValueError: without an outlook.
    """
    outlook = job_outlook(job)
    if outlook is None:
        raise ValueError(f"{job.job_id} has no outlook")
    return now + outlook.changeover_upper + outlook.remaining_upper / job.speeds[instance_type.name]


def _used(requested: Resources, measured: MeasuredUse, gpu_factor: float) -> Resources:
    """Return the job's needs by its measured use. The number and the model of its GPUs stay as its author asked.
    `gpu_factor`: the factor of its use of GPU memory on the type."""
    measured_by_name = {
        "vcpus": measured.vcpus,
        "memory_gib": measured.memory_gib,
        "gpu_memory_gib": measured.gpu_memory_gib,
    }
    used = {name: most * HEADROOM for name, most in measured_by_name.items() if most is not None}
    if "gpu_memory_gib" in used:
        used["gpu_memory_gib"] *= gpu_factor
    return requested.model_copy(update=used)


def _last_failover(preempted_at: Iterable[datetime], now: datetime) -> datetime | None:
    """Return the time of the job's last failover. Each failover restarts the count of losses."""
    failover_at: datetime | None = None
    lost: list[datetime] = []
    for at in sorted(p for p in preempted_at if p <= now):
        lost = [*(p for p in lost if at - p <= WINDOW), at]
        if len(lost) >= PREEMPTIONS:
            failover_at, lost = at, []
    return failover_at


def _stay(preempted_at: Iterable[datetime], now: datetime) -> timedelta:
    """Return how long to stay after the last loss: STAY, doubled with every PREEMPTIONS of the day before it."""
    lost = sorted(p for p in preempted_at if p <= now)
    of_a_day = sum(lost[-1] - p < DAY for p in lost) if lost else 1
    return STAY * (1 << (of_a_day - 1) // PREEMPTIONS)


def _longest_up(behaviour: Behaviour, after: datetime, now: datetime) -> timedelta:
    """Return the longest time for which the pool had been up without a break at any moment from `after` on.

    A spell that ended since then counts: once the market has recovered, the job is free to go back.
    """
    return max((end - start for start, end in _ups(behaviour, now) if end >= after), default=timedelta(0))


def _ups(behaviour: Behaviour, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the spells with capacity, the latest first."""
    if behaviour.since is None:
        return
    if behaviour.up:
        yield behaviour.since, now
    end, up = behaviour.since, behaviour.up
    ups, downs = list(behaviour.ups), list(behaviour.downs)
    while ups if not up else downs:
        up = not up
        start = end - timedelta(hours=(ups if up else downs).pop())
        if up:
            yield start, end
        end = start


def _hours(span: timedelta) -> float:
    return round(span.total_seconds() / 3600, 4)
