"""The transitions of a job record, as tables."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core import lease
from everspot_core.job import JobSpec, Retries
from everspot_core.records import JobRecord, JobState, Progress, Reason

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
SPEC = JobSpec(name="x", recipe="r", retries=Retries(errors=2, backoff=timedelta(seconds=10)))


def record(state: JobState = JobState.RUNNING, **fields: object) -> JobRecord:
    owner = "i-1" if state.owned else None
    return JobRecord.model_validate(
        {"job_id": "j", "state": state, "epoch": 3, "owner": owner, "beat": 7, "changed_at": NOW, **fields}
    )


def test_the_first_assignment_makes_the_record() -> None:
    made = lease.assign(None, "j", "i-1", NOW)
    assert (made.state, made.epoch, made.owner, made.beat) == (JobState.ASSIGNED, 1, "i-1", 0)


def test_every_assignment_raises_the_epoch_and_keeps_the_counts() -> None:
    old = record(JobState.PENDING, preemptions=2, errors=1, not_before=NOW, last_owner="i-1")
    made = lease.assign(old, "j", "i-2", LATER)
    assert (made.epoch, made.owner, made.preemptions, made.errors) == (4, "i-2", 2, 1)
    assert made.not_before is None and made.last_owner == "i-1" and made.changed_at == LATER


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
    found = lease.reclaim(lost, 3, "i-1", LATER)
    assert (found is not None) is again
    if found is not None:
        assert lease.owns(found, 3, "i-1") and found.state is JobState.RUNNING
        assert (found.preemptions, found.detail, found.assigned_at) == (1, "", LATER)


def test_a_renewal_raises_the_beat_and_carries_progress() -> None:
    made = lease.renew(record(), Progress(step=9), LATER)
    assert (made.beat, made.progress.step, made.epoch, made.owner) == (8, 9, 3, "i-1")
    with pytest.raises(lease.IllegalTransition):
        lease.renew(record(JobState.PENDING), Progress(), NOW)


@pytest.mark.parametrize(
    ("reason", "state", "preemptions", "errors"),
    [
        (Reason.FINISHED, JobState.SUCCEEDED, 0, 0),
        (Reason.CANCEL, JobState.CANCELLED, 0, 0),
        (Reason.BUDGET, JobState.FAILED, 0, 0),
        (Reason.ERROR, JobState.PENDING, 0, 1),
        *((reason, JobState.PENDING, 1, 0) for reason in Reason if reason.preemption),
    ],
)
def test_a_release_ends_or_requeues_by_its_reason(
    reason: Reason, state: JobState, preemptions: int, errors: int
) -> None:
    made = lease.release(record(), reason, LATER, SPEC, 1, "why")
    assert (made.state, made.preemptions, made.errors) == (state, preemptions, errors)
    assert (made.owner, made.last_owner, made.last_reason, made.epoch) == (None, "i-1", reason, 3)
    assert (made.exit_code, made.detail, made.changed_at) == (1, "why", LATER)


def test_a_release_tells_how_far_the_job_has_come_at_last() -> None:
    held = record(progress=Progress(step=5, total_steps=100))
    last = Progress(step=12, total_steps=100, durable_step=10)
    given_back = lease.release(held, Reason.ERROR, LATER, SPEC, progress=last)
    assert (given_back.progress, given_back.failed_step) == (last, 12)
    assert lease.release(held, Reason.NOTICE, LATER, SPEC).progress == held.progress


def test_a_job_that_begins_again_has_nothing_done() -> None:
    held = record(JobState.ASSIGNED, progress=Progress(step=5, total_steps=100, durable_step=5))
    for over, step, durable in ((False, 5, 5), (True, 0, None)):
        begun = lease.start(held, 3, "i-1", LATER, from_zero=over)
        assert begun is not None
        assert begun.progress == Progress(step=step, total_steps=100, durable_step=durable)


@pytest.mark.parametrize(
    ("before", "state", "wait"),
    [(0, JobState.PENDING, 10), (1, JobState.PENDING, 20), (2, JobState.FAILED, None)],
)
def test_errors_back_off_and_then_fail(before: int, state: JobState, wait: int | None) -> None:
    made = lease.release(record(errors=before), Reason.ERROR, NOW, SPEC)
    assert made.state is state and made.errors == before + 1
    assert made.not_before == (None if wait is None else NOW + timedelta(seconds=wait))


def unstarted(row: list[str], owner: str) -> JobRecord:
    """What becomes of a job that these could not start, and now `owner` cannot either."""
    held = record(unstarted=row).model_copy(update={"owner": owner})
    return lease.release(held, Reason.SHUTDOWN, NOW, SPEC, None, "disk full", unstarted=True)


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
    made = unstarted(row, "c" if "b" in row else "a")
    assert (made.state, made.not_before) == (JobState.PENDING, NOW + timedelta(seconds=wait))
    assert made.unstarted == [*row, made.last_owner]
    assert (made.preemptions, made.errors, made.detail) == (1, 0, "disk full")


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
    made = unstarted(row, owner)
    assert lease.gives_up(record(unstarted=row).model_copy(update={"owner": owner})) is ends
    assert made.state is (JobState.FAILED if ends else JobState.PENDING)
    assert (made.not_before is None) is ends
    if ends:
        said = f"could not be started {len(row) + 1} times in a row, on {len({*row, owner})} instances"
        assert made.detail.startswith(said) and made.detail.endswith("disk full")


@pytest.mark.parametrize("reason", [Reason.NOTICE, Reason.ERROR, Reason.DRAIN, Reason.SHUTDOWN])
def test_another_ending_ends_the_row(reason: Reason) -> None:
    held = record(unstarted=["a", "b", "c"])
    made = lease.release(held, reason, NOW, SPEC)
    assert (made.state, made.unstarted) == (JobState.PENDING, [])
    assert lease.expire(held, NOW).unstarted == []
    assert (made.not_before is None) is (reason is not Reason.ERROR)


def test_the_row_lasts_through_assignment_start_and_renewal() -> None:
    given = lease.assign(record(JobState.PENDING, unstarted=["a"]), "j", "i-2", NOW)
    begun = lease.start(given, given.epoch, "i-2", NOW)
    assert begun is not None
    assert lease.renew(begun, Progress(), NOW).unstarted == ["a"]


@pytest.mark.parametrize("state", [JobState.ASSIGNED, JobState.RUNNING])
def test_a_dead_owner_loses_the_job_and_nothing_else(state: JobState) -> None:
    made = lease.expire(record(state, errors=1, progress=Progress(step=4)), LATER, "silent")
    assert (made.state, made.owner, made.last_owner, made.epoch) == (JobState.PENDING, None, "i-1", 3)
    assert (made.last_reason, made.preemptions, made.errors, made.progress.step) == (Reason.LOST, 1, 1, 4)


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
