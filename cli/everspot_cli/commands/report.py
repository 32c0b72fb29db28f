"""`everspot cost report`."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

import typer

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.job_lookup import find_job
from everspot_cli.report.gather import gather
from everspot_cli.report.html import document
from everspot_cli.report.model import build
from everspot_cli.report.terminal import page


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    context: typer.Context,
    job_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Only this job. Default: the whole cluster.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained page with the timeline.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="Report the state at this moment, such as 2026-01-31T12:00:00Z."),
    ] = None,
    settles: Annotated[
        bool,
        typer.Option("--settle", help="First add missing ends and prices from the cloud to the ledger."),
    ] = False,
    json: Json = False,
) -> None:
    """Report the jobs, their cost, the cost of the same work on-demand, and the losses by interruptions.

    The report reads the ledger, which the scheduler writes. Use --settle for a cluster whose scheduler no longer runs.
    """
    session = current_session(context, json)
    only = find_job(session, job_id).job_id if job_id else None
    material = gather(session, _moment(as_of), settles=settles)
    answer = build(material, today(), only)
    if only is not None and only not in material.submissions:
        raise CliError(f"{only} was submitted after {material.as_of:%Y-%m-%d %H:%M:%S} UTC", Exit.NOT_FOUND)
    if html is not None:
        _write(html, document(answer, material, only))
    if session.json:
        session.answer(answer)
        return
    session.console.print(page(answer, session.console.width))
    if html is not None:
        session.console.print(f"\nThe picture: {html.resolve().as_uri()}")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"--html: {path} cannot be written: {error.strerror or error}") from None


def today() -> date:
    """Return the day by this machine's clock."""
    # The age of a price is counted in real days, also where the market's time runs faster.
    return datetime.now().astimezone().date()


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise CliError(f"--as-of: {text!r} is not a time with a zone, such as 2026-01-31T12:00:00Z", Exit.USAGE)
    return moment.astimezone(UTC)
