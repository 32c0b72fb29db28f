"""`everspot job ID`."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from everspot_core.documents import format_duration
from everspot_core.records import JobState
from rich.console import RenderableType

from everspot_cli.abroad import away_words, trip_words
from everspot_cli.commands.options import JobId, Json, duration_of, session_of
from everspot_cli.errors import CliError, Exit
from everspot_cli.failure import failure
from everspot_cli.finding import find_job, record_of
from everspot_cli.session import Session
from everspot_cli.story import history
from everspot_cli.tables import belongs, dated, duration, facts, steps, word
from everspot_cli.views import job_row
from everspot_cli.waiting import explain, on_demand_words, wait_pool

POLL = timedelta(seconds=1)
DETAIL = 6  # lines of what was said last


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("job")(job)


def job(
    context: typer.Context,
    job_id: JobId,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has ended; exit code 5 if it failed.")] = False,
    timeout: Annotated[str | None, typer.Option("--timeout", help="Longest wait, such as 30m. Default: none.")] = None,
    events: Annotated[bool, typer.Option("--events", help="All of its history, nothing folded.")] = False,
    json: Json = False,
) -> None:
    """Show one job: why it failed or waits, state, progress, and its history."""
    session = session_of(context, json)
    submission = find_job(session, job_id)
    if wait:
        _wait(session, submission.job_id, timeout)
    store = session.store
    dossier = store.dossier(submission.job_id)
    record, told = (dossier.record, dossier.events) if dossier is not None else (None, [])
    owner = store.instances.get(record.owner) if record is not None and record.owner else None
    instances = {owner.value.instance_id: owner.value} if owner is not None else {}
    cancelling = store.cancels.get(submission.job_id) is not None
    row = job_row(submission, record, told, session.now, cancelling, instances)
    explain(session, [row])
    if session.json:
        happened = [e.model_dump(mode="json") for e in told]
        session.answer({**row, "spec": submission.spec.model_dump(mode="json"), "events": happened})
    else:
        why = failure(row, told)
        if why is not None:
            session.console.print(why)
        session.console.print(_sheet(session, row, submission.spec.model_dump(mode="json"), explained=why is not None))
        session.console.print(history(told, whole=events))
    if wait and row["state"] != JobState.SUCCEEDED.value:
        raise typer.Exit(Exit.JOB_FAILED)


def _deadline(row: dict[str, Any], now: datetime) -> str | None:
    """A deadline in the words of its state: still open, kept, or missed and by how much."""
    at, state = row["deadline_at"], row["deadline"]
    if at is None or state is None:
        return f"{at:%Y-%m-%d %H:%M} UTC" if at is not None else None
    if state == "open":
        return dated(at, now)
    ended = row["changed_at"] if JobState(row["state"]).final else now
    late = (ended - at).total_seconds()
    if state == "kept":
        return f"kept with {duration(-late)} to spare ({at:%Y-%m-%d %H:%M} UTC)"
    by = f" by {duration(late)}{'' if JobState(row['state']).final else ' so far'}" if late > 0 else ": the job failed"
    return f"missed{by} ({at:%Y-%m-%d %H:%M} UTC)"


def _series(row: dict[str, Any], spec: dict[str, Any]) -> str | None:
    """The number of the run in its series, and the interval of the series."""
    if row["series"] is None or spec["every"] is None:
        return None
    skip = f", skipped if {spec['skip_if']}" if spec["skip_if"] else ""
    return f"run {row['run']} of {row['series']}, every {format_duration(timedelta(seconds=spec['every']))}{skip}"


def _cut(detail: str) -> str:
    lines = detail.splitlines()
    more = f"\n… {len(lines) - DETAIL} more lines" if len(lines) > DETAIL else ""
    return "\n".join(lines[:DETAIL]) + more


def _wait(session: Session, job_id: str, timeout: str | None) -> None:
    limit = duration_of(timeout, "--timeout") if timeout else None
    began = session.clock.monotonic()
    while True:
        record = record_of(session, job_id)
        if record is not None and record.state.final:
            return
        if limit is not None and session.clock.monotonic() - began >= limit:
            raise CliError(f"{job_id} has not ended within {format_duration(limit)}", Exit.USER)
        session.clock.sleep(POLL)


def _sheet(session: Session, row: dict[str, Any], spec: dict[str, Any], *, explained: bool) -> RenderableType:
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
            ("waits for", wait_pool(row)),
            ("on-demand", on_demand_words(row, session.now)),
            ("waits since", dated(row["waits_since"], session.now) if row["waits_since"] else None),
            ("runs", program),
            ("needs", wanted),
            ("priority", row["priority"]),
            ("steps", steps(row)),
            ("metrics", metrics),
            ("on", where or row["owner"]),
            ("visit of", belongs(row)),
            ("away", away_words(row, session.now)),
            ("has been", trip_words(row)),
            ("interruptions", row["interruptions"]),
            ("errors", row["errors"] or None),
            ("attempt", row["attempt"] or None),
            ("retry of", row["retry_of"]),
            ("submitted", dated(row["submitted_at"], session.now) + (f" by {row['user']}" if row["user"] else "")),
            ("after", ", ".join(row["after"])),
            ("begins", dated(row["start_at"], session.now) if row["start_at"] and not row["attempt"] else None),
            ("window", row["window"]),
            ("series", _series(row, spec)),
            ("deadline", _deadline(row, session.now)),
            ("total duration", duration(row["total_duration_seconds"])),
            ("job duration", duration(row["job_duration_seconds"])),
            ("last attempt ended by", row["last_reason"]),
            ("exit code", None if explained or not JobState(row["state"]).final else row["exit_code"]),
            ("detail", None if explained else _cut(row["detail"])),
            ("note", session.scale_note()),
        ]
    )
