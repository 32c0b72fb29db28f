"""The transitions of a job record: every change of state and ownership, as pure functions.

Each function takes the present record and returns the next one; the store writes it by a conditional write. `now` is
market time and is only used for stamps. `epoch` rises with every assignment and never falls. `beat` rises with every
change within an ownership, so that a record that does not change belongs to a dead owner.

    PENDING ──assign──▶ ASSIGNED ──start──▶ RUNNING ──release──▶ SUCCEEDED | FAILED | CANCELLED
       ▲                    │                  │
       └──── release, expire (epoch kept) ─────┘
"""

from datetime import datetime, timedelta
from typing import Any

from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobRecord, JobState, Progress, Reason

_FINAL = {
    Reason.FINISHED: JobState.SUCCEEDED,
    Reason.CANCEL: JobState.CANCELLED,
    Reason.BUDGET: JobState.FAILED,
    Reason.UNDERUSED: JobState.FAILED,
    Reason.INFEASIBLE: JobState.FAILED,
    Reason.AFTER: JobState.FAILED,
    Reason.NO_PROGRESS: JobState.FAILED,
    Reason.SUPERSEDED: JobState.FAILED,
    Reason.RETURNED: JobState.CANCELLED,
}
_UNORDERED_ENDS = (Reason.SHUTDOWN, Reason.FENCED)
"""Ends of an attempt that neither the cloud nor the scheduler ordered. Consecutive ones without progress have a
back-off, because the next attempt may end immediately for the same reason."""
_OF_ONE_ATTEMPT = (
    "recent_use", "attempt_use", "shard_traffic", "low_gpu_share", "new_checkpoints", "steps_per_second",
)  # fmt: skip
"""The fields of the progress that are reset for each owner, because they were measured on its instance."""
DETAIL_LIMIT = 4000
"""The most characters of a detail. The record is rewritten at every renewal and must stay small."""
ERROR_BACKOFF_MAX = timedelta(hours=1)
"""The longest wait after an error of the program, unless its `retries.backoff` is longer."""
START_BACKOFF = timedelta(seconds=10)
"""The wait after the first instance that could not start a job. It doubles with each further instance."""
START_BACKOFF_MAX = timedelta(minutes=10)
"""The longest wait of this kind. It is bounded because the cause may pass, as when a full disk is emptied."""
START_INSTANCES = 4
"""A job fails when this many different instances in a row could not start it. The cause is then not the instances."""
START_ATTEMPTS = 10
"""A job fails when it could not be started this many times in a row, even if only on one instance."""

DENIED_STARTS = 12
"""A job fails when a permission was denied this many times in a row before its program began. With the back-off these
are about six hours."""
DENIED_BACKOFF_MAX = timedelta(hours=3)
"""The longest wait after such a denial. It is long because a person has to grant the permission."""
DENIED_RUNS = 8
"""A job fails when its program was denied a permission this many times in a row without progress. With the back-off
these are two hours. It is less than DENIED_STARTS, because each attempt pays for a start of the program."""
DENIED_RUN_BACKOFF = timedelta(minutes=1)
"""The wait after the first such end of a program. It doubles with each further one."""

INCOMPLETE_ENDS = 3
"""A job fails when its program has finished this many times and its outputs could not be uploaded. Progress does not
reset the count: an attempt that finishes makes some each time."""
DENIED_END_BACKOFF = timedelta(minutes=30)
"""The wait after the first such end for lack of a permission. It doubles after the second one."""

MAX_LOSSES_WITHOUT_PROGRESS = 6
"""A job fails when its owner has vanished this many times in a row without progress of the job."""
UNREPORTED = timedelta(minutes=30)
"""The market time with an owner after which a program that reports no steps counts as having made progress."""

MAX_IDLE_ATTEMPTS = 20
"""A job fails when this many attempts in a row ended without progress, for any reason. It is far above the other
limits, and only ends loops that they miss, such as a notice before each first step."""

MAX_FAILED_INSTANCES = 16
"""The largest number of failed instances in a job's record."""


class IllegalTransition(ValueError):
    """A transition that the record's state does not allow."""

    def __init__(self, verb: str, record: JobRecord) -> None:
        super().__init__(f"job {record.job_id} is {record.state.value} at epoch {record.epoch}: cannot {verb}")
        self.verb = verb
        self.record = record


