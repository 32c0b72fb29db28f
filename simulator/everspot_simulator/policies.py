"""The policies by the names that users choose them by.

Beside Everspot's own they are baselines: Greedy and Uniform Progress (Wu et al., "Can't Be Late", NSDI'24), the rule of
a margin of slack that later work found, and on-demand only.

C is the computing left, R the time to the deadline, d the changeover. All but on-demand only begin idle and share two
rules:

- Safety net: when idle and R < C + 2d, take on-demand and stay to the end.
- Taking risks: take spot whenever it is available, and stay until it is lost.

Uniform Progress also compares the computing done, C(0) - C, with uniform progress, t * C(0) / R(0). When idle and
behind, it takes on-demand. It leaves on-demand only for spot, once it is ahead of where it should be 2d from now. It
never goes from on-demand to idle.

The margin rule waits for spot while R - C > d + 2 ticks + a fraction of C, and then takes on-demand. It returns to spot
as soon as there is any, while the safety net allows that, and never goes from on-demand to idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from everspot_simulator.engine import EPSILON, UNTIL_CHANGE, Choice, Mode, Policy, State
from everspot_simulator.everspot_policy import EverspotPolicy

_TO_THE_END = Choice(Mode.ON_DEMAND, UNTIL_CHANGE, final=True)
_STAY_ON_DEMAND = Choice(Mode.ON_DEMAND, UNTIL_CHANGE)
_SPOT = Choice(Mode.SPOT, UNTIL_CHANGE)


@dataclass(frozen=True, slots=True)
class OnDemand:
    """On-demand from the first moment to the last."""

    def choose(self, state: State) -> Choice:
        """On-demand."""
        return _TO_THE_END


@dataclass(frozen=True, slots=True)
class Greedy:
    """Takes spot whenever it is available, else waits for as long as the deadline allows.

    `literal`: the safety net is 2d even if a tick is longer than d. A deadline may then be missed, because more time
    passes between two ticks than the net reserves. Without `literal` the net is d plus a tick in that case.
    """

    literal: bool = False

    def choose(self, state: State) -> Choice:
        """Return the choice from this tick on."""
        spare = state.slack - _net(state, self.literal)
        if state.mode is Mode.IDLE and spare < -EPSILON:
            return _TO_THE_END
        return _SPOT if state.available else Choice(Mode.IDLE, _ticks(spare, state.terms.tick))


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Takes spot whenever it is available, and on-demand if progress falls behind. `literal`: as in `Greedy`."""

    literal: bool = False

    def choose(self, state: State) -> Choice:
        """Return the choice from this tick on."""
        if state.mode is Mode.SPOT:
            return _SPOT
        if state.mode is Mode.ON_DEMAND:
            return self._from_on_demand(state)
        spare = state.slack - _net(state, self.literal)
        if spare < -EPSILON:
            return _TO_THE_END
        if state.available:
            return _SPOT
        ahead = -_behind(state, state.now)
        if ahead < -EPSILON:
            return _STAY_ON_DEMAND
        rate = state.terms.job / state.terms.deadline
        return Choice(Mode.IDLE, _ticks(min(spare, ahead / rate), state.terms.tick))

    def _from_on_demand(self, state: State) -> Choice:
        if not state.available:
            return _STAY_ON_DEMAND
        job, deadline, changeover, tick, late = state.terms
        behind = _behind(state, state.now + 2 * (changeover + late))
        if behind <= EPSILON:
            return _SPOT
        if job >= deadline:
            return _STAY_ON_DEMAND  # running all the time, it does not get ahead of uniform progress
        return Choice(Mode.ON_DEMAND, _ticks((behind + state.changing) / (1 - job / deadline), tick))


@dataclass(frozen=True, slots=True)
class SlackMargin:
    """Takes spot whenever it is available, and on-demand once the slack has shrunk to a margin.

    `fraction`: of the computing left; beside a changeover and two ticks it is the margin.
    """

    fraction: float

    def choose(self, state: State) -> Choice:
        """Return the choice from this tick on."""
        if state.mode is Mode.SPOT:
            return _SPOT
        spare = state.slack - _net(state, literal=False)
        if state.mode is Mode.ON_DEMAND:
            return _SPOT if state.available and spare >= -EPSILON else _STAY_ON_DEMAND
        if spare < -EPSILON:
            return _TO_THE_END
        if state.available:
            return _SPOT
        terms = state.terms
        ahead = state.slack - terms.changeover - 2 * terms.tick - self.fraction * state.remaining
        if ahead <= EPSILON:
            return _STAY_ON_DEMAND
        return Choice(Mode.IDLE, _ticks(min(spare, ahead), terms.tick))


def _net(state: State, literal: bool) -> float:
    """Return the slack reserved for two changeovers: a wasted one to spot, and the one to on-demand. Both may take a
    tick longer on a clock of whole ticks."""
    _, _, changeover, tick, late = state.terms
    bound = changeover + late
    return 2 * changeover if literal else bound + max(bound, tick)


def _behind(state: State, moment: float) -> float:
    """Return how many seconds of computing the job is behind uniform progress at `moment`."""
    return moment * state.terms.job / state.terms.deadline - (state.terms.job - state.remaining)


def _ticks(seconds: float, tick: float) -> int:
    """Return the whole ticks within the time, at least one. Asking a policy once too often changes nothing."""
    return max(1, int(seconds / tick))


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "everspot": EverspotPolicy(),
        "up": UniformProgress(),
        "greedy": Greedy(),
        "slack-10": SlackMargin(0.1),
        "slack-20": SlackMargin(0.2),
        "on-demand": OnDemand(),
    }
)
"""`everspot` is the scheduler's own plan; the others are baselines."""
