"""The optimum: the cheapest run that meets the deadline, found by a dynamic program that knows the whole trace.

What a run has left to decide depends on the tick, on what is held, and on the slack (time to the deadline beyond the
computing that is left) that has been used. Running uses no slack, a tick of waiting uses a tick, a changeover uses a
changeover. So the slack used is a multiple of the greatest common divisor of tick and changeover, whatever job and
deadline are, and the table has one row per multiple up to the slack at submission: all of them are one numpy vector.
A changeover is never broken off: without it the run would be cheaper.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from everspot_core.simulate.baselines import OnDemand
from everspot_core.simulate.capacity import PoolCapacity
from everspot_core.simulate.engine import EPSILON, Choice, Mode, Outcome, Policy, State, outcome, steps
from everspot_core.simulate.settings import Setting
from everspot_core.simulate.trace import Trace

_CELLS = 1 << 27
"""Ticks times rows of a table at most; a byte and an eighth per pool each."""

_WAIT = 0
_Row = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run that is written down, as a policy: `held[i]` at tick i, None for idle, -1 for on-demand, else the pool."""

    held: tuple[int | None, ...]

    def choose(self, state: State) -> Choice:
        """What is written down for the tick."""
        # What rounding may leave to do after the last tick is done as before.
        tick = min(state.tick, len(self.held) - 1)
        held = self.held[tick]
        ticks = 1
        while tick + ticks < len(self.held) and self.held[tick + ticks] == held:
            ticks += 1
        if held is None:
            return Choice(Mode.IDLE, ticks)
        return Choice(Mode.ON_DEMAND, ticks) if held < 0 else Choice(Mode.SPOT, ticks, pool=held)


def optimum(traces: Trace | Sequence[Trace], start: int, setting: Setting) -> Outcome:
    """The outcome of the cheapest run from tick `start`. Several traces are the pools of the job.

    If no run can meet the deadline, that of on-demand at once, which is late the least.
    """
    return optima(traces, [start], setting)[0]


def optima(traces: Trace | Sequence[Trace], starts: Iterable[int], setting: Setting) -> list[Outcome]:
    """The optimum from each of the starts.

    A start of some days takes some hundredths of a second with ticks of minutes, and up to seconds with ticks of half
    a minute, or where tick and changeover have little in common: rows grow with ticks.
    """
    capacity = PoolCapacity.of(traces, setting)
    return [
        outcome(steps(capacity, int(s), setting, best(capacity, int(s), setting)), setting, capacity) for s in starts
    ]


def best(capacity: PoolCapacity, start: int, setting: Setting) -> Policy:
    """The cheapest run from tick `start`, as a policy that replays it; `OnDemand` if none can meet the deadline.

    Exact where the rows fit into memory. Where they do not, the unit is raised and the changeover rounded up to it in
    what it uses of the slack: the run is still one that meets the deadline, so it is never better than the optimum;
    and it is not worse than the optimum for a deadline that is earlier by one unit per changeover.
    """
    solved = _Table(capacity, start, setting).solve()
    return OnDemand() if solved is None else solved


