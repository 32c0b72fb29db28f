"""Spot in several regions as a Markov chain with hidden states, which `bench/_known_process.py` knows.

A spell's length is a mixture of exponentials (`Phases`): each spell is in one of a few phases, which ends with the same
chance at every tick.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from everspot_simulator.synthetic import Phases
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpotProcess:
    """A Markov chain whose hidden state says in which regions spot is up.

    Attributes:
        transition: chance from the state of the row to that of the column within a tick; (states, states).
        up: whether spot is up, by region and state; (regions, states).
    """

    transition: NDArray[np.float64]
    up: NDArray[np.bool_]

    def stationary(self) -> NDArray[np.float64]:
        """Return the chance of each state at a random moment; (states,)."""
        states = len(self.transition)
        equations = np.vstack([self.transition.T - np.eye(states), np.ones(states)])
        chances = np.linalg.lstsq(equations, np.append(np.zeros(states), 1.0), rcond=None)[0].clip(min=0.0)
        normalized: NDArray[np.float64] = chances / chances.sum()
        return normalized

    def condition(self, chances: NDArray[np.float64], up: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the chances of the states (runs, states) by Bayes' rule, given where spot is up (regions, runs)."""
        consistent = (self.up[:, None, :] == up[:, :, None]).all(axis=0)
        weights: NDArray[np.float64] = chances * consistent
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    def draw(self, rng: np.random.Generator, runs: int, ticks: int) -> NDArray[np.int64]:
        """Return paths of hidden states from a random moment on; (runs, ticks)."""
        thresholds = self.transition.cumsum(axis=1)
        paths = np.empty((runs, ticks), dtype=np.int64)
        states = rng.choice(len(self.transition), runs, p=self.stationary())
        for tick in range(ticks):
            paths[:, tick] = states
            states = (rng.random((runs, 1)) > thresholds[states]).sum(axis=1).clip(max=len(self.transition) - 1)
        return paths


def alternating(up: Phases, down: Phases, tick_hours: float) -> SpotProcess:
    """Return the process of one region with independent spells: the phases of spot that is up, then those down."""
    leave: NDArray[np.float64] = -np.expm1(-tick_hours / np.array((*up.means, *down.means), dtype=np.float64))
    is_up = np.arange(len(leave)) < len(up.means)
    # The next spell is of the other kind, in a phase by that kind's chances.
    entry = np.where(is_up[:, None] == is_up, 0.0, np.array((*up.chances, *down.chances)))
    return SpotProcess(transition=np.diag(1 - leave) + leave[:, None] * entry, up=is_up[None])


def independent(*processes: SpotProcess) -> SpotProcess:
    """Return the process of the regions of several processes that do not depend on each other."""
    return reduce(_pair, processes)


def _pair(first: SpotProcess, second: SpotProcess) -> SpotProcess:
    up = np.vstack([np.repeat(first.up, second.up.shape[1], axis=1), np.tile(second.up, first.up.shape[1])])
    transition: NDArray[np.float64] = np.kron(first.transition, second.transition).astype(np.float64)
    return SpotProcess(transition=transition, up=up)
