"""What people are told of jobs without asking, and when: decided here, sent by the scheduler."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from everspot_core.documents import Frozen
from everspot_core.job import JobSubmission
from everspot_core.records import JobRecord, JobState

SUBJECT = 100
"""Characters of a subject: what SNS takes (Amazon SNS API Reference, Publish: ASCII, at most 100)."""
DETAIL = 500


class Occasion(StrEnum):
    """What a notification may be about."""

    FAILED = "failed"
    LATE = "late"  # the deadline has passed, and the job has not succeeded
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"


class Notifications(Frozen):
    """Where notifications go, and which. Nothing secret stands here: a webhook's address is a secret of its own."""

    topic_arn: str | None = Field(default=None, description="SNS topic.")
    webhook_secret_arn: str | None = Field(
        default=None, description="Secret of Secrets Manager whose value is the https address of a webhook."
    )
    on: tuple[Occasion, ...] = (Occasion.FAILED, Occasion.LATE)


@dataclass(frozen=True)
class Notification:
    """One thing to tell, once. `subject`: a line of ASCII; `data`: the same for programs, as JSON."""

    job_id: str
    occasion: Occasion
    subject: str
    text: str
    data: dict[str, Any]

    @property
    def key(self) -> str:
        """By which it is remembered that it was told."""
        return f"{self.job_id}/{self.occasion.value}"


def due(
    cluster: str,
    jobs: Iterable[tuple[JobSubmission, JobRecord | None]],
    now: datetime,
    since: Mapping[Occasion, datetime],
) -> list[Notification]:
    """Everything that there is to tell of these jobs by now, in order of jobs, whether it was told before or not.
    `since`: the occasions that are told of, and from when on: what came before was told of to nobody."""
    return [
        _notification(cluster, submission, record, occasion)
        for submission, record in jobs
        for occasion, at in _occasions(submission, record, now)
        if occasion in since and at >= since[occasion]
    ]


def _occasions(
    submission: JobSubmission, record: JobRecord | None, now: datetime
) -> Iterator[tuple[Occasion, datetime]]:
    """What happened to a job, and when."""
    state, deadline = record.state if record is not None else JobState.PENDING, submission.deadline_at
    ended = record.changed_at if record is not None and state.final else now
    if deadline is not None and ended > deadline and state is not JobState.CANCELLED:
        yield Occasion.LATE, deadline
    if state is JobState.FAILED:
        yield Occasion.FAILED, ended
    if state is JobState.SUCCEEDED:
        yield Occasion.SUCCEEDED, ended
    if state is JobState.CANCELLED:
        yield Occasion.CANCELLED, ended


_WORDS = {
    Occasion.FAILED: "failed",
    Occasion.LATE: "has missed its deadline",
    Occasion.SUCCEEDED: "succeeded",
    Occasion.CANCELLED: "was cancelled",
}


def _notification(
    cluster: str, submission: JobSubmission, record: JobRecord | None, occasion: Occasion
) -> Notification:
    said = f"{submission.job_id} {_WORDS[occasion]} (cluster {cluster})"
    detail = record.detail[:DETAIL] if record is not None and occasion is Occasion.FAILED else ""
    lines = [said, *([detail] if detail else []), f"everspot job {submission.job_id}"]
    data = {
        "cluster": cluster,
        "job_id": submission.job_id,
        "name": submission.spec.name,
        "occasion": occasion.value,
        "state": record.state.value if record is not None else JobState.PENDING.value,
        "detail": detail,
        "tags": dict(submission.spec.tags),
        "submitted_by": submission.submitted_by,
        "deadline_at": submission.deadline_at.isoformat() if submission.deadline_at is not None else None,
    }
    subject = said.encode("ascii", "replace").decode()[:SUBJECT]
    return Notification(submission.job_id, occasion, subject, "\n".join(lines), data)
