"""`everspot jobs`."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from everspot_core.counting import counted
from everspot_core.documents import parse_duration
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.commands.options import Json, Watch, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.queue import JobQuery, job_rows
from everspot_cli.session import Session
from everspot_cli.tables import jobs_table
from everspot_cli.views import MEANING_OF_STATUS
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
        bool, typer.Option("--all", help="However long ago they ended. Default: the last day's, and what lives.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Without what had ended by then: 7d, or 2026-01-31T12:00:00Z."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="PATTERN", help="Only of this name or id, such as 'fashion-*'; again for more."),
    ] = None,
    user: Annotated[
        list[str] | None, typer.Option("--user", metavar="USER", help="Only submitted by this user; again for more.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="KEY=VALUE", help="Only with this tag; again: with all."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATUS", help="Only in this state, such as RUNNING; again for more."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help=f"The newest N. Default: {PAGE} in a table, all with --json."),
    ] = None,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """List the jobs: state, both durations, interruptions.

    TOT. DURATION runs since submission, JOB DURATION while the job had an instance: the difference is time spent
    waiting.
    """
    session = current_session(context, json)
    bad: list[dict[str, str]] = []
    wanted = JobQuery(
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
        session.answer(job_rows(session, wanted).rows)
    elif watch:
        session.redraw(lambda: _page(session, wanted), lambda: _lines(session, wanted))
    else:
        session.console.print(_page(session, wanted))


def _page(session: Session, wanted: JobQuery) -> RenderableType:
    found = job_rows(session, wanted)
    if not found.rows:
        return Text(_nothing(wanted))
    words = [session.scale_note()]
    if found.count > len(found.rows):
        words.append(f"The newest {len(found.rows)} of {found.count}; more with --limit N.")
    notes = [" ".join(word for word in words if word), *sentences(found.rows, session.now)]
    below = Text("\n".join(note for note in notes if note), style="dim")
    table, waits = jobs_table(found.rows, session.console.width, session.now), waiting_table(found.rows, session.now)
    return Group(table, "", waits, below) if waits is not None else Group(table, below)


def _lines(session: Session, wanted: JobQuery) -> dict[str, str]:
    """A line for each job, printed when it changes if standard output is no terminal."""
    told = {}
    for row in job_rows(session, wanted).rows:
        where = f" on {row['instance_type']} {row['zone']} {row['market']}" if row["instance_type"] else ""
        told[row["job_id"]] = (
            f"{row['job_id']}: {row['status']}{where}, {counted(row['interruptions'], 'interruption')}"
        )
    return told


def _nothing(wanted: JobQuery) -> str:
    if wanted == JobQuery(archived=wanted.archived, limit=wanted.limit):
        earlier = "" if wanted.archived else "\nThose that ended more than a day ago: everspot jobs --all"
        return f"No jobs. Submit one: everspot submit FILE{earlier}"
    return "No such jobs."


def _moment(session: Session, text: str | None, bad: list[dict[str, str]]) -> datetime | None:
    """The moment that `--since` means. Faults go to `bad`, as with the other options."""
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


def _states(given: list[str], bad: list[dict[str, str]]) -> tuple[str, ...]:
    words = tuple(state.upper() for state in given)
    unknown = [word for word in words if word not in MEANING_OF_STATUS]
    if unknown:
        bad.append({"field": "--state", "problem": f"{', '.join(unknown)} is none of {', '.join(MEANING_OF_STATUS)}"})
    return words


def _tags(given: list[str], bad: list[dict[str, str]]) -> dict[str, str]:
    wrong = [tag for tag in given if "=" not in tag]
    if wrong:
        words = f"{', '.join(wrong)} is not KEY=VALUE, such as Team=research"
        bad.append({"field": "--tag", "problem": words})
    return dict(tag.partition("=")[::2] for tag in given)
