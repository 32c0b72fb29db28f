"""Whole ticks of a cluster with shared instances: each job is assigned, ordered, lost and reported separately."""

from datetime import timedelta

import pytest
from everspot_clouds.base import MessageKind
from everspot_core.capacity.instances import Resident
from everspot_core.jobs.records import EventKind, InstanceState, Order, Progress, Reason, Request
from everspot_store import Lease
from scheduler_helpers import LIMITS, Agent, Cluster

SMALL = {"vcpus": 1, "memory_gib": 1, "shared": True}


class Crew(Agent):
    """An agent that runs all who sit on its instance."""

    def turn(self) -> None:
        if not self.alive:
            return
        store = self.cluster.store
        leases: dict[tuple[str, int], Lease] = self.__dict__.setdefault("leases", {})
        document = store.assignments.get(self.iid)
        for assignment in document.value.seat_assignments if document is not None else ():
            key = (assignment.job_id, assignment.epoch)
            if key not in leases and assignment.order is Order.RUN:
                lease = store.acquire(*key, self.iid, adopt=True)
                if lease is not None:
                    leases[key] = lease
                    self.cluster.starts[assignment.job_id].append((assignment.epoch, self.iid))
            elif key in leases and assignment.order is not Order.RUN:
                leases.pop(key).release(assignment.reason)
        for key, lease in list(leases.items()):
            done = lease.record.progress.step + 1
            if done >= self.cluster.length:
                leases.pop(key).release(Reason.FINISHED)
            elif not lease.renew(Progress(step=done)):
                leases.pop(key)
        state = InstanceState.BUSY if leases else InstanceState.READY
        update = {"state": state, "beat": self.record.beat + 1, "updated_at": self.cluster.clock.now()}
        update["residents"] = tuple(Resident(job_id=name, epoch=epoch) for name, epoch in leases)
        self.record = self.record.model_copy(update=update)
        store.instances.put(self.iid, self.record)


@pytest.fixture
def sharing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr("scheduler_helpers.Agent", Crew)
    monkeypatch.setattr(cluster, "check", lambda: None)  # which is of instances that hold one job
    cluster.declare(shared_instances=True)
    cluster.schedulers = [cluster.scheduler()]
    cluster.length = 10_000
    return cluster


def read_seats(cluster: Cluster, iid: str = "i-1") -> dict[str, tuple[int, Order]]:
    return {s.job_id: (s.epoch, s.order) for s in cluster.store.assignments.get(iid).value.seats}


def begin(cluster: Cluster, *names: str, **kw: int) -> None:
    cluster.agent("i-1", **{"vcpus": 4, **kw})
    for name in names:
        cluster.submit(name, resources=SMALL)
    cluster.run(4)
    assert {cluster.state(name) for name in names} == {"RUNNING"}


def test_four_small_jobs_run_on_one_instance_and_the_bill_knows_their_shares(sharing: Cluster) -> None:
    begin(sharing, *"abcd")
    assert read_seats(sharing) == dict.fromkeys("abcd", (1, Order.RUN))
    events = [e.data for name in "abcd" for e in sharing.events_of_kind(name, EventKind.ASSIGNED)]
    assert [(e["share"], e["gpus"]) for e in events] == [(0.25, 0)] * 4
    sharing.submit("e", resources=SMALL)
    sharing.run(3)
    assert sharing.state("e") == "PENDING"


def test_whole_assignments_are_one_write(sharing: Cluster) -> None:
    sharing.agent("i-1", vcpus=4)
    for name in "abcd":
        sharing.submit(name, resources=SMALL)
    table, versions = sharing.store.assignments, []
    create, replace = table.create, table.replace
    table.create = lambda *a: versions.append(a) or create(*a)
    table.replace = lambda *a: versions.append(a) or replace(*a)
    sharing.schedulers[0].tick()
    assert len(versions) == 1 and set(read_seats(sharing)) == set("abcd")


def test_one_is_cancelled_and_one_drilled_and_the_others_run_on(sharing: Cluster) -> None:
    begin(sharing, *"abcd")
    request = Request(at=sharing.clock.now(), by="test")
    sharing.store.cancels.create("b", request)
    sharing.store.drills.create("c/1", request)
    sharing.run(6)
    assert (sharing.state("b"), sharing.store.records.get("c").value.last_reason) == ("CANCELLED", Reason.DRILL)
    for name in "ad":
        assert sharing.starts[name] == [(1, "i-1")]
        assert sharing.store.records.get(name).value.epoch == 1
    assert set(read_seats(sharing)) == set("acd"), "who was drilled runs again, and who was cancelled has left its room"


def test_a_notice_from_the_queue_alone_reaches_all_of_them(sharing: Cluster) -> None:
    begin(sharing, *"abc")
    sharing.agent("i-2", vcpus=4)
    at = sharing.clock.now()
    sharing.cloud.send(MessageKind.WARNING, "i-1", at + timedelta(minutes=2))
    sharing.run(4)
    for name in "abc":
        record = sharing.store.records.get(name).value
        assert (record.last_reason, record.owner) == (Reason.NOTICE, "i-2")
    assert read_seats(sharing) == {} and set(read_seats(sharing, "i-2")) == set("abc")


def test_the_owner_of_all_dies_and_each_is_lost_once_and_goes_on_elsewhere(sharing: Cluster) -> None:
    begin(sharing, *"abc")
    sharing.agents["i-1"].alive = False
    sharing.agent("i-2", vcpus=4)
    sharing.run(int(LIMITS.lease_ttl.total_seconds()) + 8)
    for name in "abc":
        assert [e.instance_id for e in sharing.events_of_kind(name, EventKind.LOST)] == ["i-1"]
        assert sharing.store.records.get(name).value.owner == "i-2"
    assert read_seats(sharing) == {}


def test_a_job_that_wants_it_alone_waits_until_the_last_has_left(sharing: Cluster) -> None:
    begin(sharing, *"ab")
    sharing.submit("x", resources={"vcpus": 1})
    sharing.run(3)
    assert sharing.state("x") == "PENDING"
    sharing.store.cancels.create("a", Request(at=sharing.clock.now(), by="test"))
    sharing.run(4)
    assert sharing.state("x") == "PENDING"
    sharing.store.cancels.create("b", Request(at=sharing.clock.now(), by="test"))
    sharing.run(6)
    assignment = sharing.store.assignments.get("i-1").value
    assert (assignment.job_id, assignment.seats, sharing.state("x")) == ("x", (), "RUNNING")


def test_two_schedulers_never_give_the_same_room_away(sharing: Cluster) -> None:
    sharing.schedulers = [sharing.scheduler("s1"), sharing.scheduler("s2"), sharing.scheduler("s3")]
    sharing.length = 6
    sharing.agent("i-1", vcpus=3)
    for n in range(9):
        sharing.submit(f"j-{n}", resources=SMALL)
        sharing.run(2)
        assert sum(s.vcpus for s in sharing.store.assignments.get("i-1").value.seats) <= 3
    sharing.run(40)
    for n in range(9):
        assert sharing.state(f"j-{n}") == "SUCCEEDED"
        epochs = [epoch for epoch, _ in sharing.starts[f"j-{n}"]]
        assert epochs == [1]
