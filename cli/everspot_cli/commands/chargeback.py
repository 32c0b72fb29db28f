"""`everspot cost chargeback`: who bears a month's costs."""

from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.counting import first_few
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.options import Json, Month, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.governance.charge_document import charge_document
from everspot_cli.governance.charge_table import LINE_COLUMNS, STAGE_COLUMNS, line_cells, stage_cells
from everspot_cli.governance.file_output import as_csv, for_spreadsheets, write_file
from everspot_cli.governance.month_ledger import parse_month, read_month
from everspot_cli.governance.page import charge_page
from everspot_cli.session import Session
from everspot_cli.tables import empty_table, least

CSV_COLUMNS = (
    "cluster", "month", "complete", "tag", "kind", "value", "cost_usd", "lost_usd", "on_demand_cost_usd", "jobs",
    "instance_hours", "unpriced_hours", "cost_known", "gpu_usd", "wasted_gpu_usd",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("chargeback")(chargeback)


def chargeback(
    context: typer.Context,
    month: Month = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="TAG",
            help="A tag of jobs; repeatable. Default: Team, Project, Environment, ModelVersion, if used.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="The metric of pipelines. Default: accuracy."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained page.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the lines as CSV.")] = None,
    json: Json = False,
) -> None:
    """Allocate a month's cost to teams, and to time without a job, in lines that add up to the total.

    Time lost to interruptions, boot, idle time, unused shares and the scheduler are lines of their own. Jobs chained by
    `after` are shown with the cost of each, and of each point of a metric.
    """
    session = current_session(context, json)
    chosen = parse_month(month, session.now)
    if any(not key.strip() for key in by or ()):
        raise CliError("--by: a tag's key has at least one character", Exit.USAGE)
    document = charge_document(read_month(session, chosen), by or [], metric)
    if html is not None:
        write_file(html, charge_page(document, session.manifest.cluster), "--html")
    if csv is not None:
        write_file(csv, as_csv(CSV_COLUMNS, _csv_rows(document, session.manifest.cluster)), "--csv")
    if session.json:
        session.answer(document)
        return
    _print(session, document)


def _csv_rows(document: dict[str, Any], cluster: str) -> list[dict[str, str]]:
    return [
        {
            "cluster": for_spreadsheets(cluster),
            "month": document["month"],
            "complete": str(document["complete"]).lower(),
            "tag": for_spreadsheets(key),
            "kind": line["kind"],
            "value": for_spreadsheets(line["value"]),
            "cost_usd": f"{line['cost_usd']:.6f}",
            "lost_usd": f"{line['lost_usd']:.6f}",
            "on_demand_cost_usd": f"{line['on_demand_cost_usd']:.6f}",
            "jobs": str(line["jobs"]),
            "instance_hours": f"{line['instance_hours']:.4f}",
            "unpriced_hours": f"{line['unpriced_hours']:.4f}",
            "cost_known": str(line["known"]).lower(),
            "gpu_usd": f"{line['gpu_usd']:.6f}",
            "wasted_gpu_usd": f"{line['wasted_gpu_usd']:.6f}",
        }
        for key, lines in document["by"].items()
        for line in lines
    ]


def _print(session: Session, document: dict[str, Any]) -> None:
    for key, lines in document["by"].items():
        table = _sheet((key.upper(), *LINE_COLUMNS), [line_cells(line) for line in lines], 1)
        table.add_section()
        table.add_row("total", least(document["total_usd"], document["known"]))
        session.console.print(table)
        session.console.print()
    if document["pipelines"]:
        rows = [cells for run in document["pipelines"] for cells in stage_cells(run)]
        session.console.print(_sheet(STAGE_COLUMNS, rows, 3))
        session.console.print()
    session.console.print(_small_print(session, document))


def _sheet(columns: tuple[str, ...], rows: list[list[str]], text_columns: int) -> Table:
    names = [name.upper() for name in columns]
    table = empty_table(names, text_columns=text_columns, fold=names[:text_columns])
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _small_print(session: Session, document: dict[str, Any]) -> RenderableType:
    lines = [f"Not final: {reason}." for reason in document["pending_changes"]]
    extra_costs = [
        f"${document[name]:,.2f} {words}"
        for name, words in (("abroad_usd", "at other clusters"), ("egress_usd", "for copying there"))
        if document[name]
    ]
    lines += [f"Of the total: {' and '.join(extra_costs)}."] if extra_costs else []
    if document["unpriced_hours"]:
        lines.append(f"{document['unpriced_hours']:g} hours have no known price: the total is a lower bound.")
    if document["unknown_lengths"]:
        names = first_few(document["unknown_lengths"], 5)
        lines.append(f"How long {names} ran is not known: the total is a lower bound.")
    lines.append(f"Not in these figures: {', '.join(document['left_out'])}.")
    lines += [f"Note: {note}." for note in document["notes"]]
    lines += [session.scale_note()] if session.scale_note() else []
    return Text("\n".join(lines), style="dim")
