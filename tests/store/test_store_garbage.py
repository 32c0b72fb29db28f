"""Garbage collection: a job keeps its checkpoints under any owners, and unneeded objects are found and removed."""

import hashlib
import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from everspot_core.costs.ledger import EndRecord
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobRecord, Reason
from everspot_store import ManualClock, NothingLeft, Store, StoreDenied, Unreadable
from everspot_store.garbage import Collector, Garbage, GarbageKind
from everspot_store.testing import Crash, Fault, FaultScript, MemoryBackend, faulty_store

SPEC = JobSpec(name="x", recipe="r")
SIZE = 100
WALL = datetime(2026, 6, 1, tzinfo=UTC)
MONTH = timedelta(days=30)


@pytest.fixture
def shelf(clock: ManualClock) -> tuple[Store, FaultScript, MemoryBackend]:
    faults, data = FaultScript(), MemoryBackend()
    return faulty_store(MemoryBackend(), data, clock, faults), faults, data


def parts(folder: Path, step: int) -> dict[str, Path]:
    paths = {}
    for name in ("model.pt", "optimizer.pt"):
        paths[name] = folder / name
        paths[name].write_bytes(f"{name} {step}".encode().ljust(SIZE))
    return paths


def checkpoint_bytes(data: MemoryBackend, job: str) -> int:
    return sum(len(value) for key, value in data.objects.items() if key.startswith(f"jobs/{job}/checkpoints/"))


@pytest.mark.parametrize("seed", range(4))
def test_after_a_day_of_checkpoints_and_kills_a_job_holds_no_more_than_it_keeps(
    shelf: tuple[Store, FaultScript, MemoryBackend], tmp_path: Path, seed: int
) -> None:
    store, faults, data = shelf
    random, step, keep = Random(seed), 0, 2
    for epoch in range(1, 13):  # an owner every two hours, each killed somewhere
        owner = store.checkpoints("j", epoch)
        operation, fault = (
            random.choice(["upload", "replace", "delete", "list"]),
            random.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER]),
        )
        faults.clear()
        faults.on(operation, key="*j*", nth=random.randint(1, 12), fault=fault)
        try:
            owner.restore(tmp_path / "restored")
            for _ in range(6):
                step += 10
                owner.publish(step, parts(tmp_path, step), keep=keep)
                owner.retire()
                assert checkpoint_bytes(data, "j") <= keep * 2 * SIZE
        except Crash:
            assert checkpoint_bytes(data, "j") <= (2 * keep + 2) * 2 * SIZE  # unfinished work for its successor
    faults.clear()
    last = store.checkpoints("j", 13)
    last.publish(step + 10, parts(tmp_path, step + 10), keep=keep)
    last.retire()
    assert checkpoint_bytes(data, "j") == keep * 2 * SIZE


def ended(store: Store, job: str, clock: ManualClock, digest: str | None = None) -> JobRecord:
    store.submit(JobSubmission(job_id=job, spec=SPEC, submitted_at=clock.now(), code_digest=digest))
    running = transitions.start(transitions.assign(None, job, "i-1", clock.now()), 1, "i-1", clock.now())
    assert running is not None
    record = transitions.release(running, Reason.FINISHED, clock.now(), SPEC)
    store.records.put(job, record)
    return record


def ended_a_month_ago(store: Store, job: str, folder: Path, clock: ManualClock) -> None:
    """Let a job end with a checkpoint, and a month pass."""
    ended(store, job, clock)
    store.checkpoints(job, 1).publish(5, parts(folder, 5))
    clock.advance(MONTH)


