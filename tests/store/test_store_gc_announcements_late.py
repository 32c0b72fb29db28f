"""Garbage collectors that are interrupted, sleep, or delete late; the store has its own time here."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_store import ManualClock, Store, StoreUnavailable
from everspot_store.backend import Entry
from everspot_store.garbage import Collector, GarbageKind
from everspot_store.testing import FaultScript, MemoryBackend, faulty_store

WALL = datetime(2026, 6, 1, tzinfo=UTC)
MONTH = timedelta(days=30)
SPEC = JobSpec(name="own", entrypoint=["train.py"], code=".")


class Timed(MemoryBackend):
    """Says of what is put when that was, and of all else that it is old. `meanwhile` happens before the next deletion,
    or what of it there is, in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.times = WALL, {}
        self.meanwhile: Callable[[str], None] | None = None

    def put(self, key: str, data: bytes) -> str:
        self.times[key] = self.now
        return super().put(key, data)

    def list(self, prefix: str = "") -> list[Entry]:
        return [replace(entry, modified=self.times.get(entry.key, entry.modified)) for entry in super().list(prefix)]

    def delete(self, key: str) -> None:
        if self.meanwhile is not None and not key.startswith("sweeps/"):
            hook, self.meanwhile = self.meanwhile, None
            hook(key)
        super().delete(key)


class Cluster:
    """Code and a dataset's two files that nobody names."""

    def __init__(self, folder: Path) -> None:
        self.data, self.clock = Timed(), ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.store: Store = faulty_store(MemoryBackend(), self.data, self.clock, FaultScript())
        self.set, self.code = folder / "set", folder / "code"
        for path in (self.set / "x", self.set / "y", self.code / "train.py"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(path.name)
        dataset = self.store.datasets.put("set", self.set)
        self.data.delete(f"datasets/set/{dataset.digest}.json")
        self.submit("first")
        self.store.jobs.delete("first")
        self.data.now += timedelta(days=2)
        for key in [key for key in self.data.objects if key.startswith("code/named/")]:
            self.data.delete(key)

    def submit(self, job: str) -> JobSubmission:
        return self.store.submit(JobSubmission(job_id=job, spec=SPEC, submitted_at=self.clock.now()), self.code)

    def collect(self, kind: GarbageKind) -> None:
        collector = Collector(self.store)
        collector.remove([i for i in collector.find(MONTH, self.clock.now(), self.data.now) if i.kind is kind])


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_what_ctrl_c_leaves_announced_is_the_deletion_in_hand_and_not_for_good(cluster: Cluster) -> None:
    hit = []

    def interrupted(key: str) -> None:
        hit.append(key)
        raise KeyboardInterrupt

    cluster.data.meanwhile = interrupted
    with pytest.raises(KeyboardInterrupt):
        cluster.collect(GarbageKind.FILES)
    assert cluster.store.gc_announcements.announced_keys() == set(hit) and len(hit) == 1
    with pytest.raises(StoreUnavailable, match="if the removal was cut off, put the dataset again after 2 hours"):
        cluster.store.datasets.put("set", cluster.set)
    cluster.data.now += timedelta(hours=3)
    dataset = cluster.store.datasets.put("set", cluster.set)
    assert cluster.clock.slept
    cluster.store.datasets.fetch(dataset, cluster.set.parent / "out")


def test_a_deletion_that_was_repeated_may_come_late_and_stays_announced(cluster: Cluster, tmp_path: Path) -> None:
    late = []

    def unanswered(key: str) -> None:
        late.append(key)
        raise StoreUnavailable("no answer")

    cluster.data.meanwhile = unanswered
    cluster.collect(GarbageKind.CODE)
    assert cluster.store.gc_announcements.announced_keys() == set(late)
    submitted = cluster.submit("j")
    cluster.data.objects.pop(late[0], None)
    cluster.store.fetch_code(submitted, tmp_path / "out")
    assert (tmp_path / "out" / "train.py").is_file()


def test_a_collector_that_slept_reads_anew_who_names_what(cluster: Cluster, tmp_path: Path) -> None:
    """The collector has read that no document names the code. A day later another collector removes its announcement
    and the code."""
    listed, submitted = cluster.data.list, []

    def meanwhile(prefix: str = "") -> list[Entry]:
        entries = listed(prefix)
        if (
            prefix == "datasets/" and cluster.store.gc_announcements.announced_keys()
        ):  # the document with references that is read last
            cluster.data.list = listed
            cluster.data.now += timedelta(days=2)
            for kind in (GarbageKind.SWEEPS, GarbageKind.CODE):
                cluster.collect(kind)
            submitted.append(cluster.submit("j"))
        return entries

    cluster.data.list = meanwhile
    cluster.collect(GarbageKind.CODE)
    cluster.store.fetch_code(submitted[0], tmp_path / "out")
    assert not [key for key in cluster.data.objects if key.startswith("code/own/")]


def test_an_announcement_counts_while_it_is_there_and_young(cluster: Cluster) -> None:
    with cluster.store.gc_announcements.announced(["code/x"]) as announcement:
        assert announcement.renew()
        cluster.data.now += timedelta(hours=1)
        assert (announcement.renew(), announcement.renew()) == (False, True)
        (key,) = [key for key in cluster.data.objects if key.startswith("sweeps/")]
        cluster.data.delete(key)
        assert (announcement.renew(), announcement.renew()) == (False, True)
    assert cluster.store.gc_announcements.announced_keys() == set()
