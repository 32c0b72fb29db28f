"""When the events of a job are read again."""

from datetime import timedelta

from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.records import Event, EventKind, JobRecord, Reason
from everspot_scheduler.event_reader import LATE_EVENTS, Histories
from everspot_store import ManualClock, Store
from federation_helpers import memory_store

SPEC = JobSpec(name="j", recipe="r")


def write(store: Store, kind: EventKind, seq: int, **data: object) -> None:
    """Write an event of the job's only owner."""
    event = Event(job_id="j", kind=kind, at=store.clock.now(), epoch=1, writer="i", seq=seq, instance_id="i", data=data)
    store.append_event(event)


def released(store: Store, histories: Histories) -> JobRecord:
    """A job that its owner has released, and whose events were read then."""
    owned = lease.start(lease.assign(None, "j", "i", store.clock.now()), 1, "i", store.clock.now())
    assert owned is not None
    write(store, EventKind.STARTED, 0)
    histories.read([owned])
    record = lease.release(owned, Reason.NOTICE, store.clock.now(), SPEC)
    histories.read([record])
    return record


def test_an_end_that_is_written_after_the_release_is_read() -> None:
    store = memory_store("c", ManualClock())
    histories = Histories(store)
    record = released(store, histories)
    store.clock.advance(LATE_EVENTS - timedelta(seconds=1))
    write(store, EventKind.INTERRUPTED, 1, reason="notice", step=5)
    (events,) = histories.read([record]).values()
    assert [event.kind for event in events] == [EventKind.STARTED, EventKind.INTERRUPTED]
    assert histories.read([record])["j"] is events


def test_an_end_that_never_comes_is_not_looked_for_for_ever() -> None:
    store = memory_store("c", ManualClock())
    histories = Histories(store)
    record = released(store, histories)
    store.clock.advance(LATE_EVENTS)
    assert histories.read([record])["j"] is histories.read([record])["j"]
