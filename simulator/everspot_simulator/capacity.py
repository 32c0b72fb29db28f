"""The pools of a job, tick by tick: which are up, until when, and at what price."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from everspot_core.validation.problems import Problems

from everspot_simulator.settings import Setting
from everspot_simulator.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolCapacity:
    """One or more pools, tick by tick, for one setting.

    `up[pool][tick]`: whether the pool has capacity. `change[tick]`: the next tick at which any pool comes or goes.
    `prices[pool][tick]`: $/h. `paid[pool][tick]`: the cost of holding the pool from tick 0 to this one; it has one
    element more. Both are None where spot costs 1. These are lists because reading single elements is several times
    faster than from arrays.
    """

    ticks: int
    tick_seconds: float
    on_demand_price: float
    up: tuple[list[bool], ...]
    change: list[int]
    prices: tuple[list[float], ...] | None
    paid: tuple[list[float], ...] | None

    @classmethod
    def from_traces(cls, traces: Trace | Sequence[Trace], setting: Setting) -> "PoolCapacity":
        """Return the capacity in the traces, by the ticks of the setting's clock. Several traces are the pools of one
        job, cut to the shortest.

        Raises:
            BadInputs: if their ticks are not equally long, if only some of them have prices, or if one is shorter than
                a tick.
        """
        pools = setting.on_clock(traces)
        _check(pools)
        ticks = min(len(t) for t in pools)
        hours = pools[0].tick_seconds / 3600
        up = np.stack([t.up(setting.nodes)[:ticks] for t in pools])
        changes = np.flatnonzero((up[:, 1:] != up[:, :-1]).any(axis=0)) + 1
        edges = np.concatenate(([0], changes, [ticks]))
        prices = [t.prices[:ticks] for t in pools if t.prices is not None]
        return cls(
            ticks=ticks,
            tick_seconds=pools[0].tick_seconds,
            on_demand_price=setting.price_ratio * (float(np.mean(prices)) if prices else 1.0),
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

    def cheapest(self, tick: int) -> int | None:
        """Return the cheapest pool that is up at this tick, the first of equals; None if none is up."""
        if tick >= self.ticks:
            return None
        up_pools, prices = [pool for pool, up in enumerate(self.up) if up[tick]], self.prices
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


def _check(pools: list[Trace]) -> None:
    problems = Problems()
    if not problems.need(bool(pools), "traces", "at least one is needed"):
        problems.raise_any("simulation")
    for trace in pools[1:]:
        reason = f"{trace.name}: ticks of {trace.tick_seconds:g} s, but {pools[0].tick_seconds:g} s in {pools[0].name}"
        problems.need(trace.gap == pools[0].gap, "gap_seconds", f"pools need equal ticks; {reason}")
    for trace in pools:
        problems.need(len(trace) > 0, "tick_seconds", f"is longer than the trace {trace.name}")
    without = [t.name for t in pools if t.prices is None]
    reason = f"all pools need them or none; missing in {', '.join(without)}"
    problems.need(len(without) in (0, len(pools)), "prices", reason)
    problems.raise_any("simulation")
