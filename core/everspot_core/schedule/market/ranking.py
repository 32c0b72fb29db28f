"""Ranks pools for a job by the cost of an hour of useful work."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.records import Market
from everspot_core.schedule.actions import ReasonFigures
from everspot_core.schedule.jobs import CHANGEOVER, CHANGEOVER_UPPER, HOUR, critical, job_outlook
from everspot_core.schedule.market.behaviour import Behaviour
from everspot_core.schedule.view import JobView, PoolKey, PoolView

PRIOR_SPELLS, PRIOR_HOURS = 2.0, 4.0
"""The prior of a pool's mean spell: it counts as if two spells of four hours had been seen."""
CHANGEOVER_HOURS = 0.2
"""The changeover that is used where the job's own is not known."""
COOL_OFF = timedelta(hours=1)
"""The time after a notice for which all instances of the pool count as about to go."""
REFUSAL_HALF_LIFE = timedelta(minutes=30)
"""A fresh refusal doubles what a pool seems to cost; after this time it adds half as much, and so on."""
WORST_SCORE = 0.5
"""By how much a placement score of 1 raises what a pool seems to cost; 10 does not raise it."""
MIDDLE_SCORE = 5
"""The score that is used where the cloud gives none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPool:
    """A pool, and the cost of an hour of useful work there with all factors that speak against it.

    `figures`: usd_per_hour, speed, lifetime_hours (expected), changeover (factor), score (factor), refusals (factor).
    """

    pool: PoolView
    usd_per_useful_hour: float
    figures: ReasonFigures = field(default_factory=dict)


def rank(
    pools: Iterable[PoolView],
    job: JobView,
    now: datetime,
    *,
    must_run: bool = False,
    accept: Collection[str] = (),
) -> list[RankedPool]:
    """Return the pools that can hold the job, best first, with or without capacity now.

    A pool that gave notice within COOL_OFF is left out, unless there is no other one and the job must run. `accept`:
    types that count although they have less than the job asks for. A critical job goes to reserved capacity first,
    then to on-demand, then to spot.
    """
    need, suitable = job.submission.spec.resources, list[PoolView]()
    for pool in pools:
        if pool.instance_type.name in accept or fits(need, Shape.from_machine(pool.instance_type)):
            suitable.append(pool)
    calm = [p for p in suitable if not just_noticed(p, now)]
    eligible = calm or (suitable if must_run else [])
    later = delays(eligible, job)
    ranked = [_ranked(p, job, now, later.get(p.key)) for p in eligible]
    first = critical(job)
    return sorted(ranked, key=lambda r: (_preference_order(r.pool) if first else 0, r.usd_per_useful_hour, r.pool.key))


def expected_lifetime(behaviour: Behaviour, now: datetime) -> float:
    """Return the expected lifetime in hours of an instance that is launched now.

    It is the mean spell: the hours with capacity over the number of ended spells, with the prior. The present spell
    counts with its hours and without an end.
    """
    present = behaviour.age(now) if behaviour.up else 0.0
    hours = PRIOR_SPELLS * PRIOR_HOURS + sum(behaviour.ups) + present
    return hours / (PRIOR_SPELLS + len(behaviour.ups))


def just_noticed(pool: PoolView, now: datetime) -> bool:
    """Return whether the pool gave notice within COOL_OFF. A moment far in the future is of a clock that was wrong."""
    return pool.noticed_at is not None and abs(now - pool.noticed_at) < COOL_OFF


def _preference_order(pool: PoolView) -> int:
    return 0 if pool.reserved else 1 if pool.market is Market.ON_DEMAND else 2


def delays(pools: Collection[PoolView], job: JobView) -> dict[PoolKey, Changeover]:
    """Return by how much a changeover to each of these pools is longer than to the quickest of them, expected and at
    most.

    Empty if no pool has its own figures. A pool without figures is taken to be like the job's usual changeover.
    """
    if all(p.changeover is None for p in pools):
        return {}
    work = job_outlook(job)
    usual = (
        Changeover(CHANGEOVER, CHANGEOVER_UPPER) if work is None else Changeover(work.changeover, work.changeover_upper)
    )
    each = {p.key: p.changeover or usual for p in pools}
    least, least_upper = min(c.expected for c in each.values()), min(c.upper for c in each.values())
    return {key: Changeover(c.expected - least, c.upper - least_upper) for key, c in each.items()}


def _ranked(pool: PoolView, job: JobView, now: datetime, later: Changeover | None) -> RankedPool:
    speed = job.speeds.get(pool.instance_type.name, 1.0)
    lifetime = inf if pool.market is Market.ON_DEMAND else expected_lifetime(pool.behaviour, now)
    outlook = job_outlook(job)
    changeover = outlook.changeover.total_seconds() / 3600 if outlook is not None else CHANGEOVER_HOURS
    again, score, refusals = 1 + changeover / lifetime, _score(pool), _refusals(pool, now)
    if later is not None and later.expected:
        # Once now, where the work over which that is spread is known, and then with each instance that is lost.
        longer = later.expected / HOUR
        remaining = outlook.remaining / HOUR / speed if outlook is not None and speed > 0 else inf
        again += longer / lifetime + (longer / remaining if remaining > 0 else 0.0)
    useful = pool.usd_per_hour / speed * again * score * refusals if speed > 0 else inf
    return RankedPool(
        pool=pool,
        usd_per_useful_hour=useful,
        figures={
            "usd_per_hour": pool.usd_per_hour,
            "speed": speed,
            "lifetime_hours": round(lifetime, 4),
            "changeover": round(again, 4),
            "score": round(score, 4),
            "refusals": round(refusals, 4),
        },
    )


def _score(pool: PoolView) -> float:
    """Return the factor for the placement score; 1 for on-demand, which has none."""
    if pool.market is Market.ON_DEMAND:
        return 1.0
    score = MIDDLE_SCORE if pool.placement_score is None else pool.placement_score
    return 1 + WORST_SCORE * (10 - score) / 9


def _refusals(pool: PoolView, now: datetime) -> float:
    return 1 + sum(float(0.5 ** (abs(now - at) / REFUSAL_HALF_LIFE)) for at in pool.refused_at)
