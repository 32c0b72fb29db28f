"""`everspot cost budget`: the caps of teams and of the environment, and what they have spent."""

import math
from enum import StrEnum
from typing import Annotated, Any

import typer
from everspot_core.costs.team_budgets import ENVIRONMENT, MOST, Allowance, Caps, Period
from rich.table import Table
from rich.text import Text

from everspot_cli.budgets import BudgetReading, BudgetRow, amount, read, used_up
from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.report.shares import UNTAGGED
from everspot_cli.requests import user
from everspot_cli.session import Session
from everspot_cli.tables import empty_table, fits_width

BAR = 20  # characters
NARROW_BAR = 8


class BudgetAction(StrEnum):
    """The actions of `everspot cost budget`."""

    SHOW = "show"
    SET = "set"
    CLEAR = "clear"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("budget")(budget)


def budget(
    context: typer.Context,
    action: Annotated[
        BudgetAction, typer.Argument(help="show: what is spent; set: a cap, in place of the last; clear: have none.")
    ] = BudgetAction.SHOW,
    team: Annotated[
        str | None,
        typer.Option("--team", metavar="TEAM", help="The team of a job's tag Team. Default: the whole environment."),
    ] = None,
    per: Annotated[Period | None, typer.Option("--per", help="The cap's period. With clear, by default both.")] = None,
    dollars: Annotated[float | None, typer.Option("--dollars", help="With set: the cap.")] = None,
    gpu_hours: Annotated[float | None, typer.Option("--gpu-hours", help="With set: the cap.")] = None,
    json: Json = False,
) -> None:
    """Show the spending and the caps of teams and the environment, or set a cap.

    Days and months are those of the calendar in UTC. A job that would exceed a cap waits. When a cap is reached,
    running jobs checkpoint and wait until the cap is raised or the next period begins.
    """
    session = current_session(context, json)
    _check(action, team, per, {"dollars": dollars, "gpu_hours": gpu_hours})
    payer = team if team is not None else ENVIRONMENT
    values = {unit: value for unit, value in (("dollars", dollars), ("gpu_hours", gpu_hours)) if value is not None}
    if action is not BudgetAction.SHOW:
        periods = [per] if per is not None else list(Period)

        def set_caps(caps: Caps) -> Caps:
            was = {p: caps.for_period(p) if action is BudgetAction.SET else Allowance() for p in periods}
            return caps.model_copy(update={p.value: own.model_copy(update=values) for p, own in was.items()})

        by, now = user(), session.now
        session.store.change_budgets(lambda b: b.changed(payer, set_caps(b.for_team(payer)), now, by))
    reading = read(session)
    rows = [row for row in reading.rows if team is None or row.team == team]
    if session.json:
        session.answer(_answer(reading, rows))
    else:
        _print(session, reading, rows)


def _check(action: BudgetAction, team: str | None, per: Period | None, values: dict[str, float | None]) -> None:
    """Refuse wrong arguments before anything is changed. The error names all of them."""
    mistakes: list[tuple[str, str]] = []
    amounts = {f"--{unit.replace('_', '-')}": value for unit, value in values.items() if value is not None}
    if team is not None and (not team.strip() or len(team) > 256 or not team.isprintable()):
        mistakes.append(("--team", "has to be the value of a tag: 1 to 256 characters that can be printed"))
    elif team == UNTAGGED:
        mistakes.append(("--team", f"{UNTAGGED} is no team: jobs without one count only for the environment's cap"))
    if action is BudgetAction.SET and per is None:
        mistakes.append(("--per", "is missing: day or month"))
    if action is BudgetAction.SHOW and per is not None:
        mistakes.append(("--per", "belongs to set and clear"))
    if action is BudgetAction.SET and not amounts:
        mistakes.append(("--dollars, --gpu-hours", "one of them has to be given, or both"))
    for option, value in amounts.items():
        if action is not BudgetAction.SET:
            mistakes.append((option, "belongs to set"))
        elif not math.isfinite(value) or not 0 <= value <= MOST:
            mistakes.append((option, f"has to be a number from 0 (nothing may run) to {MOST:.0e}, not {value:g}"))
    if mistakes:
        problems = [{"field": field, "problem": problem} for field, problem in mistakes]
        raise CliError(f"`everspot cost budget {action.value}` cannot be done", Exit.USAGE, problems=problems)


def _answer(reading: BudgetReading, rows: list[BudgetRow]) -> dict[str, Any]:
    return {
        "budgets": [
            {
                "whose": "environment" if row.team == ENVIRONMENT else "team",
                "team": row.team or None,
                "period": row.period.value,
                "unit": row.unit.value,
                "spent": round(row.spent, 6),
                "committed": round(row.committed, 6),
                "forecast": round(row.forecast, 6),
                "cap": row.cap,
                "begin": row.begin,
                "until": row.until,
            }
            for row in rows
        ],
        "changed_at": reading.budgets.changed_at,
        "changed_by": reading.budgets.changed_by or None,
        "note": reading.note,
    }


def _print(session: Session, reading: BudgetReading, rows: list[BudgetRow]) -> None:
    session.console.print(_table(rows, session.console.width))
    notes = ["█ spent  ▒ committed to what runs, until its expected end  ░ left. Forecast: as in the last 24 hours."]
    notes += used_up(rows)
    if all(row.cap is None for row in rows):
        notes.append("No cap is set: everspot cost budget set --per month --dollars 500")
    notes += [note for note in (reading.note, session.scale_note()) if note]
    session.console.print(Text("\n".join(dict.fromkeys(notes)), style="dim"))


def _table(rows: list[BudgetRow], width: int) -> Table:
    """Return the table of the caps. In a narrow terminal a row's period and unit are below its team, and the bars are
    shorter."""
    wide = empty_table(["WHOSE", "PER", "", "SPENT", "COMMITTED", "FORECAST", "CAP", ""], text_columns=3)
    narrow = empty_table(
        ["WHOSE, PER", "SPENT", "COMMITTED", "FORECAST", "CAP", ""], text_columns=1, fold=("WHOSE, PER", "")
    )
    before = None
    for row in rows:
        figures = [amount(value, row.unit) for value in (row.spent, row.committed, row.forecast)]
        payer = "" if row.team == before else row.team or "environment"
        before = row.team
        figures.append(amount(row.cap, row.unit) if row.cap is not None else "—")
        wide.add_row(payer, row.period.value, row.unit.words, *figures, _bar(row, BAR))
        if payer:
            narrow.add_row(payer)
        narrow.add_row(f"  {row.period.value} {row.unit.words}", *figures, _bar(row, NARROW_BAR))
    return wide if fits_width(wide, width) else narrow


def _bar(row: BudgetRow, length: int) -> Text:
    """Return a bar of spent and committed: red if the cap is spent, yellow if the forecast passes it, else green."""
    if row.cap is None:
        return Text("")
    if not row.cap and length == NARROW_BAR:
        return Text("nothing may run", style="red")
    whole = row.cap or 1.0
    done = length if row.spent >= row.cap else min(length, int(length * row.spent / whole))
    bound = min(length - done, math.ceil(length * row.committed / whole))
    style = "red" if row.spent >= row.cap else "yellow" if row.forecast > row.cap else "green"
    share = f" {100 * row.spent / whole:.0f}%" if row.cap else " nothing may run"
    return Text("█" * done + "▒" * bound + "░" * (length - done - bound) + share, style=style)
