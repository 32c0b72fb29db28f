"""`regions.usd_ratio`: the dollars of one job over several regions, over those of the optimum, which knows the future.

Generated pools in two and three regions, with prices that change, an on-demand price for each region, 20 GB of
checkpoint and $0.02 for a gigabyte that leaves. `regions.usd_ratio_plenty`: where spot is plentiful.
`regions.late`: runs that missed the deadline, also on clocks of 195 s and 600 s. The note has the ratio of each market,
and that of a job that stays in its first region.
"""

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
from everspot_simulator import EverspotPolicy, Regions, Setting, Trace, optima, runs, starts
from everspot_simulator.synthetic import Phases, correlated, droughts, heavy_tailed, markov, with_prices

from bench._state import print_figures

TICK, DAYS, STARTS, JOB_HOURS, CHANGEOVER_HOURS = timedelta(minutes=5), 20, 4, 24.0, 0.2
PARTS = (0.6, 0.9)
CLOCKS = (195.0, 600.0)
RATIO_LIMIT, GOAL = 1.25, 1.05
"""A step back is over the limit. The goal is not reached yet."""
UP, DOWN = Phases(chances=(0.5, 0.5), means=(1.0, 12.0)), Phases(chances=(0.8, 0.2), means=(0.2, 3.0))
"""Spot that is plentiful: up for nine hours in ten."""


def markets() -> Iterator[tuple[str, list[Trace], Regions]]:
    """Yield each kind of market with two and with three regions."""
    ticks = round(timedelta(days=DAYS) / TICK)
    for kind in ("correlated", "plenty", "heavy", "scarce"):
        for count in (2, 3):
            rng = np.random.default_rng([1, count])
            traces = [
                with_prices(trace, rng, mean=1.0 + 0.15 * n, on_demand=3.0 + 0.3 * n)
                for n, trace in enumerate(_pools(kind, rng, ticks, count))
            ]
            names = [f"region-{n}" for n in range(count)]
            ratios = {name: 3.0 + 0.3 * n for n, name in enumerate(names)}
            yield f"{kind}-{count}", traces, Regions.from_names(names, ratios, checkpoint_gb=20.0, egress_usd=0.02)


def _pools(kind: str, rng: np.random.Generator, ticks: int, count: int) -> list[Trace]:
    match kind:
        case "correlated":
            return list(correlated(rng, ticks, TICK, pools=count))
        case "plenty":
            return [markov(rng, ticks, TICK, up=UP, down=DOWN) for _ in range(count)]
        case "heavy":
            return [heavy_tailed(rng, ticks, TICK) for _ in range(count)]
        case _:
            return [droughts(rng, ticks, TICK) for _ in range(count)]


def setting(part: float, clock: float | None = None) -> Setting:
    """The job. `part`: its part of the time to the deadline."""
    return Setting(
        job_hours=JOB_HOURS, deadline_hours=JOB_HOURS / part, changeover_hours=CHANGEOVER_HOURS, price_ratio=3.0,
        tick_seconds=clock,
    )  # fmt: skip


def measure() -> tuple[dict[str, list[float]], int]:
    """The dollars of the policy, of a job that stays, and of the optimum, by market; and the runs that were late."""
    dollars: dict[str, list[float]] = {}
    late = 0
    for name, traces, regions in markets():
        dollars[name] = [0.0, 0.0, 0.0]
        for part in PARTS:
            job = setting(part)
            at = starts(traces, job, STARTS, seed=3)
            moving = runs(traces, at, job, EverspotPolicy(), regions)
            staying = runs(traces, at, job, EverspotPolicy(moves=False), regions)
            late += sum(o.missed for o in (*moving, *staying))
            for n, outcomes in enumerate((moving, staying, optima(traces, at, job, regions))):
                dollars[name][n] += sum(o.cost for o in outcomes)
            for clock in CLOCKS:
                coarse = setting(part, clock)
                begins = starts(traces, coarse, STARTS, seed=3)
                late += sum(o.missed for o in runs(traces, begins, coarse, EverspotPolicy(), regions))
    return dollars, late


def figures() -> list[dict[str, Any]]:
    """The figures, with their limits."""
    dollars, late = measure()
    each = ", ".join(f"{name} {usd / best:.3f} ({stay / best:.3f})" for name, (usd, stay, best) in dollars.items())
    plenty = {name: usd for name, usd in dollars.items() if name.startswith("plenty")}
    ratio, plenty_ratio = (
        sum(usd[0] for usd in part.values()) / sum(usd[2] for usd in part.values()) for part in (dollars, plenty)
    )
    note = f"{len(PARTS) * STARTS} runs a market; in brackets a job that stays: {each}"
    return [
        {"name": "regions.usd_ratio", "value": round(ratio, 3), "limit": RATIO_LIMIT, "goal": GOAL, "note": note},
        {"name": "regions.usd_ratio_plenty", "value": round(plenty_ratio, 3), "limit": RATIO_LIMIT, "goal": GOAL},
        {"name": "regions.late", "value": late, "limit": 0, "unit": "runs"},
    ]


def main() -> int:
    """Print the figures as JSON lines; 1 if one is on the wrong side of its limit."""
    return int(not print_figures(figures()))


if __name__ == "__main__":
    sys.exit(main())
