"""The transitions of a job record, as tables."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec, Retries
from everspot_core.jobs.records import JobRecord, JobState, Progress, Reason

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
SPEC = JobSpec(name="x", recipe="r", retries=Retries(errors=2, backoff=timedelta(seconds=10)))


def record(state: JobState = JobState.RUNNING, **fields: object) -> JobRecord:
    owner = "i-1" if state.owned else None
    return JobRecord.model_validate(
        {"job_id": "j", "state": state, "epoch": 3, "owner": owner, "beat": 7, "changed_at": NOW, **fields}
    )


def test_the_first_assignment_makes_the_record() -> None:
    assigned = lease.assign(None, "j", "i-1", NOW)
    assert (assigned.state, assigned.epoch, assigned.owner, assigned.beat) == (JobState.ASSIGNED, 1, "i-1", 0)


def test_every_assignment_raises_the_epoch_and_keeps_the_counts() -> None:
    old = record(JobState.PENDING, preemptions=2, errors=1, not_before=NOW, last_owner="i-1")
    assigned = lease.assign(old, "j", "i-2", LATER)
    assert (assigned.epoch, assigned.owner, assigned.preemptions, assigned.errors) == (4, "i-2", 2, 1)
    assert assigned.not_before is None and assigned.last_owner == "i-1" and assigned.changed_at == LATER


def test_an_assignment_forgets_what_was_measured_on_the_last_instance() -> None:
    """The rate, above all: it would count as the speed of the new instance's type."""
    progress = Progress(step=10, total_steps=100, durable_step=10, steps_per_second=4.0, memory_gib=2.0)
    old = record(JobState.PENDING, owner=None).model_copy(update={"progress": progress})
    assigned = lease.assign(old, "j", "i-2", LATER)
    assert assigned.progress == progress.model_copy(update={"steps_per_second": None})


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.PENDING])
def test_only_a_pending_job_is_assigned(state: JobState) -> None:
    with pytest.raises(lease.IllegalTransition, match=state.value):
        lease.assign(record(state), "j", "i-2", NOW)


@pytest.mark.parametrize(
    ("state", "epoch", "owner", "starts"),
    [
        (JobState.ASSIGNED, 3, "i-1", True),
        (JobState.ASSIGNED, 2, "i-1", False),
        (JobState.ASSIGNED, 3, "i-2", False),
        (JobState.RUNNING, 3, "i-1", False),
        (JobState.PENDING, 3, "i-1", False),
    ],
)
def test_only_the_assigned_instance_starts_its_own_epoch(state: JobState, epoch: int, owner: str, starts: bool) -> None:
    started = lease.start(record(state), epoch, owner, LATER)
    assert (started is not None) is starts
    if started is not None:
        assert (started.state, started.beat, started.epoch) == (JobState.RUNNING, 8, 3)


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({}, True),
        ({"epoch": 4}, False),
        ({"last_owner": "i-2"}, False),
        ({"last_reason": Reason.DRAIN}, False),
        ({"state": JobState.ASSIGNED, "owner": "i-1"}, False),
        ({"state": JobState.CANCELLED}, False),
    ],
)
def test_only_an_owner_that_was_given_up_and_has_no_successor_takes_its_job_back(
    changes: dict[str, object], again: bool
) -> None:
    lost = lease.expire(record(preemptions=1), NOW, "silent").model_copy(update=changes)
    reclaimed = lease.reclaim(lost, 3, "i-1", LATER)
    assert (reclaimed is not None) is again
    if reclaimed is not None:
        assert lease.owns(reclaimed, 3, "i-1") and reclaimed.state is JobState.RUNNING
        assert (reclaimed.preemptions, reclaimed.detail, reclaimed.assigned_at) == (1, "", LATER)


def test_a_renewal_raises_the_beat_and_carries_progress() -> None:
    renewed = lease.renew(record(), Progress(step=9), LATER)
    assert (renewed.beat, renewed.progress.step, renewed.epoch, renewed.owner) == (8, 9, 3, "i-1")
    with pytest.raises(lease.IllegalTransition):
        lease.renew(record(JobState.PENDING), Progress(), NOW)


