"""The engine that runs one job through a trace under a policy.

Time passes in ticks. At each tick the policy sees which spot pools are up and chooses what the job holds for that tick.
A policy also says for how many ticks its choice holds, and the engine does not ask it again before then unless
availability changes; so the work of a run grows with its events. Entering spot or on-demand costs a changeover, of one
or more ticks, in which the instance is paid and the job makes no progress. On a clock of whole ticks (`Setting`) a
changeover is rounded up to whole ticks: an instance that gets ready between two decisions is used from the second one
on. Of the last tick only the used part is paid.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from everspot_simulator.capacity import PoolCapacity
from everspot_simulator.regions import Regions
from everspot_simulator.settings import Setting
from everspot_simulator.trace import Trace

EPSILON = 1e-6
"""Seconds below which a difference is rounding."""

ON_TIME = 1e-3
"""Seconds after the deadline that are no miss yet: as much as rounding may add up to over a run."""

UNTIL_CHANGE = sys.maxsize
"""The number of ticks of a choice that holds until a pool comes or goes."""


class Mode(Enum):
    """The kind of instance that the job holds; IDLE if none."""

    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


class Terms(NamedTuple):
    """The constants of a run, in seconds. `late`: a changeover may take this much longer than `changeover`, because it
    ends with a tick; 0 if it may end between two ticks."""

    job: float
    deadline: float
    changeover: float
    tick: float
    late: float = 0.0


class State(NamedTuple):
    """All that a policy may know at a tick. Times are seconds from submission.

    Attributes:
        remaining: seconds of computing left.
        mode: the market that the job holds, IDLE if it has just lost spot.
        changing: seconds left of the changeover under way.
        available: a spot pool of the region is up or held.
        spot: price of an hour by pool, None where the pool is not up.
        on_demand: price of an hour on-demand in each region.
        region: the region in which the job is. It can hold only what is there.
        regions: all of them; None in a policy's own tests of a single one.
    """

    tick: int
    now: float
    remaining: float
    mode: Mode
    changing: float
    available: bool
    terms: Terms
    spot: tuple[float | None, ...] = ()
    on_demand: tuple[float, ...] = (0.0,)
    region: int = 0
    regions: Regions | None = None

    @property
    def slack(self) -> float:
        """Time to the deadline beyond the computing that is left."""
        return self.terms.deadline - self.now - self.remaining


class Choice(NamedTuple):
    """The choice of a policy from now on. The policy is asked again after `ticks`, or when availability changes.

    `final`: on-demand to the end, without being asked again. `pool`: None for the pool that is held, otherwise the
    cheapest. `region`: move there, which takes some ticks without an instance; only with the mode IDLE.
    """

    mode: Mode
    ticks: int = 1
    final: bool = False
    pool: int | None = None
    region: int | None = None


class Policy(Protocol):
    """A policy chooses the market that the job holds, from the present state."""

    def choose(self, state: State) -> Choice:
        """Return the choice from this tick on. SPOT only where it is available."""
        ...


class Step(NamedTuple):
    """A part of a run during which the job held the same thing.

    Attributes:
        tick: its first one, from submission.
        seconds: its length.
        progress: seconds of computing done in it.
        entered: it began with a changeover.
        moved: it is a move to another region, whose egress is the cost.
    """

    tick: int
    mode: Mode
    pool: int | None
    seconds: float
    progress: float
    cost: float
    entered: bool
    moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run. Hours held include changeovers. Costs are for one node, in dollars where the trace has
    prices, otherwise in units of the spot price.

    Attributes:
        finished_at: hours from submission.
        undisturbed: the cost of the job on one on-demand instance of the first region without any changeover.
    """

    cost: float
    undisturbed: float
    finished_at: float
    missed: bool
    spot_hours: float
    on_demand_hours: float
    idle_hours: float
    changeovers: int
    moves: int = 0

    @property
    def saving(self) -> float:
        """The fraction of the undisturbed cost that was saved; negative if the run cost more."""
        return 1 - self.cost / self.undisturbed


def run(
    traces: Trace | Sequence[Trace], start: int, setting: Setting, policy: Policy, regions: Regions | None = None
) -> Outcome:
    """Run one job, submitted at tick `start`. Several traces are the pools of the job."""
    return runs(traces, [start], setting, policy, regions)[0]


def runs(
    traces: Trace | Sequence[Trace],
    starts: Iterable[int],
    setting: Setting,
    policy: Policy,
    regions: Regions | None = None,
) -> list[Outcome]:
    """Run a job from each of the starts. `regions`: of the pools; None: they are in one."""
    capacity = PoolCapacity.from_traces(traces, setting, regions)
    return [outcome(steps(capacity, int(s), setting, policy), setting, capacity) for s in starts]


