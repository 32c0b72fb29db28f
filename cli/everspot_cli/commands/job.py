"""`everspot job ID`."""

from datetime import timedelta
from typing import Annotated, Any

import typer
from everspot_core.documents import format_duration, parse_duration
from everspot_core.records import JobState
from rich.console import RenderableType

from everspot_cli.commands.options import JobId, Json, session_of
from everspot_cli.errors import CliError, Exit
from everspot_cli.finding import find_job, record_of
from everspot_cli.session import Session
from everspot_cli.story import history
from everspot_cli.tables import duration, facts, steps, word
from everspot_cli.views import job_row

POLL = timedelta(seconds=1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("job")(job)


def job(
    context: typer.Context,
    job_id: JobId,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has ended; exit code 5 if it failed.")] = False,
    timeout: Annotated[str | None, typer.Option("--timeout", help="Longest wait, such as 30m. Default: none.")] = None,
    json: Json = False,
) -> None:
    """Show one job: state, progress, why it waits or failed, and its whole history."""
    session = session_of(context, json)
    submission = find_job(session, job_id)
    if wait:
        _wait(session, submission.job_id, timeout)
    store = session.store
    dossier = store.dossier(submission.job_id)
    record, events = (dossier.record, dossier.events) if dossier is not None else (None, [])
    instances = {i: d.value for i, d in store.instances.scan().items()}
    cancelling = store.cancels.get(submission.job_id) is not None
    row = job_row(submission, record, events, session.now, cancelling, instances)
    row["waits_because"] = _why_waiting(session, row)
    if session.json:
        happened = [e.model_dump(mode="json") for e in events]
        session.answer({**row, "spec": submission.spec.model_dump(mode="json"), "events": happened})
    else:
        session.console.print(_sheet(session, row, submission.spec.model_dump(mode="json")))
        session.console.print(history(events))
    if wait and row["state"] != JobState.SUCCEEDED.value:
        raise typer.Exit(Exit.JOB_FAILED)


def _why_waiting(session: Session, row: dict[str, Any]) -> str | None:
    if row["state"] != JobState.PENDING.value:
        return None
    from everspot_cli.waiting import why_waiting  # the scheduler's whole policy: only who waits needs it

    return why_waiting(session, row["job_id"])


def _wait(session: Session, job_id: str, timeout: str | None) -> None:
    try:
        limit = parse_duration(timeout) if timeout else None
    except ValueError as error:
        raise CliError(f"--timeout: {error}", Exit.USAGE) from None
    began = session.clock.monotonic()
    while True:
        record = record_of(session, job_id)
        if record is not None and record.state.final:
            return
        if limit is not None and session.clock.monotonic() - began >= limit:
            raise CliError(f"{job_id} has not ended within {format_duration(limit)}", Exit.USER)
        session.clock.sleep(POLL)


def _sheet(session: Session, row: dict[str, Any], spec: dict[str, Any]) -> RenderableType:
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(row["metrics"].items()))
    program = spec["recipe"] or " ".join(spec["entrypoint"] or [])
    where = f"{row['owner']} ({row['instance_type']} {row['zone']} {row['market']})" if row["instance_type"] else None
    wanted = ", ".join(f"{name} {value:g}" if not isinstance(value, str) else f"{name} {value}"
                       for name, value in spec["resources"].items() if value)  # fmt: skip
    return facts(
        [
            ("job", row["job_id"]),
            ("status", word(row["status"])),
            ("waits because", row["waits_because"]),
            ("runs", program),
            ("needs", wanted),
            ("priority", row["priority"]),
            ("steps", steps(row)),
            ("metrics", metrics),
            ("on", where or row["owner"]),
            ("interruptions", row["interruptions"]),
            ("errors", row["errors"] or None),
            ("submitted", f"{row['submitted_at']:%Y-%m-%d %H:%M:%S} UTC"),
            ("deadline", f"{row['deadline_at']:%Y-%m-%d %H:%M:%S} UTC" if row["deadline_at"] else None),
            ("total duration", duration(row["total_duration_seconds"])),
            ("job duration", duration(row["job_duration_seconds"])),
            ("last left because of", row["last_reason"]),
            ("exit code", row["exit_code"]),
            ("detail", row["detail"]),
            ("note", session.scale_note()),
        ]
    )