@pytest.mark.parametrize(
    ("reason", "state", "preemptions", "errors"),
    [
        (Reason.FINISHED, JobState.SUCCEEDED, 0, 0),
        (Reason.CANCEL, JobState.CANCELLED, 0, 0),
        (Reason.BUDGET, JobState.FAILED, 0, 0),
        (Reason.UNDERUSED, JobState.FAILED, 0, 0),
        (Reason.ERROR, JobState.PENDING, 0, 1),
        *((reason, JobState.PENDING, 1, 0) for reason in Reason if reason.preemption),
    ],
)
def test_a_release_ends_or_requeues_by_its_reason(
    reason: Reason, state: JobState, preemptions: int, errors: int
) -> None:
    released = lease.release(record(), reason, LATER, SPEC, 1, "why")
    assert (released.state, released.preemptions, released.errors) == (state, preemptions, errors)
    assert (released.owner, released.last_owner, released.last_reason, released.epoch) == (None, "i-1", reason, 3)
    assert (released.exit_code, released.detail, released.changed_at) == (1, "why", LATER)


def test_a_release_tells_how_far_the_job_has_come_at_last() -> None:
    running = record(progress=Progress(step=5, total_steps=100))
    last = Progress(step=12, total_steps=100, durable_step=10)
    given_back = lease.release(running, Reason.ERROR, LATER, SPEC, progress=last)
    assert (given_back.progress, given_back.failed_step) == (last, 12)
    assert lease.release(running, Reason.NOTICE, LATER, SPEC).progress == running.progress


def test_a_job_that_begins_again_has_nothing_done() -> None:
    assigned = record(JobState.ASSIGNED, progress=Progress(step=5, total_steps=100, durable_step=5))
    for over, step, durable in ((False, 5, 5), (True, 0, None)):
        begun = lease.start(assigned, 3, "i-1", LATER, from_zero=over)
        assert begun is not None
        assert begun.progress == Progress(step=step, total_steps=100, durable_step=durable)


@pytest.mark.parametrize(
    ("before", "state", "wait"),
    [(0, JobState.PENDING, 10), (1, JobState.PENDING, 20), (2, JobState.FAILED, None)],
)
def test_errors_back_off_and_then_fail(before: int, state: JobState, wait: int | None) -> None:
    released = lease.release(record(errors=before), Reason.ERROR, NOW, SPEC)
    assert released.state is state and released.errors == before + 1
    assert released.not_before == (None if wait is None else NOW + timedelta(seconds=wait))


def unstarted(row: list[str], owner: str) -> JobRecord:
    """Return the record of a job that these instances could not start, after `owner` could not start it either."""
    assigned = record(unstarted=row).model_copy(update={"owner": owner})
    return lease.release(assigned, Reason.SHUTDOWN, NOW, SPEC, None, "disk full", unstarted=True)


@pytest.mark.parametrize(
    ("backoff", "before", "wait"),
    [
        (timedelta(seconds=10), 8, timedelta(seconds=2560)),
        (timedelta(seconds=10), 9, timedelta(hours=1)),
        (timedelta(seconds=10), 999, timedelta(hours=1)),
        (timedelta(hours=3), 5, timedelta(hours=3)),
        (timedelta(0), 999, timedelta(0)),
    ],
)
def test_the_wait_after_an_error_has_an_upper_bound(backoff: timedelta, before: int, wait: timedelta) -> None:
    spec = SPEC.model_copy(update={"retries": Retries(errors=1000, backoff=backoff)})
    released = lease.release(record(errors=before), Reason.ERROR, NOW, spec)
    assert released.not_before == NOW + wait


