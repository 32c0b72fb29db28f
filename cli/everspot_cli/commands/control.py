"""`everspot cancel`, `interrupt` and `drain`: requests, written into the store for the scheduler to carry out."""

from datetime import timedelta
from typing import Annotated, Any

import typer
from everspot_core.capacity.launching import launched_ids
from everspot_core.documents import format_duration
from everspot_core.jobs.records import InstanceState, JobState

from everspot_cli.commands.options import JobId, Json, current_session, parse_duration_option
from everspot_cli.errors import CliError
from everspot_cli.job_lookup import find_job
from everspot_cli.requests import ask_cancel, ask_interrupt, build_request
from everspot_cli.session import Session

POLL = timedelta(seconds=1)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("cancel")(cancel)
    app.command("interrupt")(interrupt)
    app.command("drain")(drain)


def _report(session: Session, answer: dict[str, Any], words: str) -> None:
    if session.json:
        session.answer(answer)
    else:
        session.console.print(words)


def cancel(context: typer.Context, job_id: JobId, json: Json = False) -> None:
    """Cancel a job. Its instance is free for other jobs immediately; its checkpoints stay.

    For a series, this ends the present or next run, and the series.
    """
    session = current_session(context, json)
    request = ask_cancel(session, find_job(session, job_id))
    _report(session, request.answer, request.words)


def interrupt(
    context: typer.Context,
    job_id: JobId,
    note: Annotated[str, typer.Option("--note", help="The reason, for the history.")] = "",
    json: Json = False,
) -> None:
    """Interrupt a running job as the cloud would, as a drill.

    The job checkpoints and gives its instance back. It resumes on another instance if one is free, otherwise on the
    same one.
    """
    session = current_session(context, json)
    request = ask_interrupt(session, find_job(session, job_id), note)
    _report(session, request.answer, request.words)


def drain(
    context: typer.Context,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when no job has an instance and no launched instance runs.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Assign jobs again.")] = False,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest wait with --wait.")] = "10m",
    json: Json = False,
) -> None:
    """Let every job checkpoint and wait, and assign no jobs: before an upgrade or a destroy."""
    session = current_session(context, json)
    if undo:
        session.store.clear_drain()
        _report(session, {"draining": False}, "Jobs are assigned again.")
        return
    limit = parse_duration_option(timeout, "--timeout")  # before anything is asked for
    session.store.request_drain(build_request(session))
    running = _wait_drained(session, limit) if wait else list_owned_jobs(session)
    are = "1 job is" if len(running) == 1 else f"{len(running)} jobs are"
    done = f"{are} checkpointing." if running else "Drained: no job has an instance."
    _report(session, {"draining": True, "running": running}, f"{done} Take it back with: everspot cluster drain --undo")


def list_owned_jobs(session: Session) -> list[str]:
    """Return the jobs that have an instance, here or at another cluster, sorted."""
    busy = (doc.value for doc in session.store.records.scan().values())
    return sorted(record.job_id for record in busy if record.state.owned or record.state is JobState.AWAY)


def _wait_drained(session: Session, limit: timedelta) -> list[str]:
    """Wait for the jobs, and then for the scheduler to release what it has launched for them."""
    began = session.clock.monotonic()
    while running := list_owned_jobs(session) or _list_launched(session):
        if session.clock.monotonic() - began >= limit:
            raise CliError(
                f"not drained within {format_duration(limit)}: {', '.join(running)} still run",
                hint="is the scheduler alive? `everspot doctor` checks",
            )
        session.clock.sleep(POLL)
    return []


def _list_launched(session: Session) -> list[str]:
    """Return the instances that the scheduler has launched and that still run."""
    store = session.store
    launched = launched_ids(doc.value for doc in store.launching.scan().values())
    if not launched:
        return []
    reported = store.instances.scan()
    alive = {name for name, doc in reported.items() if doc.value.state is not InstanceState.GONE}
    booting = store.launches.scan().keys() - reported.keys()
    return sorted((launched & (alive | booting)) - set(store.ends.scan()))
