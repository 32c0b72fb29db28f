"""The number of heartbeats that a tick reads, and the delay until their news are seen."""

from datetime import timedelta

import pytest
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    Market,
    Notice,
    NoticeKind,
    Order,
    Role,
)
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import BUSY_READS, Observer
from everspot_store import Bucket, ManualClock, Store
from everspot_store.testing import MemoryBackend


class Counting(MemoryBackend):
    """Counts the heartbeats that are read."""

    reads = 0

    def get(self, key):
        self.reads += key.startswith("instances/")
        return super().get(key)


class Fleet:
    """Instances with a job each, and one scheduler's observer, which has looked once."""

    def __init__(self, count: int) -> None:
        self.clock, self.backend = ManualClock(), Counting()
        buckets = [Bucket("memory:///control", self.backend, self.clock)]
        buckets.append(Bucket("memory:///data", MemoryBackend(), self.clock))
        self.buckets, self.store = buckets, Store(*buckets, clock=self.clock)
        manifest = self.manifest = Manifest(
            cluster="c", cloud="aws", control_url="memory:///control", data_url="memory:///data"
        )
        self.names = [f"i-{number:03}" for number in range(count)]
        now = self.clock.now()
        for name in self.names:
            assignment = Assignment(instance_id=name, job_id=f"j{name}", epoch=1, order=Order.RUN, changed_at=now)
            self.store.assignments.create(name, assignment)
            self.beat(name)
        self.observer = Observer(self.store, ManifestWatch(self.store, manifest))
        self.look()

    def beat(self, name: str, notice: Notice | None = None) -> None:
        self.store.instances.put(
            name,
            InstanceRecord(
                instance_id=name, cluster="c", role=Role.AGENT, instance_type="c6i.large", zone="a", vcpus=2,
                memory_gib=4, market=Market.SPOT, state=InstanceState.BUSY, job_id=f"j{name}", epoch=1,
                booted_at=self.clock.now(), updated_at=self.clock.now(), notice=notice,
            ),
        )  # fmt: skip

    def look(self) -> tuple[int, set[str]]:
        """The heartbeats that a tick reads, and the instances of whose notice it knows then."""
        before = self.backend.reads
        observation = self.observer.look()
        return self.backend.reads - before, {
            name for name, i in observation.instances.items() if i.value.notice is not None
        }


def noticed(fleet: Fleet) -> Notice:
    return Notice(kind=NoticeKind.INTERRUPTION, source="metadata", seen_at=fleet.clock.now())


def test_a_notice_of_a_busy_instance_is_read_in_the_next_tick_and_nothing_else_is() -> None:
    fleet = Fleet(3)
    assert fleet.look() == (0, set())
    fleet.beat("i-001", noticed(fleet))
    assert fleet.look() == (1, {"i-001"})
    assert fleet.look() == (0, {"i-001"})


@pytest.mark.parametrize("remaining", [1, BUSY_READS // 2])
def test_however_many_tell_something_a_tick_reads_a_hundred_the_longest_unread_first(remaining: int) -> None:
    fleet = Fleet(2 * BUSY_READS + remaining)
    for name in fleet.names:
        fleet.beat(name, noticed(fleet))
    fleet.clock.advance(timedelta(seconds=5))
    reads, noticed_names = fleet.look()
    assert (reads, len(noticed_names)) == (BUSY_READS, BUSY_READS)
    for name in noticed_names:
        fleet.beat(name, noticed(fleet))  # they must not keep the others waiting
    reads, noticed_names = fleet.look()
    assert (reads, len(noticed_names)) == (BUSY_READS, 2 * BUSY_READS)
    assert len(fleet.look()[1]) == len(fleet.names)


def test_an_instance_that_writes_between_its_listing_and_its_first_reading_stops_no_tick() -> None:
    fleet = Fleet(2)
    store = Store(*fleet.buckets, clock=fleet.clock)  # of a scheduler that has read nothing yet
    observer = Observer(store, ManifestWatch(store, fleet.manifest))
    get, late = fleet.backend.get, ["i-001"]

    def slow(key):
        if key.startswith("instances/") and late:
            fleet.beat(late.pop())
        return get(key)

    fleet.backend.get = slow
    observer.look()
    assert not late
    fleet.beat("i-001", noticed(fleet))
    assert observer.look().instances["i-001"].value.notice is not None
