"""`regions_known.…`: how near to the optimum a policy comes over several regions that does not know the future.

The dollars of one job over those of the optimum, on the same draws, for three policies: one that knows the process and
sees the phase of each spell, one that knows the process and sees availability alone (`bench/_known_process.py`), and
Everspot's, which does not know the process. The best policy that sees availability lies between the first two. Notes
have the half-width of the confidence interval of 95 %. `regions_known.regret_…` is the part that two kinds of decisions
have of what Everspot's decisions cost beyond those of the second policy in the same place.

The markets are those of `regions`, with ticks of 6 minutes and prices that do not change, because the decision process
has no state of prices. `EVERSPOT_BENCH_RUNS` changes the number of runs for each market and deadline, 60: those of
docs/internals/scheduling.md, in a minute of processor time.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from everspot_simulator import (
    Choice,
    EverspotPolicy,
    Policy,
    PoolCapacity,
    Regions,
    Setting,
    State,
    Trace,
    optimum,
    run,
)
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

from bench._known_process import JobTicks, Regrets, follow, measure_regrets, solve
from bench._spot_process import SpotProcess, alternating, independent
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


@dataclass(frozen=True, slots=True)
class Recorder:
    """A policy, and its choices in one run by the tick at which it was asked."""

    policy: Policy
    choices: dict[int, Choice] = field(default_factory=dict)

    def choose(self, state: State) -> Choice:
        """Return the choice of the policy."""
        choice = self.choices[state.tick] = self.policy.choose(state)
        return choice


class Measurement(NamedTuple):
    """The runs of one job in one market.

    Attributes:
        dollars: of the optimum and the three policies; (runs, 4).
        regrets: of Everspot's decisions, by the costs of the policy that sees availability.
        late: the number of late runs, of any policy.
    """

    dollars: NDArray[np.float64]
    regrets: Regrets
    late: int


def measure(process: SpotProcess, setting: Setting, regions: Regions, runs: int) -> Measurement:
    """Run the job by the optimum and the three policies."""
    ticks = round(setting.deadline_hours / TICK_HOURS)
    paths = process.draw(np.random.default_rng([SEED, len(regions.names), ticks]), runs, ticks)
    traces = [make_traces(process, path) for path in paths]
    solution = solve(process, JobTicks.from_capacity(PoolCapacity.from_traces(traces[0], setting, regions), setting))
    by_phases, by_ages = (follow(solution, paths, phases_visible=visible) for visible in (True, False))
    recorders = [Recorder(EverspotPolicy()) for _ in paths]
    outcomes = [
        [optimum(pools, 0, setting, regions)]
        + [run(pools, 0, setting, policy, regions) for policy in (phases, ages, recorder)]
        for pools, phases, ages, recorder in zip(traces, by_phases, by_ages, recorders, strict=True)
    ]
    return Measurement(
        dollars=np.array([[outcome.cost for outcome in row] for row in outcomes]),
        regrets=measure_regrets(solution, paths, [recorder.choices for recorder in recorders], phases_visible=False),
        late=sum(outcome.missed for row in outcomes for outcome in row),
    )


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
    markets, and the regrets. `runs`: for each market and deadline."""
    measurements: list[Measurement] = []
    for kind, count in MARKETS:
        process, regions = market_process(kind, count), make_regions(count)
        market = [measure(process, make_setting(part), regions, runs) for part in PARTS]
        dollars = np.concatenate([measurement.dollars for measurement in market])
        notes = [f"f = {part}: {describe_ratios(m.dollars)}" for part, m in zip(PARTS, market, strict=True)]
        note = "; ".join([describe_ratios(dollars), *notes, f"{len(dollars)} runs"])
        yield make_figure(f"{kind}-{count}", ratio_interval(dollars[:, 2], dollars[:, 0])[0], note)
        measurements += market
    dollars = np.concatenate([measurement.dollars for measurement in measurements])
    for n, name in enumerate(POLICIES):
        ratio, half_width = ratio_interval(dollars[:, n + 1], dollars[:, 0])
        yield make_figure(name, ratio, f"+- {half_width:.3f} (95 %), {len(dollars)} runs")
    total, *by_kind = (np.concatenate(usd) for usd in zip(*(m.regrets for m in measurements), strict=True))
    for name, usd in zip(("stayed", "on_demand"), by_kind, strict=True):
        share, half_width = ratio_interval(usd, total)
        note = f"+- {half_width:.3f} (95 %); ${usd.mean():.2f} of ${total.mean():.2f} a run"
        yield {**make_figure(f"regret_{name}", share, note), "unit": "of the regret"}
    late = sum(measurement.late for measurement in measurements)
    yield {"name": "regions_known.late", "value": late, "limit": 0, "unit": "runs"}


def main() -> int:
    """Print the figures as JSON lines; 1 if a run was late."""
    return int(not print_figures(figures(int(os.environ.get(RUNS_VARIABLE, DEFAULT_RUNS)))))


if __name__ == "__main__":
    sys.exit(main())
