"""How an ending is told: the events of it, and the few lines for people in the job's record."""

from typing import Protocol

from everspot_core import lease as transitions
from everspot_core.job import JobSpec
from everspot_core.records import EventKind, JobRecord, Reason
from pydantic import JsonValue

from everspot_train.agent.decide import Stop
from everspot_train.agent.endings import Ending
from everspot_train.rundir import Status

MESSAGE_CHARACTERS = 1000
DETAIL_CHARACTERS = 4000


class Say(Protocol):
    """Takes an event of the job."""

    def __call__(self, kind: EventKind, **data: JsonValue) -> None:
        """Write it, now or soon."""
        ...


def tell_ending(
    say: Say,
    ending: Ending,
    stop: Stop | None,
    status: Status | None,
    record: JobRecord,
    spec: JobSpec,
    tail: str,
    *,
    started: bool,
) -> None:
    """Say the events with which an ownership ends. `record` is the job's record before the release.

    A job that was given back unstarted has not been interrupted.
    """
    match ending.reason:
        case Reason.FINISHED:
            say(EventKind.FINISHED, step=ending.step, metrics=dict(status.metrics) if status else {})
        case Reason.CANCEL:
            say(EventKind.CANCELLED, step=ending.step, durable_step=ending.durable_step)
        case Reason.BUDGET:
            say(EventKind.FAILED, reason=Reason.BUDGET.value, message="a limit of the job's budget was reached")
        case Reason.ERROR:
            attempt = record.errors + 1
            message = message_of(ending, tail)
            say(EventKind.ERROR, exit_code=ending.exit_code, message=message, attempt=attempt)
            if attempt > spec.retries.errors:
                say(EventKind.FAILED, reason=Reason.ERROR.value, message=message)
        case _ if ending.unstarted and transitions.gives_up(record):
            say(EventKind.FAILED, reason=Reason.ERROR.value, message=message_of(ending, tail))
        case _ if started:
            say(
                EventKind.INTERRUPTED,
                reason=ending.reason.value,
                step=ending.step,
                durable_step=ending.durable_step,
                notice_to_durable_seconds=notice_to_durable(ending, stop, status),
            )


def notice_to_durable(ending: Ending, stop: Stop | None, status: Status | None) -> float | None:
    """Market seconds from the notice until the last executed step was durable; 0 if it was durable already.

    None where it was not, or no notice was given.
    """
    if stop is None or status is None or status.durable_at is None or ending.durable_step is None:
        return None
    if ending.step is not None and ending.durable_step < ending.step:
        return None
    return max(0.0, (status.durable_at - stop.seen_at).total_seconds())


def message_of(ending: Ending, tail: str) -> str:
    """One short text for the error event: the trainer's own words, else the end of what the program printed."""
    return (ending.message or tail.strip() or "the program ended without a word")[-MESSAGE_CHARACTERS:]


def detail_of(ending: Ending, tail: str) -> str:
    """For the job's record: empty unless the program failed, or could not be started."""
    if ending.reason is not Reason.ERROR and not ending.unstarted:
        return ""
    message = ending.message[:MESSAGE_CHARACTERS]
    rest = tail.strip()[-(DETAIL_CHARACTERS - MESSAGE_CHARACTERS - 1) :]
    return f"{message}\n{rest}".strip()
