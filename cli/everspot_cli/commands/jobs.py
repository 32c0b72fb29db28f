"""`everspot jobs`."""

from typing import Annotated, Any

import typer
from everspot_core.records import JobState
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.commands.live import watch as keep_drawing
from everspot_cli.commands.options import Json, Watch, session_of
from everspot_cli.session import Session
from everspot_cli.tables import jobs_table
from everspot_cli.views import job_rows


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("jobs")(jobs)


def jobs(
    context: typer.Context,
    active: Annotated[bool, typer.Option("--active", "-a", help="Only jobs that have not ended.")] = False,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """List the jobs: state, both durations, interruptions.

    TOT. DURATION runs since submission, JOB DURATION while the job had an instance: the difference is time spent
    waiting.
    """
    session = session_of(context, json)
    if session.json:
        session.answer(_chosen(session, active))
    elif watch:
        keep_drawing(session, lambda: _page(session, active))
    else:
        session.console.print(_page(session, active))


def _chosen(session: Session, active: bool) -> list[dict[str, Any]]:
    return [row for row in job_rows(session, archived=not active) if not (active and JobState(row["state"]).final)]


def _page(session: Session, active: bool) -> RenderableType:
    rows = _chosen(session, active)
    if not rows:
        return Text("No jobs. Submit one: everspot submit FILE")
    return Group(jobs_table(rows, session.console.width), Text(session.scale_note(), style="dim"))
