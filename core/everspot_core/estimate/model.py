"""The estimate as a document holds it: figures in USD per month of 730 hours, before and after a change."""

from datetime import date
from typing import Self

from pydantic import Field, model_validator

from everspot_core.documents import Stored


class Range(Stored):
    """A month's cost in USD. `low`: at the lowest known prices; `expected`: at recent prices, in the pools that the
    product would choose; `high`: at the highest known prices; `on_demand`: if all of it ran on-demand, which is what a
    month without any spot capacity would cost."""

    low: float = Field(ge=0)
    expected: float = Field(ge=0)
    high: float = Field(ge=0)
    on_demand: float = Field(ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"expected lies between low and high, not so {self.low}, {self.expected}, {self.high}")
        return self


class CostPart(Stored):
    """What one declared resource, or one side of it, costs. `name`: for people; `kind`: what is paid for, such as
    `spot instances`; `team`: by its tags, `untagged` without one."""

    name: str
    kind: str
    team: str
    range: Range


class CostFigures(Stored):
    """One side of a change: the total, which the teams add up to and the parts add up to. `unpriced`: names of the
    resources of which nothing is in it, because no price is known: with any of them, the total is the least."""

    total: Range
    teams: dict[str, Range]
    parts: tuple[CostPart, ...]
    unpriced: tuple[str, ...] = ()

    @property
    def nothing_known(self) -> bool:
        """Whether something costs, and of nothing is known what."""
        return bool(self.unpriced) and self.total.high == 0


class Estimate(Stored):
    """A month's cost of an environment, before and after a change.

    A side that is None is not known, because the preview failed; that is never $0. `prices_as_of`: the day of the
    oldest price. `by_use`: what costs by use alone and is in no figure, in words; `unknown`: what has a price that is
    not known, with the reason, in no figure either.
    """

    before: CostFigures | None = None
    after: CostFigures | None = None
    prices_as_of: date
    by_use: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
