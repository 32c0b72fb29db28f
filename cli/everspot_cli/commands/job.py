"""`everspot job ID`."""

from typing import Annotated, Any

import typer
from everspot_core.jobs.records import JobState
from rich.console import RenderableType
from rich.text import Text

from everspot_cli.commands.options import JobId, Json, current_session, parse_duration_option
from everspot_cli.errors import CliError, Exit
from everspot_cli.failure import failure
from everspot_cli.job_facts import job_facts
from everspot_cli.job_history import history, in_market_time
from everspot_cli.job_lookup import find_job
from everspot_cli.machine_use import review_document, review_job, review_rows
from everspot_cli.rows import job_row
from everspot_cli.session import Session
from everspot_cli.tables import facts, state_text
from everspot_cli.waiting import explain


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("job")(job)


def job(
    context: typer.Context,
    job_id: JobId,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the job has ended; exit code 5 if it failed or was cancelled.")
    ] = False,
    timeout: Annotated[str | None, typer.Option("--timeout", help="Longest wait, such as 30m. Default: none.")] = None,
    events: Annotated[bool, typer.Option("--events", help="Show the whole history.")] = False,
    json: Json = False,
) -> None:
    """Show one job: its state, the reason why it waits or failed, its progress and its history."""
    session = current_session(context, json)
    submission = find_job(session, job_id)
    if wait:
        _wait(session, submission.job_id, timeout)
    store = session.store
    dossier = store.dossier(submission.job_id)
    record, job_events = (dossier.record, dossier.events) if dossier is not None else (None, [])
    owner = store.instances.get(record.owner) if record is not None and record.owner else None
    instances = {owner.value.instance_id: owner.value} if owner is not None else {}
    cancelling = store.cancels.get(submission.job_id) is not None
    row = job_row(submission, record, job_events, session.now, cancelling, instances, scale=session.clock.scale)
    explain(session, [row])
    if session.json:
        machine = review_document(*review_job(submission, record, job_events, session.catalogue))
        happened = [e.model_dump(mode="json") for e in job_events]
        session.answer({**row, "spec": submission.spec.model_dump(mode="json"), "machine": machine, "events": happened})
    else:
        failure_text = failure(row, job_events)
        if failure_text is not None:
            session.console.print(failure_text)
        session.console.print(
            _sheet(session, row, submission.spec.model_dump(mode="json"), explained=failure_text is not None)
        )
        machine_rows = review_rows(*review_job(submission, record, job_events, session.catalogue))
        if machine_rows:
            session.console.print(Text("\nhow the machine was used", style="bold"))
            session.console.print(facts(machine_rows))
        session.console.print(history(in_market_time(job_events, session.clock.scale), whole=events))
    if wait and row["state"] in (JobState.FAILED.value, JobState.CANCELLED.value):
        raise typer.Exit(Exit.JOB_FAILED)


def _wait(session: Session, job_id: str, timeout: str | None) -> None:
    from everspot_cli.client import Client  # only who waits loads what else it can do

    limit = parse_duration_option(timeout, "--timeout") if timeout else None
    try:
        Client.with_session(session).wait(job_id, limit)
    except TimeoutError as error:
        raise CliError(str(error), Exit.USER) from None


def _sheet(session: Session, row: dict[str, Any], spec: dict[str, Any], *, explained: bool) -> RenderableType:
    fact_rows = job_facts(row, spec, session.now, explained=explained)
    shown = [(name, state_text(row["status"]) if name == "status" else value) for name, value in fact_rows]
    return facts([*shown, ("note", session.scale_note())])
