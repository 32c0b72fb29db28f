"""A garbage collector and a reader that begins to use an object that is about to be deleted, in every order of their
steps."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission, Series
from everspot_store import ManualClock, Store, StoreDenied, StoreUnavailable
from everspot_store.garbage import Collector, GarbageKind
from everspot_store.testing import Fault, FaultScript, MemoryBackend, faulty_store

WALL = datetime(2026, 6, 1, tzinfo=UTC)
MONTH = timedelta(days=30)
SPEC = JobSpec(name="own", entrypoint=["train.py"], code=".")


class Actor(threading.Thread):
    """Does something in steps: it stops in front of each of its operations on a bucket until it may take it."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._action, self.error = action, None
        self._go, self._here, self.over = threading.Semaphore(0), threading.Semaphore(0), False
        self.steps = 0
        self.start()
        self._here.acquire()

    def run(self) -> None:
        try:
            self._action()
        except Exception as error:
            self.error = error
        self.over = True
        self._here.release()

    def arrive(self) -> None:
        self._here.release()
        self._go.acquire()

    def walk(self, steps: int | None = None) -> "Actor":
        """Take so many steps, or all that are left."""
        while not self.over and steps != 0:
            self._go.release()
            self._here.acquire()
            self.steps += 1
            steps = None if steps is None else steps - 1
        return self


class Stepped(MemoryBackend):
    """A bucket that pauses its actors before each call, except calls in threads of their own."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("get", "list", "put", "create", "replace", "delete", "upload", "download"):
            actor = threading.current_thread()
            if isinstance(actor, Actor) and not getattr(actor, "inside", False):
                return lambda *args: _once(actor, MemoryBackend.__dict__[name].__get__(self), args)
        return super().__getattribute__(name)


def _once(actor: Any, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """One step, whatever the operation is made of."""
    actor.arrive()
    actor.inside = True
    try:
        return call(*arguments)
    finally:
        actor.inside = False


class Scene:
    """A cluster with code and a dataset's file that nobody names, which a collector has found."""

    def __init__(self, folder: Path) -> None:
        self.outcome: BaseException | None = None
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.data = Stepped()
        self.store = faulty_store(Stepped(), self.data, self.clock, FaultScript())
        self.code, self.set = folder / "code", folder / "set"
        for path in (self.code, self.set):
            path.mkdir(exist_ok=True)
        (self.code / "train.py").write_text("print(1)")
        (self.set / "x").write_bytes(b"x")
        first = self.submit("first")
        self.dataset = self.store.datasets.put("set", self.set)
        self.store.jobs.delete("first")  # as if it had been cut off before, more than a day ago
        self.data.delete(f"code/named/{first.code_digest}/first")
        self.data.delete(f"datasets/set/{self.dataset.digest}.json")
        self.collector = Collector(self.store)
        self.garbage = self.collector.find(MONTH, self.clock.now(), WALL)
        assert [item.kind for item in self.garbage] == [GarbageKind.CODE, GarbageKind.FILES]

    def submit(self, job: str = "j", **more: Any) -> JobSubmission:
        submission = JobSubmission(job_id=job, spec=SPEC, submitted_at=self.clock.now(), **more)
        return self.store.submit(submission, self.code)

    def collect(self) -> None:
        self.collector.remove(self.garbage)


def orders(folder: Path, action: Callable[[Scene], object]) -> Iterator[Scene]:
    """Every scene in which the user takes some steps, then the collector some, then the user the rest, then it."""
    scene = Scene(folder)
    user, collector = Actor(lambda: action(scene)).walk(), Actor(scene.collect).walk()
    assert user.error is None and collector.error is None
    for first in range(user.steps + 1):
        for second in range(collector.steps + 1):
            scene = Scene(folder)
            user, collector = Actor(lambda scene=scene: action(scene)), Actor(scene.collect)
            user.walk(first)
            collector.walk(second)
            user.walk()
            collector.walk()
            assert collector.error is None
            scene.outcome = user.error
            yield scene


