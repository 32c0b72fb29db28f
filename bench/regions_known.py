"""`regions_known.…`: how near to the optimum a policy comes over several regions that does not know the future.

The dollars of one job over those of the optimum, on the same draws, for three policies: one that knows the process and
sees the phase of each spell, one that knows the process and sees availability alone (`bench/_known_process.py`), and
Everspot's, which does not know the process. The best policy that sees availability lies between the first two. Notes
have the half-width of the confidence interval of 95 %. The markets are those of `regions`, with ticks of 6 minutes and
prices that do not change, because the decision process has no state of prices. `EVERSPOT_BENCH_RUNS` changes the number
of runs for each market and deadline, 60: those of docs/internals/scheduling.md, in a minute of processor time.
"""

import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import numpy as np
from everspot_simulator import EverspotPolicy, PoolCapacity, Regions, Setting, Trace, optimum, run
from everspot_simulator.synthetic import (
    COUPLING,
    DROUGHT,
    DROUGHT_GAP,
    HEAVY_DOWN,
    HEAVY_UP,
    PLENTY,
    SCARCITY,
)
from numpy.typing import NDArray

from bench._known_process import JobTicks, SpotProcess, alternating, follow, independent, solve
from bench._state import print_figures
from bench.regions import CHANGEOVER_HOURS, DOWN, JOB_HOURS, PARTS, UP

TICK = timedelta(minutes=6)
TICK_HOURS = TICK / timedelta(hours=1)
MARKETS = (("correlated", 2), ("plenty", 2), ("heavy", 2), ("scarce", 2), ("plenty", 3), ("heavy", 3))
"""Kinds and numbers of regions. Other markets of three regions have too many hidden states."""
RUNS_VARIABLE, DEFAULT_RUNS, SEED = "EVERSPOT_BENCH_RUNS", 60, 1
POLICIES = ("phases", "ages", "everspot")
NORMAL_QUANTILE = 1.96
"""Standard errors in half a confidence interval of 95 %."""


def market_process(kind: str, regions: int) -> SpotProcess:
    """Return the process that generates the market, as `regions` does with traces."""
    if kind == "plenty":
        return independent(*[alternating(UP, DOWN, TICK_HOURS)] * regions)
    heavy = alternating(HEAVY_UP, HEAVY_DOWN, TICK_HOURS)
    if kind == "heavy":
        return independent(*[heavy] * regions)
    if kind == "scarce":
        joint = independent(heavy, alternating(DROUGHT_GAP, DROUGHT, TICK_HOURS))
        region = SpotProcess(transition=joint.transition, up=(joint.up[0] & joint.up[1])[None])
        return independent(*[region] * regions)
    if kind == "correlated":
        joint = independent(*[heavy] * regions, common_scarcity(regions))
        return SpotProcess(transition=joint.transition, up=joint.up[:regions] & joint.up[regions:])
    raise ValueError(f"no market named {kind}")


def common_scarcity(regions: int) -> SpotProcess:
    """Return the process of scarcities that reach each region by chance: state 0 is plenty; the others are scarcities,
    one for each set of regions."""
    reached = np.array(list(product((False, True), repeat=regions)))
    chances = np.where(reached, COUPLING, 1 - COUPLING).prod(axis=1)
    begin, end = (-np.expm1(-TICK_HOURS / phases.means[0]) for phases in (PLENTY, SCARCITY))
    transition = np.diag([1 - begin, *[1 - end] * len(reached)])
    transition[0, 1:], transition[1:, 0] = begin * chances, end
    return SpotProcess(transition=transition, up=np.vstack([np.ones(regions, dtype=bool), ~reached]).T)


def make_regions(count: int) -> Regions:
    """Return the regions of a market, as in `regions`."""
    price_ratios = {f"region-{n}": 3.0 + 0.3 * n for n in range(count)}
    return Regions.from_names(list(price_ratios), price_ratios, checkpoint_gb=20.0, egress_usd=0.02)


def make_setting(part: float) -> Setting:
    """Return the job. `part`: its part of the time to the deadline, which is a whole number of ticks."""
    deadline_hours = round(JOB_HOURS / part / TICK_HOURS) * TICK_HOURS
    return Setting(
        job_hours=JOB_HOURS, deadline_hours=deadline_hours, changeover_hours=CHANGEOVER_HOURS, price_ratio=3.0
    )


