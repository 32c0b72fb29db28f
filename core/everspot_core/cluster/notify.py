"""Decides which notifications about jobs and anomalies people get, and when. The scheduler sends them."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from everspot_core.documents import Frozen
from everspot_core.governance.anomalies import Anomaly
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord, JobState

SUBJECT = 100
"""Most characters of a subject. Clouds that send notifications by mail refuse longer ones, and accept only ASCII."""
DETAIL = 500
ANOMALY = "_anomaly/"
"""The prefix of the keys of notifications about anomalies. No job's id begins like that."""


class Occasion(StrEnum):
    """The occasions of a notification."""

    FAILED = "failed"
    LATE = "late"  # the deadline has passed, and the job has not succeeded
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    ANOMALY = "anomaly"  # of the cluster: something is not as usual


class Notifications(Frozen):
    """Which notifications are sent, and where. It holds no secret: a webhook's address is kept as a secret of the
    cloud."""

    topic_arn: str | None = Field(default=None, description="The topic of the cloud to which they are sent.")
    webhook_secret_arn: str | None = Field(
        default=None, description="The cloud's secret whose value is the https address of a webhook."
    )
    on: tuple[Occasion, ...] = (Occasion.FAILED, Occasion.LATE, Occasion.ANOMALY)

    def by_recipient(self) -> tuple["Notifications", ...]:
        """Return these settings for each recipient alone: the topic, the webhook."""
        recipients = ("topic_arn", "webhook_secret_arn")
        return tuple(
            self.model_copy(update={other: None for other in recipients if other != name})
            for name in recipients
            if getattr(self, name) is not None
        )


@dataclass(frozen=True)
class Notification:
    """One notification, which is sent once.

    Attributes:
        key: of the document that records that it was sent.
        subject: a line of ASCII.
        data: the content for programs, as JSON.
    """

    key: str
    occasion: Occasion
    subject: str
    text: str
    data: dict[str, Any]


def due(
    cluster: str,
    jobs: Iterable[tuple[JobSubmission, JobRecord | None]],
    now: datetime,
    since: Mapping[Occasion, datetime],
) -> list[Notification]:
    """Return all notifications about these jobs up to now, in order of jobs, whether they were sent before or not.

    `since`: the occasions to notify of, each with the moment from which on it counts."""
    return [
        _notification(cluster, submission, record, occasion)
        for submission, record in jobs
        for occasion, at in _occasions(submission, record, now)
        if occasion in since and at >= since[occasion]
    ]


def due_anomalies(cluster: str, anomalies: Iterable[Anomaly], since: Mapping[Occasion, datetime]) -> list[Notification]:
    """Return all notifications about these open anomalies, whether they were sent before or not. `since` as for
    `due`."""
    first = since.get(Occasion.ANOMALY)
    return [_of_anomaly(cluster, a) for a in anomalies if first is not None and a.since >= first]


def _of_anomaly(cluster: str, anomaly: Anomaly) -> Notification:
    # A subject may be any text, and a key may not. An anomaly that has doubled is open since a later moment.
    identity = f"{anomaly.kind}/{anomaly.subject}/{anomaly.since.isoformat()}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    data = {
        "cluster": cluster,
        "occasion": Occasion.ANOMALY.value,
        "kind": anomaly.kind,
        "subject": anomaly.subject,
        "figures": dict(anomaly.figures),
        "since": anomaly.since.isoformat(),
    }
    return Notification(
        key=f"{ANOMALY}{anomaly.kind}-{digest}",
        occasion=Occasion.ANOMALY,
        subject=_subject(f"{anomaly.kind}: {anomaly.subject} (cluster {cluster})"),
        text="\n".join((f"{anomaly.words} (cluster {cluster})", "everspot cost anomalies")),
        data=data,
    )


def _subject(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "replace").decode()[:SUBJECT]


def _occasions(
    submission: JobSubmission, record: JobRecord | None, now: datetime
) -> Iterator[tuple[Occasion, datetime]]:
    """Yield the occasions that have occurred for a job, each with its moment."""
    state, deadline = record.state if record is not None else JobState.PENDING, submission.deadline_at
    ended = record.changed_at if record is not None and state.final else now
    if deadline is not None and ended > deadline and state not in (JobState.CANCELLED, JobState.SKIPPED):
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
    sentence = f"{submission.job_id} {_WORDS[occasion]} (cluster {cluster})"
    detail = record.detail[:DETAIL] if record is not None and occasion is Occasion.FAILED else ""
    lines = [sentence, *([detail] if detail else []), f"everspot job {submission.job_id}"]
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
    key = f"{submission.job_id}/{occasion.value}"
    return Notification(key, occasion, _subject(sentence), "\n".join(lines), data)