def test_garbage_is_found_by_kind_and_only_that_is_removed(
    shelf: tuple[Store, FaultScript, MemoryBackend], tmp_path: Path, clock: ManualClock
) -> None:
    store, _, data = shelf
    # A job that ended long ago, one that ended now, one that runs.
    ended(store, "old", clock, "aa")
    store.checkpoints("old", 1).publish(5, parts(tmp_path, 5))
    store.logs.append("old", 1, 0, b"words")
    data.put("jobs/old/outputs/result", b"result")
    clock.advance(MONTH)
    ended(store, "new", clock, "bb")
    store.checkpoints("new", 1).publish(5, parts(tmp_path, 5))
    store.logs.append("new", 1, 0, b"words")
    store.submit(JobSubmission(job_id="runs", spec=SPEC, submitted_at=clock.now()))
    store.records.put("runs", transitions.assign(None, "runs", "i-2", clock.now()))
    store.checkpoints("runs", 1).publish(5, parts(tmp_path, 5))
    for key in (
        "000001/000000000009",
        "000000/000000000001",
        "000002/000000000001",
    ):  # its own, a dead one's, a next one's
        data.put(f"jobs/runs/checkpoints/{key}/model.pt", b"cut")
    for name in ("best.pt", "best/model.pt", "000001/notes"):  # the job's own
        data.put(f"jobs/runs/checkpoints/{name}", b"mine")
    data.put("jobs/new/checkpoints/000001/000000000009/model.pt", b"cut")
    for digest in ("aa", "bb", "cc"):
        data.put(f"code/{digest}.tar.gz", b"code")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "x").write_bytes(b"x")
    used = store.datasets.put("set", tmp_path / "set").files[0].key
    data.put("datasets/_files/none", b"x")
    data.put("agents/i-1/000000.log", b"gone")
    data.put("agents/i-2/000000.log", b"alive")
    store.ends.create("i-1", EndRecord(instance_id="i-1", ended_at=clock.now() - MONTH, interrupted=False))

    collector = Collector(store)
    assert collector.find(MONTH, clock.now(), datetime(1970, 1, 1, 23, tzinfo=UTC)) == []  # all of it is too young
    garbage = collector.find(MONTH, clock.now(), WALL)
    assert Counter(item.kind for item in garbage) == {
        GarbageKind.PARTS: 2, GarbageKind.FINISHED: 2, GarbageKind.LOGS: 1, GarbageKind.CODE: 1, GarbageKind.FILES: 1,
        GarbageKind.AGENTS: 1,
    }  # fmt: skip
    before = set(data.objects)
    assert collector.remove(garbage) == garbage
    assert before - set(data.objects) == {item.key for item in garbage}
    assert {used, "jobs/old/outputs/result", "agents/i-2/000000.log", "code/aa.tar.gz"} <= set(data.objects)
    assert store.checkpoints("old").restore(tmp_path / "r") is None
    for job in ("new", "runs"):
        assert store.checkpoints(job).restore(tmp_path / "r") is not None
    assert collector.find(MONTH, clock.now(), WALL) == []


def test_what_another_job_begins_with_stays(
    shelf: tuple[Store, FaultScript, MemoryBackend], tmp_path: Path, clock: ManualClock
) -> None:
    store, _, _ = shelf
    ended_a_month_ago(store, "old", tmp_path, clock)
    garbage = Collector(store).find(MONTH, clock.now(), WALL)
    assert [item.kind for item in garbage] == [GarbageKind.FINISHED] * 2
    head = store.heads.get("old")
    assert head is not None
    store.heads.put("again", head.value.model_copy(update={"job_id": "again", "epoch": 0}))
    store.submit(again("again", clock))
    assert Collector(store).find(MONTH, clock.now(), WALL) == []
    assert Collector(store).remove(garbage) == []  # it came between the look and the removal
    assert store.checkpoints("again").restore(tmp_path / "r") is not None


def newer(data: MemoryBackend, key: str, *path: str | int) -> None:
    """One field more in a value inside a document, as a newer program might write it."""
    value = document = json.loads(data.objects[key])
    for step in path:
        value = value[step]
    value["new"] = 1
    data.put(key, json.dumps(document).encode())


def small_dataset(store: Store, folder: Path) -> str:
    """The key of the document of a dataset of one file."""
    (folder / "set").mkdir()
    (folder / "set" / "x").write_bytes(b"x")
    return f"datasets/set/{store.datasets.put('set', folder / 'set').digest}.json"


def test_a_field_of_a_newer_writer_makes_nothing_garbage(tmp_path: Path, clock: ManualClock) -> None:
    control, data = MemoryBackend(), MemoryBackend()
    store = faulty_store(control, data, clock, FaultScript())
    ended(store, "j", clock)
    store.checkpoints("j", 1).publish(5, parts(tmp_path, 5))
    document = small_dataset(store, tmp_path)
    newer(data, document, "files", 0)
    newer(control, "heads/j.json", "checkpoints", 0)
    newer(control, "heads/j.json", "checkpoints", 0, "parts", 0)
    assert Collector(store).find(MONTH, clock.now(), WALL) == []
    assert [version.name for version in store.datasets.versions()] == ["set"]
    assert store.checkpoints("j").restore(tmp_path / "r") is not None


