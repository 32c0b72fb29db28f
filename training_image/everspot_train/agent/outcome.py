"""Writes the outcome of an attempt: its events, and the texts for the job's record."""

import re
from collections.abc import Mapping
from typing import Protocol

from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.records import EventKind, JobRecord, Reason
from everspot_core.jobs.shard_traffic import SHARD_TRAFFIC
from everspot_core.jobs.utilization import UTILIZATION, Utilization
from pydantic import JsonValue

from everspot_train.agent.actions import StopDemand
from everspot_train.agent.endings import Ending
from everspot_train.agent.failures import signal_name
from everspot_train.rundir import Status

MESSAGE_CHARACTERS = 1000
_TORCHRUN = re.compile(r"^[EWI]\d{4} [\d:.]+ \d+ torch/distributed/.*\n?", re.MULTILINE)
"""Matches torchrun's own log lines in the output."""


class EmitEvent(Protocol):
    """A function that takes an event of the job."""

    def __call__(self, kind: EventKind, **data: JsonValue) -> None:
        """Write the event, now or soon."""
        ...


def write_outcome(
    emit: EmitEvent,
    ending: Ending,
    stop: StopDemand | None,
    status: Status | None,
    record: JobRecord,
    spec: JobSpec,
    tail: str,
    *,
    started: bool,
    metrics: Mapping[str, float],
    use: Utilization | None,
) -> None:
    """Write the events that end an attempt.

    `record`: the job's record before the release, with its last progress. `metrics`: the newest metrics of the program.
    `use`: its utilization of the machine. A job that was given back before its start gets no event `interrupted`.
    """
    reason = ending.reason
    measured: dict[str, JsonValue] = {UTILIZATION: use.model_dump(mode="json", exclude_none=True)} if use else {}
    if record.progress.shard_traffic is not None:
        measured[SHARD_TRAFFIC] = record.progress.shard_traffic.model_dump(mode="json")
    if reason is Reason.FINISHED:
        stopped = record.progress.early_stop
        cause: dict[str, JsonValue] = {"message": stopped.sentence} if stopped is not None else {}
        emit(EventKind.FINISHED, step=ending.step, metrics=dict(metrics), **cause, **measured)
    elif reason is Reason.CANCEL:
        emit(EventKind.CANCELLED, step=ending.step, durable_step=ending.durable_step, **measured)
    elif reason is Reason.BUDGET:
        emit(EventKind.FAILED, reason=reason.value, message="a limit of the job's budget was reached", **measured)
    elif reason is Reason.UNDERUSED:
        emit(EventKind.FAILED, reason=reason.value, message="its GPUs computed less than its limits allow", **measured)
    elif reason.failure:
        _write_failure(emit, ending, record, spec, tail, measured)
    elif ending.unstarted and transitions.exceeds_start_limits(
        record, reason, ran=ending.exit_code is not None, incomplete=ending.incomplete
    ):
        message = short_message(ending, tail)
        if reason is Reason.DENIED or ending.incomplete:
            begin = transitions.describe_failed_starts(record, reason, incomplete=ending.incomplete)
            message = (begin + message)[:MESSAGE_CHARACTERS]
        emit(EventKind.FAILED, reason=_failed_as(reason).value, message=message)
    elif started:
        emit(
            EventKind.INTERRUPTED,
            reason=reason.value,
            step=ending.step,
            durable_step=ending.durable_step,
            notice_to_durable_seconds=notice_to_durable(ending, stop, status),
            **({"message": short_message(ending, tail)} if ending.unstarted else {}),
            **measured,
        )


def _write_failure(
    emit: EmitEvent, ending: Ending, record: JobRecord, spec: JobSpec, tail: str, measured: Mapping[str, JsonValue]
) -> None:
    attempt = record.errors + 1
    message = short_message(ending, tail)
    emit(
        EventKind.ERROR,
        exit_code=ending.exit_code,
        signal=signal_name(ending.exit_code),
        message=message,
        traceback=ending.traceback[-(transitions.DETAIL_LIMIT - MESSAGE_CHARACTERS) :],
        attempt=attempt,
        reason=ending.reason.value,
        **measured,
    )
    if ending.hopeless or attempt > spec.retries.errors:
        emit(EventKind.FAILED, reason=ending.reason.value, message=message)


def _failed_as(reason: Reason) -> Reason:
    """Return the reason for the failure of a job that no machine could start: `reason` itself, or `error`."""
    return reason if reason.troubled else Reason.ERROR


def notice_to_durable(ending: Ending, stop: StopDemand | None, status: Status | None) -> float | None:
    """Return the market seconds from the notice until the last executed step was durable; 0 if it was durable before.

    None if it did not become durable, or without a notice.
    """
    if stop is None or status is None or status.durable_at is None or ending.durable_step is None:
        return None
    if ending.step is not None and ending.durable_step < ending.step:
        return None
    return max(0.0, (status.durable_at - stop.seen_at).total_seconds())


def short_message(ending: Ending, tail: str) -> str:
    """Return a short text for the error event: the program's message, otherwise the end of its output."""
    return (ending.message or _own(tail) or "the program ended without a word")[-MESSAGE_CHARACTERS:]


def long_detail(ending: Ending, tail: str) -> str:
    """Return the text for the job's record: the message, then the traceback or the end of the output. Empty unless the
    program failed or could not be started."""
    if not ending.reason.failure and not ending.unstarted:
        return ""
    message = ending.message[:MESSAGE_CHARACTERS]
    tail_text = (ending.traceback.strip() or _own(tail))[-(transitions.DETAIL_LIMIT - MESSAGE_CHARACTERS - 1) :]
    return f"{message}\n{tail_text}".strip()


def _own(tail: str) -> str:
    return _TORCHRUN.sub("", tail).strip()
