"""A comparison of number formats: the same job in several precisions, each with the same seeds.

The statistics are in `arm_results.py`, and what a cheaper format saves is in `smaller_types.py`.
"""

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from everspot_core.documents import Document, Frozen, Utc
from everspot_core.experiments.sweep import Direction
from everspot_core.jobs.job_parts import Precision
from everspot_core.validation.field_types import Line, Name, Whole
from everspot_core.validation.problems import shown

AB_TAG = "Comparison"
"""The tag of a job whose value is the name of its comparison."""
MOST_SEEDS = 100


class Tolerance(Frozen):
    """The difference of the metric that does not matter: in its own unit, or relative to the first arm's mean."""

    amount: float = Field(gt=0, description="In the metric's unit; relative: as a fraction.")
    relative: bool = False

    @classmethod
    def parse(cls, text: str) -> "Tolerance":
        """Read `0.5%`, which is relative, or `0.004`.

        Raises:
            ValueError: if it is neither, or not above zero.
        """
        number = text.strip().removesuffix("%")
        try:
            amount = float(number) / (100 if text.strip().endswith("%") else 1)
        except ValueError:
            amount = math.nan
        if not 0 < amount < math.inf:
            raise ValueError(f"has to be a number above 0, or a percentage such as 0.5%, not {shown(text)}")
        return cls(amount=amount, relative=text.strip().endswith("%"))

    def absolute(self, first_mean: float) -> float:
        """The tolerated difference in the metric's unit."""
        return self.amount * abs(first_mean) if self.relative else self.amount

    def __str__(self) -> str:
        return f"{100 * self.amount:g}%" if self.relative else f"{self.amount:g}"


def _parse_tolerance(value: Any) -> Any:
    return Tolerance.parse(value) if isinstance(value, str) else value


class ComparisonSpec(Frozen):
    """A comparison as its author asks for it. The first of `precisions` is what the others are compared with."""

    name: Name
    precisions: list[Precision] = Field(min_length=2)
    seeds: Whole = Field(ge=1, le=MOST_SEEDS, description="How many each arm runs with.")
    first_seed: Whole = Field(default=0, ge=0)
    seed_field: Line = Field(description="The job's field that is the seed, such as parameters.seed.")
    metric: Line
    direction: Direction
    tolerance: Annotated[Tolerance, BeforeValidator(_parse_tolerance)]

    @field_validator("precisions")
    @classmethod
    def _formats(cls, value: list[Precision]) -> list[Precision]:
        if Precision.AUTO in value:
            raise ValueError("auto is no format: it differs between machines. Name the formats")
        if len(set(value)) < len(value):
            raise ValueError("has a format twice")
        return value

    @property
    def arms(self) -> list[Precision]:
        """The arms, the first one first."""
        return list(self.precisions)

    def seed(self, number: int) -> int:
        """The value of the seed field of the runs with this number, from 0."""
        return self.first_seed + number

    def job_id(self, precision: Precision, number: int) -> str:
        """The id of an arm's job with the seed of this number."""
        return f"{self.name}-{precision.value}-s{number:02d}"

    def differs(self, other: "ComparisonSpec") -> list[str]:
        """The fields whose difference makes two comparisons different ones. Seeds and formats may be added, and the
        metric and the tolerance only decide how the same runs are read."""
        fixed = ("name", "first_seed", "seed_field")
        return [name for name in fixed if getattr(self, name) != getattr(other, name)]


class ComparisonRecord(Document):
    """The stored record of a comparison that has begun."""

    spec: ComparisonSpec
    job_digest: str = Field(description="Of the job's fields apart from precision and seed.")
    made_at: Utc
    made_by: str = ""
