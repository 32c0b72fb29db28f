"""`everspot fleet`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from everspot_core.counting import counted
from everspot_core.norms import Norm
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.options import Json, Watch, session_of
from everspot_cli.fleet import CHEAPEST, as_json, notes, of_interest, pool_rows, read
from everspot_cli.session import Session
from everspot_cli.tables import duration, fits, humane, sheet


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("fleet")(fleet)


def fleet(
    context: typer.Context,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the cloud for the spot prices and placement scores of this moment.")
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
    """Show the pools: price, placement score, what runs and comes, how long spot lasted, and what was refused.

    BUSY, IDLE and COMING count living instances. LAUNCHED counts all that the cluster ever had from the pool, and TAKEN
    those that the cloud took back. LASTS is the time that instances ran for each one that was taken. REFUSED counts the
    launches that the pool refused lately. A ! marks the figure by which a pool is over its norm: it takes more
    instances, or costs more, than it usually does.
    """
    session = session_of(context, json)
    if session.json:
        session.answer(as_json(session, read(session, live=live)))
    elif watch:
        session.redraw(lambda: _page(session, live, every=all), lambda: _lines(session, live))
    else:
        session.console.print(_page(session, live, every=all))


def _page(session: Session, live: bool, *, every: bool) -> RenderableType:
    found = read(session, live=live)
    rows, said = pool_rows(found), notes(session, found, session.now)
    shown = rows if every else of_interest(rows)
    if left := len(rows) - len(shown):
        said = [f"{counted(left, 'more pool')} in which nothing has happened yet: everspot fleet --all", *said]
    below = Text("\n".join(word for word in (*said, session.scale_note()) if word), style="dim")
    if not rows:
        return Group(Text("No pool is known yet: nothing was launched, and no scheduler has looked."), below)
    return Group(_table(shown, session.console.width, session.now), below)


def _lines(session: Session, live: bool) -> dict[str, str]:
    """A line for each pool, printed when it changes if standard output is no terminal."""
    told = {}
    for row in pool_rows(read(session, live=live)):
        pool = f"{row['instance_type']} {row['zone']} {row['market']}"
        counts = ", ".join(f"{row[name]} {name}" for name in ("busy", "idle", "coming", "launched", "interrupted"))
        price = f"${row['usd_per_hour']:.4f} an hour, " if row["usd_per_hour"] is not None else ""
        told[pool] = f"{pool}: {price}{counts}, {row['refusals']} refused"
    return told


def _table(rows: Sequence[dict[str, Any]], width: int, now: datetime) -> Table:
    """The table of the pools. In a narrow terminal, zone and market are below the type."""
    figures = ("$/H", "SCORE", "BUSY", "IDLE", "COMING", "LAUNCHED", "TAKEN", "LASTS", "REFUSED")
    wide = sheet(("TYPE", "ZONE", "MARKET", *figures), left=3)
    narrow = sheet(("POOL", *figures[:5], "LAUN-\nCHED", *figures[6:]), left=1, fold=("REFUSED",))
    for row in rows:
        cells = _cells(row, now)
        wide.add_row(row["instance_type"], row["zone"], row["market"], *cells)
        narrow.add_row(f"{row['instance_type']}\n  {row['zone']}\n  {row['market']}", *cells)
    return wide if fits(wide, width) else narrow


def _cells(row: dict[str, Any], now: datetime) -> list[str]:
    usd, each = row["usd_per_hour"], row["hours_per_interruption"]
    refused = f"{row['refusals']}, {humane(row['refused_at'], now)}" if row["refused_at"] else "—"
    worse = row["over_norm"]
    taken = str(row["interrupted"] or "—")
    return [
        (f"{usd:.4f}" if usd is not None else "—") + " !" * (Norm.PRICE in worse),
        str(row["placement_score"] or "—"),
        *(str(row[name] or "—") for name in ("busy", "idle", "coming", "launched")),
        taken + " !" * (Norm.INTERRUPTIONS in worse),
        duration(each * 3600 if each is not None else None),
        refused,
    ]
