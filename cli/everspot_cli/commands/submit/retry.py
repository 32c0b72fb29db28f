"""`everspot retry`: runs a failed or cancelled job again, from its newest checkpoint."""

import secrets
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobState

from everspot_cli.commands.options import EndedJobId, Env, Json, Name, Set, WaitForCapacity, current_session
from everspot_cli.commands.submit.command import answer_submitted, check, create_job, note_submitted, skew_warnings
from everspot_cli.commands.submit.context import SubmissionContext
from everspot_cli.errors import CliError
from everspot_cli.job_lookup import find_job, read_record
from everspot_cli.requests import user
from everspot_cli.session import Session
from everspot_cli.specs import Overrides, override_spec
from everspot_cli.stage_cache import claim_stage


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("retry")(retry)


def retry(
    context: typer.Context,
    job_id: EndedJobId,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Start at step 0, not at the newest checkpoint.")
    ] = False,
    name: Name = None,
    set: Set = None,
    env: Env = None,
    wait_for_capacity: WaitForCapacity = False,
    json: Json = False,
) -> None:
    """Submit a failed or cancelled job again; it continues from its newest checkpoint.

    The new job has the same code, datasets and settings; its retries, budget and deadline start again. Of a chain,
    retry the first stage that has not succeeded.
    """
    session = current_session(context, json)
    old = find_job(session, job_id, ended=True)
    _refuse_unless_ended(session, old.job_id)
    _refuse_after_unsuccessful(session, old)
    submission = _again(session, old, Overrides.read(name, set or (), env or ()), from_scratch)
    job_context = SubmissionContext.read(session, old.job_id, submission, wait_for_capacity=wait_for_capacity)
    warnings = [*skew_warnings(session), *check(job_context)]
    submission = job_context.submission
    store = session.store
    claim = partial(claim_stage, session)
    create = partial(store.submit, code_of=old.job_id) if from_scratch else partial(store.retry, other=old.job_id)
    submission = create_job(session, submission, lambda: create(submission, finalize=claim))
    warnings += note_submitted(session, submission, old.job_id)
    answer_submitted(session, submission, warnings)


def _refuse_unless_ended(session: Session, job: str) -> None:
    record = read_record(session, job)
    if record is None or not record.state.final:
        state = record.state.value if record is not None else JobState.PENDING.value
        hint = f"`everspot cancel {job}` ends it, and keeps its checkpoints for a retry"
        raise CliError(f"{job} has not ended ({state}): only what failed or was cancelled is tried again", hint=hint)
    if record.state is JobState.SUCCEEDED:
        raise CliError(f"{job} has succeeded: there is nothing to go on with", hint="submit its file again instead")


def _refuse_after_unsuccessful(session: Session, old: JobSubmission) -> None:
    """Refuse a later stage of a chain that would end as before, because a retry comes after the same runs.

    Raises:
        CliError: naming the stage that has to be retried first.
    """
    stage, states = old, []
    while (broken := _broken_stage(session, stage)) is not None:
        stage, state = broken
        states.append(f"{stage.job_id} ({state.value})")
    if states:
        hint = f"`everspot retry {stage.job_id}` begins the chain again; then submit the files of the later stages"
        raise CliError(f"{old.job_id} comes after {states[0]}, and would end as before", hint=hint)


def _broken_stage(session: Session, stage: JobSubmission) -> tuple[JobSubmission, JobState] | None:
    """Return an earlier job of `after` that ended without success, or None."""
    for earlier in stage.after:
        record = read_record(session, earlier.job_id)
        if record is not None and record.state.final and record.state is not JobState.SUCCEEDED:
            return find_job(session, earlier.job_id, ended=True), record.state
    return None


def _again(session: Session, old: JobSubmission, overrides: Overrides, from_scratch: bool) -> JobSubmission:
    spec, now = override_spec(old.spec, old.job_id, overrides), session.submission_time
    return old.model_copy(
        update={
            "job_id": f"{spec.name}-{secrets.token_hex(4)}",
            "spec": spec,
            "submitted_at": now,
            "deadline_at": now + spec.deadline if isinstance(spec.deadline, timedelta) else spec.deadline,
            "submitted_by": user(),
            "forced": False,
            "retry_of": None if from_scratch else old.job_id,
            "warm_start": old.warm_start and not from_scratch and not _has_own_checkpoint(session, old.job_id),
            "start_at": None,  # the start time of the first submission is over
            "series": None,  # its series goes on by itself
        }
    )


def _has_own_checkpoint(session: Session, job: str) -> bool:
    """Return whether a job has published a checkpoint. Those of the job from which it began lie under epoch 0."""
    head = session.store.heads.get(job)
    return head is not None and any(checkpoint.epoch > 0 for checkpoint in head.value.checkpoints)
