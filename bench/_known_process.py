"""Policies that know how spot comes and goes in every region, but not the future: the bounds of `regions_known`.

Capacity is a Markov chain with hidden states (`SpotProcess`), and one job in it is a Markov decision process, which
`solve` solves backwards from the deadline (Bellman 1957). It is followed in two ways:

- The phases are visible: the optimal policy of somebody who sees more than availability. No policy that sees
  availability alone is cheaper on average, which makes its dollars a lower bound (an information relaxation, as is the
  optimum that knows the future: Brown, Smith and Sun, "Information relaxations and duality in stochastic dynamic
  programs", 2010).
- Ages are visible: the policy sees availability, keeps the chance of each hidden state by Bayes' rule, and takes the
  action with the least cost by these chances as if the state were visible from the next tick on (QMDP: Littman,
  Cassandra and Kaelbling, "Learning policies for partially observable environments", 1995). It can be carried out, so
  the cheapest policy that sees availability costs no more.

Both give `Schedule`s, whose dollars the simulator's engine counts as those of any other policy. `measure_regrets`
prices another policy's decisions by the same costs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from everspot_simulator import Choice, Mode, PoolCapacity, Schedule, Setting
from numpy.typing import NDArray

from bench._spot_process import SpotProcess

INFEASIBLE = 1e7
"""Dollars of what misses the deadline: finite, so that a chance of 0 of it costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTicks:
    """One job in whole ticks, and the dollars of a tick. There is a pool in each region, whose price does not change.

    Attributes:
        work, deadline, changeover, move: ticks; the last two are at least 1.
        spot_usd, on_demand_usd: for a tick, by region.
        move_usd: for a move, by the region that the job leaves.
    """

    work: int
    deadline: int
    changeover: int
    move: int
    spot_usd: tuple[float, ...]
    on_demand_usd: tuple[float, ...]
    move_usd: tuple[float, ...]

    @classmethod
    def from_capacity(cls, capacity: PoolCapacity, setting: Setting) -> "JobTicks":
        """Return the job of a setting at the prices of the pools' first tick, which must hold for all ticks."""
        seconds, regions = capacity.tick_seconds, capacity.regions
        spot = [price[0] for price in capacity.prices] if capacity.prices else [1.0] * len(capacity.up)
        return cls(
            work=round(setting.job / seconds),
            deadline=round(setting.deadline / seconds),
            changeover=round(setting.changeover / seconds),
            move=regions.move_ticks(seconds),
            spot_usd=tuple(usd * seconds / 3600 for usd in spot),
            on_demand_usd=tuple(usd * seconds / 3600 for usd in capacity.on_demand_prices),
            move_usd=tuple(regions.move_usd(origin) for origin in range(len(regions.names))),
        )

    @property
    def slack(self) -> int:
        """The ticks to the deadline beyond the work, at submission."""
        return self.deadline - self.work


class Holding(NamedTuple):
    """The region of the job and what it holds there. `pending`: ticks of a changeover or a move that are still due."""

    mode: Mode
    region: int
    pending: int = 0


class Action(NamedTuple):
    """An action of a tick: its dollars, the ticks of slack that it uses, and what the job holds afterwards."""

    usd: float
    slack: int
    result: Holding


def list_holdings(job: JobTicks) -> list[Holding]:
    """Return all that a job may hold at the beginning of a tick. The first is where it begins: idle in region 0."""
    regions = range(len(job.spot_usd))
    moving = [Holding(Mode.IDLE, region, pending) for pending in range(job.move) for region in regions]
    modes = (Mode.SPOT, Mode.ON_DEMAND)
    return moving + [Holding(m, region, n) for m in modes for region in regions for n in range(job.changeover)]


