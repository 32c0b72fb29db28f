"""`everspot submit`."""

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind
from everspot_store import StoreError, StoreUnavailable

from everspot_cli.commands.options import Env, Json, Name, Set, WaitForCapacity, current_session
from everspot_cli.commands.submit.checks import run_checks
from everspot_cli.commands.submit.context import SubmissionContext, inherit_team
from everspot_cli.commands.submit.deadline import warn
from everspot_cli.commands.submit.dry_run import dry_run as show_dry_run
from everspot_cli.commands.submit.ignore_file import NAME as IGNORE_FILE
from everspot_cli.commands.submit.ignore_file import ignored_in
from everspot_cli.dependencies import resolve_dependencies, set_start
from everspot_cli.errors import CliError, Exit
from everspot_cli.job_inputs import attach_inputs
from everspot_cli.rehearsal.history import was_rehearsed
from everspot_cli.requests import STORE_DELETION, user
from everspot_cli.session import Session
from everspot_cli.specs import Overrides, read_spec
from everspot_cli.stage_cache import claim_stage, describe_reuse
from everspot_cli.tables import duration

CHEAPEST = 3
"""Types whose prices `submit` prints."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("submit")(submit)


def submit(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job, as docs/reference/job-file.md describes it.")],
    name: Name = None,
    set: Set = None,
    env: Env = None,
    wait_for_capacity: WaitForCapacity = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the job, and show the instance types that could run it.")
    ] = False,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="With --dry-run: regions to price. Default: the cluster's.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Submit the job even if its deadline cannot be met.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print the cheapest types for the job.")] = False,
    json: Json = False,
) -> None:
    """Submit a job. Once the command returns, the job cannot be lost.

    A job is refused if no instance type of the cluster can hold it, if its deadline cannot be met even on-demand, or if
    it has a budget in dollars and a price is unknown. The error names the alternatives.
    """
    session = current_session(context, json)
    overrides = Overrides.read(name, set or (), env or ())
    spec = read_spec(file, overrides, forced=force)
    if dry_run:
        # It writes nothing, so it takes this machine's time.
        submission = _submission(spec, session.now, forced=force)
        show_dry_run(session, file, submission, region, wait_for_capacity)
        return

    def show_prices(job_context: SubmissionContext) -> None:
        if not quiet and not session.json:
            print_cheapest(session, job_context)

    submission, warnings = submit_spec(
        session, str(file), spec, forced=force, wait_for_capacity=wait_for_capacity, on_checked=show_prices
    )
    answer_submitted(session, submission, warnings, file)


def submit_spec(
    session: Session,
    subject: str,
    spec: JobSpec,
    *,
    forced: bool,
    wait_for_capacity: bool,
    on_checked: Callable[[SubmissionContext], None] = lambda _: None,
) -> tuple[JobSubmission, list[str]]:
    """Check a job, upload its code and create it. Return it with the warnings, which were printed.

    Args:
        subject: the job's name for errors, such as its file.
        on_checked: is called when the job can be fulfilled, before anything is written.

    Raises:
        CliError: if the cluster cannot fulfil the job; it names each field.
    """
    submission = _submission(spec, session.submission_time, forced=forced)
    job_context = SubmissionContext.read(session, subject, submission, wait_for_capacity=wait_for_capacity)
    warnings = [*skew_warnings(session), *check(job_context)]
    on_checked(job_context)
    submission = send(session, job_context.submission)
    return submission, [*warnings, *note_submitted(session, submission)]


def print_cheapest(session: Session, context: SubmissionContext) -> None:
    """Print the cheapest types that the job could run on, each at its lowest known price."""
    prices = []
    for candidate in context.candidates:
        listed = [(candidate.on_demand, "on-demand")] if candidate.on_demand is not None else []
        listed += [(candidate.spot[0], "Spot")] if candidate.spot is not None else []
        if listed:
            price, market = min(listed, key=lambda pair: pair[0].usd_per_hour)
            prices.append((price.usd_per_hour, f"{candidate.instance_type.name} ${price.usd_per_hour:.3g} {market}"))
    if prices:
        texts = ", ".join(text for _, text in sorted(prices)[:CHEAPEST])
        session.console.print(f"Cheapest for it, an hour: {texts}.", style="dim", soft_wrap=True)


def check(context: SubmissionContext) -> list[str]:
    """Refuse what cannot be fulfilled, before anything is written. Prints and returns warnings about the rest.

    Raises:
        CliError: if the cluster cannot fulfil the job; it names each field.
    """
    warnings, refused = run_checks(context)
    if refused is not None:
        raise refused
    warn(context.session, warnings)
    return warnings


def answer_submitted(
    session: Session, submission: JobSubmission, warnings: list[str], file: Path | None = None
) -> None:
    """Say that a job was accepted, and which commands make sense now. `file`: the job's, which may be rehearsed."""
    digest = submission.code_digest
    rehearsed = was_rehearsed(digest) if digest is not None else None
    if session.json:
        session.answer({"job_id": submission.job_id, "submitted_at": submission.submitted_at,
                        "deadline_at": submission.deadline_at, "code_digest": submission.code_digest,
                        "same_stage": submission.same_stage, "rehearsed": rehearsed, "warnings": warnings})  # fmt: skip
    else:
        session.console.print(f"Submitted {submission.job_id}", style="bold")
        if (sentence := describe_reuse(submission)) is not None:
            session.console.print(sentence, soft_wrap=True)
        session.console.print(what_next(submission.job_id), soft_wrap=True)
        if file is not None and rehearsed is False:
            words = "This code was never rehearsed here: does an interruption change what it computes?"
            session.console.print(f"\n{words} `everspot rehearse {file}` shows it.", soft_wrap=True)