def pending(job_id: str, now: datetime) -> JobRecord:
    """Return the initial record of a job."""
    return JobRecord(job_id=job_id, state=JobState.PENDING, changed_at=now)


def waits_since(record: JobRecord | None, job: JobSubmission) -> datetime:
    """Return when a waiting job began to wait: at its submission, at `start_at`, or when it last left an instance in
    any cluster. For a visit the wait began at its home."""
    submitted = job.visit.waits_since if job.visit is not None else None
    moments = [submitted or job.submitted_at, job.start_at]
    ran = record is not None and record.away is not None and bool(record.away.usd)
    if record is not None and record.waits_since is not None and not ran:
        moments.append(record.waits_since)
    elif record is not None:
        moments += [record.changed_at] if record.last_owner is not None else []
        moments += [trip.until for trip in record.trips if trip.usd]
    return max(moment for moment in moments if moment is not None)


def assign(record: JobRecord | None, job_id: str, instance: str, now: datetime) -> JobRecord:
    """Give a pending job to an instance, under the next epoch.

    Raises:
        IllegalTransition: if the job has an owner or is final.
    """
    record = record or pending(job_id, now)
    if record.state is not JobState.PENDING:
        raise IllegalTransition("assign it", record)
    return record.model_copy(
        update={
            "state": JobState.ASSIGNED,
            "epoch": record.epoch + 1,
            "owner": instance,
            "incarnation": 0,
            "beat": 0,
            "not_before": None,
            "changed_at": now,
            "assigned_at": now,
            "assigned_step": max(record.assigned_step or 0, _furthest(record.progress)),
            "assigned_durable_step": record.progress.durable_step,
            "progress": record.progress.model_copy(update=dict.fromkeys(_OF_ONE_ATTEMPT)),
            "waits_since": None,
            "held_seconds": record.held_seconds if record.epoch else 0.0,
        }
    )


def start(record: JobRecord, epoch: int, owner: str, now: datetime, from_zero: bool = False) -> JobRecord | None:
    """Return the record after the assigned instance has started the job, or None if the instance does not, or no
    longer, have the assignment of this epoch.

    `from_zero`: the job starts again at step 0, because it has no checkpoint, and its progress is lost.
    """
    if record.state is not JobState.ASSIGNED or not owns(record, epoch, owner):
        return None
    update: dict[str, object] = {"state": JobState.RUNNING, "beat": record.beat + 1, "changed_at": now}
    update["incarnation"] = 1
    if from_zero:
        update["progress"] = record.progress.model_copy(update={"step": 0, "durable_step": None})
    return record.model_copy(update=update | {"from_zero": record.from_zero + from_zero})


def adopt(record: JobRecord, epoch: int, owner: str, now: datetime) -> JobRecord | None:
    """Return the record after the owner's restarted agent has adopted the running job, or None if the job does not run
    there."""
    if record.state is not JobState.RUNNING or not owns(record, epoch, owner):
        return None
    update = {"incarnation": record.incarnation + 1, "beat": record.beat + 1, "changed_at": now}
    return record.model_copy(update=update)


def owns(record: JobRecord, epoch: int, owner: str) -> bool:
    """Return whether this instance holds the lease under this epoch."""
    return record.state.owned and record.epoch == epoch and record.owner == owner


def renew(record: JobRecord, progress: Progress, now: datetime) -> JobRecord:
    """Renew the lease of a running job: raises `beat` by one.

    Raises:
        IllegalTransition: if the job is not running.
    """
    if record.state is not JobState.RUNNING:
        raise IllegalTransition("renew it", record)
    return record.model_copy(update={"beat": record.beat + 1, "progress": progress, "changed_at": now})


