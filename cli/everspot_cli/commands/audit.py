"""`everspot cost audit`: what a month's dollars were spent on, and what would have saved most of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from everspot_cli.commands.options import Json, Month, current_session
from everspot_cli.governance.audit_document import audit_document
from everspot_cli.governance.audit_page import (
    GPU_COLUMNS,
    KIND_COLUMNS,
    POOL_COLUMNS,
    SIZE_COLUMNS,
    SMALL_ON_GPUS,
    audit_page,
    gpu_cells,
    kind_cells,
    lost_words,
    measure_words,
    part,
    pool_cells,
    size_cells,
    total,
    why_not,
)
from everspot_cli.governance.file_output import write_file
from everspot_cli.governance.month_ledger import parse_month, read_month
from everspot_cli.report.terminal import money
from everspot_cli.session import Session
from everspot_cli.tables import facts, sheet


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    context: typer.Context,
    month: Month = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained page.")] = None,
    discount: Annotated[
        list[str] | None,
        typer.Option("--discount", metavar="PLAN=PERCENT", help="As in `everspot cost commitments`."),
    ] = None,
    json: Json = False,
) -> None:
    """Audit a month: utilisation, idle time, right-sizing, lost work, and the three measures that would save most.

    Each saving is computed from the month's use, and shown with its calculation. The sums are those of the report.
    """
    session = current_session(context, json)
    chosen = parse_month(month, session.now)
    fleet = session.manifest.fleet
    ledger = read_month(session, chosen)
    document = audit_document(ledger, session.manifest, discount or [], fleet.types if fleet is not None else ())
    if html is not None:
        write_file(html, audit_page(document, session.manifest.cluster), "--html")
    if session.json:
        session.answer(document)
    else:
        _print(session, document)


def _print(session: Session, document: dict[str, Any]) -> None:
    console, over = session.console, "" if document["complete"] else ", not over yet"
    head = [
        ("audit of", f"cluster {session.manifest.cluster}, {document['month']}{over}"),
        ("as of", f"{document['as_of']:%Y-%m-%d %H:%M:%S} UTC"),
        ("cost", total(document)),
        ("utilisation", f"{part(document['utilisation'])} of the agents' hours worked for jobs"),
        ("lost work", lost_words(document)),
    ]
    console.print(facts(head))
    console.print(Text("\nWhat would have saved most", style="bold"))
    for place, measure in enumerate(document["measures"], 1):
        console.print(Text(f"{place}. {measure['measure']}: {money(measure['saving_usd'])}", style="bold green"))
        console.print(Text(f"   {measure_words(measure)}"))
    if not document["measures"]:
        console.print("No measure is known to have saved anything in this month.")
    console.print(Text("\n".join(map(why_not, document["other_measures"])), style="dim"))
    for title, columns, rows, text_columns in (
        ("Where the dollars went", KIND_COLUMNS, kind_cells(document), 1),
        ("Pools", POOL_COLUMNS, pool_cells(document), 3),
        ("Jobs on larger types than they needed", SIZE_COLUMNS, size_cells(document), 3),
        (SMALL_ON_GPUS, GPU_COLUMNS, gpu_cells(document), 3),
    ):
        if rows:
            console.print(Text(f"\n{title}", style="bold"))
            console.print(_table(columns, rows, text_columns))
    left_out = f"Not in these figures: {', '.join(document['left_out'])}."
    notes = [*document["notes"], document["definitions"]["measures"], left_out, session.scale_note()]
    console.print(Text("\n" + "\n".join(filter(None, notes)), style="dim"))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> RenderableType:
    table = sheet([name.upper() for name in columns], text_columns=text_columns)
    for row in rows:
        table.add_row(*row)
    return table
