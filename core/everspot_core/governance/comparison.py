"""Compares a figure of two sets of jobs: the difference of the means, with its confidence interval by Welch.

Welch's interval assumes no equal spread on both sides. It assumes that means are about normal, which holds for sets of
some size even where single figures are skewed; a property test measures how often it covers the truth.

Where all values of either side are equal, the spread is estimated as 0, Student's t is undefined, and there is no
interval. Few equal values say nothing of how far values vary. With values enough on both sides the exact permutation
test still judges: it needs no spread, only that jobs might have been dealt to the sides in any way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
FEW = 5
"""A side with fewer jobs has an interval that rests on a spread known from very little."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)


@dataclass(frozen=True, slots=True)
class Sample:
    """One side. `spread`: the standard deviation; None of fewer than two values."""

    count: int
    mean: float
    spread: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure on both sides. `difference`: of B's mean from A's; `low` to `high` is its interval.

    `low` and `high` are None where a side has fewer than two values, or neither side shows any spread."""

    a: Sample
    b: Sample
    difference: float
    low: float | None
    high: float | None
    confidence: float = CONFIDENCE

    @property
    def spreadless(self) -> bool:
        """Whether each side has several values, all of them equal."""
        return self.a.spread == 0 and self.b.spread == 0

    @property
    def shown(self) -> bool:
        """Whether the sets show a difference at all: the interval is without 0. Without any spread: if neither side is
        small, and the exact permutation test rejects that they are alike."""
        if self.spreadless and self.difference and not self.few:
            return parted_by_chance(self.a.count, self.b.count) <= 1 - self.confidence
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def reach(self) -> float | None:
        """The smallest difference of means that sets like these would have shown; None without an interval."""
        return (self.high - self.low) / 2 if self.low is not None and self.high is not None else None

    @property
    def few(self) -> bool:
        """Whether a side has so few values that the interval itself is not to be relied on."""
        return min(self.a.count, self.b.count) < FEW

    def percent(self, amount: float) -> float | None:
        """Return an amount in percent of A's mean; None if that is 0."""
        return 100 * amount / abs(self.a.mean) if self.a.mean else None


def compared(a: Sequence[float], b: Sequence[float], confidence: float = CONFIDENCE) -> Comparison:
    """Compare two sets of values, which need not be of one size.

    Raises:
        ValueError: if a set is empty, a value is not finite, or the confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not {confidence}")
    sample_a, sample_b = _sample(a), _sample(b)
    difference = sample_b.mean - sample_a.mean
    if sample_a.spread is None or sample_b.spread is None:
        return Comparison(sample_a, sample_b, difference, None, None)
    first, second = sample_a.spread / math.sqrt(sample_a.count), sample_b.spread / math.sqrt(sample_b.count)
    error = math.hypot(first, second)
    if error == 0:
        return Comparison(sample_a, sample_b, difference, None, None, confidence)
    # By shares of the variance: squares of very small or large figures would leave the range of a float.
    share = (first / error) ** 2
    freedom = 1 / (share**2 / (sample_a.count - 1) + (1 - share) ** 2 / (sample_b.count - 1))
    half = student_quantile((1 + confidence) / 2, freedom) * error
    return Comparison(sample_a, sample_b, difference, difference - half, difference + half, confidence)


def parted_by_chance(a: int, b: int) -> float:
    """Return the share of all ways to deal `a` equal values and `b` other equal values to sides of these sizes that
    part them as far as possible: p of the exact permutation test, two-sided."""
    return (2 if a == b else 1) / math.comb(a + b, a)


def _sample(values: Sequence[float]) -> Sample:
    if len(values) == 0 or not all(map(math.isfinite, values)):
        raise ValueError("a set to compare needs values, all of them finite")
    array = np.asarray(values, dtype=float)
    if array.min() == array.max():  # the mean of equal values may be off by the last bit, which would be a difference
        return Sample(len(array), float(array[0]), 0.0 if len(array) > 1 else None)
    return Sample(len(array), float(array.mean()), float(array.std(ddof=1)))


def student_quantile(p: float, freedom: float) -> float:
    """Return the value that Student's t does not exceed with the probability `p`, for this many degrees of freedom (1
    at least).

    With t = √freedom · tan θ the distribution is an integral of cos θ to the power of freedom - 1, which has no tails.
    """
    if p < 0.5:
        return -student_quantile(1 - p, freedom)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        angles = middle / 2 * (1 + _NODES)
        below = 0.5 + scale * middle / 2 * float(_WEIGHTS @ np.cos(angles) ** (freedom - 1))
        low, high = (middle, high) if below < p else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)