@pytest.mark.parametrize(
    ("row", "wait"),
    [
        ([], 10),
        (["a"], 20),
        (["a", "b"], 40),
        (["a", "b", "a"], 80),
        (["a"] * 5, 320),
        (["a"] * 6, 600),
        (["a"] * 8, 600),
    ],
)
def test_a_job_that_could_not_be_started_waits_twice_as_long_each_time(row: list[str], wait: int) -> None:
    released = unstarted(row, "c" if "b" in row else "a")
    assert (released.state, released.not_before) == (JobState.PENDING, NOW + timedelta(seconds=wait))
    assert released.unstarted == [*row, released.last_owner]
    assert (released.preemptions, released.errors, released.detail) == (1, 0, "disk full")


@pytest.mark.parametrize(
    ("row", "owner", "ends"),
    [
        (["a", "b", "c"], "d", True),
        (["a", "b", "c"], "a", False),
        (["a", "b", "a", "b", "a", "c"], "d", True),
        (["a"] * 8, "a", False),
        (["a"] * 9, "a", True),
        (["a", "b"] * 4 + ["a"], "b", True),
    ],
)
def test_a_job_that_no_instance_can_start_has_failed(row: list[str], owner: str, ends: bool) -> None:
    released = unstarted(row, owner)
    assert lease.exceeds_start_limits(record(unstarted=row).model_copy(update={"owner": owner})) is ends
    assert released.state is (JobState.FAILED if ends else JobState.PENDING)
    assert (released.not_before is None) is ends
    if ends:
        reason = f"could not be started {len(row) + 1} times in a row, on {len({*row, owner})} instances"
        assert released.detail.startswith(reason) and released.detail.endswith("disk full")


@pytest.mark.parametrize("reason", [Reason.NOTICE, Reason.ERROR, Reason.DRAIN, Reason.SHUTDOWN])
def test_another_ending_ends_the_row(reason: Reason) -> None:
    running = record(unstarted=["a", "b", "c"])
    released = lease.release(running, reason, NOW, SPEC)
    assert (released.state, released.unstarted) == (JobState.PENDING, [])
    assert lease.expire(running, NOW).unstarted == []
    assert (released.not_before is None) is (reason is not Reason.ERROR)


def test_failed_starts_survive_assign_start_renew() -> None:
    assigned = lease.assign(record(JobState.PENDING, unstarted=["a"]), "j", "i-2", NOW)
    begun = lease.start(assigned, assigned.epoch, "i-2", NOW)
    assert begun is not None
    assert lease.renew(begun, Progress(), NOW).unstarted == ["a"]


@pytest.mark.parametrize("state", [JobState.ASSIGNED, JobState.RUNNING])
def test_a_dead_owner_loses_the_job_and_nothing_else(state: JobState) -> None:
    expired = lease.expire(record(state, errors=1, progress=Progress(step=4)), LATER, "silent")
    assert (expired.state, expired.owner, expired.last_owner, expired.epoch) == (JobState.PENDING, None, "i-1", 3)
    assert (expired.last_reason, expired.preemptions, expired.errors, expired.progress.step) == (Reason.LOST, 1, 1, 4)


@pytest.mark.parametrize("state", [state for state in JobState if not state.owned])
def test_a_job_without_an_owner_is_neither_released_nor_expired(state: JobState) -> None:
    with pytest.raises(lease.IllegalTransition):
        lease.release(record(state), Reason.NOTICE, NOW, SPEC)
    with pytest.raises(lease.IllegalTransition):
        lease.expire(record(state), NOW)


@pytest.mark.parametrize(("reason", "state"), [(Reason.CANCEL, JobState.CANCELLED), (Reason.BUDGET, JobState.FAILED)])
def test_a_waiting_job_is_closed(reason: Reason, state: JobState) -> None:
    assert lease.close(None, "j", reason, NOW).state is state
    assert lease.close(record(JobState.PENDING), "j", reason, NOW).last_reason is reason
    with pytest.raises(lease.IllegalTransition):
        lease.close(record(), "j", reason, NOW)
    with pytest.raises(ValueError, match="notice"):
        lease.close(None, "j", Reason.NOTICE, NOW)
