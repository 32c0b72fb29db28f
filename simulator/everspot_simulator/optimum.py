"""The optimum: the cheapest run that meets the deadline, found by a dynamic program that knows the whole trace.

The state of the program is the tick, what is held, and the slack used so far. (Slack is the time to the deadline beyond
the computing that is left.) Running uses no slack, a tick of waiting uses a tick, a changeover uses a changeover. So
the slack used is always a multiple of the greatest common divisor of tick and changeover, whatever the job and the
deadline. A move to another region takes whole ticks, and a job that holds nothing has one state for each region. The
table has one row per multiple, up to the slack at submission; a column of rows is one numpy vector.
An optimal run never breaks off a changeover: without that changeover it would be cheaper.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from everspot_simulator.capacity import PoolCapacity
from everspot_simulator.engine import EPSILON, Choice, Mode, Outcome, Policy, State, outcome, steps
from everspot_simulator.policies import OnDemand
from everspot_simulator.regions import Regions
from everspot_simulator.settings import Setting
from everspot_simulator.trace import Trace

_CELLS = 1 << 27
"""The most cells, ticks times rows, of a table. A cell takes a byte, and an eighth of one per pool."""

_WAIT = 0
_Row = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A policy that replays a fixed run.

    `holdings`: by tick: None is idle, -1 on-demand, else the pool. `moves`: the region that the job moves to, by the
    tick at which the move begins.
    """

    holdings: tuple[int | None, ...]
    moves: Mapping[int, int] = field(default_factory=dict)

    def choose(self, state: State) -> Choice:
        """Return the choice of the run at the tick."""
        # Rounding may leave a little work after the last tick; it is done on what was held last.
        tick = min(state.tick, len(self.holdings) - 1)
        if tick in self.moves:
            return Choice(Mode.IDLE, region=self.moves[tick])
        holding = self.holdings[tick]
        ticks = 1
        while self.holdings[tick + ticks : tick + ticks + 1] == (holding,) and tick + ticks not in self.moves:
            ticks += 1
        if holding is None:
            return Choice(Mode.IDLE, ticks)
        return Choice(Mode.ON_DEMAND, ticks) if holding < 0 else Choice(Mode.SPOT, ticks, pool=holding)


def optimum(traces: Trace | Sequence[Trace], start: int, setting: Setting, regions: Regions | None = None) -> Outcome:
    """Return the outcome of the cheapest run from tick `start`. Several traces are the pools of the job.

    If no run can meet the deadline, it is the outcome of on-demand from the start, which is the least late.
    """
    return optima(traces, [start], setting, regions)[0]


def optima(
    traces: Trace | Sequence[Trace], starts: Iterable[int], setting: Setting, regions: Regions | None = None
) -> list[Outcome]:
    """Return the optimum from each of the starts. `regions`: of the pools; None: they are in one.

    A run of some days takes some hundredths of a second with ticks of minutes. It takes up to seconds with ticks of
    half a minute, or where tick and changeover have a small common divisor, because the table has more rows then.
    """
    capacity = PoolCapacity.from_traces(traces, setting, regions)
    return [
        outcome(steps(capacity, int(s), setting, best(capacity, int(s), setting)), setting, capacity) for s in starts
    ]


def best(capacity: PoolCapacity, start: int, setting: Setting) -> Policy:
    """Return the cheapest run from tick `start`, as a policy that replays it; `OnDemand` if none can meet the deadline.

    The result is exact where the table fits into memory. Where it does not, the unit of slack is larger, and the slack
    that a changeover uses is rounded up to it. The run still meets the deadline, so it is never better than the
    optimum, and it is never worse than the optimum for a deadline that is earlier by one unit per changeover.
    """
    solved = _Table(capacity, start, setting).solve()
    return OnDemand() if solved is None else solved


