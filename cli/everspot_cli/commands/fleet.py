"""`everspot fleet`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from everspot_core.counting import counted
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.options import Json, Watch, current_session
from everspot_cli.fleet import CELLS, CHEAPEST, as_json, cells, notes, of_interest, pool_rows, read
from everspot_cli.session import Session
from everspot_cli.tables import empty_table, fits_width


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("fleet")(fleet)


def fleet(
    context: typer.Context,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the cloud for present spot prices and placement scores.")
    ] = False,
    all: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Every pool. Default: those with instances, launches or refusals, and the "
            f"{CHEAPEST} cheapest others; JSON has all.",
        ),
    ] = False,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """Show the pools: price, placement score, instances, lifetime of spot, and refused launches.

    BUSY, IDLE and COMING count living instances, LAUNCHED all that the cluster ever had from the pool, TAKEN the
    interrupted instances, REFUSED the recently refused launches. LASTS is the mean running time between interruptions.
    A ! marks a figure above its usual value.
    """
    session = current_session(context, json)
    if session.json:
        session.answer(as_json(session, read(session, live=live)))
    elif watch:
        session.redraw(lambda: _page(session, live, all_pools=all), lambda: _lines(session, live))
    else:
        session.console.print(_page(session, live, all_pools=all))


def _page(session: Session, live: bool, *, all_pools: bool) -> RenderableType:
    reading = read(session, live=live)
    rows, sentences = pool_rows(reading), notes(session, reading, session.now)
    shown = rows if all_pools else of_interest(rows)
    if hidden := len(rows) - len(shown):
        sentences = [
            f"{counted(hidden, 'more pool')} in which nothing has happened yet: everspot fleet --all",
            *sentences,
        ]
    below = Text("\n".join(sentence for sentence in (*sentences, session.scale_note()) if sentence), style="dim")
    if not rows:
        return Group(Text("No pool is known yet: nothing was launched, and no scheduler has looked."), below)
    return Group(_table(shown, session.console.width, session.now), below)


def _lines(session: Session, live: bool) -> dict[str, str]:
    """Return a line for each pool, printed when it changes if standard output is no terminal."""
    lines = {}
    for row in pool_rows(read(session, live=live)):
        pool = f"{row['instance_type']} {row['zone']} {row['market']}"
        counts = ", ".join(f"{row[name]} {name}" for name in ("busy", "idle", "coming", "launched", "interrupted"))
        price = f"${row['usd_per_hour']:.4f} an hour, " if row["usd_per_hour"] is not None else ""
        lines[pool] = f"{pool}: {price}{counts}, {row['refusals']} refused"
    return lines


def _table(rows: Sequence[dict[str, Any]], width: int, now: datetime) -> Table:
    """Return the table of the pools. In a narrow terminal, zone and market are below the type."""
    wide = empty_table(("TYPE", "ZONE", "MARKET", *CELLS), text_columns=3)
    narrow = empty_table(("POOL", *CELLS[:5], "LAUN-\nCHED", *CELLS[6:]), text_columns=1, fold=("REFUSED",))
    for row in rows:
        figures = cells(row, now)
        wide.add_row(row["instance_type"], row["zone"], row["market"], *figures)
        narrow.add_row(f"{row['instance_type']}\n  {row['zone']}\n  {row['market']}", *figures)
    return wide if fits_width(wide, width) else narrow
