"""The estimate as a document holds it: figures in USD per month of 730 hours, before and after a change."""

from datetime import date
from typing import Self

from pydantic import Field, model_validator

from everspot_core.documents import Stored


class Range(Stored):
    """A month's cost in USD.

    Attributes:
        low: at the lowest known prices.
        expected: at recent prices, in the pools that the product would choose.
        high: at the highest known prices.
        on_demand: if all of it ran on-demand, which is the cost of a month without any spot capacity.
    """

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
    """The cost of one declared resource, or of one part of it.

    Attributes:
        name: for people.
        kind: the kind of cost, such as `spot instances`.
        team: by its tags, `untagged` without one.
    """

    name: str
    kind: str
    team: str
    range: Range


class CostFigures(Stored):
    """One side of a change: the total, and its division by team and by part.

    Attributes:
        unpriced: names of the resources that are left out because no price is known. With any of them, the total is a
            lower bound.
    """

    total: Range
    teams: dict[str, Range]
    parts: tuple[CostPart, ...]
    unpriced: tuple[str, ...] = ()

    @property
    def nothing_known(self) -> bool:
        """Whether something costs money and no price of it is known."""
        return bool(self.unpriced) and self.total.high == 0


class Estimate(Stored):
    """A month's cost of an environment, before and after a change.

    A side that is None is unknown, because the preview failed; it is never $0.

    Attributes:
        prices_as_of: the day of the oldest price.
        by_use: sentences about costs that depend only on use. No figure contains them.
        unknown: costs whose price is unknown, with the reason. No figure contains them.
    """

    before: CostFigures | None = None
    after: CostFigures | None = None
    prices_as_of: date
    by_use: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
