"""The rows of the tables: the store's documents, combined by job and by instance."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from everspot_core.cluster.suspects import Suspect, find_suspects
from everspot_core.costs.attempts import attempts
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.lease import pending
from everspot_core.jobs.records import Event, EventKind, InstanceRecord, JobRecord, JobState, Progress, Role

from everspot_cli.job_history import describe_interval, in_market_time
from everspot_cli.session import Session, run_in_parallel
from everspot_cli.visits import move_fields, visit_fields

SILENT_AFTER = 3  # beats
SCHEDULER_SILENT = timedelta(seconds=60)  # real time; it beats every 20 s

MEANING_OF_STATUS = {
    "PENDING": "waits for an instance",
    "STARTING": "has an instance, which fetches code, data and packages, runs the set-up, and starts the program",
    "RUNNING": "trains",
    "STALLED": "runs, but has made no step for ten times as long as usual, or shows no activity",
    "AWAY": "is offered to another cluster, or runs there",
    "RECOVERING": "lost its instance, or is retried after an error, and waits for an instance",
    "CANCELLING": "will stop at its next step",
    "SUCCEEDED": "finished",
    "FAILED": "will not be retried: too many errors, a used-up budget, or a reason that `everspot job` shows",
    "CANCELLED": "was cancelled",
    "SKIPPED": "was not run: its `run_if`, or that of a job that it comes after, did not hold",
}


def job_status(record: JobRecord, cancelling: bool = False) -> str:
    """Return a job's status; `MEANING_OF_STATUS` explains each."""
    if cancelling and not record.state.final:
        return "CANCELLING"
    if record.state is JobState.PENDING:
        return "RECOVERING" if record.epoch else "PENDING"
    if record.state is JobState.RUNNING and record.progress.stalled_seconds is not None:
        return "STALLED"
    starting = record.state is JobState.ASSIGNED or (record.state is JobState.RUNNING and record.progress.preparing)
    return "STARTING" if starting else record.state.value


def job_row(
    submission: JobSubmission,
    record: JobRecord | None,
    events: Sequence[Event],
    now: datetime,
    cancelling: bool = False,
    instances: Mapping[str, InstanceRecord] | None = None,
    *,
    scale: float = 1.0,
) -> dict[str, Any]:
    """Return one job as `jobs --json` answers it. Its durations are in market seconds.

    Args:
        scale: market seconds in a real second; agents measure in real seconds.
    """
    record = record or pending(submission.job_id, submission.submitted_at)
    until = record.changed_at if record.state.final else now
    zero = timedelta(0)  # the least length: by the clocks of two machines an attempt may end before it starts
    job_duration = record.held_time(until)
    if job_duration is None:
        job_duration = sum(
            (max(zero, min(a.end or until, until) - a.start) for a in attempts(events, record=record)), start=zero
        )
    progress = latest_progress(record, events)
    owner = (instances or {}).get(record.owner or "")
    return {
        "job_id": submission.job_id,
        "name": submission.spec.name,
        "status": job_status(record, cancelling),
        "state": record.state.value,
        "priority": submission.spec.priority.value,
        "step": progress.step,
        "total_steps": progress.total_steps,
        "steps_per_epoch": progress.steps_per_epoch,
        "steps_per_second": progress.steps_per_second,
        "metrics": progress.metrics,
        "stalled_seconds": _to_market_seconds(progress.stalled_seconds, record, scale),
        "from_zero": restarts_from_zero(submission, record),
        **_checkpoint_interval(events, scale),
        "unkept_seconds": _to_market_seconds(progress.unkept_seconds, record, scale),
        "low_gpu_share": progress.low_gpu_share if record.state is JobState.RUNNING else None,
        "early_stop": _early_stop(record),
        "owner": record.owner,
        **move_fields(record),
        "visit_of": visit_fields(submission),
        "instance_type": owner.instance_type if owner else None,
        "zone": owner.zone if owner else None,
        "market": owner.market.value if owner else None,
        "attempt": record.epoch,
        "epoch": record.epoch,
        "interruptions": record.preemptions,
        "errors": record.errors,
        "last_reason": record.last_reason.value if record.last_reason else None,
        "detail": record.detail,
        "exit_code": record.exit_code,
        "submitted_at": submission.submitted_at,
        "deadline_at": submission.deadline_at,
        "start_at": submission.start_at,
        "after": [earlier.job_id for earlier in submission.after],
        "window": str(submission.spec.window) if submission.spec.window is not None else None,
        "series": submission.series.id if submission.series is not None else None,
        "run": submission.series.run if submission.series is not None else None,
        "deadline": deadline_state(record, submission.deadline_at, now),
        "user": submission.submitted_by,
        "retry_of": submission.retry_of,
        "reused_from": record.reused_from,
        "tags": submission.spec.tags,
        "changed_at": record.changed_at,
        "total_duration_seconds": max(zero, until - submission.submitted_at).total_seconds(),
        "job_duration_seconds": job_duration.total_seconds(),
    }


def _early_stop(record: JobRecord) -> dict[str, Any] | None:
    """Return why a job that succeeded was ended by its `stop`; None if it was not."""
    stop = record.progress.early_stop if record.state is JobState.SUCCEEDED else None
    return stop.model_dump(mode="json") if stop is not None else None


