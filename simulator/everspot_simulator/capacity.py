"""The pools of a job, tick by tick: which are up, until when, and at what price."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from everspot_core.validation.problems import Problems

from everspot_simulator.regions import Regions, one_region
from everspot_simulator.settings import Setting
from everspot_simulator.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolCapacity:
    """One or more pools, tick by tick, for one setting.

    `up[pool][tick]`: whether the pool has capacity. `change[tick]`: the next tick at which any pool comes or goes.
    `prices[pool][tick]`: $/h. `paid[pool][tick]`: the cost of holding the pool from tick 0 to this one; it has one
    element more. Both are None where spot costs 1. `on_demand_prices[region]`: $/h. These are lists because reading
    single elements is several times faster than from arrays.
    """

    ticks: int
    tick_seconds: float
    regions: Regions
    on_demand_prices: tuple[float, ...]
    up: tuple[list[bool], ...]
    change: list[int]
    prices: tuple[list[float], ...] | None
    paid: tuple[list[float], ...] | None

    @classmethod
    def from_traces(
        cls, traces: Trace | Sequence[Trace], setting: Setting, regions: Regions | None = None
    ) -> "PoolCapacity":
        """Return the capacity in the traces, by the ticks of the setting's clock. Several traces are the pools of one
        job, cut to the shortest. `regions`: None: all pools are in one region.

        Raises:
            BadInputs: if their ticks are not equally long, if only some of them have prices, if one is shorter than a
                tick, or if the regions are of another number of pools.
        """
        pools = setting.on_clock(traces)
        regions = regions or one_region(len(pools), setting.price_ratio)
        _check(pools, regions)
        ticks = min(len(t) for t in pools)
        hours = pools[0].tick_seconds / 3600
        up = np.stack([t.up(setting.nodes)[:ticks] for t in pools])
        changes = np.flatnonzero((up[:, 1:] != up[:, :-1]).any(axis=0)) + 1
        edges = np.concatenate(([0], changes, [ticks]))
        prices = [t.prices[:ticks] for t in pools if t.prices is not None]
        mean = float(np.mean(prices)) if prices else 1.0
        return cls(
            ticks=ticks,
            tick_seconds=pools[0].tick_seconds,
            regions=regions,
            on_demand_prices=tuple(ratio * mean for ratio in regions.price_ratios),
            up=tuple(row.tolist() for row in up),
            change=np.repeat(edges[1:], np.diff(edges)).tolist(),
            prices=tuple(p.tolist() for p in prices) or None,
            paid=tuple(list(accumulate((p * hours).tolist(), initial=0.0)) for p in prices) or None,
        )

    def offers(self, tick: int) -> tuple[float | None, ...]:
        """Return the price of an hour by pool at this tick; None where a pool is not up."""
        if tick >= self.ticks:
            return (None,) * len(self.up)
        prices = self.prices
        if prices is None:
            return tuple(1.0 if up[tick] else None for up in self.up)
        return tuple(prices[pool][tick] if up[tick] else None for pool, up in enumerate(self.up))

    def cheapest(self, tick: int, region: int = 0) -> int | None:
        """Return the cheapest pool of the region that is up at this tick, the first of equals; None if none is up."""
        if tick >= self.ticks:
            return None
        located, prices = zip(self.up, self.regions.pools, strict=True), self.prices
        up_pools = [pool for pool, (up, at) in enumerate(located) if at == region and up[tick]]
        if prices is None or len(up_pools) < 2:
            return up_pools[0] if up_pools else None
        return min(up_pools, key=lambda pool: prices[pool][tick])

    def spot_cost(self, pool: int, tick: int, seconds: float) -> float:
        """Return the cost of holding the pool for `seconds` from the beginning of this tick."""
        if self.paid is None or self.prices is None:
            return seconds / 3600
        whole = int(seconds / self.tick_seconds)
        remainder = seconds - whole * self.tick_seconds
        cost = self.paid[pool][tick + whole] - self.paid[pool][tick]
        return cost + self.prices[pool][tick + whole] * remainder / 3600 if remainder > 0 else cost


def _check(pools: list[Trace], regions: Regions) -> None:
    problems = Problems()
    if not problems.need(bool(pools), "traces", "at least one is needed"):
        problems.raise_any("simulation")
    for trace in pools[1:]:
        reason = f"{trace.name}: ticks of {trace.tick_seconds:g} s, but {pools[0].tick_seconds:g} s in {pools[0].name}"
        problems.need(trace.gap == pools[0].gap, "gap_seconds", f"pools need equal ticks; {reason}")
    for trace in pools:
        problems.need(len(trace) > 0, "tick_seconds", f"is longer than the trace {trace.name}")
    count = len(regions.pools)
    problems.need(count == len(pools), "regions", f"there are {len(pools)} pools, and regions of {count}")
    without = [t.name for t in pools if t.prices is None]
    reason = f"all pools need them or none; missing in {', '.join(without)}"
    problems.need(len(without) in (0, len(pools)), "prices", reason)
    problems.raise_any("simulation")