def release(
    record: JobRecord,
    reason: Reason,
    now: datetime,
    spec: JobSpec,
    exit_code: int | None = None,
    detail: str = "",
    unstarted: bool = False,
    hopeless: bool = False,
    incomplete: bool = False,
    progress: Progress | None = None,
) -> JobRecord:
    """Return the record after the owner gave the job back, or finished it. `progress`: the job's progress; None: the
    last reported progress.

    FINISHED, CANCEL and BUDGET are final. MOVE, CAP and WINDOW put the job back into the queue and are not counted.
    Preemptions put it back and are counted. An error of the job itself (`Reason.failure`) puts it back with a back-off
    that doubles each time, until there are more errors than the spec's retries.

    `hopeless`: an error is final immediately. `unstarted`: a preemption because the owner's machine or the store could
    not start the program, or broke it. It puts the job back with its own back-off, until too many instances in a row
    could not start the job (`exceeds_start_limits`). `incomplete`: such an end of a program that had finished, because
    its outputs could not be uploaded.

    Raises:
        IllegalTransition: if the job has no owner.
    """
    if not record.state.owned:
        raise IllegalTransition("release it", record)
    if progress is not None:
        record = record.model_copy(update={"progress": progress})
    update = {**_end_fields(record, reason, now, detail), "exit_code": exit_code}
    if reason in _FINAL:
        update["state"] = _FINAL[reason]
    elif reason.failure:
        update["errors"] = record.errors + 1
        if hopeless or record.errors + 1 > spec.retries.errors:
            update["state"] = JobState.FAILED
        else:
            update["not_before"] = now + _doubled(spec.retries.backoff, record.errors, ERROR_BACKOFF_MAX)
    elif reason is not Reason.MOVE and not reason.put_off:
        update["preemptions"] = record.preemptions + 1
        if unstarted:
            update |= _unstarted(record, reason, now, detail, ran=exit_code is not None, incomplete=incomplete)
        elif reason in _UNORDERED_ENDS and update["idle_attempts"] > 1:
            update["not_before"] = now + _doubled(START_BACKOFF, update["idle_attempts"] - 2, START_BACKOFF_MAX)
    return record.model_copy(update=update)


def exceeds_start_limits(
    record: JobRecord, reason: Reason = Reason.SHUTDOWN, *, ran: bool = False, incomplete: bool = False
) -> bool:
    """Return whether the job fails if its present owner, too, could not start it for this reason.

    For a missing permission only the number of attempts counts, not the number of instances, and a person gets time to
    grant it.

    Args:
        record: The record with the progress of the attempt that ends.
        reason: The attempt's end.
        ran: Whether the program had begun.
        incomplete: Whether it had finished, and its outputs could not be uploaded.
    """
    if incomplete and record.incomplete_ends + 1 >= INCOMPLETE_ENDS:
        return True
    failed_starts = _failed_starts(record, reason)
    if reason is Reason.DENIED:
        return len(failed_starts) >= (DENIED_RUNS if ran else DENIED_STARTS)
    return len(set(failed_starts)) >= START_INSTANCES or len(failed_starts) >= START_ATTEMPTS


def describe_failed_starts(record: JobRecord, reason: Reason, *, incomplete: bool = False) -> str:
    """Return the beginning of a detail: how often the job could not be started, or was incomplete, the present owner
    included. The message of the last attempt follows."""
    if incomplete and record.incomplete_ends + 1 >= INCOMPLETE_ENDS:
        mend = "grant the permission, then `everspot retry` runs it again; " if reason is Reason.DENIED else ""
        return f"could not upload its outputs at {record.incomplete_ends + 1} ends; {mend}the last one said: "
    failed_starts = _failed_starts(record, reason)
    if reason is Reason.DENIED:
        return (
            f"was denied what it needs {len(failed_starts)} times in a row without progress: grant the permission, "
            "then `everspot retry` goes on from its newest checkpoint; the last answer was: "
        )
    verb = "was failed by its machine" if reason is Reason.MACHINE else "could not be started"
    return f"{verb} {len(failed_starts)} times in a row, on {len(set(failed_starts))} instances; the last one said: "


def idle_attempts_limit(spec: JobSpec) -> int:
    """Return after how many attempts in a row without progress the job fails: MAX_IDLE_ATTEMPTS, or more if
    `retries.from_zero` allows more."""
    return max(MAX_IDLE_ATTEMPTS, spec.retries.from_zero + 1)


