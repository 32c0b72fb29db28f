"""The policies to compare with: Greedy and Uniform Progress (Wu et al., "Can't Be Late", NSDI'24), and on-demand.

C: computing left, R: time to the deadline, d: changeover, both policies idle at first. Their common rules:

- Safety net: when idle and R < C + 2d, take on-demand and stay to the end.
- Taking risks: take spot whenever it is there, and stay until it is lost.

Uniform Progress, in addition, compares what is done, C(0) - C, with what uniform progress would have done by now,
t * C(0) / R(0): when idle and behind it takes on-demand; on on-demand it stays until it is ahead of where it should
be 2d from now, and then until spot appears. It never goes from on-demand to idle.
"""

from dataclasses import dataclass

from everspot_core.simulate.engine import EPSILON, UNTIL_CHANGE, Choice, Mode, State

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

    `literal`: the safety net is 2d even if a tick is longer than d. Then a deadline may be missed, because more time
    passes between two ticks than the net keeps back. Without `literal` the net is d and a tick in that case.
    """

    literal: bool = False

    def choose(self, state: State) -> Choice:
        """What to hold from this tick on."""
        spare = state.slack - _net(state, self.literal)
        if state.mode is Mode.IDLE and spare < -EPSILON:
            return _TO_THE_END
        return _SPOT if state.available else Choice(Mode.IDLE, _ticks(spare, state.terms.tick))


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Takes spot whenever it is available, and on-demand if progress falls behind. `literal`: as in `Greedy`."""

    literal: bool = False

    def choose(self, state: State) -> Choice:
        """What to hold from this tick on."""
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
        job, deadline, changeover, tick = state.terms
        behind = _behind(state, state.now + 2 * changeover)
        if behind <= EPSILON:
            return _SPOT
        if job >= deadline:
            return _STAY_ON_DEMAND  # it does not gain on uniform progress
        return Choice(Mode.ON_DEMAND, _ticks((behind + state.changing) / (1 - job / deadline), tick))


def _net(state: State, literal: bool) -> float:
    """Slack that is kept back: for one changeover that spot may cost for nothing, and for the one to on-demand."""
    _, _, changeover, tick = state.terms
    return 2 * changeover if literal else changeover + max(changeover, tick)


def _behind(state: State, moment: float) -> float:
    """Seconds of computing that are missing now for uniform progress at `moment`."""
    return moment * state.terms.job / state.terms.deadline - (state.terms.job - state.left)


def _ticks(seconds: float, tick: float) -> int:
    """Whole ticks within the time, at least one. To be asked once too often costs nothing."""
    return max(1, int(seconds / tick))