def unit(setting: Setting, tick: timedelta) -> float:
    """Return the unit of slack, in seconds: the greatest common divisor of tick and changeover, or a larger unit if
    memory does not allow it."""
    exact = math.gcd(
        *(span // timedelta(microseconds=1) for span in (tick, timedelta(seconds=setting.actual_changeover)))
    )
    length, slack = tick.total_seconds(), setting.deadline - setting.job
    rows = max(1, _CELLS // math.ceil(setting.deadline / length))
    if slack / (exact / 1e6) <= rows:
        return exact / 1e6
    return length / max(1, int(rows * length / slack))


class _Table:
    """The table of one start. Row m of a column is m units of slack used. Columns are computed from the last tick back.
    Holding j is pool j; the last holdings are on-demand, one a region, and after them come the idle states, one a
    region."""

    def __init__(self, capacity: PoolCapacity, start: int, setting: Setting) -> None:
        self.capacity, self.start = capacity, start
        self.job, self.tick = setting.job, capacity.tick_seconds
        self.unit = unit(setting, timedelta(seconds=self.tick))
        self.wait = round(self.tick / self.unit)
        self.change = math.ceil(setting.actual_changeover / self.unit - EPSILON)
        # The rest of the tick in which a changeover ends is computing.
        self.changing_ticks = max(1, math.ceil(self.change / self.wait))
        self.rows = math.floor((setting.deadline - self.job) / self.unit + EPSILON) + 1
        self.ticks = math.ceil(setting.deadline / self.tick - EPSILON)
        self.regions = len(capacity.regions.names)
        self.region: tuple[int, ...] = (*capacity.regions.pools, *range(self.regions))
        self.holdings = len(self.region)
        self.move_ticks = capacity.regions.move_ticks(self.tick)

    def solve(self) -> Schedule | None:
        """Return the cheapest run; None if no run meets the deadline."""
        if self.rows <= self.change:
            return None
        choices: list[NDArray[np.uint8]] = []
        leave_table: list[NDArray[np.uint8]] = []
        # The columns of the ticks that a changeover spans, nearest first. After the deadline nothing is left to do.
        done = np.zeros((self.holdings + self.regions, self.rows))
        ahead = [done] * max(self.changing_ticks, self.move_ticks if self.regions > 1 else 0)
        for tick in range(self.ticks - 1, -1, -1):
            column, choice, leave = self._column(tick, ahead)
            ahead = [column, *ahead[:-1]]
            choices.append(choice)
            leave_table.append(np.packbits(leave, axis=1))
        return self._walk(choices[::-1], leave_table[::-1])

    def _column(self, tick: int, ahead: list[_Row]) -> tuple[_Row, NDArray[np.uint8], NDArray[np.bool_]]:
        """Return cost to the end by holding (idle last) and row; the best choice when idle, by region and row; whether
        to leave each holding."""
        column = np.full((self.holdings + self.regions, self.rows), np.inf)
        choice = np.zeros((self.regions, self.rows), dtype=np.uint8)
        leave = np.zeros((self.holdings, self.rows), dtype=np.bool_)
        remaining = self._remaining(tick)
        idle = column[self.holdings :]
        idle[:, : -self.wait] = ahead[0][self.holdings :, self.wait :]
        for holding, region in enumerate(self.region):
            entered = self._enter(holding, tick, remaining, ahead[self.changing_ticks - 1][holding])
            if entered is not None:
                _improve(idle[region], choice[region], entered, holding + 1)
        for origin, goal in permutations(range(self.regions), 2):
            later = ahead[self.move_ticks - 1][self.holdings + goal, self.move_ticks * self.wait :]
            moved = later + self.capacity.regions.move_usd(origin)
            _improve(idle[origin], choice[origin], moved, self.holdings + goal + 1)
        for holding, region in enumerate(self.region):
            price = self._price(holding, tick)
            stay_cost = np.inf if price is None else ahead[0][holding] + price / 3600 * np.minimum(remaining, self.tick)
            np.less(idle[region], stay_cost, out=leave[holding])
            np.minimum(idle[region], stay_cost, out=column[holding])
        column[:, : self._rows_done(tick)] = 0.0
        return column, choice, leave

    def _enter(self, holding: int, tick: int, remaining: _Row | float, later_cost: _Row) -> _Row | None:
        """Return cost to the end if a changeover to the holding begins now, by row; None if its capacity ends
        meanwhile."""
        prices = [self._price(holding, t) for t in range(tick, tick + self.changing_ticks)]
        whole = [p for p in prices if p is not None]
        if len(whole) < len(prices):
            return None
        before = self.tick * (self.changing_ticks - 1)
        changing = self.change * self.unit - before
        rows = self.rows - self.change
        computing = np.minimum(remaining if isinstance(remaining, float) else remaining[:rows], self.tick - changing)
        return later_cost[self.change :] + (sum(whole[:-1]) * self.tick + whole[-1] * (changing + computing)) / 3600

    def _price(self, holding: int, tick: int) -> float | None:
        """Return the price of a holding at a tick, $/h; None if it is not available."""
        at = self.start + tick
        if holding >= len(self.capacity.up):
            return self.capacity.on_demand_prices[self.region[holding]]
        if at >= self.capacity.ticks or not self.capacity.up[holding][at]:
            return None
        return 1.0 if self.capacity.prices is None else self.capacity.prices[holding][at]

    def _remaining(self, tick: int) -> _Row | float:
        """Return seconds of computing left by row; only the least of them where even that is a tick or more."""
        least = self.job - tick * self.tick
        if least >= self.tick:
            return least
        remaining: _Row = np.maximum(least + np.arange(self.rows) * self.unit, 0.0)
        return remaining

    def _rows_done(self, tick: int) -> int:
        """Return how many rows have nothing left to compute at this tick."""
        over = tick * self.tick - self.job
        return 0 if over < -EPSILON else min(self.rows, int((over + EPSILON) / self.unit) + 1)

    def _walk(self, choices: list[NDArray[np.uint8]], leave_table: list[NDArray[np.uint8]]) -> Schedule:
        """Return the run that the decisions give, from the first tick on."""
        holdings: list[int | None] = []
        moves: dict[int, int] = {}
        holding, region, row = None, 0, 0
        while len(holdings) < self.ticks and row >= self._rows_done(len(holdings)):
            tick = len(holdings)
            if holding is not None and leave_table[tick][holding, row >> 3] >> (7 - (row & 7)) & 1:
                holding = None
            if holding is not None:
                holdings.append(self._name(holding))
            elif choices[tick][region, row] == _WAIT:
                holdings.append(None)
                row += self.wait
            elif (goal := int(choices[tick][region, row]) - 1 - self.holdings) >= 0:
                holdings.extend([None] * self.move_ticks)
                moves[tick] = region = goal
                row += self.move_ticks * self.wait
            else:
                holding = int(choices[tick][region, row]) - 1
                holdings.extend([self._name(holding)] * self.changing_ticks)
                row += self.change
        return Schedule(tuple(holdings), moves)

    def _name(self, holding: int) -> int:
        return -1 if holding >= len(self.capacity.up) else holding


def _improve(costs: _Row, choices: NDArray[np.uint8], other: _Row, choice: int) -> None:
    """Take the other costs, and the choice that leads to them, where they are lower. `other` has the first rows."""
    better = other < costs[: len(other)]
    costs[: len(other)][better] = other[better]
    choices[: len(other)][better] = choice
