"""`everspot logs`."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from everspot_core.jobs.records import JobState

from everspot_cli.commands.options import Json, current_session, parse_duration_option
from everspot_cli.errors import CliError, Exit
from everspot_cli.job_lookup import find_job, read_record
from everspot_cli.session import Session

if TYPE_CHECKING:
    from everspot_core.jobs.visit_records import Away
    from everspot_store import Chunk

POLL = timedelta(seconds=1)
_ID = "The job's id, or the beginning of it if that is unique."


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("logs")(logs)


def logs(
    context: typer.Context,
    job_id: Annotated[str | None, typer.Argument(metavar="[ID]", help=_ID)] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the output until the job ends; exit code 5 if it failed or was cancelled."
        ),
    ] = False,
    tail: Annotated[int | None, typer.Option(min=1, help="Only this many lines from the end.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only output of this last time, such as 10m.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(metavar="ID", help="The log of this instance's agent instead.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the output of a job, from all its attempts and instances.

    A running job's output arrives once a minute, and within seconds while it is followed.
    """
    session = current_session(context, json)
    if (job_id is None) == (instance is None):
        raise CliError("name a job, or an instance by --instance", Exit.USAGE)
    age = parse_duration_option(since, "--since") if since is not None else None
    if instance is not None:
        if follow:
            raise CliError("an instance's log is not followed: its agent writes a piece a minute", Exit.USAGE)
        if _print(session, _chosen(session, instance, None, tail, age, agent=True)) is None:
            raise CliError(f"no agent of an instance {instance} has written a log", Exit.NOT_FOUND)
        return
    assert job_id is not None  # noqa: S101 - one of the two is named
    _job_log(session, find_job(session, job_id).job_id, follow, tail, age)


def _job_log(session: Session, job: str, follow: bool, tail: int | None, age: timedelta | None) -> None:
    after: tuple[int, int] | None = None
    announced = False
    try:
        while True:
            if follow:
                _follow(session, job)
            # The state is read before the log: what a job wrote before it ended is then surely among what is read.
            record = read_record(session, job)
            state = record.state if record else JobState.PENDING
            after = _print(session, _chosen(session, job, after, tail, age)) or after
            if record is not None and record.away is not None:
                _print(session, _from_peer(session, record.away, tail, age))
                return
            if not follow or state.final:
                break
            if after is None and not announced and not session.json:
                announced = True
                session.errors.print(f"{job} has printed nothing yet ({state.value}); waiting for it", style="dim")
            session.clock.sleep(POLL)
    finally:
        if follow:
            _end_following(session, job)
    if after is None and not session.json:
        session.errors.print(f"{job} has printed nothing yet ({state.value})", style="dim")
    if follow and state is not JobState.SUCCEEDED:
        raise typer.Exit(Exit.JOB_FAILED)


def _from_peer(session: Session, away: "Away", tail: int | None, age: timedelta | None) -> "Iterable[Chunk]":
    """Return what a job that is away has printed at its host. Empty, with a note on standard error, if this user may
    not read it."""
    from everspot_store import StoreError

    peer = next((p for p in session.manifest.federation if p.name == away.cluster), None)
    if peer is None:
        return ()
    peer_command = f"everspot --store {peer.control_url} logs {away.visit} -f"
    words = f"it is at {peer.name} as {away.visit}; `{peer_command}` follows it there"
    session.errors.print(words, style="dim", soft_wrap=True)
    try:
        logs = session.peer_store(peer).logs
        since = session.now - age if age is not None else None
        return logs.tail(away.visit, tail, since) if tail is not None else list(logs.read(away.visit, None, since))
    except (StoreError, CliError) as error:
        session.errors.print(f"its log there cannot be read: {error}", style="yellow")
        return ()


def _chosen(
    session: Session,
    id: str,
    after: tuple[int, int] | None,
    tail: int | None,
    age: timedelta | None,
    *,
    agent: bool = False,
) -> "Iterable[Chunk]":
    """Return the requested pieces. With `--follow`, the last lines are chosen once; later ones are printed as they
    come."""
    stream = session.store.agent_logs if agent else session.store.logs
    since = session.now - age if age is not None else None
    if tail is not None and after is None:
        return stream.tail(id, tail, since)
    return stream.read(id, after, since if after is None else None)


def _print(session: Session, chunks: "Iterable[Chunk]") -> tuple[int, int] | None:
    after = None
    for chunk in chunks:
        if session.json:
            session.answer_line({"epoch": chunk.epoch, "seq": chunk.seq, "text": chunk.data.decode(errors="replace")})
        else:
            # As bytes: a chunk may end in the middle of a letter.
            sys.stdout.buffer.write(chunk.data)
            sys.stdout.flush()
        after = chunk.position
    return after


def _follow(session: Session, job: str) -> None:
    """Ask the agent for output within seconds. A user who may only read follows too, and gets output within a
    minute."""
    from everspot_store import StoreDenied

    with suppress(StoreDenied):
        session.store.following.renew(job)


def _end_following(session: Session, job: str) -> None:
    """Take the request back. A user who may not delete leaves it behind, and it expires by itself."""
    from everspot_store import StoreError

    with suppress(StoreError):
        session.store.following.end(job)
