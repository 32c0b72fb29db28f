"""`everspot jobs`."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from everspot_core.counting import counted
from everspot_core.documents import parse_duration
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.commands.options import Json, Watch, current_session
from everspot_cli.console import PlainConsole
from everspot_cli.errors import CliError, Exit
from everspot_cli.queue import JobQuery, job_rows
from everspot_cli.rows import MEANING_OF_STATUS
from everspot_cli.session import Session
from everspot_cli.tables import jobs_table
from everspot_cli.waiting import sentences, waiting_table

PAGE = 100
"""The default number of rows in a table; JSON has all."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("jobs")(jobs)


def jobs(
    context: typer.Context,
    active: Annotated[bool, typer.Option("--active", "-a", help="Only jobs that have not ended.")] = False,
    all: Annotated[
        bool, typer.Option("--all", help="All jobs. Default: living ones, and those that ended within a day.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Leave out jobs that ended before: 7d, or 2026-01-31T12:00:00Z."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="PATTERN", help="Only this name or id, such as 'fashion-*'; repeatable."),
    ] = None,
    user: Annotated[
        list[str] | None, typer.Option("--user", metavar="USER", help="Only jobs of this user; repeatable.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="KEY=VALUE", help="Only with this tag; repeated: with all of them."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATUS", help="Only in this state, such as RUNNING; repeatable."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help=f"The newest N. Default: {PAGE} in a table, all with --json."),
    ] = None,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """List the jobs with their states, durations and interruptions.

    TOT. DURATION counts from submission, JOB DURATION only the time with an instance. The difference is the waiting
    time.
    """
    session = current_session(context, json)
    bad: list[dict[str, str]] = []
    query = JobQuery(
        active=active,
        archived=all,
        since=_moment(session, since, bad),
        names=tuple(name or ()),
        users=tuple(user or ()),
        states=_states(state or [], bad),
        tags=_tags(tag or [], bad),
        limit=limit or (None if session.json else PAGE),
    )
    if bad:
        raise CliError("options cannot be read", Exit.USAGE, problems=bad)
    if session.json:
        session.answer(job_rows(session, query).rows)
    elif watch:
        session.redraw(lambda: _page(session, query, session.console.width), lambda: _lines(session, query))
    else:
        width = session.console.table_width
        PlainConsole(width=width).print(_page(session, query, width), crop=False)


def _page(session: Session, query: JobQuery, width: int) -> RenderableType:
    listing = job_rows(session, query)
    if not listing.rows:
        return Text(_no_jobs_text(query))
    words = [session.scale_note()]
    if listing.count > len(listing.rows):
        words.append(f"The newest {len(listing.rows)} of {listing.count}; more with --limit N.")
    notes = [" ".join(part for part in words if part), *sentences(listing.rows, session.now)]
    below = Text("\n".join(note for note in notes if note), style="dim")
    table, waits = (
        jobs_table(listing.rows, width, session.now),
        waiting_table(listing.rows, session.now),
    )
    return Group(table, "", waits, below) if waits is not None else Group(table, below)


def _lines(session: Session, query: JobQuery) -> dict[str, str]:
    """Return a line for each job, printed when it changes if standard output is no terminal."""
    lines = {}
    for row in job_rows(session, query).rows:
        where = f" on {row['instance_type']} {row['zone']} {row['market']}" if row["instance_type"] else ""
        lines[row["job_id"]] = (
            f"{row['job_id']}: {row['status']}{where}, {counted(row['interruptions'], 'interruption')}"
        )
    return lines


def _no_jobs_text(query: JobQuery) -> str:
    if query == JobQuery(archived=query.archived, limit=query.limit):
        earlier = "" if query.archived else "\nThose that ended more than a day ago: everspot jobs --all"
        return f"No jobs. Submit one: everspot submit FILE{earlier}"
    return "No such jobs."


def _moment(session: Session, text: str | None, bad: list[dict[str, str]]) -> datetime | None:
    """Parse `--since`. Problems are added to `bad`, as with the other options."""
    if text is None:
        return None
    try:
        span: timedelta = parse_duration(text)
        return session.now - span
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        words = "is neither a duration, such as 12h or 7d, nor a time with a zone, such as 2026-01-31T12:00:00Z"
        bad.append({"field": "--since", "problem": f"{text!r} {words}"})
        return None
    return moment.astimezone(UTC)


def _states(options: list[str], bad: list[dict[str, str]]) -> tuple[str, ...]:
    words = tuple(state.upper() for state in options)
    unknown = [status for status in words if status not in MEANING_OF_STATUS]
    if unknown:
        bad.append({"field": "--state", "problem": f"{', '.join(unknown)} is none of {', '.join(MEANING_OF_STATUS)}"})
    return words


def _tags(options: list[str], bad: list[dict[str, str]]) -> dict[str, str]:
    wrong = [tag for tag in options if "=" not in tag]
    if wrong:
        words = f"{', '.join(wrong)} is not KEY=VALUE, such as Team=research"
        bad.append({"field": "--tag", "problem": words})
    return dict(tag.partition("=")[::2] for tag in options)
