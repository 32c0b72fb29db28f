"""Computes the cost and the progress of each strategy to alternate between spot, waiting and on-demand.

A strategy is two thresholds: how long to wait for spot in an outage before going on-demand, and how long spot must have
been back before leaving on-demand. Outages and spells of spot alternate, and are assumed to last as they did so far.
When an outage begins, the job is in one of two states: it loses its spot instance, or it is still on on-demand from
the outage before. These states form a Markov chain: the next state depends only on this one. So each strategy has a
mean cost and a mean progress per hour (the renewal reward theorem). The best strategy for a job is the cheapest that is
fast enough for its deadline.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from everspot_core.schedule.market.lifetimes import Floats, Lifetimes

NEVER = 1e6
"""Hours: longer than anything."""
WAITS: Floats = np.array([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, NEVER])
RETURNS: Floats = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.8, 1.6, 3.2, 6.4, NEVER])
"""The thresholds that are tried, in hours."""
URGENCY = 3.2
"""The charge for a strategy that is too slow: on-demand prices per missing fraction of the pace."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """Two thresholds, in hours, with the progress and the cost that follow from them."""

    wait: float
    back: float
    pace: float
    """Hours of progress in an hour."""
    usd: float
    """Dollars for an hour of progress."""


@dataclass(frozen=True, slots=True, eq=False)
class StrategyTable:
    """Progress per hour and dollars per hour of progress of all strategies, as arrays by (wait, return)."""

    pace: Floats
    usd: Floats
    on_demand: float

    def best(self, pace: float) -> Strategy:
        """Return the best strategy for a job that must make `pace` hours of progress in each remaining hour."""
        late = np.maximum(0.0, 1.0 - self.pace / pace) if pace > 0 else np.zeros_like(self.pace)
        at = int(np.argmin(self.usd + URGENCY * self.on_demand * late))
        wait, back = divmod(at, len(RETURNS))
        return Strategy(
            float(WAITS[wait]), float(RETURNS[back]), float(self.pace[wait, back]), float(self.usd[wait, back])
        )

    def usd_at(self, pace: float) -> float:
        """Return the least dollars for an hour of progress at `pace`. A strategy that is too slow is kept for a part of
        the time, and the job is on on-demand for the rest."""
        if pace >= 1:
            return self.on_demand
        finite = np.isfinite(self.usd) & (self.pace > 0)
        slow, usd = self.pace[finite], self.usd[finite]
        share = np.clip((pace - slow) / np.maximum(1 - slow, 1e-12), 0.0, 1.0)
        progress = (1 - share) * slow + share
        each = ((1 - share) * slow * usd + share * self.on_demand) / np.maximum(progress, 1e-12)
        return min(self.on_demand, float(each.min())) if each.size else self.on_demand


@lru_cache(maxsize=1024)
def strategies(outage: Lifetimes, up: Lifetimes, *, spot: float, on_demand: float, changeover: float) -> StrategyTable:
    """Return the table of all strategies. `spot` and `on_demand` in dollars an hour, `changeover` in hours."""
    waited, outlasted = outage.capped(WAITS), outage.survival(WAITS)
    stayed, reached = up.capped(RETURNS), up.survival(RETURNS)
    # An up spell that begins on on-demand: there until it has lasted `back`, a changeover, then on spot to its end.
    od_usd = on_demand * stayed + spot * (up.mean - stayed)
    od_progress = stayed + up.mean - up.capped(RETURNS + changeover)
    # An up spell that begins without an instance: spot immediately.
    free_usd, free_progress = spot * up.mean, up.mean - float(up.capped(np.array([changeover]))[0])
    # The whole cycle from an outage on, with nothing held at its beginning: (waits, returns).
    w_out, w_waited = outlasted[:, None], waited[:, None]
    idle_usd = on_demand * (outage.mean - w_waited) + (1 - w_out) * free_usd + w_out * od_usd
    idle_progress = outage.mean - w_waited - changeover * w_out + (1 - w_out) * free_progress + w_out * od_progress
    # How many outages begin on on-demand in the long run.
    stay_share = 1 - reached
    share = w_out * stay_share / np.maximum(1 - stay_share + w_out * stay_share, 1e-12)
    usd = (1 - share) * idle_usd + share * (on_demand * outage.mean + od_usd)
    progress = (1 - share) * idle_progress + share * (outage.mean + od_progress)
    hopeless = progress <= 0
    each = np.where(hopeless, np.inf, usd / np.where(hopeless, 1.0, progress))
    return StrategyTable(progress / (outage.mean + up.mean), each, on_demand)
