"""Estimates how long spells last: hazards by age, estimated from observed spells.

Spot capacity comes and goes in spells whose hazard falls with age: most end within minutes, a few last for days. So a
mean says little, and a spell that has lasted long is likely to last longer. The hazard (ends per hour) is constant
within each bracket of age. A Gamma prior counts like a few spells that were seen. This is the piecewise exponential
model of survival analysis. A spell that has not ended yet counts with the hours that it has lasted.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EDGES: Floats = np.array([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8])
"""Where the brackets of age begin, in hours; the last one has no end."""


@dataclass(frozen=True, slots=True)
class Prior:
    """The estimate without any observation: at age `a` the hazard is `level / (a + offset)` per hour.

    It weighs as if `weight` spells had ended in each bracket.
    """

    level: float
    offset: float
    weight: float

    def hazards(self) -> Floats:
        """Return the ends per hour in each bracket."""
        ends = np.append(EDGES[1:], 2 * EDGES[-1])
        return np.asarray(self.level / ((EDGES + ends) / 2 + self.offset))


UPS = Prior(level=1.05, offset=0.2, weight=1.1)
DOWNS = Prior(level=3.6, offset=0.2, weight=1.15)
"""See "Tuning" in docs/internals/scheduling.md."""


@dataclass(frozen=True, slots=True, eq=False)
class Lifetimes:
    """The distribution of a spell's length. `hazard`: ends per hour by bracket of age."""

    hazard: Floats
    survivors: Floats
    """The fraction of spells that reaches each bracket."""
    until: Floats
    """Hours that a spell lasts on average, counted up to the beginning of each bracket."""

    @classmethod
    def from_hazard(cls, hazard: Floats) -> "Lifetimes":
        """Return the distribution with these hazards."""
        widths = np.diff(EDGES)
        survivors = np.exp(-np.append(0.0, np.cumsum(hazard[:-1] * widths)))
        spent = survivors[:-1] * -np.expm1(-hazard[:-1] * widths) / hazard[:-1]
        return cls(hazard, survivors, np.append(0.0, np.cumsum(spent)))

    @property
    def mean(self) -> float:
        """Hours that a spell lasts on average."""
        return float(self.until[-1] + self.survivors[-1] / self.hazard[-1])

    def survival(self, age: Floats) -> Floats:
        """Return the fraction of spells that lasts longer than each age, in hours."""
        at = np.searchsorted(EDGES, age, side="right") - 1
        return np.asarray(self.survivors[at] * np.exp(-self.hazard[at] * (age - EDGES[at])))

    def capped(self, age: Floats) -> Floats:
        """Return hours that a spell lasts on average if it is cut off at each age."""
        at = np.searchsorted(EDGES, age, side="right") - 1
        spent = -np.expm1(-self.hazard[at] * (age - EDGES[at])) / self.hazard[at]
        return np.asarray(self.until[at] + self.survivors[at] * spent)

    def residual(self, age: float) -> float:
        """Return hours for which a spell of that age still lasts, on average."""
        at = np.array([age])
        reached = float(self.survival(at)[0])
        return (self.mean - float(self.capped(at)[0])) / reached if reached > 0 else float(1 / self.hazard[-1])


@lru_cache(maxsize=4096)
def learnt(prior: Prior, ended: tuple[float, ...], running: float) -> Lifetimes:
    """Return the distribution after `ended` spells (hours each) and one that has lasted `running` hours and goes on."""
    starts, widths = EDGES[:, None], np.append(np.diff(EDGES), np.inf)[:, None]
    hours = np.clip(np.array([*ended, running])[None, :] - starts, 0.0, widths).sum(axis=1)
    bracket = np.searchsorted(EDGES, np.array(ended), side="left") - 1
    ends = np.bincount(np.maximum(bracket, 0), minlength=len(EDGES))
    return Lifetimes.from_hazard((prior.weight + ends) / (prior.weight / prior.hazards() + hours))
