"""`everspot instances`."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.commands.options import Json, Watch, session_of
from everspot_cli.session import Session
from everspot_cli.tables import instances_table
from everspot_cli.views import instance_rows


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("instances")(instances)


def instances(
    context: typer.Context,
    all: Annotated[bool, typer.Option("--all", "-a", help="Those too that have ended.")] = False,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """List the cluster's instances: type, zone, market, what each does, and notices."""
    session = session_of(context, json)
    if session.json:
        session.answer(instance_rows(session, gone=all))
    elif watch:
        session.redraw(lambda: _page(session, all))
    else:
        session.console.print(_page(session, all))


def _page(session: Session, all: bool) -> RenderableType:
    rows = instance_rows(session, gone=all)
    if not rows:
        return Text("No instances. The fleet's target may be 0, or they are being launched: `everspot doctor` checks.")
    spot = sum(row["market"] == "spot" and row["state"] != "ENDED" for row in rows)
    alive = sum(row["state"] != "ENDED" for row in rows)
    words = f"{alive} alive, {spot} of them spot. {session.scale_note()}"
    return Group(instances_table(rows, session.console.width), Text(words.strip(), style="dim"))