def list_actions(job: JobTicks, holding: Holding) -> list[Action]:
    """Return what a job may do for a tick: wait, spot, on-demand, and a move to each other region. A job on its way can
    only go on. Spot needs capacity, which is not looked at here."""
    mode, region, pending = holding
    if mode is Mode.IDLE and pending:
        return [Action(0.0, 1, Holding(mode, region, pending - 1))]
    actions = [Action(0.0, 1, Holding(Mode.IDLE, region))]
    for target, usd in ((Mode.SPOT, job.spot_usd), (Mode.ON_DEMAND, job.on_demand_usd)):
        due = pending if mode is target else job.changeover
        actions.append(Action(usd[region], min(due, 1), Holding(target, region, max(due - 1, 0))))
    goals = (goal for goal in range(len(job.spot_usd)) if goal != region)
    return actions + [Action(job.move_usd[region], 1, Holding(Mode.IDLE, goal, job.move - 1)) for goal in goals]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """The costs of the best policy that sees the hidden states.

    Attributes:
        usd: expected dollars of the job.
        expected: expected dollars after a tick, before the next state is drawn, by what the job then holds, the state
            in the tick and the slack left; for each tick (holdings, states, slack + 1).
    """

    process: SpotProcess
    job: JobTicks
    usd: float
    expected: list[NDArray[np.float32]]


def solve(process: SpotProcess, job: JobTicks) -> Solution:
    """Solve the decision process backwards from the deadline. It takes seconds and up to hundreds of megabytes."""
    holdings = list_holdings(job)
    transition = process.transition.astype(np.float32)
    costs = np.zeros((len(holdings), len(transition), job.slack + 1), dtype=np.float32)
    slack_left = np.arange(job.slack + 1)
    expected: list[NDArray[np.float32]] = []
    actions = [
        (row, holdings.index(result), slack, np.where(up, usd, INFEASIBLE).astype(np.float32)[:, None])
        for row, holding in enumerate(holdings)
        for usd, slack, result in list_actions(job, holding)
        for up in [process.up[result.region] | (result.mode is not Mode.SPOT)]
    ]
    for tick in range(job.deadline - 1, -1, -1):
        after = transition @ costs
        costs = np.full_like(after, INFEASIBLE)
        for row, result_row, slack, usd_by_state in actions:
            best = costs[row, :, slack:]
            np.minimum(best, after[result_row, :, : len(slack_left) - slack] + usd_by_state, out=best)
        costs[:, :, slack_left >= job.deadline - tick] = 0.0  # no work is left
        expected.append(after)
    start_usd = float(process.stationary() @ costs[0, :, job.slack])
    return Solution(process=process, job=job, usd=start_usd, expected=expected[::-1])


Chooser = Callable[[int, NDArray[np.int64], NDArray[np.bool_], NDArray[np.float64]], NDArray[np.int64]]
"""(tick, rows of `list_holdings` by run, runs that still have work, costs by run and action) -> action by run."""


def walk(solution: Solution, paths: NDArray[np.int64], choose: Chooser, *, phases_visible: bool) -> NDArray[np.int64]:
    """Return what each run holds at the beginning of each tick, as rows of `list_holdings`; (deadline + 1, runs).

    Args:
        paths: hidden states by run and tick; (runs, ticks).
        choose: chooses by the expected costs of the actions.
        phases_visible: the costs are those of the hidden state; otherwise of the chances that availability gives.
    """
    process, job = solution.process, solution.job
    holdings = list_holdings(job)
    actions = [list_actions(job, holding) for holding in holdings]
    # Tables by holding and action; a holding with fewer actions repeats its last one.
    width = max(map(len, actions))
    table = [[row[min(n, len(row) - 1)] for n in range(width)] for row in actions]
    usd, used = (np.array([[getattr(a, name) for a in row] for row in table]) for name in ("usd", "slack"))
    result = np.array([[holdings.index(a.result) for a in row] for row in table])
    needs_spot = np.array([[a.result.mode is Mode.SPOT for a in row] for row in table])
    region = np.array([holding.region for holding in holdings])

    runs = np.arange(len(paths))
    slack, rows = np.full(len(paths), job.slack), np.zeros(len(paths), dtype=np.int64)
    chances = np.tile(process.stationary(), (len(paths), 1))
    visited = [rows]
    for tick in range(job.deadline):
        states = paths[:, tick]
        up = process.up[:, states]
        chances = process.condition(chances, up)
        weights = np.eye(len(process.transition))[states] if phases_visible else chances
        next_rows, next_slack = result[rows], slack[:, None] - used[rows]
        later = solution.expected[tick][next_rows, :, next_slack.clip(min=0)]
        costs = usd[rows] + np.einsum("rs,ras->ra", weights, later)
        costs[(next_slack < 0) | (needs_spot[rows] & ~up[region[rows], runs][:, None])] = INFEASIBLE
        taken_actions = choose(tick, rows, slack < job.deadline - tick, costs)
        # The slack of a job that is done may fall below 0; its actions are not read.
        rows, slack = next_rows[runs, taken_actions], next_slack[runs, taken_actions].clip(min=0)
        chances = chances @ process.transition
        visited.append(rows)
    return np.array(visited)