def expire(record: JobRecord, now: datetime, detail: str = "", *, ended: bool = False) -> JobRecord:
    """Take the job from a dead owner. It goes back into the queue.

    Args:
        ended: Whether the cloud has taken or ended the owner's instance.

    Raises:
        IllegalTransition: if the job has no owner.
    """
    if not record.state.owned:
        raise IllegalTransition("expire it", record)
    update = {**_end_fields(record, Reason.LOST, now, detail), "preemptions": record.preemptions + 1}
    if update["fruitless"]:
        update["fruitless_ended"] = record.fruitless_ended + ended
    return record.model_copy(update=update)


def reclaim(record: JobRecord, epoch: int, owner: str, now: datetime) -> JobRecord | None:
    """Give the job back to an owner that was wrongly presumed dead, unless the job was assigned again meanwhile. The
    owner continues under the same epoch, as if the lease had never expired. Return None if the owner did not have the
    job, or another owner has it now."""
    lost = record.state is JobState.PENDING and record.last_reason is Reason.LOST
    if not lost or record.epoch != epoch or record.last_owner != owner:
        return None
    return record.model_copy(
        update={
            "state": JobState.RUNNING,
            "owner": owner,
            "beat": record.beat + 1,
            "preemptions": max(0, record.preemptions - 1),
            "fruitless": max(0, record.fruitless - 1),
            "fruitless_ended": min(record.fruitless_ended, max(0, record.fruitless - 1)),
            "idle_attempts": max(0, record.idle_attempts - 1),
            "detail": "",
            "changed_at": now,
            "assigned_at": now,
        }
    )


def close(
    record: JobRecord | None,
    job_id: str,
    reason: Reason,
    now: datetime,
    detail: str = "",
    state: JobState | None = None,
) -> JobRecord:
    """End a job that waits for an instance: because it was cancelled, its budget is spent, its deadline cannot be met,
    `run_if` does not hold, or it is a visit that returns home.

    Args:
        state: The final state. None: it follows from the reason.

    Raises:
        IllegalTransition: if the job has an owner or is final.
        ValueError: if the reason is not a final one.
    """
    record = record or pending(job_id, now)
    if record.state is not JobState.PENDING:
        raise IllegalTransition("close it", record)
    if state is None and (reason not in _FINAL or reason is Reason.FINISHED):
        raise ValueError(f"a waiting job is not ended by {reason.value}")
    return record.model_copy(
        update={
            "state": state or _FINAL[reason],
            "last_reason": reason,
            "detail": detail[-DETAIL_LIMIT:],
            "changed_at": now,
        }
    )


def reuse(record: JobRecord | None, job_id: str, producer: str, progress: Progress, now: datetime) -> JobRecord:
    """End a waiting job as SUCCEEDED without a run, with the outputs of `producer`, a job of the same stage.

    Args:
        progress: The producer's last progress. The job gets its steps and metrics.

    Raises:
        IllegalTransition: if the job has an owner or is final.
    """
    record = record or pending(job_id, now)
    if record.state is not JobState.PENDING:
        raise IllegalTransition("end it without a run", record)
    result = Progress(step=progress.step, total_steps=progress.total_steps, metrics=progress.metrics)
    return record.model_copy(
        update={
            "state": JobState.SUCCEEDED,
            "last_reason": Reason.REUSED,
            "detail": f"not run: it has the outputs of {producer}",
            "reused_from": producer,
            "progress": result,
            "changed_at": now,
        }
    )


def _unstarted(
    record: JobRecord, reason: Reason, now: datetime, detail: str, *, ran: bool, incomplete: bool
) -> dict[str, Any]:
    failed_starts, incomplete_ends = _failed_starts(record, reason), record.incomplete_ends + incomplete
    if exceeds_start_limits(record, reason, ran=ran, incomplete=incomplete):
        words = describe_failed_starts(record, reason, incomplete=incomplete)
        return {
            "unstarted": failed_starts,
            "incomplete_ends": incomplete_ends,
            "state": JobState.FAILED,
            "detail": words + detail[: DETAIL_LIMIT - len(words)],
        }
    denied = reason is Reason.DENIED
    first = DENIED_RUN_BACKOFF if denied and ran else START_BACKOFF
    wait = _doubled(first, len(failed_starts) - 1, DENIED_BACKOFF_MAX if denied else START_BACKOFF_MAX)
    if denied and incomplete:
        wait = max(wait, _doubled(DENIED_END_BACKOFF, incomplete_ends - 1, DENIED_BACKOFF_MAX))
    return {"unstarted": failed_starts, "incomplete_ends": incomplete_ends, "not_before": now + wait}


