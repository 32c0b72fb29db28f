"""The results of a comparison of number formats: intervals, verdicts, and how many seeds would decide.

Each format is an arm, and every arm runs with the same seeds: the same data in the same order and the same initial
weights. So the differences are taken seed by seed from the first arm, which removes the part of the spread that the
seed alone causes, and their mean has a confidence interval by Student's t.

An arm is `equivalent` if the whole interval lies within the tolerance. This is two one-sided tests, each with half of
the remaining probability: an arm that merely shows no difference, because its figures vary much, is not equivalent.
"""

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from everspot_core.experiments.precision_comparison import ComparisonSpec
from everspot_core.experiments.sweep import Direction
from everspot_core.governance.comparison import CONFIDENCE, student_quantile
from everspot_core.jobs.job_parts import Precision

LEAST_SEEDS_WITHOUT_SPREAD = 3
"""This many equal differences count as an interval of zero width. Fewer may be equal by chance."""
_MOST_SEEDS_NEEDED = 1000


class ArmVerdict(StrEnum):
    """The verdict on an arm: the interval of its difference, compared with the tolerance.

    `equivalent`: the interval is within the tolerance. `better`: it is above zero and extends beyond the tolerance.
    `worse`: it is beyond the tolerance on the bad side, or a run diverged. `undecided`: anything else.
    """

    EQUIVALENT = "equivalent"
    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"

    @property
    def passed(self) -> bool:
        """Whether the arm may replace the first one."""
        return self in (ArmVerdict.EQUIVALENT, ArmVerdict.BETTER)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval; `low` and `high` are None where too few values show no spread."""

    count: int
    mean: float
    low: float | None
    high: float | None

    @property
    def half(self) -> float | None:
        """Half of its width."""
        return (self.high - self.low) / 2 if self.low is not None and self.high is not None else None


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The metric of one arm.

    Attributes:
        metric: over the seeds that have a value; None if none has.
        difference: from the first arm, seed by seed; None for the first arm, or without a common seed.
        verdict: None for the first arm.
        seeds_needed: of an undecided arm: about how many seeds would decide it; None if more than a thousand would, or
            that cannot be said.
    """

    precision: Precision
    metric: Interval | None
    difference: Interval | None
    verdict: ArmVerdict | None
    seeds_needed: int | None = None


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of values with its confidence interval by Student's t.

    Raises:
        ValueError: if there are no values, or one is not finite.
    """
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("an interval needs values, all of them finite")
    count, spread = len(values), _spread(values)
    mean = values[0] if spread == 0 else math.fsum(values) / count
    if count < 2 or (spread == 0 and count < LEAST_SEEDS_WITHOUT_SPREAD):
        return Interval(count, mean, None, None)
    half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * spread / math.sqrt(count)
    return Interval(count, mean, mean - half, mean + half)


def judge(difference: Interval, tolerance: float, direction: Direction) -> ArmVerdict:
    """Return the verdict on a difference from the first arm. `tolerance`: in the metric's unit, above zero."""
    if difference.low is None or difference.high is None:
        return ArmVerdict.UNDECIDED
    low, high = difference.low, difference.high
    if direction is Direction.MINIMIZE:
        low, high = -high, -low
    if -tolerance <= low and high <= tolerance:
        return ArmVerdict.EQUIVALENT
    if low > 0:
        return ArmVerdict.BETTER
    return ArmVerdict.WORSE if high < -tolerance else ArmVerdict.UNDECIDED


def seeds_needed(differences: Sequence[float], tolerance: float, direction: Direction) -> int | None:
    """Return about how many seeds would decide, if mean and spread of the differences stay as they are.

    Returns:
        At least one more than there are; None if more than a thousand would be needed, or nothing is known of the
        spread.
    """
    count, spread = len(differences), _spread(differences) if differences else 0.0
    if count < 2 or spread == 0:
        return max(count + 1, LEAST_SEEDS_WITHOUT_SPREAD if count >= 2 else 2) if count else None
    mean = math.fsum(differences) / count

    def decides(seeds: int) -> bool:
        half = student_quantile((1 + CONFIDENCE) / 2, seeds - 1) * spread / math.sqrt(seeds)
        return judge(Interval(seeds, mean, mean - half, mean + half), tolerance, direction) is not ArmVerdict.UNDECIDED

    # An interval that shrinks around its mean stays decided, so that bisection finds the first number that decides.
    candidates = range(count + 1, _MOST_SEEDS_NEEDED + 1)
    first = bisect_left(candidates, True, key=decides)
    return candidates[first] if first < len(candidates) else None


def compare_arms(
    spec: ComparisonSpec,
    values: Mapping[Precision, Mapping[int, float]],
    diverged: Mapping[Precision, Collection[int]] | None = None,
) -> list[ArmResult]:
    """Return the result of each arm.

    An arm that lacks a run of the first arm is at most undecided, so failed seeds are not ignored. An arm that diverged
    with a seed with which the first arm did not is worse.

    Args:
        values: The final metric of the runs that succeeded, by arm and seed's number.
        diverged: The numbers of the seeds whose runs ended with a metric that is not finite, by arm.
    """
    first = values.get(spec.arms[0], {})
    results = []
    for arm in spec.arms:
        own = values.get(arm, {})
        metric = interval([own[n] for n in sorted(own)]) if own else None
        pairs = sorted(own.keys() & first.keys())
        has_diverged = not first.keys().isdisjoint((diverged or {}).get(arm, ()))
        if arm is spec.arms[0]:
            results.append(ArmResult(arm, metric, None, None))
        elif has_diverged:
            difference = interval([own[n] - first[n] for n in pairs]) if pairs else None
            results.append(ArmResult(arm, metric, difference, ArmVerdict.WORSE))
        elif not pairs:
            results.append(ArmResult(arm, metric, None, ArmVerdict.UNDECIDED))
        else:
            differences = [own[n] - first[n] for n in pairs]
            tolerance = spec.tolerance.absolute(math.fsum(first[n] for n in pairs) / len(pairs))
            difference = interval(differences)
            verdict = judge(difference, tolerance, spec.direction)
            is_open = verdict is ArmVerdict.UNDECIDED
            needed = seeds_needed(differences, tolerance, spec.direction) if is_open else None
            if first.keys() - own.keys() and verdict.passed:
                verdict = ArmVerdict.UNDECIDED
            results.append(ArmResult(arm, metric, difference, verdict, needed))
    return results


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation, exactly 0 of equal values."""
    if len(values) < 2 or min(values) == max(values):
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
