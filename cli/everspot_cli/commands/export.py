"""`everspot cost export`: a month of the ledger as a table that other tools read."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.costs.prices import HOUR
from everspot_core.counting import counted
from everspot_core.governance.focus import FocusContext, focus_rows, unpriced
from everspot_core.governance.usage import Sums, UsageKind, UsageRow, open_ended

from everspot_cli.commands.options import Json, Month, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.governance.file_output import as_csv, write_file
from everspot_cli.governance.month_ledger import MonthLedger, parse_month, read_month
from everspot_cli.report.model import usd
from everspot_cli.session import Session
from everspot_cli.tables import money


class ExportTable(StrEnum):
    """The tables that can be exported."""

    FOCUS = "focus"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)


def export(
    context: typer.Context,
    table: Annotated[ExportTable, typer.Argument(help="focus: Cost and Usage of FOCUS 1.2.")],
    month: Month = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="A file named .csv or .csv.gz. Default: CSV on standard output."),
    ] = None,
    billing_account: Annotated[
        str | None,
        typer.Option(
            "--billing-account",
            metavar="ID",
            help="The paying account. Default: the instances'.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Export a month of the ledger as FOCUS, a row for each use of an instance in each hour.

    The sum of BilledCost is that of the report, with the copies for visits to other clusters. Hours without a known
    price have no row: a warning names them.
    """
    session = current_session(context, json)
    chosen = parse_month(month, session.now)
    if out is not None and not out.name.endswith((".csv", ".csv.gz")):
        raise CliError(f"--out: {out.name} has to end with .csv or .csv.gz", Exit.USAGE)
    ledger = read_month(session, chosen)
    rows = focus_rows(ledger.rows, _context(session, ledger, billing_account))
    summary = _build_summary(ledger, len(rows))
    if out is not None:
        write_file(out, as_csv(_columns(session, ledger, rows), rows), "--out")
    if session.json:
        session.answer({**summary, "file": str(out) if out else None, **({} if out else {"rows": rows})})
        return
    if out is None:
        sys.stdout.write(as_csv(_columns(session, ledger, rows), rows))
    else:
        session.console.print(f"{out}: {_summary(summary)}", soft_wrap=True)
    for line in _warnings(summary):
        session.errors.print(line, style="yellow", soft_wrap=True)


def _columns(session: Session, ledger: MonthLedger, rows: list[dict[str, str]]) -> list[str]:
    """Return the columns. A file without rows has a header too, so that its readers know what it is."""
    if rows:
        return list(rows[0])
    empty = UsageRow(hour=ledger.month.begin, kind=UsageKind.ABROAD, resource="")
    return list(focus_rows([empty], _context(session, ledger, None))[0])


def _context(session: Session, ledger: MonthLedger, billing_account: str | None) -> FocusContext:
    manifest, invoicing = session.manifest, session.cloud.invoicing
    return FocusContext(
        cluster=manifest.cluster,
        invoicing=invoicing,
        account=manifest.account or invoicing.parse_account(manifest.queue_url),
        payer=billing_account,
        as_of=ledger.material.as_of,
        submissions=ledger.material.submissions,
        tags=dict(manifest.elastic.tags) if manifest.elastic is not None else {},
    )


def _build_summary(ledger: MonthLedger, count: int) -> dict[str, Any]:
    def sums(*kinds: UsageKind) -> float:
        return usd(Sums.sum_rows(row for row in ledger.rows if row.kind in kinds).cost)

    here = [row for row in ledger.rows if row.kind.here]
    unknown: dict[str, Any] = {}
    for row in unpriced(ledger.rows):
        unknown.setdefault(row.resource, []).append(row)
    return {
        "month": ledger.month.name,
        "complete": not ledger.changes,
        "pending_changes": ledger.changes,
        "as_of": ledger.material.as_of,
        "count": count,
        "known": Sums.sum_rows(here).is_exact,
        "cost_usd": usd(Sums.sum_rows(here).cost),
        "egress_usd": sums(UsageKind.EGRESS),
        "abroad_usd": sums(UsageKind.ABROAD),
        "free_usd": usd(Sums.sum_rows(here).waived),
        "unpriced_hours": round(float(Sums.sum_rows(here).unpriced_seconds / HOUR), 4),
        "unpriced": [
            {"resource": resource, "hours": round(float(Sums.sum_rows(rows).unpriced_seconds / HOUR), 4)}
            for resource, rows in sorted(unknown.items())
        ],
        "unknown_lengths": open_ended(ledger.rows),
        "notes": [*([ledger.material.note] if ledger.material.note else []), *ledger.material.bill.notes],
        "left_out": list(ledger.material.bill.left_out),
    }


def _summary(summary: dict[str, Any]) -> str:
    egress = f" and {money(summary['egress_usd'])} of copying" if summary["egress_usd"] else ""
    abroad = f"; visits that others bill: {money(summary['abroad_usd'])}" if summary["abroad_usd"] else ""
    least = "" if summary["known"] else "at least "
    cost = f"{least}{money(summary['cost_usd'])} of instances"
    return f"{counted(summary['count'], 'row')} of {summary['month']}, {cost}{egress}{abroad}"


def _warnings(summary: dict[str, Any]) -> list[str]:
    warnings: list[str] = []
    warnings += [f"note: not final: {reason}" for reason in summary["pending_changes"]]
    if summary["unpriced"]:
        names = ", ".join(f"{resource['resource']} ({resource['hours']:g} h)" for resource in summary["unpriced"])
        warnings.append(f"warning: no price is known of {names}: they have no row, and the sum is a lower bound")
    if summary["unknown_lengths"]:
        names = ", ".join(summary["unknown_lengths"])
        words = "its row has" if len(summary["unknown_lengths"]) == 1 else "their rows have"
        least = f"{words} the least that is billed, and the sum is a lower bound"
        warnings.append(f"warning: how long {names} ran is not known: {least}")
    return warnings + [f"note: {note}" for note in summary["notes"]]
