"""Finished jobs move from the hot tables to the archive: nothing is lost or revived if the mover crashes at any
point."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Event, EventKind, JobRecord, JobState, Reason, Request
from everspot_store import BadDocument, ManualClock, Store
from everspot_store.testing import Crash, Fault, FaultScript, MemoryBackend, faulty_store

HOT = ("jobs", "records", "cancels", "drills", "events")


def finished(store: Store, submission: JobSubmission) -> JobRecord:
    """A job that was interrupted once and has ended, with everything that a job can leave in the control bucket."""
    job, now = submission.job_id, store.clock.now()
    store.submit(submission)
    record = lease.assign(None, job, "i-1", now)
    record = lease.release(record, Reason.NOTICE, now, submission.spec)
    record = lease.release(lease.assign(record, job, "i-2", now), Reason.FINISHED, now, submission.spec)
    store.records.create(job, record)
    store.cancels.create(job, Request(at=now))
    store.drills.create(f"{job}/d1", Request(at=now))
    writer = store.event_writer(job, 1, "i-1", "i-1")
    for kind in (EventKind.STARTED, EventKind.INTERRUPTED):
        writer.emit(kind)
    store.event_writer(job, 2, "trainer-i-2", "i-2").emit(EventKind.CHECKPOINTED, step=7)
    return record


def test_a_finished_job_becomes_one_document_and_leaves_the_hot_tables(
    store: Store, submission: Callable[..., JobSubmission]
) -> None:
    record, events = finished(store, submission()), store.events("job-1")
    at = store.clock.now() + timedelta(hours=1)
    store.archive.move(submission(), record, at)
    for prefix in HOT:
        assert store.control.list(f"{prefix}/") == []
    assert [e.key for e in store.control.list("archive/")] == ["archive/2026-01/job-1.json"]
    dossier = store.dossier("job-1")
    assert (dossier.submission, dossier.record, dossier.events) == (submission(), record, events)
    assert dossier.archived_at == at
    assert store.archive.read(store.archive.keys().values()) == {"job-1": dossier}
    assert store.archive.keys(store.clock.now() + timedelta(days=31)) == {}
    assert store.dossier("job-2") is store.archive.get("job-2") is None


def test_a_dossier_of_a_job_that_is_not_archived_is_put_together(
    store: Store, submission: Callable[..., JobSubmission]
) -> None:
    store.submit(submission())
    assert store.dossier("job-1").record is None
    other = submission("job-2")
    record = finished(store, other)
    dossier = store.dossier("job-2")
    assert (dossier.submission, dossier.record, dossier.archived_at) == (other, record, None)
    assert [e.kind for e in dossier.events] == [EventKind.STARTED, EventKind.INTERRUPTED, EventKind.CHECKPOINTED]
    assert EventKind.CHECKPOINTED not in [e.kind for e in store.dossier("job-2", brief=True).events]


def test_what_has_not_ended_is_not_archived(folder_store: Store, submission: Callable[..., JobSubmission]) -> None:
    folder_store.submit(submission())
    with pytest.raises(ValueError, match="PENDING"):
        folder_store.archive.move(
            submission(), lease.pending("job-1", folder_store.clock.now()), folder_store.clock.now()
        )
    assert list(folder_store.jobs.scan()) == ["job-1"]


def test_a_job_with_an_event_that_cannot_be_read_stays_where_it_is(
    folder_store: Store, submission: Callable[..., JobSubmission]
) -> None:
    record = finished(folder_store, submission())
    folder_store.control.put("events/job-1/000009-x-000000.json", b"{")
    with pytest.raises(BadDocument, match="job-1"):
        folder_store.archive.move(submission(), record, folder_store.clock.now())
    assert list(folder_store.jobs.scan()) == list(folder_store.records.scan()) == ["job-1"]


def sweep(store: Store) -> None:
    """Archive the jobs as a scheduler does, from the present tables: records first, then jobs."""
    records, jobs = store.records.scan(), store.jobs.scan()
    for name, document in records.items():
        if name in jobs:
            store.archive.move(jobs[name].value, document.value, store.clock.now())
        else:
            assert store.archive.finish(name, document.value)


def whole(store: Store, record: JobRecord, events: list[Event]) -> None:
    """Check that nothing is lost, and that no reader takes the job for a waiting one."""
    dossier = store.dossier("job-1")
    assert dossier is not None
    assert (dossier.record, dossier.events) == (record, events)
    if "job-1" in store.jobs.scan():
        assert store.records.get("job-1").value.state is JobState.SUCCEEDED


WRITES = [("create", "archive/*"), *(("delete", f"{p}/*") for p in HOT)]


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
@pytest.mark.parametrize(("operation", "key", "nth"), [*((o, k, 1) for o, k in WRITES), ("delete", "events/*", 2)])
def test_a_crash_at_any_write_loses_nothing_and_revives_nothing(
    clock: ManualClock, submission: Callable[..., JobSubmission], operation: str, key: str, nth: int, fault: Fault
) -> None:
    faults = FaultScript()
    store = faulty_store(MemoryBackend(), MemoryBackend(), clock, faults)
    record, events = finished(store, submission()), store.events("job-1")
    faults.on(operation, key=key, nth=nth, fault=fault)
    with pytest.raises(Crash):
        store.archive.move(submission(), record, clock.now())
    assert faults.spent
    whole(store, record, events)
    clock.advance(timedelta(hours=1))
    sweep(store)
    whole(store, record, events)
    assert [e.key for p in HOT for e in store.control.list(f"{p}/")] == []


def test_two_that_archive_at_once_write_one_document(
    clock: ManualClock, submission: Callable[..., JobSubmission]
) -> None:
    store = faulty_store(MemoryBackend(), MemoryBackend(), clock, FaultScript())
    record, events = finished(store, submission()), store.events("job-1")
    first = store.archive.move(submission(), record, clock.now())
    store.records.create("job-1", record)  # the earlier view of a slower scheduler
    second = store.archive.move(submission(), record, clock.now() + timedelta(hours=1))
    assert first == second
    whole(store, record, events)


def test_a_record_without_a_submission_that_was_never_archived_is_left_alone(
    folder_store: Store, submission: Callable[..., JobSubmission]
) -> None:
    record = finished(folder_store, submission())
    folder_store.jobs.delete("job-1")
    assert not folder_store.archive.finish("job-1", record)
    assert folder_store.records.get("job-1") is not None


def test_a_slow_writer_has_lost_what_was_archived_meanwhile(
    store: Store, submission: Callable[..., JobSubmission]
) -> None:
    record = finished(store, submission())
    stale = store.records.get("job-1")
    store.archive.move(submission(), record, store.clock.now())
    assert store.records.replace("job-1", stale, record) is None
    assert store.records.get("job-1") is None
