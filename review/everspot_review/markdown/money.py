"""The cost of a month, for people. Amounts are in code spans: a forge renders text between two dollar signs as a
formula."""

from collections.abc import Iterable, Sequence

from everspot_core.estimate.model import CostFigures, Estimate, Range

from everspot_review.markdown.safe import cell, code
from everspot_review.report import EnvironmentReport

HEAD = (
    "| environment | team | a month before: low / expected / high | after | all on-demand |",
    "| --- | --- | --- | --- | --- |",
)
_NAMED_AT_MOST = 12


def amount(usd: float) -> str:
    """Return dollars as text: with cents below ten."""
    return f"${usd:,.0f}" if usd >= 10 or usd == 0 else f"${usd:.2f}"


def expected(figures: CostFigures | None) -> str:
    """Return the expected cost of one side; the lower bound where something has no price."""
    if figures is None or figures.nothing_known:
        return "unknown"
    return f"{'at least ' if figures.unpriced else ''}{amount(figures.total.expected)}"


def change(estimate: Estimate | None) -> str:
    """Return the expected cost of a month, before and after."""
    if estimate is None:
        return "not estimated"
    before, after = expected(estimate.before), expected(estimate.after)
    if estimate.before is not None and estimate.before == estimate.after:
        return f"`{after}`"
    return f"`{before} → {after}`"


def rows(report: EnvironmentReport) -> list[str]:
    """Return the rows of one environment: its total, and its teams if it has more than one and the cost changes."""
    if report.estimate is None:
        return []
    before, after = report.estimate.before, report.estimate.after
    name = cell(report.environment)
    totals = (None if side is None or side.nothing_known else side.total for side in (before, after))
    table_rows = [_row(name, "all", *totals)]
    teams = sorted({*(before.teams if before else ()), *(after.teams if after else ())})
    if len(teams) > 1 and (before is None or before != after):
        for team in teams:
            sides = (None if side is None else side.teams.get(team, _NOTHING) for side in (before, after))
            table_rows.append(_row(name, cell(team), *sides))
    return table_rows


def foot(reports: Sequence[EnvironmentReport]) -> list[str]:
    """Return the age of the prices and the costs that are in no figure."""
    estimates = [report.estimate for report in reports if report.estimate is not None]
    if not estimates:
        return []
    days = sorted({estimate.prices_as_of for estimate in estimates})
    dated = f"{days[0]:%Y-%m-%d}" + (f" to {days[-1]:%Y-%m-%d}" if len(days) > 1 else "")
    lines = ["", f"USD for 730 hours, at prices of {dated}. A change in the market is not in them."]
    lines += _listed("Billed by use, not included", (text for e in estimates for text in e.by_use))
    lines += _listed("Not known", (text for e in estimates for text in e.unknown))
    return lines


_NOTHING = Range(low=0, expected=0, high=0, on_demand=0)


def _row(name: str, team: str, before: Range | None, after: Range | None) -> str:
    old_amount, new_amount = ("unknown" if side is None else amount(side.on_demand) for side in (before, after))
    on_demand = old_amount if old_amount == new_amount else f"{old_amount} → {new_amount}"
    return f"| {name} | {team} | `{_range(before)}` | `{_range(after)}` | `{on_demand}` |"


def _range(side: Range | None) -> str:
    if side is None:
        return "unknown"
    return " / ".join(amount(usd) for usd in (side.low, side.expected, side.high))


def _listed(title: str, texts: Iterable[str]) -> list[str]:
    distinct = sorted(set(texts))
    if not distinct:
        return []
    more = f", and {len(distinct) - _NAMED_AT_MOST} more" if len(distinct) > _NAMED_AT_MOST else ""
    return [f"{title}: {', '.join(code(text, 240) for text in distinct[:_NAMED_AT_MOST])}{more}."]