def what_next(job_id: str) -> str:
    """Return the commands that are useful now, with the job's id."""
    steps = {
        f"logs -f {job_id}": "follow what it prints",
        f"job {job_id}": "its state and history",
        "jobs --watch": "the whole queue",
        f"cluster interrupt {job_id}": "the drill: does it resume?",
        f"cost report {job_id}": "its cost",
        f"cancel {job_id}": "end it",
    }
    width = max(map(len, steps))
    return "\n".join(["\nWhat next", *(f"  everspot {step:<{width}}  {purpose}" for step, purpose in steps.items())])


def skew_warnings(session: Session) -> list[str]:
    """Print and return the warning about a clock of this machine that differs from the store's."""
    skew = session.clock_skew
    if not skew:
        return []
    side = "behind" if skew > timedelta(0) else "ahead of"
    span = duration(abs(skew).total_seconds())
    warning = f"this machine's clock is {span} {side} the store's: the times of the job count from the store's clock"
    warn(session, [warning])
    return [warning]


def _submission(spec: JobSpec, now: datetime, *, forced: bool) -> JobSubmission:
    """Return the job as it would be submitted now."""
    deadline = now + spec.deadline if isinstance(spec.deadline, timedelta) else spec.deadline
    job_id = f"{spec.name}-{secrets.token_hex(4)}"
    submission = JobSubmission(
        job_id=job_id, spec=spec, submitted_at=now, deadline_at=deadline, submitted_by=user(), forced=forced
    )
    return set_start(submission)


def send(session: Session, submission: JobSubmission) -> JobSubmission:
    """Upload the code, if any, and create the job."""
    submission = inherit_team(submission, session.manifest.team)
    code = Path(submission.spec.code) if submission.spec.code else None
    ignored = ignored_in(code) if code is not None else None
    submission = submission.model_copy(
        update={"after": resolve_dependencies(session, submission.spec.name, submission)}
    )
    script = (submission.spec.entrypoint or [""])[0]
    if ignored is not None and ignored(script):
        raise CliError(f"{script}, the job's own script, is left out by {IGNORE_FILE}")
    with session.progress(f"packing and uploading {code}", shown=code is not None):
        submission = create_job(
            session,
            submission,
            lambda: session.store.submit(
                attach_inputs(session, submission), code, ignored, finalize=partial(claim_stage, session)
            ),
        )
    return submission


def create_job(session: Session, submission: JobSubmission, create: Callable[[], JobSubmission]) -> JobSubmission:
    """Create the job. If the store's answer is lost, the job may exist all the same: it is looked for, and the error
    says what is known, with the job's id.

    Raises:
        CliError: if the cluster is about to be deleted, or it is not known whether the job was created.
    """
    job = submission.job_id
    drain = session.store.drain_request()
    if drain is not None and drain.note == STORE_DELETION:
        raise CliError(
            f"{drain.by} is deleting the cluster {session.manifest.cluster} with all jobs: {job} was not submitted",
            hint="`everspot cluster drain --undo` keeps the cluster",
        )
    try:
        return create()
    except StoreUnavailable as error:
        hint = f"`everspot job {job}` shows it when the store answers; before that, do not submit it again"
        try:
            doc = session.store.jobs.get(job)
        except StoreError:
            raise CliError(f"whether {job} was created is not known: {error}", Exit.UNAVAILABLE, hint=hint) from None
        if doc is None:
            raise
        return doc.value


def note_submitted(session: Session, submission: JobSubmission, retry_of: str | None = None) -> list[str]:
    """Note in a job's history who submitted it. A failure is only a warning, because the job exists and runs without
    the note."""
    details = {"retry_of": retry_of} if retry_of is not None else {}
    try:
        writer = session.store.event_writer(submission.job_id, 0, "cli")
        writer.emit(EventKind.SUBMITTED, by=submission.submitted_by, **details)
    except StoreError as error:
        warnings = [f"job {submission.job_id} was created; that you did it is missing in its history: {error}"]
        warn(session, warnings)
        return warnings
    return []
