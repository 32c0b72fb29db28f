"""`regions.usd_ratio`: the dollars of one job over several regions, over those of the optimum, which knows the future.

Generated pools in two and three regions, with prices that change, an on-demand price for each region, 20 GB of
checkpoint and $0.02 for a gigabyte that leaves, in several draws. `regions.usd_ratio_plenty`: where spot is plentiful.
`regions.late`: runs that missed the deadline, also on clocks of 195 s and 600 s. The notes have the ratio of each
market, that of each draw, and those of a job that stays in its first region.
"""

import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from everspot_simulator import EverspotPolicy, Regions, Setting, Trace, optima, runs, starts
from everspot_simulator.synthetic import Phases, correlated, droughts, heavy_tailed, markov, with_prices

from bench._state import print_figures

TICK, DAYS, JOB_HOURS, CHANGEOVER_HOURS = timedelta(minutes=5), 20, 24.0, 0.2
PARTS = (0.6, 0.9)
CLOCKS = (195.0, 600.0)
DRAWS = (1, 2, 3, 4, 5, 6)
RATIO_LIMIT, KNOWN_PROCESS = 1.28, 1.14
"""A step back is over the limit. A policy that knows how spot comes and goes, but not the future, reaches the second
figure where prices do not change (`regions_known.ages`)."""
UP, DOWN = Phases(chances=(0.5, 0.5), means=(1.0, 12.0)), Phases(chances=(0.8, 0.2), means=(0.2, 3.0))
"""Spot that is plentiful: up for nine hours in ten."""


def markets(draw: int) -> Iterator[tuple[str, list[Trace], Regions]]:
    """Yield each kind of market with two and with three regions. `draw`: the seed of the traces."""
    ticks = round(timedelta(days=DAYS) / TICK)
    for kind in ("correlated", "plenty", "heavy", "scarce"):
        for count in (2, 3):
            rng = np.random.default_rng([draw, count])
            traces = [
                with_prices(trace, rng, mean=1.0 + 0.15 * n, on_demand=3.0 + 0.3 * n)
                for n, trace in enumerate(_pools(kind, rng, ticks, count))
            ]
            names = [f"region-{n}" for n in range(count)]
            price_ratios = {name: 3.0 + 0.3 * n for n, name in enumerate(names)}
            yield (
                f"{kind}-{count}",
                traces,
                Regions.from_names(names, price_ratios, checkpoint_gb=20.0, egress_usd=0.02),
            )


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


class Dollars(NamedTuple):
    """The dollars of the policy, of a job that stays in its first region, and of the optimum."""

    moving: float
    staying: float
    optimum: float


def measure() -> tuple[dict[tuple[str, int], Dollars], int]:
    """Return the dollars by market and draw, and the number of runs that were late."""
    dollars: dict[tuple[str, int], Dollars] = {}
    late = 0
    for draw in DRAWS:
        for name, traces, regions in markets(draw):
            costs = [0.0, 0.0, 0.0]
            for part in PARTS:
                job = setting(part)
                at = starts(traces, job, 1, seed=draw)
                moving = runs(traces, at, job, EverspotPolicy(), regions)
                staying = runs(traces, at, job, EverspotPolicy(moves=False), regions)
                late += sum(o.missed for o in (*moving, *staying))
                for n, outcomes in enumerate((moving, staying, optima(traces, at, job, regions))):
                    costs[n] += sum(o.cost for o in outcomes)
                for clock in CLOCKS:
                    coarse = setting(part, clock)
                    begins = starts(traces, coarse, 1, seed=draw)
                    late += sum(o.missed for o in runs(traces, begins, coarse, EverspotPolicy(), regions))
            dollars[name, draw] = Dollars(*costs)
    return dollars, late


def ratios(dollars: Iterable[Dollars]) -> tuple[float, float]:
    """Return the dollars of the policy, and of a job that stays, over those of the optimum."""
    runs_usd = list(dollars)
    best = sum(usd.optimum for usd in runs_usd)
    return sum(usd.moving for usd in runs_usd) / best, sum(usd.staying for usd in runs_usd) / best


def figures() -> list[dict[str, Any]]:
    """The figures, with their limits."""
    dollars, late = measure()
    by_market, by_draw = (
        ", ".join(
            "{} {:.3f} ({:.3f})".format(key, *ratios(usd for keys, usd in dollars.items() if keys[n] == key))
            for key in dict.fromkeys(keys[n] for keys in dollars)
        )
        for n in (0, 1)
    )
    ratio, staying = ratios(dollars.values())
    plenty_ratio, plenty_staying = ratios(usd for (name, _), usd in dollars.items() if name.startswith("plenty"))
    note = f"{len(PARTS) * len(dollars)} runs; in brackets a job that stays, {staying:.3f} in all"
    limits = {"limit": RATIO_LIMIT, "known_process": KNOWN_PROCESS}
    return [
        {"name": "regions.usd_ratio", "value": round(ratio, 3), **limits, "note": f"{note}: {by_market}"},
        {"name": "regions.usd_ratio_plenty", "value": round(plenty_ratio, 3), "limit": RATIO_LIMIT,
         "note": f"a job that stays: {plenty_staying:.3f}; by draw, all markets: {by_draw}"},
        {"name": "regions.late", "value": late, "limit": 0, "unit": "runs"},
    ]  # fmt: skip


def main() -> int:
    """Print the figures as JSON lines; 1 if one is on the wrong side of its limit."""
    return int(not print_figures(figures()))


if __name__ == "__main__":
    sys.exit(main())