@pytest.mark.parametrize("key", ["heads/j", "records/j", "jobs/j", "archive/2026-01/k", "datasets"])
def test_what_cannot_be_read_is_not_taken_for_absent(key: str, tmp_path: Path, clock: ManualClock) -> None:
    control, data = MemoryBackend(), MemoryBackend()
    store = faulty_store(control, data, clock, FaultScript())
    ended(store, "j", clock, "aa")
    store.checkpoints("j", 1).publish(5, parts(tmp_path, 5))
    record = ended(store, "k", clock, "bb")
    submission = store.jobs.get("k")
    assert submission is not None
    store.archive.move(submission.value, record, clock.now())
    for name in ("code/aa.tar.gz", "code/bb.tar.gz", "code/cc.tar.gz", "datasets/_files/none"):
        data.put(name, b"x")
    document = small_dataset(store, tmp_path)
    garbage = Collector(store).find(MONTH, clock.now(), WALL)
    assert {item.key for item in garbage} == {"code/cc.tar.gz", "datasets/_files/none"}
    bad = document if key == "datasets" else f"{key}.json"
    (data if key == "datasets" else control).put(bad, b'{"version": 2}')
    before = dict(data.objects)
    for _ in range(2):  # also what has been read once already
        with pytest.raises(Unreadable, match=re.escape(bad)):
            Collector(store).find(MONTH, clock.now(), WALL)
    with pytest.raises(Unreadable, match=re.escape(bad)):
        Collector(store).remove(garbage)
    assert data.objects == before


def test_what_a_job_or_a_dataset_has_named_since_the_look_stays(
    shelf: tuple[Store, FaultScript, MemoryBackend], tmp_path: Path, clock: ManualClock
) -> None:
    store, _, data = shelf
    data.put("code/aa.tar.gz", b"code")
    data.put(f"datasets/_files/{hashlib.sha256(b'x').hexdigest()}", b"x")
    garbage = Collector(store).find(MONTH, clock.now(), WALL)
    assert [item.kind for item in garbage] == [GarbageKind.CODE, GarbageKind.FILES]
    store.submit(JobSubmission(job_id="j", spec=SPEC, submitted_at=clock.now(), code_digest="aa"))
    small_dataset(store, tmp_path)
    assert Collector(store).remove(garbage) == []
    assert {item.key for item in garbage} <= set(data.objects)


def again(job: str, clock: ManualClock) -> JobSubmission:
    return JobSubmission(job_id=job, spec=SPEC, submitted_at=clock.now(), retry_of="old")


def test_a_job_does_not_go_on_from_checkpoints_that_were_removed(
    shelf: tuple[Store, FaultScript, MemoryBackend], tmp_path: Path, clock: ManualClock
) -> None:
    store, _, _ = shelf
    ended_a_month_ago(store, "old", tmp_path, clock)
    collector = Collector(store)
    collector.remove(collector.find(MONTH, clock.now(), WALL))
    with pytest.raises(NothingLeft, match="the checkpoints of old were removed; --from-scratch"):
        store.retry(again("new", clock), "old")
    assert store.jobs.get("new") is None and store.heads.get("new") is None
    store.heads.delete("old")  # only the job's history mentions it
    store.event_writer("old", 1, "trainer-i-1").emit(EventKind.CHECKPOINTED, step=5)
    with pytest.raises(NothingLeft):
        store.retry(again("new", clock), "old")


def test_a_job_is_not_submitted_when_its_checkpoints_are_removed_meanwhile(tmp_path: Path, clock: ManualClock) -> None:
    def watch(key: str, _: bytes | None) -> None:
        if key == "heads/new.json" and garbage:
            removed.extend(Collector(store).remove([garbage.pop() for _ in range(len(garbage))]))

    garbage: list[Garbage] = []
    removed: list[Garbage] = []
    store = faulty_store(MemoryBackend(watch), MemoryBackend(), clock, FaultScript())
    ended_a_month_ago(store, "old", tmp_path, clock)
    garbage += Collector(store).find(MONTH, clock.now(), WALL)
    with pytest.raises(NothingLeft):
        store.retry(again("new", clock), "old")
    assert len(removed) == 2
    assert store.jobs.get("new") is None and store.heads.get("new") is None


@pytest.mark.parametrize(("fault", "retained"), [(Fault.DENIED, False), (Fault.ANSWER_LOST, True)])
def test_a_submission_that_fails_leaves_no_head_and_one_that_may_be_there_keeps_its_own(
    shelf: tuple[Store, FaultScript, MemoryBackend], tmp_path: Path, clock: ManualClock, fault: Fault, retained: bool
) -> None:
    store, faults, _ = shelf
    ended(store, "old", clock)
    store.checkpoints("old", 1).publish(5, parts(tmp_path, 5))
    faults.on("create", key="jobs/new.json", fault=fault)
    if retained:
        faults.on("get", key="jobs/new.json", fault=Fault.DENIED)
    with pytest.raises(StoreDenied):
        store.retry(again("new", clock), "old")
    assert (store.heads.get("new") is not None) is retained is (store.jobs.get("new") is not None)
