"""The life of a job through the store's public interface: the same on a folder and on S3."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import EventKind, JobState, Market, Progress, Reason, Request
from everspot_store import Fenced, JobExists, KeyTaken, ManualClock, Store
from everspot_store.chunks import ChunkWriter
from everspot_store.testing import Fault, FaultScript, MemoryBackend, faulty_store

AT = datetime(2026, 1, 1, tzinfo=UTC)
Make = Callable[..., JobSubmission]


def assign(store: Store, job_id: str, instance: str) -> int:
    """Assign the job as a scheduler does."""
    old = store.records.get(job_id)
    new = transitions.assign(old.value if old else None, job_id, instance, store.clock.now())
    written = store.records.create(job_id, new) if old is None else store.records.replace(job_id, old, new)
    assert written is not None
    return new.epoch


def test_a_job_lives_from_submission_to_success(store: Store, submission: Make, tmp_path: Path) -> None:
    store.submit(submission())
    assert list(store.jobs.scan()) == ["job-1"]
    epoch = assign(store, "job-1", "i-1")
    lease = store.acquire("job-1", epoch, "i-1")
    assert lease is not None and lease.valid()
    assert lease.renew(Progress(step=5, metrics={"loss": float("nan"), "accuracy": 0.5}))
    running = store.records.get("job-1")
    assert running is not None and running.value.state is JobState.RUNNING
    assert running.value.progress == Progress(step=5, metrics={"accuracy": 0.5})

    checkpoints = store.checkpoints("job-1", epoch, guard=lease.valid)
    assert checkpoints.fence().epoch == 1
    assert checkpoints.restore(tmp_path / "restored") is None
    for step in (10, 20, 30):
        part = tmp_path / "model.pt"
        part.write_bytes(b"weights" * step)
        published = checkpoints.publish(step, {"model.pt": part}, {"torch": "2"}, keep=2)
        assert published.parts[0].sha256 == hashlib.sha256(b"weights" * step).hexdigest()
    assert len(checkpoints.retire()) == 1

    record = lease.release(Reason.FINISHED, exit_code=0)
    assert record is not None and record.state is JobState.SUCCEEDED
    assert not lease.valid()
    reader = store.checkpoints("job-1")
    restored = reader.restore(tmp_path / "read")
    assert restored is not None and restored.step == 30
    assert (tmp_path / "read" / "model.pt").read_bytes() == b"weights" * 30


def test_a_successor_goes_on_where_the_owner_was_and_fences_it(store: Store, submission: Make, tmp_path: Path) -> None:
    store.submit(submission())
    first = assign(store, "job-1", "i-1")
    lease = store.acquire("job-1", first, "i-1")
    assert lease is not None
    part = tmp_path / "model.pt"
    part.write_bytes(b"one")
    stale = store.checkpoints("job-1", first)
    stale.publish(10, {"model.pt": part})
    assert lease.release(Reason.NOTICE) is not None

    second = assign(store, "job-1", "i-2")
    assert store.acquire("job-1", first, "i-1") is None
    assert store.acquire("job-1", second, "i-2") is not None
    successor = store.checkpoints("job-1", second)
    restored = successor.restore(tmp_path / "restored")
    assert restored is not None and restored.step == 10
    with pytest.raises(Fenced):
        stale.publish(20, {"model.pt": part})
    with pytest.raises(Fenced):
        stale.retire()
    assert not lease.renew(Progress(step=99))


def test_a_job_id_is_used_once(store: Store, submission: Make) -> None:
    store.submit(submission())
    with pytest.raises(JobExists):
        store.submit(submission(priority="critical"))


def test_code_is_packed_uploaded_once_and_unpacked(store: Store, submission: Make, tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "pkg").mkdir(parents=True)
    (source / "pkg" / "train.py").write_text("print(1)\n")
    submitted = store.submit(submission(), code_dir=source)
    assert store.submit(submission("job-2"), code_dir=source).code_digest == submitted.code_digest
    assert submitted.code_digest is not None
    store.fetch_code(submitted, tmp_path / "out")
    assert (tmp_path / "out" / "pkg" / "train.py").read_text() == "print(1)\n"


def test_events_are_numbered_and_ordered(store: Store, clock: ManualClock) -> None:
    agent = store.event_writer("job-1", 1, "i-1", "i-1")
    trainer = store.event_writer("job-1", 1, "trainer-i-1", "i-1")
    agent.emit(EventKind.STARTED)
    clock.advance(timedelta(seconds=1))
    trainer.emit(EventKind.TRAINING, from_step=0, restored=False, seconds=1.5)
    clock.advance(timedelta(seconds=1))
    agent.emit(EventKind.STOP_DEMANDED, source="imds")
    assert [(event.kind, event.seq) for event in store.events("job-1")] == [
        (EventKind.STARTED, 0),
        (EventKind.TRAINING, 0),
        (EventKind.STOP_DEMANDED, 1),
    ]


@pytest.mark.parametrize("job_id", ["job-1", "my-trainer-1"])
def test_a_brief_history_leaves_out_what_trainers_wrote_and_nothing_else(store: Store, job_id: str) -> None:
    store.event_writer(job_id, 1, "i-1", "i-1").emit(EventKind.STARTED)
    store.event_writer(job_id, 1, "trainer-i-1", "i-1").emit(EventKind.TRAINING)
    assert [event.kind for event in store.events(job_id, brief=True)] == [EventKind.STARTED]
    assert len(store.events(job_id)) == 2


def test_a_writer_that_starts_again_goes_on_behind_its_last_number(store: Store) -> None:
    store.event_writer("job-1", 1, "i-1").emit(EventKind.STARTED)
    again = store.event_writer("job-1", 1, "i-1").emit(EventKind.ERROR, message="x")
    assert again.seq == 1
    assert len(store.events("job-1")) == 2
    store.append_event(again)
    assert len(store.events("job-1")) == 2


@pytest.mark.parametrize("operation", ["events", "logs"])
def test_a_writer_that_starts_again_searches_no_number_one_by_one(clock: ManualClock, operation: str) -> None:
    faults = FaultScript()
    store = faulty_store(MemoryBackend(), MemoryBackend(), clock, faults)

    def write(count: int) -> None:
        events, logs = store.event_writer("job-1", 1, "i-1"), ChunkWriter(store.logs, "job-1", 1)
        for number in range(count):
            if operation == "events":
                events.emit(EventKind.STARTED)
            else:
                logs.append(f"{number} of {count}".encode())

    write(30)
    faults.on("create", nth=4, fault=Fault.DENIED)  # the fourth write of the second process
    write(1)
    count = len(store.events("job-1") if operation == "events" else store.logs.positions("job-1"))
    assert count == 31 and not faults.spent


def test_a_number_taken_by_an_event_of_another_release_is_taken(store: Store) -> None:
    event = store.event_writer("job-1", 1, "scheduler").emit(EventKind.ASSIGNED)
    store.control.put("events/job-1/000001-scheduler-000000.json", b'{"kind": "sung"}')
    with pytest.raises(KeyTaken):
        store.append_event(event)


def test_prices_drain_logs_and_metrics_come_back(store: Store) -> None:
    point = PricePoint(
        instance_type="m5.large", zone="us-east-1a", market=Market.SPOT, at=AT, usd_per_hour=0.03, source="test"
    )
    store.add_price(point)
    store.add_price(point)
    assert store.prices() == [point]

    assert store.drain_request() is None
    store.request_drain(Request(at=AT, by="me"))
    request = store.drain_request()
    assert request is not None and request.by == "me"
    store.clear_drain()
    assert store.drain_request() is None

    store.logs.append("job-1", 1, 0, b"a")
    store.logs.append("job-1", 1, 1, b"b")
    store.logs.append("job-1", 1, 1, b"b")
    store.logs.append("job-1", 2, 0, b"c")
    assert b"".join(chunk.data for chunk in store.read_logs("job-1")) == b"abc"
    assert [chunk.position for chunk in store.read_logs("job-1", after=(1, 0))] == [(1, 1), (2, 0)]
    store.metrics.append("job-1", 1, 0, b"{}\n")
    for name in ("000001/extra", "000001/-1", "000001/1_0", "000001/deep/000001", "first/000000"):
        store.data.put(f"jobs/job-1/metrics/{name}.jsonl", b"an object that the job wrote itself")
    assert [chunk.data for chunk in store.read_metrics("job-1")] == [b"{}\n"]


def test_requests_are_listed_by_job(store: Store) -> None:
    store.drills.create("job-1/d1", Request(at=AT))
    store.drills.create("job-2/d1", Request(at=AT))
    assert list(store.drills.scan("job-1/")) == ["job-1/d1"]
    assert sorted(store.drills.scan()) == ["job-1/d1", "job-2/d1"]
    assert store.manifest().cluster == "test"


def test_a_large_file_goes_up_and_down_in_pieces(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(bytes(range(256)) * (40 * 4096))
    stored = store.data.upload("datasets/large", source)
    assert stored.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert store.data.download("datasets/large", tmp_path / "back", stored.sha256) == stored.sha256
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