def test_a_job_that_reuses_old_code_has_it_whenever_a_collector_comes(tmp_path: Path) -> None:
    removed, own, count = 0, 0, 0
    for scene in orders(tmp_path, lambda scene: scene.submit()):
        assert scene.outcome is None
        submission = scene.store.jobs.get("j").value
        scene.store.fetch_code(submission, tmp_path / "out")
        assert (tmp_path / "out" / "train.py").read_text() == "print(1)"
        removed += f"code/{submission.code_digest}.tar.gz" not in scene.data.objects
        own += any(key.startswith("code/own/j/") for key in scene.data.objects)
        assert not [key for key in scene.data.objects if key.startswith("sweeps/")]
        count += 1
    assert count > 50 and removed > 0 and own >= removed  # the object that was removed meanwhile has another key


def test_a_job_is_never_there_without_its_code(tmp_path: Path) -> None:
    """Also for a machine that takes the job immediately, and if the submitter is killed after any of its steps."""
    steps = Actor(Scene(tmp_path).submit).walk().steps
    looks = 0
    for first in range(steps + 1):
        for second in range(Actor(Scene(tmp_path).collect).walk().steps + 1):
            for begins in ("collector", "submitter"):
                scene = Scene(tmp_path)
                user, collector = Actor(scene.submit), Actor(scene.collect)
                if begins == "collector":
                    collector.walk(second)
                user.walk(first)  # and does nothing more
                collector.walk(None if begins == "collector" else second)
                if (job := scene.store.jobs.get("j")) is not None:
                    scene.store.fetch_code(job.value, tmp_path / "out")
                    looks += 1
    assert looks > 20


@pytest.mark.parametrize("trouble", [StoreUnavailable, StoreDenied])
def test_where_announcements_cannot_be_read_no_job_is_created(tmp_path: Path, trouble: type[Exception]) -> None:
    class Bad(MemoryBackend):
        def list(self, prefix: str = "") -> Any:
            if prefix.startswith("sweeps"):
                raise trouble("no")
            return super().list(prefix)

    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    store = faulty_store(MemoryBackend(), Bad(), clock, FaultScript())
    (tmp_path / "train.py").write_text("1")
    with pytest.raises(trouble):
        store.submit(JobSubmission(job_id="j", spec=SPEC, submitted_at=clock.now()), tmp_path)
    assert store.jobs.get("j") is None


