"""Whole ticks: an owner that was declared dead takes its job back, and gets its orders again."""

from collections.abc import Callable

import pytest
from everspot_core.jobs.records import EventKind, Market, Order, Reason, Request
from scheduler_helpers import LIMITS, Cluster

SILENT = int(LIMITS.lease_ttl.total_seconds()) + 5


def silence(cluster: Cluster) -> None:
    """The agent hears and says nothing for longer than its lease, goes on, and is back."""
    agent = cluster.agents["i-1"]
    agent.alive = False
    cluster.run(SILENT)
    record, assignment = cluster.store.records.get("j").value, cluster.store.assignments.get("i-1").value
    assert (record.last_reason, record.owner, assignment.job_id) == (Reason.LOST, None, None)
    agent.alive = True
    agent.turn()
    assert cluster.store.records.get("j").value.owner == "i-1"


def taken_back(cluster: Cluster, **spec: object) -> None:
    """A job that its owner has taken back, after ticks in which nothing was asked of it."""
    cluster.length = 10_000
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.submit("j", **spec)
    cluster.run(4)
    silence(cluster)
    cluster.run(3)


REQUESTS: dict[Reason, Callable[[Cluster, Request], object]] = {
    Reason.CANCEL: lambda cluster, request: cluster.store.cancels.create("j", request),
    Reason.DRAIN: lambda cluster, request: cluster.store.request_drain(request),
    Reason.DRILL: lambda cluster, request: cluster.store.drills.create("j/1", request),
}


@pytest.mark.parametrize("reason", REQUESTS)
def test_a_job_that_was_taken_back_does_what_is_asked_of_it(cluster: Cluster, reason: Reason) -> None:
    taken_back(cluster)
    assignment = cluster.store.assignments.get("i-1").value
    assert (assignment.job_id, assignment.epoch, assignment.order) == ("j", 1, Order.RUN)
    REQUESTS[reason](cluster, Request(at=cluster.clock.now(), by="test"))
    cluster.run(2)
    assert cluster.store.records.get("j").value.last_reason is reason


def test_an_order_to_leave_reaches_a_job_that_was_taken_back(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(4)
    document = cluster.store.assignments.get("i-1")
    leave_order = document.value.model_copy(update={"order": Order.LEAVE, "reason": Reason.ROLL})
    cluster.agents["i-1"].alive = False
    cluster.store.assignments.replace("i-1", document, leave_order)
    silence(cluster)
    cluster.run(3)
    assert cluster.store.records.get("j").value.last_reason is Reason.ROLL
    assert not cluster.agents["i-1"].alive


def test_what_a_job_spends_after_it_was_taken_back_counts(cluster: Cluster) -> None:
    taken_back(cluster, budget={"dollars": 0.002})  # c6i.large costs about 0.085 $/h: some 85 s
    cluster.run(12)  # its spending is reckoned before the agent has told of it
    writer = cluster.store.event_writer("j", 1, "i-1", "i-1")
    writer.emit(EventKind.TRAINING, from_step=5, restored=False, by="agent", reclaimed=True)
    cluster.run(20)
    assert cluster.state("j") == "RUNNING"
    cluster.run(60)
    record = cluster.store.records.get("j").value
    assert (record.last_reason, record.epoch) == (Reason.BUDGET, 1)