def follow(solution: Solution, paths: NDArray[np.int64], *, phases_visible: bool) -> list[Schedule]:
    """Return the run of the least expected costs on each path (runs, ticks)."""
    holdings = list_holdings(solution.job)
    visited = walk(
        solution, paths, lambda tick, rows, working, costs: costs.argmin(axis=1), phases_visible=phases_visible
    )
    return [_schedule([holdings[row] for row in rows]) for rows in visited.T]


class Regrets(NamedTuple):
    """What decisions cost beyond those of least expected costs, by run, in dollars; (runs,).

    Attributes:
        total: of all decisions.
        stayed: where a move was cheapest, and the policy stayed in its region.
        on_demand: where spot of the region was cheapest, and the policy chose on-demand.
    """

    total: NDArray[np.float64]
    stayed: NDArray[np.float64]
    on_demand: NDArray[np.float64]


def measure_regrets(
    solution: Solution, paths: NDArray[np.int64], choices: Sequence[Mapping[int, Choice]], *, phases_visible: bool
) -> Regrets:
    """Return the regrets of another policy's runs. `choices`: of each run, by the tick at which it was asked."""
    holdings, runs = list_holdings(solution.job), np.arange(len(paths))
    regrets = Regrets(*np.zeros((3, len(paths))))
    latest: list[Choice] = [Choice(Mode.IDLE)] * len(paths)

    def choose(
        tick: int, rows: NDArray[np.int64], working: NDArray[np.bool_], costs: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        latest[:] = [by_tick.get(tick, choice) for by_tick, choice in zip(choices, latest, strict=True)]
        actions = np.array([_index(choice, holdings[row]) for choice, row in zip(latest, rows, strict=True)])
        cheapest = costs.argmin(axis=1)
        usd = np.where(working, costs[runs, actions] - costs.min(axis=1), 0.0)
        regrets.total[:] += usd
        regrets.stayed[:] += usd * ((cheapest >= _FIRST_MOVE) & (actions < _FIRST_MOVE))
        regrets.on_demand[:] += usd * ((cheapest == _ACTIONS[Mode.SPOT]) & (actions == _ACTIONS[Mode.ON_DEMAND]))
        return actions

    walk(solution, paths, choose, phases_visible=phases_visible)
    return regrets


_ACTIONS = {Mode.IDLE: 0, Mode.SPOT: 1, Mode.ON_DEMAND: 2}
_FIRST_MOVE = len(_ACTIONS)
"""The order of `list_actions`."""


def _index(choice: Choice, holding: Holding) -> int:
    """Return the index of a choice among the actions of a holding."""
    if choice.region is None or choice.region == holding.region:
        return _ACTIONS[choice.mode]
    return _FIRST_MOVE + choice.region - (choice.region > holding.region)


def _schedule(path: list[Holding]) -> Schedule:
    """Return the run with these holdings at the beginnings of the ticks. The last is held after the last tick."""
    moves = {tick: path[tick + 1].region for tick in range(len(path) - 1) if path[tick].region != path[tick + 1].region}
    return Schedule(tuple(_pool(after) for after in path[1:]), moves)


def _pool(holding: Holding) -> int | None:
    if holding.mode is Mode.IDLE:
        return None
    return holding.region if holding.mode is Mode.SPOT else -1
