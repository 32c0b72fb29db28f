"""Sweeps with a fidelity field: all trials at a small size, the best of them at the next, and few at full size.

This is successive halving (Jamieson and Talwalkar, 2016) by rungs: a rung begins when the one before it has ended.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from everspot_core.documents import Frozen
from everspot_core.experiments.values import Value
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.stage_cache import KEY_FIELDS
from everspot_core.validation.field_types import Flag, Line, Whole
from everspot_core.validation.problems import Problem, shown

MOST_RUNGS = 8
_SIZE_FIELDS = {*KEY_FIELDS, "code", "datasets", "requirements"}
"""The fields of a job that decide what it computes."""


def _read_values(value: object) -> object:
    if not isinstance(value, list):
        raise ValueError(f"has to be a list such as [1, 3, 9], not {shown(value)}")
    return value


class Fidelity(Frozen):
    """The field that makes a trial small, and how the best trials come to full size."""

    field: Line = Field(description="Of the job, such as `parameters.epochs` or `env.SUBSET`.")
    values: Annotated[list[Value], BeforeValidator(_read_values)] = Field(
        min_length=2, max_length=MOST_RUNGS, description="Its value in each rung, the smallest first, full size last."
    )
    keep: Whole = Field(default=3, ge=2, le=100, description="One in so many trials of a rung comes to the next.")
    warm_start: Flag = Field(
        default=False,
        description="A promoted trial goes on from its newest checkpoint in the rung before. What does not fit, "
        "such as weights of another shape, is named in its log, and skipped.",
    )

    def rung_sizes(self, trials: int) -> list[int]:
        """Return how many trials each rung has at most, if the first one has `trials`: one at least."""
        sizes = [trials]
        for _ in self.values[1:]:
            sizes.append(max(1, sizes[-1] // self.keep) if sizes[-1] else 0)
        return sizes

    def rung_shares(self) -> list[float] | None:
        """Return the part of a full-size run that a trial of each rung takes, if time is proportional to the field;
        None if its values are not positive numbers in ascending order. With a warm start a rung only adds to the one
        before."""
        sizes = [float(value) for value in _numbers(self.values)]
        if len(sizes) < len(self.values) or sizes[0] <= 0 or sizes != sorted(sizes):
            return None
        done = [0.0, *sizes[:-1]] if self.warm_start else [0.0] * len(sizes)
        return [(size - before) / sizes[-1] for size, before in zip(sizes, done, strict=True)]


def fidelity_faults(fidelity: Fidelity) -> list[Problem]:
    """Return the faults of a fidelity field whose rungs would not differ in size, or not in this order."""
    problems, name = [], fidelity.field.partition(".")[0]
    if name in JobSpec.model_fields and name not in _SIZE_FIELDS:
        words = f"{fidelity.field} does not change what a trial computes: name a field such as parameters.epochs"
        problems.append(Problem("fidelity.field", words))
    numbers = _numbers(fidelity.values)
    if len({str(value) for value in fidelity.values}) < len(fidelity.values) or len(set(numbers)) < len(numbers):
        problems.append(Problem("fidelity.values", "each value once: a rung of the same size tells nothing new"))
    elif len(numbers) == len(fidelity.values) and numbers != sorted(numbers):
        problems.append(Problem("fidelity.values", "in ascending order: the smallest first, full size last"))
    return problems


def _numbers(values: Sequence[Value]) -> list[int | float]:
    return [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]


def choose_promoted(values: Sequence[tuple[int, float]], count: int, *, maximize: bool) -> list[int]:
    """Return the trials that come to the next rung, the best first.

    Args:
        values: the value of each trial that succeeded.
        count: how many there are at most.
    """
    sign = -1 if maximize else 1
    ranked = sorted(values, key=lambda pair: (sign * pair[1], pair[0]))
    return [trial for trial, _ in ranked[:count]]