def test_what_is_announced_in_words_that_nobody_reads_may_be_anything(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.data.put("sweeps/x.json", b"{")
    scene.submit()
    assert [key for key in scene.data.objects if key.startswith("code/own/j/")]


def test_a_copy_of_its_own_goes_on_to_a_job_that_is_begun_anew(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.data.put("sweeps/x.json", b"{")
    submitted = scene.submit()
    scene.data.delete(f"code/{submitted.code_digest}.tar.gz")
    again = scene.store.submit(submitted.model_copy(update={"job_id": "k", "retry_of": None}), code_of="j")
    scene.store.fetch_code(again, tmp_path / "again")
    assert (tmp_path / "again" / "train.py").is_file()
    scene.data.delete("sweeps/x.json")
    garbage = Collector(scene.store).find(MONTH, scene.clock.now(), WALL)
    assert {item.kind for item in garbage} == {GarbageKind.FILES, GarbageKind.NAMED}  # the copies of both jobs stay
    scene.store.jobs.delete("j")
    garbage = Collector(scene.store).find(MONTH, scene.clock.now(), WALL)
    assert [item.key for item in garbage if item.kind is GarbageKind.CODE] == [
        f"code/own/j/{submitted.code_digest}.tar.gz"
    ]


def test_a_retry_of_a_later_run_of_a_series_has_the_code_of_the_first_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.data.put("sweeps/x.json", b"{")
    first = scene.submit()
    scene.data.delete(f"code/{first.code_digest}.tar.gz")
    second = first.model_copy(update={"job_id": "j2", "series": Series(id=first.job_id)})
    scene.store.jobs.create("j2", second)
    again = scene.store.submit(second.model_copy(update={"job_id": "k", "retry_of": "j2", "series": None}))
    scene.store.fetch_code(again, tmp_path / "again")
    assert (tmp_path / "again" / "train.py").is_file()


def test_a_dataset_that_is_put_is_whole_whenever_a_collector_comes(tmp_path: Path) -> None:
    refused = 0
    for scene in orders(tmp_path, lambda scene: scene.store.datasets.put("set", scene.set)):
        if scene.outcome is not None:
            assert isinstance(scene.outcome, StoreUnavailable) and "put the dataset again" in str(scene.outcome)
            scene.store.datasets.put("set", scene.set)
            refused += 1
        scene.store.datasets.fetch(scene.store.datasets.find("set"), tmp_path / "out")
    assert refused > 0


def test_what_a_collector_has_announced_and_not_done_is_not_relied_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    collector = Actor(scene.collect)
    while not any(key.startswith("sweeps/") for key in scene.data.objects):
        collector.walk(1)  # and is cut off then
    submission = scene.submit()
    (own,) = [key for key in scene.data.objects if key.startswith("code/own/j/")]
    scene.data.delete(f"code/{submission.code_digest}.tar.gz")  # it was not, after all
    scene.store.fetch_code(submission, tmp_path / "out")
    again = scene.store.submit(submission.model_copy(update={"job_id": "k", "retry_of": "j"}))
    scene.data.delete(own)
    scene.store.fetch_code(again, tmp_path / "again")
    assert (tmp_path / "again" / "train.py").is_file()
    kinds = [item.kind for item in Collector(scene.store).find(MONTH, scene.clock.now(), WALL)]
    assert GarbageKind.SWEEPS in kinds and not collector.over


def test_an_announcement_stays_where_nobody_knows_what_was_deleted(tmp_path: Path) -> None:
    faults, data = FaultScript(), MemoryBackend()
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    store = faulty_store(MemoryBackend(), data, clock, faults)
    data.put("code/aa.tar.gz", b"code")
    garbage = Collector(store).find(MONTH, clock.now(), WALL)
    faults.on("delete", key="code/*", fault=Fault.DENIED)
    with pytest.raises(StoreDenied):
        Collector(store).remove(garbage)
    assert store.gc_announcements.announced_keys() == {"code/aa.tar.gz"}
    (remaining,) = [i for i in Collector(store).find(MONTH, clock.now(), WALL) if i.kind is GarbageKind.SWEEPS]
    assert remaining in Collector(store).remove([remaining])
    assert store.gc_announcements.announced_keys() == set()


def test_a_head_without_a_job_keeps_no_parts_for_good(store_with_retry: tuple[Store, ManualClock]) -> None:
    store, clock = store_with_retry
    head = store.heads.get("old")
    assert head is not None
    store.heads.put("never", head.value.model_copy(update={"job_id": "never", "epoch": 0}))
    young = datetime(1970, 1, 1, 23, tzinfo=UTC)
    assert Collector(store).find(MONTH, clock.now(), young) == []  # its retry may be under way
    garbage = Collector(store).find(MONTH, clock.now(), WALL)
    assert [item.kind for item in garbage] == [GarbageKind.HEADS, GarbageKind.FINISHED]
    assert Collector(store).remove(garbage) == garbage
    assert store.heads.get("never") is None and store.data.list("jobs/") == []


def test_a_head_whose_job_has_come_meanwhile_stays(store_with_retry: tuple[Store, ManualClock]) -> None:
    store, clock = store_with_retry
    head = store.heads.get("old")
    assert head is not None
    store.heads.put("late", head.value.model_copy(update={"job_id": "late", "epoch": 0}))
    garbage = Collector(store).find(MONTH, clock.now(), WALL)
    store.submit(JobSubmission(job_id="late", spec=SPEC, submitted_at=clock.now(), retry_of="old"))
    assert Collector(store).remove(garbage) == []
    assert store.heads.get("late") is not None and len(store.data.list("jobs/")) == 1


@pytest.fixture
def store_with_retry(clock: ManualClock, tmp_path: Path) -> tuple[Store, ManualClock]:
    """A store with a job that ended long ago and has a checkpoint of one part."""
    from everspot_core.jobs import lease as transitions
    from everspot_core.jobs.records import Reason

    store = faulty_store(MemoryBackend(), MemoryBackend(), clock, FaultScript())
    store.submit(JobSubmission(job_id="old", spec=SPEC, submitted_at=clock.now()))
    running = transitions.start(transitions.assign(None, "old", "i-1", clock.now()), 1, "i-1", clock.now())
    assert running is not None
    store.records.put("old", transitions.release(running, Reason.FINISHED, clock.now(), SPEC))
    (tmp_path / "model.pt").write_bytes(b"weights")
    store.checkpoints("old", 1).publish(5, {"model.pt": tmp_path / "model.pt"})
    clock.advance(MONTH)
    return store, clock
