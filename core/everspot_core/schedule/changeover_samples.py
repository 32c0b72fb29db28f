"""Measures the parts of changeovers from stored documents: launches, first heartbeats and events."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from everspot_core.costs.attempts import Attempt, attempts
from everspot_core.jobs.changeover import LONGEST, ChangeoverPart, Measurement
from everspot_core.jobs.records import Event, EventKind, Reason
from everspot_core.jobs.reported_values import MOST_SECONDS, parse_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The arrival of an instance for a job. None: unknown.

    Attributes:
        job_id: the job that it was launched for.
        asked_at: the time of the launch intent.
        launched_at: from then on it costs money.
        booted_at: the start of its agent.
    """

    job_id: str | None
    asked_at: datetime | None
    launched_at: datetime | None
    booted_at: datetime | None


def measurements(
    events: Iterable[Event], epochs: Collection[int], arrivals: Mapping[str, Arrival], pace: float
) -> list[Measurement]:
    """Measure the parts of the changeovers of one job, for the ownerships of these epochs.

    `arrivals`: by instance id. `pace`: seconds of market time in a real second, because programs report real time.
    The result has no part longer than LONGEST, and nothing of an ownership whose agent was restarted meanwhile.
    """
    history = list(events)
    samples: list[Measurement] = []
    history_attempts = attempts(history)
    for number, attempt in enumerate(history_attempts):
        own_events = [e for e in history if e.epoch == attempt.epoch]
        if attempt.epoch not in epochs or any("again" in e.data for e in own_events if e.kind is EventKind.STARTED):
            continue
        pool = attempt.pool
        if pool is None:
            continue
        parts = _of_job(attempt, own_events, pace) | _of_machine(attempt, history_attempts[:number], arrivals)
        samples += [Measurement(part, *pool, x) for part, x in parts.items() if timedelta(0) <= x <= LONGEST]
    return samples


def _of_job(attempt: Attempt, events: Sequence[Event], pace: float) -> dict[ChangeoverPart, timedelta]:
    """Return the parts from the assignment on. A program that does not use the trainer does not report when its first
    step begins, so it has neither `restore` nor `first-step`."""
    parts: dict[ChangeoverPart, timedelta] = {}
    training = next((e for e in events if e.kind is EventKind.TRAINING and e.data.get("by") != "agent"), None)
    seconds = _seconds(training.data.get("seconds")) if training is not None else None
    started = next((e for e in events if e.kind is EventKind.STARTED), None)
    if training is not None and seconds is not None:
        parts[ChangeoverPart.RESTORE] = _market(seconds, pace)
        parts[ChangeoverPart.DATA] = max(timedelta(0), training.at - parts[ChangeoverPart.RESTORE] - attempt.start)
    elif started is not None:
        parts[ChangeoverPart.DATA] = max(timedelta(0), started.at - attempt.start)
    stepped = next((e.data for e in events if e.kind is EventKind.STEPPED), {})
    first, following = (_seconds(stepped.get(key)) for key in ("seconds", "next_seconds"))
    if first is not None and following is not None:
        parts[ChangeoverPart.FIRST_STEP] = _market(max(0.0, first - following), pace)
    if attempt.reason is Reason.NOTICE and attempt.notice_at is not None and attempt.end is not None:
        parts[ChangeoverPart.SAVE] = attempt.end - attempt.notice_at
    return parts


def _seconds(seconds: Any) -> float | None:
    return parse_number(seconds, -MOST_SECONDS, MOST_SECONDS)


def _market(seconds: float, pace: float) -> timedelta:
    """Return real seconds as market time, cut at twice LONGEST so that the number cannot overflow."""
    return timedelta(seconds=min(seconds * pace, 2 * LONGEST.total_seconds()))


def _of_machine(
    attempt: Attempt, before: Sequence[Attempt], arrivals: Mapping[str, Arrival]
) -> dict[ChangeoverPart, timedelta]:
    """Return the parts up to the assignment. Only the first attempt on an instance that was launched for this job has
    them."""
    came = arrivals.get(attempt.instance_id or "")
    if came is None or came.job_id != attempt.job_id or any(a.instance_id == attempt.instance_id for a in before):
        return {}
    parts: dict[ChangeoverPart, timedelta] = {}
    if came.asked_at is not None and came.launched_at is not None:
        parts[ChangeoverPart.LAUNCH] = max(timedelta(0), came.launched_at - came.asked_at)
    if came.launched_at is not None and came.booted_at is not None:
        parts[ChangeoverPart.BOOT] = came.booted_at - came.launched_at
    free = max((a.end for a in before if a.end is not None), default=None)
    if came.booted_at is not None and (free is None or free <= came.booted_at):  # else the instance waited for the job
        parts[ChangeoverPart.AGENT] = attempt.start - came.booted_at
    return parts