def _failed_starts(record: JobRecord, reason: Reason) -> list[str | None]:
    """Return the last instances in a row that could not start the job, the present owner included. Progress empties
    the list. So does a change between denials and other reasons, because their limits differ."""
    same_kind = (record.last_reason is Reason.DENIED) == (reason is Reason.DENIED)
    earlier = record.unstarted if same_kind and not _advanced(record) else []
    return [*earlier, record.owner][-DENIED_STARTS:]


def _doubled(first: timedelta, times: int, longest: timedelta) -> timedelta:
    """Return a wait that doubles this many times, up to `longest` or to `first`, whichever is more."""
    wait = first
    for _ in range(times):
        if wait >= longest:
            break
        wait *= 2
    return max(first, min(wait, longest))


def _end_fields(record: JobRecord, reason: Reason, now: datetime, detail: str) -> dict[str, Any]:
    held_time = record.held_time(now)  # zero if two machines' clocks put the end before the beginning
    return {
        "state": JobState.PENDING,
        "owner": None,
        "beat": record.beat + 1,
        "last_owner": record.owner,
        "last_reason": reason,
        "detail": detail[-DETAIL_LIMIT:],
        "unstarted": [],
        "not_before": None,
        "changed_at": now,
        "assigned_at": None,
        "held_seconds": None if held_time is None else held_time.total_seconds(),
        "fruitless": (fruitless := _fruitless(record, reason, now)),
        "fruitless_ended": min(record.fruitless_ended, fruitless),
        "idle_attempts": _idle_attempts(record, reason, now),
        **_failed(record, reason),
    }


def _furthest(progress: Progress) -> int:
    """Return the highest step that the job is known to have done or saved."""
    return max(progress.step, progress.durable_step or 0)


def _saved(record: JobRecord) -> bool:
    """Return whether the present owner has saved more than was saved before."""
    return (record.progress.durable_step or 0) > (record.assigned_durable_step or 0)


def _fruitless(record: JobRecord, reason: Reason, now: datetime) -> int:
    """Return how often in a row the job's owner has vanished without progress, this time included.

    A program that reports no steps counts as having made progress once it has run for UNREPORTED, because its saved
    work is unknown.
    """
    if _advanced(record):
        return 0
    if reason is not Reason.LOST:
        return record.fruitless
    return 0 if _ran_unreported(record, now) else record.fruitless + 1


def _idle_attempts(record: JobRecord, reason: Reason, now: datetime) -> int:
    """Return how many attempts in a row have ended without progress, this one included.

    Failures of the program do not count: `retries` limits them. A program without reported steps counts as having made
    progress after UNREPORTED, unless its agent reports its checkpoints, or machine, agent or store broke the attempt.
    """
    if _advanced(record):
        return 0
    if reason.failure:
        return record.idle_attempts
    presumed = record.progress.new_checkpoints is None and not reason.troubled
    return 0 if presumed and _ran_unreported(record, now) else record.idle_attempts + 1


def _advanced(record: JobRecord) -> bool:
    """Return whether the job is known to have made progress with its present owner."""
    return (
        _furthest(record.progress) > (record.assigned_step or 0)
        or _saved(record)
        or bool(record.progress.new_checkpoints)
    )


def _ran_unreported(record: JobRecord, now: datetime) -> bool:
    """Return whether a program that reports no steps has run for UNREPORTED, and so counts as having made progress."""
    began = record.assigned_at
    silent = _furthest(record.progress) == 0 and record.state is JobState.RUNNING
    return silent and began is not None and now - began >= UNREPORTED


def _failed(record: JobRecord, reason: Reason) -> dict[str, object]:
    """Return the fields with the instances on which the job has failed. The next attempt avoids them, and they show
    broken machines."""
    if reason not in (Reason.ERROR, Reason.STALLED, Reason.MACHINE) or record.owner is None:
        return {}
    others = [i for i in record.failed_on if i != record.owner]
    return {"failed_on": [*others, record.owner][-MAX_FAILED_INSTANCES:], "failed_step": record.progress.step}