def make_traces(process: SpotProcess, path: NDArray[np.int64]) -> list[Trace]:
    """Return the traces of a path of hidden states (ticks,), one a region, at constant prices."""
    return [
        Trace(name=f"region-{n}", gap=TICK, available=up.astype(np.int64), prices=np.full(len(path), 1.0 + 0.15 * n))
        for n, up in enumerate(process.up[:, path])
    ]


def measure(process: SpotProcess, setting: Setting, regions: Regions, runs: int) -> tuple[NDArray[np.float64], int]:
    """Return the dollars of each run by the optimum and the three policies, (runs, 4), and the number of late runs."""
    ticks = round(setting.deadline_hours / TICK_HOURS)
    paths = process.draw(np.random.default_rng([SEED, len(regions.names), ticks]), runs, ticks)
    traces = [make_traces(process, path) for path in paths]
    solution = solve(process, JobTicks.from_capacity(PoolCapacity.from_traces(traces[0], setting, regions), setting))
    seen_phases, seen_ages = (follow(solution, paths, phases_visible=visible) for visible in (True, False))
    outcomes = [
        [optimum(pools, 0, setting, regions)]
        + [run(pools, 0, setting, policy, regions) for policy in (phases, ages, EverspotPolicy())]
        for pools, phases, ages in zip(traces, seen_phases, seen_ages, strict=True)
    ]
    late = sum(outcome.missed for row in outcomes for outcome in row)
    return np.array([[outcome.cost for outcome in row] for row in outcomes]), late


def ratio_interval(usd: NDArray[np.float64], optimum_usd: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ratio of the sums over runs, and the half-width of its interval by the delta method."""
    ratio = usd.sum() / optimum_usd.sum()
    error = (usd - ratio * optimum_usd).std(ddof=1) / np.sqrt(len(usd)) / optimum_usd.mean()
    return float(ratio), float(NORMAL_QUANTILE * error)


def describe_ratios(dollars: NDArray[np.float64]) -> str:
    """Return the ratio of each policy with its interval."""
    intervals = [ratio_interval(dollars[:, n + 1], dollars[:, 0]) for n in range(len(POLICIES))]
    return ", ".join(f"{name} {r:.3f} +- {h:.3f}" for name, (r, h) in zip(POLICIES, intervals, strict=True))


def make_figure(name: str, ratio: float, note: str) -> dict[str, Any]:
    """Return a figure as it is printed."""
    return {"name": f"regions_known.{name}", "value": round(ratio, 3), "unit": "of the optimum", "note": note}


def figures(runs: int) -> Iterator[dict[str, Any]]:
    """Yield a figure of each market, the ratio of the policy that sees availability; then those of all policies in all
    markets. `runs`: for each market and deadline."""
    tables, late_runs = [], 0
    for kind, count in MARKETS:
        process, regions = market_process(kind, count), make_regions(count)
        tables_by_part = {}
        for part in PARTS:
            tables_by_part[part], late = measure(process, make_setting(part), regions, runs)
            late_runs += late
        market = np.concatenate(list(tables_by_part.values()))
        tables.append(market)
        notes = [f"f = {part}: {describe_ratios(table)}" for part, table in tables_by_part.items()]
        note = "; ".join([describe_ratios(market), *notes, f"{len(market)} runs"])
        ratio, _ = ratio_interval(market[:, 2], market[:, 0])
        yield make_figure(f"{kind}-{count}", ratio, note)
    dollars = np.concatenate(tables)
    for n, name in enumerate(POLICIES):
        ratio, half_width = ratio_interval(dollars[:, n + 1], dollars[:, 0])
        note = f"+- {half_width:.3f} (95 %), {len(dollars)} runs"
        yield make_figure(name, ratio, note)
    yield {"name": "regions_known.late", "value": late_runs, "limit": 0, "unit": "runs"}


def main() -> int:
    """Print the figures as JSON lines; 1 if a run was late."""
    return int(not print_figures(figures(int(os.environ.get(RUNS_VARIABLE, DEFAULT_RUNS)))))


if __name__ == "__main__":
    sys.exit(main())