def _checkpoint_interval(events: Sequence[Event], scale: float) -> dict[str, str | None]:
    """Return how often the job checkpoints, and what a notice costs it, as its trainer last said."""
    announced = [event for event in events if event.kind is EventKind.CHECKPOINT_INTERVAL]
    interval, notice = describe_interval(in_market_time(announced, scale)[-1]) if announced else ("", "")
    return {"checkpoint_interval": interval or None, "notice_loss": notice or None}


def _to_market_seconds(seconds: float | None, record: JobRecord, scale: float) -> float | None:
    """Return a measurement of a running job's agent, which is in real seconds, in market seconds."""
    return seconds * scale if seconds is not None and record.state is JobState.RUNNING else None


def restarts_from_zero(submission: JobSubmission, record: JobRecord) -> int:
    """Return how often a job began again at step 0. The restart that its limit refused is counted in its record."""
    return min(record.from_zero, submission.spec.retries.from_zero)


def deadline_state(record: JobRecord, deadline: datetime | None, now: datetime) -> str | None:
    """Return the state of the deadline: `open`, `kept` or `missed`. None without a deadline, and for a cancelled
    job."""
    if deadline is None or record.state in (JobState.CANCELLED, JobState.SKIPPED):
        return None
    if record.state is JobState.FAILED:
        return "missed"
    ended = record.state.final
    if (record.changed_at if ended else now) > deadline:
        return "missed"
    return "kept" if ended else "open"


def latest_progress(record: JobRecord, events: Sequence[Event]) -> Progress:
    """Return the newest progress of a job. The record is as old as the last renewal of the lease; the last event may be
    newer."""
    finished = next((e for e in events if e.kind is EventKind.FINISHED), None)
    if finished is None or record.state is not JobState.SUCCEEDED:
        return record.progress
    step, metrics = finished.data.get("step"), finished.data.get("metrics")
    return record.progress.model_copy(
        update={
            "step": max(record.progress.step, step) if isinstance(step, int) else record.progress.step,
            "metrics": {**record.progress.metrics, **(metrics if isinstance(metrics, dict) else {})},
        }
    )


def instance_rows(session: Session, *, include_ended: bool = False) -> list[dict[str, Any]]:
    """Return every running instance, oldest first. With `include_ended`, ended instances are included."""
    store, now = session.store, session.now
    launched, ended_, alive, beating, faulty = run_in_parallel(
        store.launches.scan, store.ends.scan, store.instances.scan, store.schedulers.scan, store.faults.scan
    )
    schedulers = {d.value.instance_id: d.value for d in beating.values()}
    launches = {i: d.value for i, d in launched.items()}
    ends = {i: d.value for i, d in ended_.items()}
    records = {i: d.value for i, d in alive.items()}
    limits = session.manifest.limits
    rows = []
    for instance in sorted({*launches, *records}):
        launch, record, ended = launches.get(instance), records.get(instance), ends.get(instance)
        has_ended = ended is not None or (record is not None and record.state.value == "GONE")
        source: LaunchRecord | InstanceRecord | None = record or launch
        assert source is not None  # noqa: S101 - by the union above
        if (has_ended and not include_ended) or source.role is Role.NODE:  # agents are listed, not what is beneath them
            continue
        began = launch.launched_at if launch else record.booted_at if record else now
        beat = schedulers.get(instance)
        last_report = record or beat
        silent = session.clock.to_real(now - last_report.updated_at) if last_report else None
        state = "ENDED" if ended else record.state.value if record else "RUNNING" if beat else "BOOTING"
        busy = record is not None and record.state.value == "BUSY"
        patience = limits.beat_interval(busy=busy) * SILENT_AFTER if record else SCHEDULER_SILENT
        if not has_ended and silent is not None and silent > patience:
            state = "SILENT"
        fault = faulty[instance].value.detail if instance in faulty else ""
        rows.append(
            {
                "instance_id": instance,
                "state": state,
                "role": source.role.value,
                "instance_type": source.instance_type,
                "zone": source.zone,
                "market": source.market.value,
                "job_id": record.job_id if record and not has_ended else None,
                "residents": [r.job_id for r in record.residents] if record and not has_ended else [],
                "notice": record.notice.model_dump(mode="json") if record and record.notice else None,
                "detail": fault or (record.detail if record else ""),
                "generation": record.generation if record else "",
                "launched_at": began,
                "ended_at": ended.ended_at if ended else None,
                "interrupted": ended.interrupted if ended else False,
                "age_seconds": ((ended.ended_at if ended else now) - began).total_seconds(),
                "silent_seconds": silent.total_seconds() if silent is not None else None,
            }
        )
    return sorted(rows, key=lambda row: (row["launched_at"], row["instance_id"]))


def read_suspects(session: Session) -> list[Suspect]:
    """Return suspected images, pools and machines, from the faults of the last day. Launches are read only if there are
    faults."""
    store = session.store
    faults = [doc.value for doc in store.faults.scan().values()]
    if not faults:
        return []
    launches = {name: doc.value for name, doc in store.launches.scan().items()}
    return find_suspects(faults, launches, session.now)


def startup_problems(session: Session) -> str:
    """Return the faults that explain why nothing starts, in one line, or ""."""
    return "; ".join(suspect.words for suspect in read_suspects(session) if suspect.grave)
