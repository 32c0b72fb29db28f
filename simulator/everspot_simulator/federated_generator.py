"""Generates workloads on several clusters, from a seed: jobs with deadlines, and a drought on one side if requested.

Each cluster has two spot pools that come and go by their own traces, and on-demand. Durations are lognormal, as in
`workload_generator`; jobs have deadlines, some of them tight, unless a part of them shall have none.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from everspot_simulator.workload_generator import JOBS_A_DAY, LONGEST

NAMES = ("east", "west", "north", "south", "centre", "coast", "island", "valley")
"""The names of the clusters, in this order."""
_TYPE, _ON_DEMAND, _SPOT = "g5.xlarge", 1.006, (0.40, 0.45)
_SWING = 0.15
"""By how much prices differ between the clusters at most, as a fraction."""
_EGRESS = (0.02, 0.09, 0.12)
"""Dollars for a gigabyte: between regions of one cloud, out of one cloud, out of another one."""
_KINDS = ("heavy-tailed", "diurnal", "markov", "steady", "droughts")
_MEDIAN_HOURS, _SPREAD, _SLACK = 3.0, 0.9, (1.3, 4.0)
_SPARE = 3.0
"""Instances of each spot pool, over the mean number of jobs of one cluster at a time."""


def generate_federated(jobs: int, seed: int, clusters: int = 3, undated: float = 0.0) -> dict[str, Any]:
    """Return a workload of `jobs` jobs, as `federated.parse_federated` takes it. The same seed gives the same
    workload.

    `undated`: the probability, 0 to 1, that a job has no deadline; nothing else depends on it.

    Raises:
        ValueError: if `jobs` is below 1, or `clusters` is not from 2 to 8.
    """
    if jobs < 1:
        raise ValueError(f"a workload has at least one job, not {jobs}")
    if not 2 <= clusters <= len(NAMES):
        raise ValueError(f"there are 2 to {len(NAMES)} clusters, not {clusters}")
    rng, names = np.random.default_rng(seed), NAMES[:clusters]
    days = max(1.0, jobs / JOBS_A_DAY)
    all_jobs = [_job(number, names, days, rng) for number in range(jobs)]
    all_jobs.sort(key=lambda job: (job["arrival_hours"], job["id"]))
    for job, drawn in zip(all_jobs, np.random.default_rng([seed, jobs]).uniform(size=jobs), strict=True):
        if drawn < undated:
            del job["deadline_hours"]
    load = sum(job["hours"] for job in all_jobs) / (24 * days) / clusters
    traces = {
        f"{name}-{zone}": {
            "generator": _KINDS[(2 * n + at) % len(_KINDS)],
            "seed": int(rng.integers(1_000_000)),
            "instances": max(2, math.ceil(_SPARE * load)),
        }
        for n, name in enumerate(names)
        for at, zone in enumerate("ab")
    }
    fleets = {
        name: {"egress_usd_per_gb": _EGRESS[n % len(_EGRESS)], "fleet": _fleet(name, 1 + float(rng.uniform(0, _SWING)))}
        for n, name in enumerate(names)
    }
    return {"clusters": fleets, "federation": {"every_seconds": 600}, "traces": traces, "jobs": all_jobs}


def dried(
    values: Mapping[str, Any], cluster: str, begin: float, hours: float, *, on_demand: bool = True
) -> dict[str, Any]:
    """Return the same workload with a drought: for so many hours from `begin` on a cluster gives nothing new and loses
    its spot instances. `on_demand`: whether it has no new on-demand instances either."""
    fleet = values["clusters"][cluster]["fleet"]
    dry, full = [begin, begin + hours], f"{cluster}-on-demand"
    lasting: dict[str, Any] = {"generator": "full", "instances": 10_000}
    traces = dict(values["traces"]) | {full: lasting | ({"dry_hours": dry} if on_demand else {})}
    pools = [pool | {"availability": pool.get("availability", full)} for pool in fleet["pools"]]
    for name in {pool["availability"] for pool in pools} - {full}:
        traces[name] = traces[name] | {"dry_hours": dry}
    changed = {**values["clusters"][cluster], "fleet": {**fleet, "pools": pools}}
    return {**values, "clusters": {**values["clusters"], cluster: changed}, "traces": traces}


def _job(number: int, names: tuple[str, ...], days: float, rng: np.random.Generator) -> dict[str, Any]:
    expected = min(LONGEST, max(0.1, _MEDIAN_HOURS * math.exp(_SPREAD * float(rng.standard_normal()))))
    expected, upper = round(expected, 3), round(expected * 1.25, 3)
    return {
        "id": f"job-{number:04d}",
        "cluster": names[int(rng.integers(len(names)))],
        "arrival_hours": round(float(rng.uniform(0, 24 * days)), 3),
        "hours": expected,
        "hours_actual": min(upper, max(0.05, round(expected * float(rng.uniform(0.7, 1.15)), 3))),
        "hours_upper": upper,
        "deadline_hours": round(upper * float(rng.uniform(*_SLACK)) + 0.5, 3),
        "checkpoint_gb": round(float(rng.uniform(1, 30)), 1),
        "resources": {"vcpus": 3, "memory_gib": 12.0, "gpus": 1, "gpu_memory_gib": 20.0},
    }


def _fleet(name: str, dearer: float) -> dict[str, Any]:
    pools = [
        {"zone": f"{name}-{zone}", "market": "spot", "usd_per_hour": round(usd * dearer, 4),
         "availability": f"{name}-{zone}"}
        for zone, usd in zip("ab", _SPOT, strict=True)
    ]  # fmt: skip
    pools.append({"zone": f"{name}-a", "market": "on-demand", "usd_per_hour": round(_ON_DEMAND * dearer, 4)})
    return {
        "launch_hours": 0.05,
        "setup_hours": 0.05,
        "changeover_upper_hours": 0.2,
        "tick_seconds": 300,
        "notice_seconds": 120,
        "pools": [{"instance_type": _TYPE, **pool} for pool in pools],
    }
