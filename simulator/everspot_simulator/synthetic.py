"""Synthetic traces. Each generator draws only from the numpy generator that it is given: same seed, same trace.

They imitate real traces. There, half of the spells last less than 0.3 to 1 h and one in ten more than 2 to 15 h, so the
longer a spell has lasted, the longer it will still last. Spot can be absent for days, and pools run dry together.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from everspot_simulator.adversarial import blinking, gone_for_good, last_moment, vanishing
from everspot_simulator.settings import Setting
from everspot_simulator.trace import Trace

_Up = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The distribution of spell lengths: a mixture of exponentials with these means (hours) and chances.

    One exponential makes a Markov chain; several make a heavy tail, with a falling hazard.
    """

    chances: tuple[float, ...] = (1.0,)
    means: tuple[float, ...]

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return the lengths of `count` spells, in hours."""
        return rng.exponential(rng.choice(self.means, count, p=self.chances))

    @property
    def mean(self) -> float:
        """The mean length, in hours."""
        return sum(c * m for c, m in zip(self.chances, self.means, strict=True))


HEAVY_UP = Phases(chances=(0.65, 0.35), means=(0.5, 7.0))
"""Median 0.8 h, 90th percentile 8.8 h."""

HEAVY_DOWN = Phases(chances=(0.75, 0.25), means=(0.35, 5.0))
"""Median 0.4 h, 90th percentile 4.6 h."""

DROUGHT_GAP, DROUGHT = Phases(means=(144.0,)), Phases(means=(36.0,))
"""The time between two droughts of a pool, and a drought."""

PLENTY, SCARCITY = Phases(means=(20.0,)), Phases(means=(8.0,))
"""The time between two scarcities that several pools have in common, and a scarcity."""

COUPLING = 0.7
"""The chance that a common scarcity reaches a pool."""


def markov(
    rng: np.random.Generator,
    ticks: int,
    gap: timedelta,
    *,
    up: Phases = Phases(means=(4.0,)),
    down: Phases = Phases(means=(2.0,)),
) -> Trace:
    """Independent spells; spot is up for `up.mean / (up.mean + down.mean)` of the time."""
    return _trace("markov", gap, _alternate(rng, ticks, gap, up, down))


def heavy_tailed(rng: np.random.Generator, ticks: int, gap: timedelta) -> Trace:
    """Many short spells and a few long ones, like real traces."""
    return replace(markov(rng, ticks, gap, up=HEAVY_UP, down=HEAVY_DOWN), name="heavy-tailed")


def steady(rng: np.random.Generator, ticks: int, gap: timedelta) -> Trace:
    """Spot that is nearly always available: it is gone for some minutes every two days."""
    return replace(markov(rng, ticks, gap, up=Phases(means=(48.0,)), down=Phases(means=(0.2,))), name="steady")


def diurnal(rng: np.random.Generator, ticks: int, gap: timedelta, *, swing: float = 0.9) -> Trace:
    """Return spells that follow the time of day: capacity is scarce by day and plentiful by night.

    `swing`, from 0 to 1: how much the chance of an end or a beginning rises and falls around its mean.
    """
    hours = gap.total_seconds() / 3600
    day = np.cos(2 * math.pi * (np.arange(ticks) * hours + 24 * rng.random()) / 24)
    lost = np.minimum(1.0, hours / 3.0 * (1 + swing * day))
    begin_chance = np.minimum(1.0, hours / 3.0 * (1 - swing * day))
    up = np.zeros(ticks, dtype=np.bool_)
    state = bool(rng.random() < 0.5)
    for tick, dice in enumerate(rng.random(ticks)):
        state = dice >= lost[tick] if state else dice < begin_chance[tick]
        up[tick] = state
    return _trace("diurnal", gap, up)


def droughts(rng: np.random.Generator, ticks: int, gap: timedelta) -> Trace:
    """Heavy-tailed spells, and a drought of a day and a half about every six days."""
    wet = _alternate(rng, ticks, gap, DROUGHT_GAP, DROUGHT)
    return _trace("droughts", gap, wet & heavy_tailed(rng, ticks, gap).up())


def correlated(
    rng: np.random.Generator, ticks: int, gap: timedelta, *, pools: int = 4, coupling: float = COUPLING
) -> tuple[Trace, ...]:
    """Return pools with common scarcities and their own spells. A scarcity reaches each pool with the chance
    `coupling`."""
    plenty = _alternate(rng, ticks, gap, PLENTY, SCARCITY)
    # Which pools a scarcity reaches is drawn once for each scarcity.
    scarcity = np.cumsum(np.diff(plenty, prepend=plenty[0]))
    traces = []
    for pool in range(pools):
        reached = rng.random(int(scarcity[-1]) + 1) < coupling
        own = _alternate(rng, ticks, gap, HEAVY_UP, HEAVY_DOWN)
        traces.append(_trace(f"correlated-{pool}", gap, own & (plenty | ~reached[scarcity])))
    return tuple(traces)


REVERSION_HOURS = 24.0
"""The time in which a generated price returns to its mean."""


def with_prices(
    trace: Trace,
    rng: np.random.Generator,
    *,
    mean: float = 1.0,
    on_demand: float = 3.0,
    volatility: float = 0.1,
) -> Trace:
    """Return the trace with a spot price that wanders around `mean`, between a tenth of it and the on-demand price.

    `volatility`: standard deviation of the price's logarithm.
    """
    keep = math.exp(-trace.tick_seconds / 3600 / REVERSION_HOURS)
    shocks = rng.normal(0, volatility * math.sqrt(1 - keep**2), len(trace))
    log, logs = float(rng.normal(0, volatility)), np.empty(len(trace))
    for tick, shock in enumerate(shocks):
        log = keep * log + shock
        logs[tick] = log
    return replace(trace, prices=np.clip(mean * np.exp(logs), mean / 10, on_demand))


def _alternate(rng: np.random.Generator, ticks: int, gap: timedelta, up: Phases, down: Phases) -> _Up:
    """Alternating spells, up and down, each at least one tick long, from a random moment on."""
    hours = gap.total_seconds() / 3600
    # It begins so long before the first tick that the initial state no longer matters.
    before = math.ceil(10 * (max(up.means) + max(down.means)) * rng.uniform(1, 2) / hours)
    state, spells, drawn = bool(rng.random() < 0.5), list[_Up](), 0
    while drawn < before + ticks:
        lengths = zip(up.draw(rng, 64), down.draw(rng, 64), strict=True)
        for length in (x for pair in lengths for x in (pair if state else pair[::-1])):
            spells.append(np.full(max(1, round(length / hours)), state))
            drawn += len(spells[-1])
            state = not state
    return np.concatenate(spells)[before : before + ticks]


def _trace(name: str, gap: timedelta, up: _Up) -> Trace:
    return Trace(name=name, gap=gap, available=up.astype(np.int64))


Generator = Callable[[np.random.Generator, int, timedelta, Setting], Sequence[Trace]]
"""(randomness, ticks, gap, the job) -> one trace, or the pools of a market. Only adversarial generators use the job."""


def _alone(generate: Callable[[np.random.Generator, int, timedelta], Trace]) -> Generator:
    return lambda rng, ticks, gap, setting: (generate(rng, ticks, gap),)


def _against(generate: Callable[[np.random.Generator, int, timedelta, Setting], Trace]) -> Generator:
    return lambda rng, ticks, gap, setting: (generate(rng, ticks, gap, setting),)


GENERATORS: Mapping[str, Generator] = MappingProxyType(
    {
        "markov": _alone(markov),
        "heavy-tailed": _alone(heavy_tailed),
        "steady": _alone(steady),
        "diurnal": _alone(diurnal),
        "droughts": _alone(droughts),
        "correlated": lambda rng, ticks, gap, setting: correlated(rng, ticks, gap),
        "vanishing": _against(vanishing),
        "blinking": _against(blinking),
        "last-moment": _against(last_moment),
        "gone-for-good": _against(gone_for_good),
    }
)
"""The generators by name."""
