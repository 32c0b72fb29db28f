"""The handling of each outcome of a conditional write: done, lost, conflict, unknown."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobState, Market, Progress, Reason, Request
from everspot_store import BadDocument, JobExists, Lease, ManualClock, Store, StoreDenied, StoreUnavailable
from everspot_store.testing import Crash, Fault, FaultScript, MemoryBackend, faulty_store

AT = datetime(2026, 1, 1, tzinfo=UTC)
TTL = timedelta(seconds=60)
OURS_IN_THE_END = [
    Fault.CONFLICT,
    Fault.BUSY,
    Fault.LOST,
    Fault.NEVER_ARRIVED,
    Fault.ANSWER_LOST,
    Fault.ARRIVES_LATER,
    Fault.REFUSED_AFTER_DONE,
]


class World:
    """One pair of buckets, seen by us through a script of faults and by somebody else without."""

    def __init__(self) -> None:
        self.clock = ManualClock(AT)
        self.faults = FaultScript()
        self.control, self.data = MemoryBackend(), MemoryBackend()
        self.store = faulty_store(self.control, self.data, self.clock, self.faults)
        self.other_store = faulty_store(self.control, self.data, self.clock, FaultScript())


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("fault", OURS_IN_THE_END)
def test_a_create_is_ours_whatever_became_of_the_first_answer(world: World, fault: Fault) -> None:
    world.faults.on("create", fault=fault)
    written = world.store.cancels.create("job-1", Request(at=AT, by="us"))
    assert written is not None and world.faults.spent
    stored = world.other_store.cancels.get("job-1")
    assert stored is not None and stored == written


@pytest.mark.parametrize("fault", OURS_IN_THE_END)
def test_a_replace_is_ours_whatever_became_of_the_first_answer(world: World, fault: Fault) -> None:
    old = world.store.cancels.create("job-1", Request(at=AT))
    assert old is not None
    world.faults.on("replace", fault=fault)
    written = world.store.cancels.replace("job-1", old, Request(at=AT, by="us"))
    assert written is not None and world.faults.spent
    assert world.other_store.cancels.get("job-1") == written


@pytest.mark.parametrize("fault", OURS_IN_THE_END)
def test_a_write_is_lost_when_somebody_else_was_first(world: World, fault: Fault) -> None:
    """Also with the very same content: who wrote it is what counts."""
    old = world.store.cancels.create("job-1", Request(at=AT))
    assert old is not None
    assert world.other_store.cancels.replace("job-1", old, Request(at=AT, by="same")) is not None
    world.faults.on("replace", fault=fault)
    assert world.store.cancels.replace("job-1", old, Request(at=AT, by="same")) is None
    world.faults.clear()
    world.faults.on("create", fault=fault)
    assert world.store.cancels.create("job-1", Request(at=AT, by="same")) is None


def test_content_that_comes_back_is_not_taken_for_the_old_version(world: World) -> None:
    idle = world.store.cancels.create("job-1", Request(at=AT, by="idle"))
    assert idle is not None
    busy = world.other_store.cancels.replace("job-1", idle, Request(at=AT, by="busy"))
    assert busy is not None and world.other_store.cancels.replace("job-1", busy, Request(at=AT, by="idle")) is not None
    assert world.store.cancels.replace("job-1", idle, Request(at=AT, by="us")) is None


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.BUSY, Fault.NEVER_ARRIVED])
def test_retries_are_bounded_and_back_off(world: World, fault: Fault) -> None:
    for _ in range(20):
        world.faults.on("create", fault=fault)
    for nth in range(2, 22):
        world.faults.on("create", nth=nth, fault=fault)
    with pytest.raises(StoreUnavailable):
        world.store.cancels.create("job-1", Request(at=AT))
    assert world.clock.slept == sorted(world.clock.slept) and 2 <= len(world.clock.slept) <= 5
    assert world.clock.slept[-1] > world.clock.slept[0]


def test_reads_are_retried_and_then_given_up(world: World) -> None:
    for nth in range(1, 4):
        world.faults.on("get", nth=nth, fault=Fault.NEVER_ARRIVED)
    assert world.store.cancels.get("job-1") is None
    assert world.faults.spent
    for nth in range(1, 5):
        world.faults.on("get", nth=nth, fault=Fault.NEVER_ARRIVED)
    with pytest.raises(StoreUnavailable):
        world.store.cancels.get("job-1")


def test_a_refusal_is_not_retried(world: World) -> None:
    world.faults.on("get", fault=Fault.DENIED)
    with pytest.raises(StoreDenied):
        world.store.cancels.get("job-1")
    assert world.clock.slept == []


def test_a_submission_whose_answer_was_lost_is_not_reported_as_taken(
    world: World, submission: Callable[..., JobSubmission]
) -> None:
    world.faults.on("create", key="jobs/*", fault=Fault.ANSWER_LOST)
    world.store.submit(submission())
    with pytest.raises(JobExists):
        world.other_store.submit(submission())


def test_a_submitter_that_crashes_leaves_the_whole_job_or_none(
    world: World, submission: Callable[..., JobSubmission]
) -> None:
    for fault, expected in ((Fault.CRASH_BEFORE, []), (Fault.CRASH_AFTER, ["job-1"])):
        world.faults.on("create", key="jobs/*", fault=fault)
        with pytest.raises(Crash):
            world.store.submit(submission())
        assert list(world.other_store.jobs.scan()) == expected


@pytest.fixture
def lease(world: World, submission: Callable[..., JobSubmission]) -> Lease:
    world.other_store.submit(submission())
    world.other_store.records.create("job-1", transitions.assign(None, "job-1", "i-1", AT))
    lease = world.store.acquire("job-1", 1, "i-1", ttl=TTL)
    assert lease is not None
    return lease


def test_a_lease_is_held_for_its_length_from_the_beginning_of_the_last_renewal(world: World, lease: Lease) -> None:
    world.clock.advance(timedelta(seconds=50))
    slow = Fault.CONFLICT
    world.faults.on("replace", key="records/*", nth=1, fault=slow)
    world.faults.on("replace", key="records/*", nth=2, fault=slow)
    began = world.clock.monotonic()
    assert lease.renew(Progress(step=1))
    assert world.clock.monotonic() > began
    assert lease.valid_until == began + TTL
    world.clock.advance(began + TTL - world.clock.monotonic() - timedelta(milliseconds=1))
    assert lease.valid()
    world.clock.advance(timedelta(milliseconds=1))
    assert not lease.valid()


def test_a_lease_survives_a_renewal_of_which_nothing_was_heard(world: World, lease: Lease) -> None:
    world.faults.on("replace", key="records/*", fault=Fault.ANSWER_LOST)
    for nth in range(1, 5):
        world.faults.on("get", key="records/*", nth=nth, fault=Fault.NEVER_ARRIVED)
    with pytest.raises(StoreUnavailable):
        lease.renew(Progress(step=1))
    assert lease.valid()
    assert lease.renew(Progress(step=2))
    stored = world.other_store.records.get("job-1")
    assert stored is not None and stored.value.progress.step == 2 and stored.value.beat == 3


def test_a_lease_is_lost_for_good_once_the_record_says_so(world: World, lease: Lease) -> None:
    record = world.other_store.records.get("job-1")
    assert record is not None
    expired = transitions.expire(record.value, AT)
    world.other_store.records.replace("job-1", record, transitions.assign(expired, "job-1", "i-2", AT))
    assert not lease.renew(Progress(step=1))
    assert not lease.valid()
    assert lease.release(Reason.FINISHED, progress=Progress(step=9)) is None
    stored = world.other_store.records.get("job-1")
    assert stored is not None
    assert (stored.value.state, stored.value.owner, stored.value.progress) == (JobState.ASSIGNED, "i-2", Progress())


def test_a_lease_that_was_declared_over_is_taken_back_while_nobody_else_has_the_job(world: World, lease: Lease) -> None:
    record = world.other_store.records.get("job-1")
    assert record is not None
    world.other_store.records.replace("job-1", record, transitions.expire(record.value, AT))
    assert lease.renew(Progress(step=1))
    assert lease.valid()
    stored = world.other_store.records.get("job-1")
    assert stored is not None
    assert (stored.value.state, stored.value.epoch) == (JobState.RUNNING, record.value.epoch)


def test_a_release_of_which_nothing_was_heard_counts_once(world: World, lease: Lease) -> None:
    world.faults.on("replace", key="records/*", fault=Fault.ANSWER_LOST)
    for nth in range(1, 5):
        world.faults.on("get", key="records/*", nth=nth, fault=Fault.NEVER_ARRIVED)
    last = Progress(step=9, durable_step=9, metrics={"loss": float("nan")})
    with pytest.raises(StoreUnavailable):
        lease.release(Reason.NOTICE, progress=last)
    assert not lease.valid()
    again = lease.release(Reason.NOTICE, progress=last)
    assert again is not None and again.preemptions == 1 and again.state is JobState.PENDING
    assert again.progress == Progress(step=9, durable_step=9), "JSON has no NaN"


def test_an_agent_that_started_again_may_adopt_its_own_lease_and_no_other(world: World, lease: Lease) -> None:
    assert world.store.acquire("job-1", 1, "i-1", ttl=TTL) is None
    assert world.store.acquire("job-1", 1, "i-2", ttl=TTL, adopt=True) is None
    adopted = world.store.acquire("job-1", 1, "i-1", ttl=TTL, adopt=True)
    assert adopted is not None and adopted.valid()


def test_an_unreadable_document_does_not_hide_the_others(world: World, caplog: pytest.LogCaptureFixture) -> None:
    store: Store = world.store
    store.cancels.create("good", Request(at=AT))
    world.control.put("cancels/bad.json", b"{")
    assert list(store.cancels.scan()) == ["good"]
    assert "cancels/bad.json" in caplog.text
    assert store.cancels.unreadable == {"bad"}
    store.cancels.put("bad", Request(at=AT))
    assert list(store.cancels.scan()) == ["bad", "good"] and not store.cancels.unreadable


def test_a_scan_reads_only_what_changed(world: World) -> None:
    world.other_store.cancels.create("a", Request(at=AT))
    world.other_store.cancels.create("b", Request(at=AT))
    world.store.cancels.scan()
    world.other_store.cancels.put("b", Request(at=AT, by="new"))
    world.faults.on("get", key="cancels/a.json", fault=Fault.DENIED)
    documents = world.store.cancels.scan()
    assert documents["b"].value.by == "new" and not world.faults.spent
    world.other_store.cancels.delete("a")
    assert list(world.store.cancels.scan()) == ["b"]


def test_a_document_that_could_not_be_read_back_is_not_written(world: World) -> None:
    point = PricePoint(instance_type="t", zone="z", market=Market.SPOT, at=AT, usd_per_hour=0.1, source="test")
    point = point.model_copy(update={"usd_per_hour": float("nan")})
    with pytest.raises(BadDocument, match="usd_per_hour"):
        world.store.add_price(point)
    assert world.control.objects == {}
