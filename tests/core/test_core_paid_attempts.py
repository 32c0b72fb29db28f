"""However a job's attempts end, those without progress are counted, and the job ends before it has paid for many."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec, JobSubmission, Retries
from everspot_core.jobs.lease import DENIED_RUNS, DENIED_STARTS, INCOMPLETE_ENDS, MAX_IDLE_ATTEMPTS, UNREPORTED
from everspot_core.jobs.records import JobRecord, JobState, Progress, Reason
from everspot_core.schedule.jobs import end_of_waiting
from hypothesis import given
from hypothesis import strategies as st
from view_helpers import job_view

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SPEC = JobSpec(name="j", recipe="r", retries=Retries(errors=3))
MINUTE = timedelta(minutes=1)
FINAL = {
    Reason.FINISHED, Reason.CANCEL, Reason.BUDGET, Reason.UNDERUSED, Reason.INFEASIBLE, Reason.AFTER,
    Reason.NO_PROGRESS, Reason.SUPERSEDED, Reason.RETURNED,
}  # fmt: skip
REPEATED = [reason for reason in Reason if reason not in FINAL]


@dataclass(frozen=True)
class End:
    """The end of one attempt."""

    reason: Reason
    ran: bool = True
    instance: str = "i-0"
    lasts: timedelta = MINUTE
    new_checkpoints: int | None = 0
    incomplete: bool = False


def closed(record: JobRecord, spec: JobSpec = SPEC) -> JobRecord:
    """Return the record after the scheduler has looked at the waiting job."""
    view = job_view(submission=JobSubmission(job_id="j", spec=spec, submitted_at=NOW), record=record)
    end = end_of_waiting(view, NOW) if record.state is JobState.PENDING else None
    return record if end is None else lease.close(record, "j", end[1], NOW)


def attempt(record: JobRecord | None, end: End, *, step: int = 0, spec: JobSpec = SPEC) -> JobRecord:
    """Return the record after one more attempt, at whose end the job has come to this step."""
    assigned = lease.assign(record, "j", end.instance, NOW)
    running = lease.start(assigned, assigned.epoch, end.instance, NOW)
    assert running is not None
    progress = Progress(step=step, durable_step=step or None, new_checkpoints=end.new_checkpoints)
    running = lease.renew(running, progress, NOW)
    if end.reason is Reason.LOST:
        return closed(lease.expire(running, NOW + end.lasts), spec)
    unstarted, exit_code = end.reason.troubled, 1 if end.ran else None
    released = lease.release(
        running, end.reason, NOW + end.lasts, spec, exit_code, "why", unstarted, incomplete=end.incomplete
    )
    return closed(released, spec)


def attempts_until_final(end: End, *, most: int = 200) -> int:
    record = None
    for number in range(1, most + 1):
        record = attempt(record, end)
        if record.state.final:
            assert record.state is JobState.FAILED
            return number
    raise AssertionError(f"it may still run after {most} attempts")


@pytest.mark.parametrize("reason", REPEATED)
@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("lasts", [MINUTE, UNREPORTED])
def test_no_reason_is_repeated_without_end(reason: Reason, ran: bool, lasts: timedelta) -> None:
    assert attempts_until_final(End(reason, ran=ran, lasts=lasts)) <= MAX_IDLE_ATTEMPTS


ends = st.builds(
    End,
    st.sampled_from(REPEATED),
    st.booleans(),
    st.sampled_from(["i-0", "i-1", "i-2", "i-3", "i-4"]),
    st.sampled_from([MINUTE, UNREPORTED]),
)


@given(st.lists(ends, min_size=MAX_IDLE_ATTEMPTS + SPEC.retries.errors, max_size=60))
def test_in_any_order_attempts_without_progress_are_bounded(sequence: list[End]) -> None:
    record = None
    for end in sequence[: MAX_IDLE_ATTEMPTS + SPEC.retries.errors + 1]:
        record = attempt(record, end)
        if record.state.final:
            break
    assert record is not None and record.epoch <= MAX_IDLE_ATTEMPTS + SPEC.retries.errors
    assert record.state.final


@given(st.lists(ends.filter(lambda end: not end.reason.failure), min_size=1, max_size=60))
def test_a_job_that_comes_further_each_time_is_never_ended(sequence: list[End]) -> None:
    record = None
    for step, end in enumerate(sequence, 1):
        record = attempt(record, end, step=step)
        assert record.state is JobState.PENDING
    assert record is not None and record.idle_attempts == 0


@pytest.mark.parametrize("reason", [Reason.MACHINE, Reason.DENIED])
@pytest.mark.parametrize("end_between", [None, Reason.NOTICE])
def test_a_finished_program_whose_outputs_cannot_be_uploaded_runs_only_a_few_times(
    reason: Reason, end_between: Reason | None
) -> None:
    """Each attempt saves a checkpoint, which is progress."""
    record, incomplete_ends, waited = None, 0, timedelta()
    while record is None or not record.state.final:
        if record is not None and end_between is not None:
            record = attempt(record, End(end_between, new_checkpoints=1))
        record = attempt(record, End(reason, instance=f"i-{incomplete_ends}", new_checkpoints=1, incomplete=True))
        incomplete_ends += 1
        waited += record.not_before - record.changed_at if record.not_before is not None else timedelta()
        assert incomplete_ends <= INCOMPLETE_ENDS
    assert (record.state, record.last_reason) == (JobState.FAILED, reason)
    assert record.detail.startswith(f"could not upload its outputs at {INCOMPLETE_ENDS} ends; ")
    assert ("grant the permission" in record.detail) is (reason is Reason.DENIED)
    assert (waited >= timedelta(hours=1)) is (reason is Reason.DENIED)


@pytest.mark.parametrize("reason", [Reason.NOTICE, Reason.LOST, Reason.MACHINE, Reason.DENIED])
def test_checkpoints_of_a_program_without_steps_are_progress(reason: Reason) -> None:
    record = None
    for number in range(40):
        record = attempt(record, End(reason, instance=f"i-{number}", new_checkpoints=1))
        assert (record.state, record.idle_attempts, record.fruitless) == (JobState.PENDING, 0, 0)


def test_an_agent_that_does_not_report_checkpoints_is_believed_after_half_an_hour() -> None:
    record = None
    for _ in range(40):
        record = attempt(record, End(Reason.NOTICE, lasts=UNREPORTED, new_checkpoints=None))
    assert record is not None and record.state is JobState.PENDING


def test_whoever_allows_more_restarts_from_zero_gets_them() -> None:
    spec = JobSpec(name="j", recipe="r", retries=Retries(from_zero=50))
    record = None
    for number in range(1, 52):
        assert record is None or record.state is JobState.PENDING
        record = attempt(record, End(Reason.NOTICE), spec=spec)
        assert record.idle_attempts == number
    assert record is not None
    assert (record.state, record.last_reason) == (JobState.FAILED, Reason.NO_PROGRESS)


def test_a_program_that_is_denied_is_tried_less_often_than_a_start_and_both_leave_hours() -> None:
    assert attempts_until_final(End(Reason.DENIED, ran=False)) == DENIED_STARTS
    assert attempts_until_final(End(Reason.DENIED, ran=True)) == DENIED_RUNS
    for ran, patience in ((False, timedelta(hours=5)), (True, timedelta(hours=2))):
        record, waited = None, timedelta()
        for _ in range((DENIED_RUNS if ran else DENIED_STARTS) - 1):
            record = attempt(record, End(Reason.DENIED, ran=ran))
            assert record.not_before is not None
            waited += record.not_before - record.changed_at
        assert waited >= patience


def test_a_job_that_is_denied_for_good_says_what_and_what_to_do() -> None:
    record = None
    while record is None or not record.state.final:
        record = attempt(record, End(Reason.DENIED))
    assert (record.state, record.last_reason) == (JobState.FAILED, Reason.DENIED)
    assert record.detail.startswith(f"was denied what it needs {DENIED_RUNS} times in a row without progress")
    assert "grant the permission" in record.detail and "everspot retry" in record.detail
    assert record.detail.endswith("why")


def test_progress_and_other_troubles_begin_a_new_row() -> None:
    denied = attempt(attempt(None, End(Reason.DENIED)), End(Reason.DENIED))
    assert denied.unstarted == ["i-0", "i-0"]
    assert attempt(denied, End(Reason.MACHINE, instance="i-1")).unstarted == ["i-1"]
    assert attempt(denied, End(Reason.DENIED, instance="i-1"), step=1).unstarted == ["i-1"]


def test_an_end_by_itself_that_is_repeated_has_a_back_off() -> None:
    record, waits = None, []
    for _ in range(4):
        record = attempt(record, End(Reason.SHUTDOWN))
        waits.append(record.not_before and (record.not_before - record.changed_at).total_seconds())
    assert waits == [None, 10, 20, 40]
