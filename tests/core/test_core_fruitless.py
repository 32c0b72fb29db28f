"""How a job's record counts losses without progress."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.lease import UNREPORTED
from everspot_core.jobs.records import JobRecord, JobState, Progress, Reason

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SPEC = JobSpec(name="j", recipe="r")
MINUTE = timedelta(minutes=1)


def attempt(record: JobRecord | None, reason: Reason, *, step=0, saved=None, lasts=MINUTE) -> JobRecord:
    """The record after one more ownership, which ends for this reason."""
    job_record = lease.start(lease.assign(record, "j", "i", NOW), (record.epoch if record else 0) + 1, "i", NOW)
    job_record = lease.renew(job_record, Progress(step=step, durable_step=saved), NOW)
    if reason is Reason.LOST:
        return lease.expire(job_record, NOW + lasts)
    return lease.release(job_record, reason, NOW + lasts, SPEC)


@pytest.mark.parametrize(
    ("attempts", "count"),
    [
        ([(Reason.LOST, {})], 1),
        ([(Reason.LOST, {})] * 5, 5),
        ([(Reason.LOST, {"step": n}) for n in range(1, 6)], 0),
        ([(Reason.LOST, {"step": 9, "saved": 9})] * 3, 2),  # the first one made nine steps
        ([(Reason.LOST, {"step": 9})] * 3, 2),
        ([(Reason.NOTICE, {})] * 5, 0),  # the owner could write
        ([(Reason.LOST, {}), (Reason.NOTICE, {}), (Reason.LOST, {})], 2),
        ([(Reason.LOST, {}), (Reason.NOTICE, {"step": 4, "saved": 4}), (Reason.LOST, {"step": 4, "saved": 4})], 1),
        ([(Reason.LOST, {"lasts": UNREPORTED})] * 9, 0),  # it tells no steps: nobody knows what it has saved
        ([(Reason.LOST, {"step": 9 + n % 2}) for n in range(8)], 6),  # starts from scratch each time, never saves
        ([(Reason.LOST, {"step": 90}), *[(Reason.LOST, {"step": 9, "saved": n}) for n in range(5)]], 0),
        (
            [
                (Reason.LOST, {"step": 4, "saved": 4}),
                *[(Reason.LOST, {"step": 4, "saved": 4, "lasts": UNREPORTED})] * 2,
            ],
            2,
        ),
    ],
)
def test_losses_in_a_row_without_progress_are_counted(attempts, count):
    record = None
    for reason, more in attempts:
        record = attempt(record, reason, **more)
    assert record.fruitless == count


def test_the_losses_for_which_the_cloud_is_the_cause_are_counted_among_them():
    def loss(record, *, ended, step=0):
        epoch = record.epoch + 1 if record is not None else 1
        job_record = lease.start(lease.assign(record, "j", "i", NOW), epoch, "i", NOW)
        return lease.expire(lease.renew(job_record, Progress(step=step), NOW), NOW, ended=ended)

    record = None
    for ended, step, counts in ((True, 0, (1, 1)), (False, 0, (2, 1)), (True, 0, (3, 2)), (True, 5, (0, 0)),
                                (True, 5, (1, 1))):  # fmt: skip
        record = loss(record, ended=ended, step=step)
        assert (record.fruitless, record.fruitless_ended) == counts
    back = lease.reclaim(record, record.epoch, "i", NOW)
    assert (back.fruitless, back.fruitless_ended) == (0, 0)


def test_an_owner_that_was_wrongly_given_up_does_not_count():
    lost = attempt(None, Reason.LOST)
    assert lease.reclaim(lost, 1, "i", NOW).fruitless == 0


def test_records_of_earlier_releases_are_read_and_counted():
    record = JobRecord.model_validate({"job_id": "j", "state": "PENDING", "epoch": 3, "changed_at": NOW.isoformat()})
    assert attempt(record, Reason.LOST).fruitless == 1


@pytest.mark.parametrize("reason", [Reason.NO_PROGRESS, Reason.SUPERSEDED])
def test_both_reasons_end_a_waiting_job(reason):
    ended = lease.close(None, "j", reason, NOW, "why")
    assert (ended.state, ended.last_reason) == (JobState.FAILED, reason)
