"""Generates workloads like those of a real training cluster, from a seed.

There are four teams. Two do research: their jobs take some hours, some are gangs, many have a deadline. One sweeps
parameters: it submits floods of short, small jobs. One is production: it has few jobs with tight deadlines, half of
them critical. People submit more by day than by night. Durations are lognormal, and authors' upper bounds generous.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

JOBS_A_DAY = 60
SWING = 0.8
"""How far submissions rise above and fall below their mean over a day, as a fraction."""
PEAK_HOUR = 14
STANDING_PART = 0.5
"""The fraction of the mean load in GPUs that the standing fleet covers; the rest is launched as needed."""
LONGEST = 48.0

_SMALL, _LARGE = "g5.xlarge", "g5.12xlarge"
_GPUS = {_SMALL: 1, _LARGE: 4}
_ON_DEMAND = {_SMALL: 1.006, _LARGE: 5.672}
_SPOT = {("us-east-1a", _SMALL): 0.40, ("us-east-1a", _LARGE): 2.25}
_SPOT |= {("us-east-1b", _SMALL): 0.42, ("us-east-1b", _LARGE): 2.10, ("us-east-1c", _SMALL): 0.45}
_KINDS = ("heavy-tailed", "diurnal", "markov", "droughts", "steady")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Team:
    """A team's habits.

    Attributes:
        part: its fraction of all jobs.
        median: of the lognormal distribution of a job's hours.
        spread: of the same distribution.
        flood: the least and the most jobs that it submits together.
        gangs: fraction of its jobs that are gangs.
        small: fraction of its jobs that are small.
        critical: fraction of its jobs that are critical.
        deadlines: fraction of its jobs that have a deadline.
        slack: deadline over the upper bound of the duration, least and most.
    """

    name: str
    part: float
    median: float
    spread: float
    weight: float = 1.0
    flood: tuple[int, int] = (1, 1)
    gangs: float = 0.0
    small: float = 0.0
    critical: float = 0.0
    deadlines: float = 0.0
    slack: tuple[float, float] = (1.3, 4.0)


_TEAMS = (
    _Team(name="language", part=0.3, median=3.0, spread=1.0, weight=2, gangs=0.15, deadlines=0.6),
    _Team(name="vision", part=0.2, median=2.0, spread=0.9, gangs=0.05, small=0.4, deadlines=0.5),
    _Team(name="sweeps", part=0.4, median=0.7, spread=0.6, flood=(10, 40), small=0.9),
    _Team(name="production", part=0.1, median=1.5, spread=0.5, critical=0.5, deadlines=1, slack=(1.2, 2.0)),
)


def generate(jobs: int, seed: int) -> dict[str, Any]:
    """Return a workload of `jobs` jobs, as `workload_file.parse` takes it. The same seed gives the same workload.

    Raises:
        ValueError: if `jobs` is below 1.
    """
    if jobs < 1:
        raise ValueError(f"a workload has at least one job, not {jobs}")
    rng = np.random.default_rng(seed)
    days = max(1.0, jobs / JOBS_A_DAY)
    jobs_made = [job for team, count in _shares(jobs) for job in _submissions(team, count, days, rng)]
    jobs_made.sort(key=lambda job: (job["arrival_hours"], job["id"]))
    load = sum(job["hours"] * job["nodes"] * job["resources"]["gpus"] for job in jobs_made) / (24 * days)
    return {
        "teams": {team.name: float(team.weight) for team in _TEAMS},
        "fleet": _fleet(load),
        "traces": {
            f"{zone}-{kind}": {
                "generator": _KINDS[n % len(_KINDS)],
                "seed": int(rng.integers(1_000_000)),
                "instances": max(4, math.ceil(2 * load / _GPUS[kind])),
            }
            for n, (zone, kind) in enumerate(_SPOT)
        },
        "jobs": jobs_made,
    }


def _shares(jobs: int) -> Iterator[tuple[_Team, int]]:
    """Yield the number of jobs of each team; the first team gets the remainder of rounding."""
    others = [(team, int(jobs * team.part)) for team in _TEAMS[1:]]
    yield _TEAMS[0], jobs - sum(count for _, count in others)
    yield from others


def _submissions(team: _Team, count: int, days: float, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    count_made = 0
    while count_made < count:
        at = _moment(days, rng)
        for _ in range(min(count - count_made, int(rng.integers(team.flood[0], team.flood[1] + 1)))):
            yield _job(team, count_made, at, rng)
            count_made += 1


def _moment(days: float, rng: np.random.Generator) -> float:
    """Return a random arrival time in hours, more likely by day than by night.

    Given their number, Poisson arrivals are independent of each other.
    """
    while True:
        at = float(rng.uniform(0, 24 * days))
        if rng.uniform(0, 1 + SWING) <= 1 + SWING * math.cos(2 * math.pi * (at - PEAK_HOUR) / 24):
            return round(at, 3)


def _job(team: _Team, number: int, at: float, rng: np.random.Generator) -> dict[str, Any]:
    expected = min(LONGEST, team.median * math.exp(team.spread * float(rng.standard_normal())))
    expected = max(0.05, round(expected, 3))
    actual = max(0.05, round(expected * float(rng.uniform(0.7, 1.15)), 3))
    upper = round(expected * 1.25, 3)
    small = bool(rng.random() < team.small)
    gpus = 1 if small else int(rng.choice((1, 4)))
    job: dict[str, Any] = {
        "id": f"{team.name}-{number:04d}",
        "team": team.name,
        "arrival_hours": at,
        "hours": expected,
        "hours_actual": min(actual, upper),
        "hours_upper": upper,
        "nodes": int(rng.integers(2, 5)) if rng.random() < team.gangs else 1,
        "resources": {"vcpus": 3 * gpus, "memory_gib": 12.0 * gpus, "gpus": gpus, "gpu_memory_gib": 20.0},
    }
    if rng.random() < team.critical:
        job["priority"] = "critical"
    if rng.random() < team.deadlines:
        job["deadline_hours"] = round(upper * float(rng.uniform(*team.slack)) + 0.5, 3)
    return job


def _fleet(load: float) -> dict[str, Any]:
    count = max(1, round(STANDING_PART * load / _GPUS[_LARGE] / 2))
    base = {"instance_type": _LARGE, "zone": "us-east-1a", "count": count}
    on_demand = {"market": "on-demand", "usd_per_hour": _ON_DEMAND[_LARGE]}
    spot = {"market": "spot", "usd_per_hour": _SPOT["us-east-1a", _LARGE], "availability": f"us-east-1a-{_LARGE}"}
    pools = [
        {
            "instance_type": kind,
            "zone": zone,
            "market": "spot",
            "usd_per_hour": usd,
            "availability": f"{zone}-{kind}",
        }
        for (zone, kind), usd in _SPOT.items()
    ]
    pools += [
        {"instance_type": kind, "zone": "us-east-1a", "market": "on-demand", "usd_per_hour": usd}
        for kind, usd in _ON_DEMAND.items()
    ]
    return {
        "launch_hours": 0.05,
        "setup_hours": 0.05,
        "changeover_upper_hours": 0.2,
        "tick_seconds": 300,
        "shared": True,
        "standing": [base | on_demand, base | spot],
        "pools": pools,
    }