def unit(setting: Setting, tick: timedelta) -> float:
    """Seconds in which slack is counted: the greatest common divisor of tick and changeover, or what memory allows."""
    exact = math.gcd(*(span // timedelta(microseconds=1) for span in (tick, timedelta(seconds=setting.changeover))))
    length, slack = tick.total_seconds(), setting.deadline - setting.job
    rows = max(1, _CELLS // math.ceil(setting.deadline / length))
    if slack / (exact / 1e6) <= rows:
        return exact / 1e6
    return length / max(1, int(rows * length / slack))


class _Table:
    """The table of one start. Row m of a column: m units of slack have been used. Columns are made from the last tick
    back; `holding[j]` is pool j, the last one is on-demand."""

    def __init__(self, capacity: PoolCapacity, start: int, setting: Setting) -> None:
        self.capacity, self.start = capacity, start
        self.job, self.tick = setting.job, capacity.tick_seconds
        self.unit = unit(setting, timedelta(seconds=self.tick))
        self.wait = round(self.tick / self.unit)
        self.change = math.ceil(setting.changeover / self.unit - EPSILON)
        # A changeover ends within a tick; the rest of that tick is computing.
        self.changing_ticks = max(1, math.ceil(self.change / self.wait))
        self.rows = math.floor((setting.deadline - self.job) / self.unit + EPSILON) + 1
        self.ticks = math.ceil(setting.deadline / self.tick - EPSILON)
        self.holdings = len(capacity.up) + 1

    def solve(self) -> Schedule | None:
        """The cheapest run; None if there is none in time."""
        if self.rows <= self.change:
            return None
        choices: list[NDArray[np.uint8]] = []
        leaves: list[NDArray[np.uint8]] = []
        # The columns of the next ticks, nearest first, as far as a changeover reaches. After the deadline all is done.
        done = np.zeros((self.holdings + 1, self.rows))
        ahead = [done] * self.changing_ticks
        for tick in range(self.ticks - 1, -1, -1):
            column, choice, leave = self._column(tick, ahead)
            ahead = [column, *ahead[:-1]]
            choices.append(choice)
            leaves.append(np.packbits(leave, axis=1))
        return self._walk(choices[::-1], leaves[::-1])

    def _column(self, tick: int, ahead: list[_Row]) -> tuple[_Row, NDArray[np.uint8], NDArray[np.bool_]]:
        """Cost to the end by holding (idle last) and row; what to do when idle; whether to let go of a holding."""
        column = np.full((self.holdings + 1, self.rows), np.inf)
        choice = np.zeros(self.rows, dtype=np.uint8)
        leave = np.zeros((self.holdings, self.rows), dtype=np.bool_)
        left = self._left(tick)
        idle = column[-1]
        idle[: -self.wait] = ahead[0][-1, self.wait :]
        for holding in range(self.holdings):
            entered = self._enter(holding, tick, left, ahead[-1][holding])
            if entered is not None:
                better = entered < idle[: len(entered)]
                idle[: len(entered)][better] = entered[better]
                choice[: len(entered)][better] = holding + 1
        for holding in range(self.holdings):
            price = self._price(holding, tick)
            kept = np.inf if price is None else ahead[0][holding] + price / 3600 * np.minimum(left, self.tick)
            np.less(idle, kept, out=leave[holding])
            np.minimum(idle, kept, out=column[holding])
        column[:, : self._rows_done(tick)] = 0.0
        return column, choice, leave

    def _enter(self, holding: int, tick: int, left: _Row | float, then: _Row) -> _Row | None:
        """Cost to the end of a changeover to the holding now, for the rows that have slack for it; None if it fails."""
        prices = [self._price(holding, t) for t in range(tick, tick + self.changing_ticks)]
        whole = [p for p in prices if p is not None]
        if len(whole) < len(prices):
            return None
        before = self.tick * (self.changing_ticks - 1)
        changing = self.change * self.unit - before
        rows = self.rows - self.change
        computing = np.minimum(left if isinstance(left, float) else left[:rows], self.tick - changing)
        return then[self.change :] + (sum(whole[:-1]) * self.tick + whole[-1] * (changing + computing)) / 3600

    def _price(self, holding: int, tick: int) -> float | None:
        """$/h of a holding at a tick; None where it is not to be had."""
        at = self.start + tick
        if holding == self.holdings - 1:
            return self.capacity.on_demand_price
        if at >= self.capacity.ticks or not self.capacity.up[holding][at]:
            return None
        return 1.0 if self.capacity.prices is None else self.capacity.prices[holding][at]

    def _left(self, tick: int) -> _Row | float:
        """Computing left by row; a single number, the least of them, where even that is more than a tick."""
        least = self.job - tick * self.tick
        if least >= self.tick:
            return least
        left: _Row = np.maximum(least + np.arange(self.rows) * self.unit, 0.0)
        return left

    def _rows_done(self, tick: int) -> int:
        """How many rows have nothing left to compute at this tick."""
        over = tick * self.tick - self.job
        return 0 if over < -EPSILON else min(self.rows, int((over + EPSILON) / self.unit) + 1)

    def _walk(self, choices: list[NDArray[np.uint8]], leaves: list[NDArray[np.uint8]]) -> Schedule:
        """Forward through the decisions."""
        held: list[int | None] = []
        holding, row = None, 0
        while len(held) < self.ticks and row >= self._rows_done(len(held)):
            tick = len(held)
            if holding is not None and leaves[tick][holding, row >> 3] >> (7 - (row & 7)) & 1:
                holding = None
            if holding is not None:
                held.append(self._name(holding))
            elif choices[tick][row] == _WAIT:
                held.append(None)
                row += self.wait
            else:
                holding = int(choices[tick][row]) - 1
                held.extend([self._name(holding)] * self.changing_ticks)
                row += self.change
        return Schedule(tuple(held))

    def _name(self, holding: int) -> int:
        return -1 if holding == self.holdings - 1 else holding
