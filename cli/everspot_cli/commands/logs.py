"""`everspot logs`."""

import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from everspot_core.jobs.records import JobState

from everspot_cli.commands.options import Json, current_session, parse_duration_option
from everspot_cli.errors import CliError, Exit
from everspot_cli.job_log import read_chunks, read_job_log
from everspot_cli.job_lookup import find_job, read_record
from everspot_cli.session import Session

if TYPE_CHECKING:
    from everspot_core.jobs.records import JobRecord
    from everspot_store import Chunk

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
        if _print(session, read_chunks(session, instance, None, tail, age, agent=True)) is None:
            raise CliError(f"no agent of an instance {instance} has written a log", Exit.NOT_FOUND)
        return
    assert job_id is not None  # noqa: S101 - one of the two is named
    _job_log(session, find_job(session, job_id).job_id, follow, tail, age)


def _job_log(session: Session, job: str, follow: bool, tail: int | None, age: timedelta | None) -> None:
    announced = False

    def announce(record: "JobRecord | None") -> None:
        nonlocal announced
        if follow and not (record is not None and record.state.final) and not announced and not session.json:
            announced = True
            session.errors.print(f"{_describe_silence(job, record)}; waiting for it", style="dim")

    after = _print(session, read_job_log(session, job, follow=follow, tail=tail, age=age, on_silence=announce))
    record = read_record(session, job)
    state = record.state if record is not None else JobState.PENDING
    if not follow and record is not None and record.away is not None:
        return
    if after is None and not session.json:
        silence = _describe_silence(job, record)
        if state is JobState.RUNNING:  # then it is not followed
            silence += ": it comes once a minute, within seconds with --follow"
        session.errors.print(silence, style="dim", soft_wrap=True)
    if follow and state not in (JobState.SUCCEEDED, JobState.SKIPPED):
        raise typer.Exit(Exit.JOB_FAILED)


def _describe_silence(job: str, record: "JobRecord | None") -> str:
    """Return why nothing of a job's output is there. That of a running job may be on its way."""
    state = record.state if record is not None else JobState.PENDING
    if record is not None and state is JobState.SUCCEEDED and record.reused_from is not None:
        return f"{job} was not run, because of its cache: `everspot logs {record.reused_from}` has the run's output"
    if state is JobState.SKIPPED:
        return f"{job} was not run: `everspot job {job}` says why"
    if record is None or state is not JobState.RUNNING:
        return f"{job} has printed nothing yet ({state.value})"
    step = f", step {record.progress.step}" if record.progress.step else ""
    return f"no output of {job} has arrived yet ({state.value}{step})"


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
