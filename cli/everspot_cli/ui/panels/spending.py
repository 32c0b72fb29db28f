"""The view of the spending: open anomalies, budgets, and costs by team."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everspot_core.governance.anomalies import Anomalies

from everspot_cli.budgets import BudgetReading, BudgetRow, amount, used_up
from everspot_cli.report.cards import cards
from everspot_cli.report.terminal import percent
from everspot_cli.tables import duration, money


@dataclass(frozen=True)
class BudgetLine:
    """A row of the table of budgets. `share` and `bound`: of the cap, spent and committed, 0 to 100 together; None
    without a cap. `verdict`: how the cap stands, in words."""

    payer: str
    period: str
    unit: str
    spent: str
    committed: str
    forecast: str
    cap: str
    share: float | None
    bound: float
    verdict: str
    tone: str


@dataclass(frozen=True)
class SpendingPanel:
    """The budgets."""

    summary: str
    lines: tuple[BudgetLine, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class CostPanel:
    """The costs of all that was trained. `cards`: HTML whose texts are escaped; `teams`: rows of cells."""

    as_of: str
    cards: str
    columns: tuple[str, ...]
    teams: tuple[tuple[str, ...], ...]
    left_out: str


@dataclass(frozen=True)
class UnusualPanel:
    """The anomalies, the newest first: since when, and the words. `head`: how many there are; empty if none."""

    head: str
    lines: tuple[tuple[str, str], ...]


def unusual(anomalies: Anomalies | None) -> UnusualPanel:
    """Return the open anomalies, as `everspot cost anomalies` lists them. None: the scheduler has found nothing yet."""
    lines = (
        tuple((f"{a.since:%Y-%m-%d %H:%M} UTC", a.words) for a in reversed(anomalies.open))
        if anomalies is not None
        else ()
    )
    head = "One anomaly is open." if len(lines) == 1 else f"{len(lines)} anomalies are open."
    return UnusualPanel(head if lines else "", lines)


def panel(reading: BudgetReading) -> SpendingPanel:
    """Return the budgets, as `everspot cost budget` reads them."""
    lines = tuple(_line(row) for row in reading.rows)
    over = sum(line.tone == "bad" for line in lines)
    near = sum(line.tone == "run" for line in lines)
    capped = sum(row.cap is not None for row in reading.rows)
    summary = f"{over} of {capped} budgets used up, {near} that the forecast passes."
    return SpendingPanel(
        summary=summary if capped else "No budget is set: nothing limits what is spent.",
        lines=lines,
        notes=(*used_up(reading.rows), *([reading.note] if reading.note else [])),
    )


def costs(report: dict[str, Any]) -> CostPanel:
    """Return the costs, as `everspot cost report` has them."""
    rows: Sequence[dict[str, Any]] = report["cost_by_tag"].get("Team", [])
    teams = tuple(
        (
            row["value"],
            money(row["cost_usd"]),
            money(row["on_demand_cost_usd"]),
            percent(row["savings_percent"]),
            str(row["jobs"]),
            duration(row["lost_seconds"]),
            percent(100 * row["gpu_utilization"]) if row["gpu_utilization"] is not None else "—",
            money(row["wasted_gpu_usd"]),
        )
        for row in rows
    )
    return CostPanel(
        as_of=report["as_of"][:19].replace("T", " "),
        cards=cards(report),
        columns=("Team", "Cost", "On-demand", "Saved", "Jobs", "Time lost", "GPUs used", "Wasted on GPUs"),
        teams=teams,
        left_out=", ".join(report["left_out"]),
    )


def _line(row: BudgetRow) -> BudgetLine:
    share, bound, verdict, tone = _against(row)
    return BudgetLine(
        payer=row.team or "environment",
        period=row.period.value,
        unit=row.unit.words,
        spent=amount(row.spent, row.unit),
        committed=amount(row.committed, row.unit),
        forecast=amount(row.forecast, row.unit),
        cap=amount(row.cap, row.unit) if row.cap is not None else "none",
        share=share,
        bound=bound,
        verdict=verdict,
        tone=tone,
    )


def _against(row: BudgetRow) -> tuple[float | None, float, str, str]:
    """Return shares of the cap in percent, and the state of the cap."""
    if row.cap is None:
        return None, 0.0, "no cap", "soft"
    if row.spent >= row.cap:
        return 100.0, 0.0, "used up" if row.cap else "nothing may run", "bad"
    share = 100 * row.spent / row.cap
    bound = min(100 - share, 100 * row.committed / row.cap)
    if row.forecast > row.cap:
        return share, bound, f"{share:.0f} % spent, and the forecast passes the cap", "run"
    return share, bound, f"{share:.0f} % spent", "good"
