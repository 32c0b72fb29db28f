"""Estimates for the tests of comments: figures that add up, for two teams."""

from datetime import date

from everspot_core.estimate.model import CostFigures, Estimate, Range


def estimate(before: float | None, after: float | None, day: date = date(2026, 11, 1)) -> Estimate:
    """Return the estimate of a cluster's month at this expected cost; a third of it belongs to another team."""
    return Estimate(
        before=None if before is None else figures(before),
        after=None if after is None else figures(after),
        prices_as_of=day,
        by_use=("requests to object stores", "traffic between zones"),
        unknown=("queue: no price",),
    )


def figures(usd: float) -> CostFigures:
    """One side of a change."""
    return CostFigures(total=span(usd), teams={"research": span(usd / 3), "ml-platform": span(usd * 2 / 3)}, parts=())


def span(usd: float) -> Range:
    """A range around what is expected."""
    return Range(low=usd * 0.8, expected=usd, high=usd * 1.5, on_demand=usd * 2.5)
