"""`everspot top JOB`."""

from datetime import datetime
from typing import Any

import typer
from everspot_core.jobs.records import JobRecord
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.commands.options import JobId, Json, current_session
from everspot_cli.job_lookup import find_job, read_record
from everspot_cli.machine_use import use_document, use_rows
from everspot_cli.session import Session
from everspot_cli.tables import duration, empty_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("top")(top)


def top(context: typer.Context, job_id: JobId, json: Json = False) -> None:
    """Show what a running job uses of its machine: GPUs, processors, memory, disk, network, steps.

    The figures are renewed with the job's lease, about twice a minute. The view is kept up to date until Ctrl-C; a job
    that does not run is shown once.
    """
    session = current_session(context, json)
    name = find_job(session, job_id).job_id
    record = read_record(session, name)
    if session.json:
        session.answer(_document(name, record))
    elif record is None or not record.state.owned:
        session.console.print(_page(name, record, session.now))
    else:
        session.redraw(lambda: _read_page(session, name), lambda: _lines(session, name))


def _document(name: str, record: JobRecord | None) -> dict[str, Any]:
    progress = record.progress if record is not None else None
    return {
        "job_id": name,
        "state": record.state.value if record is not None else "PENDING",
        "owner": record.owner if record is not None else None,
        "measured_at": record.changed_at if record is not None else None,
        "step": progress.step if progress is not None else 0,
        "recent": use_document(progress.recent_use) if progress is not None else None,
        "attempt": use_document(progress.attempt_use) if progress is not None else None,
    }


def _read_page(session: Session, name: str) -> RenderableType:
    return _page(name, read_record(session, name), session.now)


def _page(name: str, record: JobRecord | None, now: datetime) -> RenderableType:
    """Return a table with a column for the last minute and one for the attempt."""
    if record is None:
        return Text(f"{name} waits for an instance: nothing is measured yet.")
    progress = record.progress
    head = Text(f"{name}: {record.state.value}{f' on {record.owner}' if record.owner else ''}, step {progress.step}")
    if progress.attempt_use is None:
        return Group(head, Text("Nothing is measured yet: the first figures come within a minute of training."))
    recent = dict(use_rows(progress.recent_use)) if progress.recent_use is not None else {}
    attempt = dict(use_rows(progress.attempt_use))
    table = empty_table(("", "LAST MINUTE", f"ATTEMPT, {duration(progress.attempt_use.seconds)}"), text_columns=3)
    for row in {**attempt, **recent}:
        table.add_row(row, recent.get(row, "—"), attempt.get(row, "—"))
    age = duration(max(0.0, (now - record.changed_at).total_seconds()))
    return Group(head, table, Text(f"Measured {age} ago.", style="dim"))


def _lines(session: Session, name: str) -> dict[str, str]:
    """Return the line that is printed at each new reading if standard output is no terminal."""
    record = read_record(session, name)
    if record is None or record.progress.recent_use is None:
        return {name: f"{name}: nothing is measured yet"}
    rows = ", ".join(f"{row} {value}" for row, value in use_rows(record.progress.recent_use))
    return {name: f"{name}: {record.state.value}, step {record.progress.step}: {rows}"}
