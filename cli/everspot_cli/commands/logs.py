"""`everspot logs`."""

import sys
from datetime import timedelta
from typing import Annotated

import typer
from everspot_core.records import JobState

from everspot_cli.commands.options import JobId, Json, session_of
from everspot_cli.errors import Exit
from everspot_cli.finding import find_job, record_of
from everspot_cli.session import Session

POLL = timedelta(seconds=1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("logs")(logs)


def logs(
    context: typer.Context,
    job_id: JobId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends; exit code 5 if it failed.")
    ] = False,
    json: Json = False,
) -> None:
    """Print what a job has printed, over all its attempts and instances."""
    session = session_of(context, json)
    job = find_job(session, job_id).job_id
    after: tuple[int, int] | None = None
    told = False
    while True:
        # The state is read before the log: what a job wrote before it ended is then surely among what is read.
        record = record_of(session, job)
        state = record.state if record else JobState.PENDING
        after = _print(session, job, after)
        if not follow or state.final:
            break
        if after is None and not told and not session.json:
            told = True
            session.errors.print(f"{job} has printed nothing yet ({state.value}); waiting for it", style="dim")
        session.clock.sleep(POLL)
    if after is None and not session.json:
        session.errors.print(f"{job} has printed nothing yet ({state.value})", style="dim")
    if follow and state is not JobState.SUCCEEDED:
        raise typer.Exit(Exit.JOB_FAILED)


def _print(session: Session, job: str, after: tuple[int, int] | None) -> tuple[int, int] | None:
    for chunk in session.store.read_logs(job, after):
        if session.json:
            session.answer_line({"epoch": chunk.epoch, "seq": chunk.seq, "text": chunk.data.decode(errors="replace")})
        else:
            # As bytes: a chunk may end in the middle of a letter.
            sys.stdout.buffer.write(chunk.data)
            sys.stdout.flush()
        after = chunk.position
    return after
