"""Adversarial traces: spot comes and goes at the worst moments for one job.

They are made for a job that is submitted at the first tick. `rng` varies only what does not affect the harm.
"""

import math
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from everspot_simulator.settings import Setting
from everspot_simulator.trace import Trace


def vanishing(rng: np.random.Generator, ticks: int, gap: timedelta, setting: Setting) -> Trace:
    """Spot that ends as soon as a changeover to it is done: the job pays for it and computes almost nothing."""
    return _trace("vanishing", gap, _again_and_again(rng, ticks, _ticks(setting.changeover, gap)))


def blinking(rng: np.random.Generator, ticks: int, gap: timedelta, setting: Setting) -> Trace:
    """Spot that is available for exactly one tick, again and again."""
    return _trace("blinking", gap, _again_and_again(rng, ticks, 1))


def last_moment(rng: np.random.Generator, ticks: int, gap: timedelta, setting: Setting) -> Trace:
    """Return a trace without spot until waiting has used up all slack but two changeovers; then with spot for one
    changeover, then without.

    A policy that takes the spot has to move to on-demand immediately. The pattern repeats after the deadline.
    """
    spare = setting.deadline - setting.job - 2 * setting.changeover
    first = max(0, int(spare / gap.total_seconds() + 1e-6))
    tick = np.arange(ticks) % _ticks(setting.deadline, gap)
    return _trace("last-moment", gap, (first <= tick) & (tick < first + _ticks(setting.changeover, gap)))


def gone_for_good(rng: np.random.Generator, ticks: int, gap: timedelta, setting: Setting) -> Trace:
    """Spot from the first tick until a random moment while the job still runs; then none until the deadline.

    The pattern repeats after the deadline with another moment.
    """
    period, latest = _ticks(setting.deadline, gap), _ticks(setting.job, gap)
    last = rng.integers(1, latest + 1, ticks // period + 1)
    tick = np.arange(ticks)
    return _trace("gone-for-good", gap, tick % period < last[tick // period])


def _again_and_again(rng: np.random.Generator, ticks: int, spell_ticks: int) -> NDArray[np.bool_]:
    """Spot for `spell_ticks` ticks, then none for a random 1 to 2 x `spell_ticks` + 4 ticks, repeatedly; spot first."""
    away = rng.integers(1, 2 * spell_ticks + 5, ticks // (spell_ticks + 1) + 2)
    spells = np.stack([np.full_like(away, spell_ticks), away], axis=1).ravel()
    return np.repeat(np.arange(len(spells)) % 2 == 0, spells)[:ticks]


def _ticks(seconds: float, gap: timedelta) -> int:
    """Return the ticks that a span of time covers, rounded up, at least one."""
    return max(1, math.ceil(seconds / gap.total_seconds() - 1e-6))


def _trace(name: str, gap: timedelta, up: NDArray[np.bool_]) -> Trace:
    return Trace(name=name, gap=gap, available=up.astype(np.int64))