def steps(capacity: PoolCapacity, start: int, setting: Setting, policy: Policy) -> Iterator[Step]:
    """Yield the run, step by step, until the job is done, even if that is after the deadline. After the end of a trace
    there is no spot capacity.

    Raises:
        ValueError: if the policy uses spot without capacity, or would wait for ever.
    """
    length = capacity.tick_seconds
    whole, changeover = setting.tick_seconds is not None, setting.actual_changeover
    terms = Terms(setting.job, setting.deadline, setting.changeover, length, length if whole else 0.0)
    tick, remaining, changing = 0, terms.job, 0.0
    mode, pool, region = Mode.IDLE, None, 0
    regions = capacity.regions
    while remaining > EPSILON:
        at = start + tick
        if pool is not None and not (at < capacity.ticks and capacity.up[pool][at]):
            mode, pool, changing = Mode.IDLE, None, 0.0
        available = pool is not None or capacity.cheapest(at, region) is not None
        spot, on_demand = capacity.offers(at), capacity.on_demand_prices
        now = tick * length
        state = State(tick, now, remaining, mode, changing, available, terms, spot, on_demand, region, regions)
        choice = policy.choose(state)
        if choice.region is not None:
            _check_move(choice, regions, region)
            away = regions.move_ticks(length)
            yield Step(tick, Mode.IDLE, None, away * length, 0.0, regions.move_usd(region), False, moved=True)
            tick, mode, pool, changing, region = tick + away, Mode.IDLE, None, 0.0, choice.region
            continue
        target = _pool(choice, mode, pool, capacity, at, region)
        entered = choice.mode is not Mode.IDLE and (choice.mode is not mode or target != pool)
        mode, pool = choice.mode, target
        changing = changeover if entered else changing
        ticks = choice.ticks if at >= capacity.ticks else min(choice.ticks, capacity.change[at] - at)
        if mode is Mode.IDLE:
            # No spot comes after the end of a trace.
            if at >= capacity.ticks and (ticks == UNTIL_CHANGE or tick * length > terms.deadline + terms.job):
                raise ValueError(f"{policy!r} waits for ever: the trace has ended")
            yield Step(tick, mode, None, ticks * length, 0.0, 0.0, False)
            tick, changing = tick + ticks, 0.0
            continue
        needed = changing + remaining
        seconds = needed if choice.final else min(ticks * length, needed)
        progress = max(0.0, seconds - changing)
        cost = on_demand[region] * seconds / 3600
        if pool is not None:
            cost = capacity.spot_cost(pool, at, seconds)
        yield Step(tick, mode, pool, seconds, progress, cost, entered)
        remaining, changing = remaining - progress, max(0.0, changing - seconds)
        tick += ticks


def _check_move(choice: Choice, regions: Regions, region: int) -> None:
    if choice.mode is not Mode.IDLE:
        raise ValueError("a job that moves to another region holds nothing")
    if choice.region == region or choice.region not in range(len(regions.names)):
        raise ValueError(f"there is no other region {choice.region}")


def _pool(choice: Choice, mode: Mode, pool: int | None, capacity: PoolCapacity, at: int, region: int) -> int | None:
    """Return the pool that the choice selects; None if it is not spot."""
    if choice.final and choice.mode is not Mode.ON_DEMAND:
        raise ValueError("only on-demand can be held to the end whatever comes")
    if choice.ticks < 1:
        raise ValueError(f"a choice holds for at least a tick, not for {choice.ticks}")
    if choice.mode is not Mode.SPOT:
        return None
    if choice.pool is None:
        target = pool if mode is Mode.SPOT else capacity.cheapest(at, region)
    else:
        here = capacity.regions.pools[choice.pool] == region
        target = choice.pool if here and at < capacity.ticks and capacity.up[choice.pool][at] else None
    if target is None:
        raise ValueError(f"spot was chosen at tick {at}, where there is none")
    return target


def outcome(run_steps: Iterable[Step], setting: Setting, capacity: PoolCapacity) -> Outcome:
    """Return the result of a run's steps."""
    cost, changeovers, moves, finished = 0.0, 0, 0, 0.0
    seconds_by_mode = dict.fromkeys(Mode, 0.0)
    for step in run_steps:
        cost += step.cost
        seconds_by_mode[step.mode] += step.seconds
        changeovers += step.entered
        moves += step.moved
        finished = step.tick * capacity.tick_seconds + step.seconds
    return Outcome(
        cost=cost,
        undisturbed=capacity.on_demand_prices[0] * setting.job / 3600,
        finished_at=finished / 3600,
        missed=finished > setting.deadline + ON_TIME,
        spot_hours=seconds_by_mode[Mode.SPOT] / 3600,
        on_demand_hours=seconds_by_mode[Mode.ON_DEMAND] / 3600,
        idle_hours=seconds_by_mode[Mode.IDLE] / 3600,
        changeovers=changeovers,
        moves=moves,
    )
