"""`everspot changes`: the reviewed changes of the cluster's environment that were applied, and what they cost."""

from typing import Any

import typer
from everspot_core.cluster.applied_change import AppliedChange
from everspot_core.estimate.model import CostFigures
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.options import Json, current_session
from everspot_cli.tables import empty_table, fits_width, money

UNKNOWN = "unknown"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("changes")(changes)


def changes(context: typer.Context, json: Json = False) -> None:
    """List the reviewed changes that were applied: pull request, effect, monthly cost before and after."""
    session = current_session(context, json)
    applied_changes = session.store.changes.all()
    if session.json:
        session.answer({"changes": [_row(change) for change in applied_changes]})
    elif not applied_changes:
        session.console.print("No change has been applied by `everspot review apply` yet.")
    else:
        session.console.print(_table(applied_changes, session.console.width))
        words = "Dollars of a month as expected, at the prices of that day; --json has the bounds and the teams."
        session.console.print(Text(words, style="dim"))


def _row(change: AppliedChange) -> dict[str, Any]:
    pull, estimate = change.pull_request, change.estimate
    return {
        "at": change.at,
        "environment": change.environment,
        "pull_request": pull.model_dump() if pull is not None else None,
        "revision": change.revision,
        "digest": change.digest,
        "outcome": change.outcome,
        "steps": change.steps,
        "prices_as_of": estimate.prices_as_of.isoformat() if estimate is not None else None,
        "before": _side(estimate.before if estimate is not None else None),
        "after": _side(estimate.after if estimate is not None and change.whole else None),
    }


def _side(figures: CostFigures | None) -> dict[str, Any] | None:
    """Return one side of a change, in USD per month. None if it is unknown."""
    if figures is None or figures.nothing_known:
        return None
    teams = {team: cost.model_dump() for team, cost in sorted(figures.teams.items())}
    return {"total": figures.total.model_dump(), "teams": teams}


def _table(applied_changes: list[AppliedChange], width: int) -> Table:
    wide = empty_table(("AT", "ENVIRONMENT", "PULL REQUEST", "BY", "REVISION", "DID", "$/MONTH"), text_columns=6)
    narrow = empty_table(("AT", "PULL REQUEST", "$/MONTH"), text_columns=2, fold=("PULL REQUEST",))
    for change in applied_changes:
        at, pull, cost = f"{change.at:%Y-%m-%d %H:%M}", change.pull_request, cost_words(change)
        title = Text(f"#{pull.number} {pull.title}" if pull is not None else "—")
        by, did = Text(pull.author or "—" if pull is not None else "—"), did_words(change)
        wide.add_row(at, change.environment, title, by, change.revision[:12] or "—", did, cost)
        narrow.add_row(f"{at}\n  {change.environment}", Text(f"{title.plain}\n  {did}"), cost)
    return wide if fits_width(wide, width) else narrow


def did_words(change: AppliedChange) -> str:
    """Return the operations of a change, such as `2 create, 1 update`. For a failed update, the planned operations."""
    done = ", ".join(f"{count} {deed}" for deed, count in change.steps.items()) or "—"
    return done if change.whole else f"failed: {done}"


def cost_words(change: AppliedChange) -> str:
    """Return the expected dollars before and after: `unknown` if they were not known, as after a failed update, and a
    lower bound if something has no price."""
    estimate = change.estimate
    if estimate is None:
        return UNKNOWN
    sides = (estimate.before, estimate.after if change.whole else None)
    return " → ".join(map(_expected, sides))


def _expected(side: CostFigures | None) -> str:
    if side is None or side.nothing_known:
        return UNKNOWN
    return f"{'at least ' if side.unpriced else ''}{money(side.total.expected)}"
