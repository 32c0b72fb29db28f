"""Requests of a user, written into the store for the scheduler to carry out: by commands and by the web UI."""

import getpass
import os
import secrets
from dataclasses import dataclass
from typing import Any

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.lease import pending
from everspot_core.jobs.records import EventKind, JobRecord, Request

from everspot_cli.dependencies import live_run
from everspot_cli.errors import CliError
from everspot_cli.job_lookup import read_record
from everspot_cli.session import Session

STORE_DELETION = "everspot cluster down deletes the buckets"
"""The note of a drain after which the cluster's buckets are deleted. No job is accepted during it."""


@dataclass(frozen=True)
class Requested:
    """A request that was written. `answer`: for programs; `words`: for people."""

    answer: dict[str, Any]
    words: str


def user() -> str:
    """Return the name of the user on this machine, as text that every store takes."""
    try:
        return os.fsencode(getpass.getuser()).decode(errors="replace")
    except (KeyError, OSError):
        return "unknown"


def build_request(session: Session, note: str = "") -> Request:
    """Return a request by this user, at this moment."""
    return Request(at=session.now, by=user(), note=note)


def ask_cancel(session: Session, submission: JobSubmission) -> Requested:
    """Ask for a job's end; where it is an ended run of a series, for the end of the run that is alive or comes next.

    Raises:
        CliError: if it has ended, and its series, too.
    """
    record = _record(session, submission.job_id)
    if record.state.final:
        following = live_run(session, submission)
        if following is None:
            raise CliError(f"{submission.job_id} has already ended: {record.state.value}")
        submission = following
    new = session.store.cancels.create(submission.job_id, build_request(session)) is not None
    words = f"{submission.job_id} will be cancelled" if new else f"{submission.job_id} is being cancelled already"
    if submission.series is not None:
        words += f", and its series {submission.series.id} ends"
    return Requested({"job_id": submission.job_id, "cancel": "requested" if new else "already requested"}, words)


def ask_interrupt(session: Session, submission: JobSubmission, note: str = "") -> Requested:
    """Ask for a drill: the job checkpoints, gives its instance back, and resumes.

    Raises:
        CliError: if it has ended, or has no instance.
    """
    record = _record(session, submission.job_id)
    if record.state.final:
        raise CliError(f"{submission.job_id} has already ended: {record.state.value}")
    if not record.state.owned:
        raise CliError(
            f"{submission.job_id} has no instance to be interrupted on ({record.state.value})",
            hint=f"`everspot job {submission.job_id}` says what it waits for",
        )
    drill = f"{session.now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    session.store.drills.create(f"{submission.job_id}/{drill}", build_request(session, note))
    session.store.event_writer(submission.job_id, record.epoch, "cli").emit(
        EventKind.DRILL, by=user(), note=note, drill=drill
    )
    nothing = " Nothing of it is kept so far, so it will begin from zero." if record.progress.unkept_seconds else ""
    return Requested(
        {"job_id": submission.job_id, "drill": drill, "instance_id": record.owner},
        f"{submission.job_id} will be interrupted on {record.owner}.{nothing} "
        f"Watch it resume: everspot job {submission.job_id}",
    )


def _record(session: Session, job_id: str) -> JobRecord:
    return read_record(session, job_id) or pending(job_id, session.now)
