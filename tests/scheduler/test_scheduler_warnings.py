"""Whole ticks on a folder store: the cloud's messages about an instance, and the effect on its job."""

from datetime import timedelta

import pytest
from everspot_clouds.base import MessageKind, Phase
from everspot_core.jobs.records import (
    EventKind,
    InstanceState,
    JobState,
    NoticeKind,
    Order,
    Reason,
)
from everspot_core.jobs.records import Notice as CloudNotice
from everspot_store import StoreUnavailable
from scheduler_helpers import Cluster


def test_an_interruption_warning_from_the_queue_alone_stops_the_job_and_moves_it(cluster: Cluster) -> None:
    cluster.length = 50
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(6)
    cluster.agent("i-2")
    at = cluster.clock.now()
    warning = cluster.cloud.send(MessageKind.WARNING, "i-1", at, deadline=at + timedelta(seconds=120))
    cluster.schedulers[0].tick()
    assignment = cluster.store.assignments.get("i-1").value
    assert (assignment.order, assignment.reason, assignment.deadline, assignment.cordoned) == (
        Order.STOP,
        Reason.NOTICE,
        at + timedelta(seconds=120),
        True,
    )
    assert cluster.cloud.acknowledged == [warning]
    cluster.run(6)
    record = cluster.store.records.get("j").value
    assert (record.owner, record.state, record.preemptions) == ("i-2", JobState.RUNNING, 1)
    cluster.run(20)
    assert [iid for _, iid in cluster.starts["j"]] == ["i-1", "i-2"]


def test_a_warning_is_not_deleted_before_it_is_written_down(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(2)
    warning = cluster.cloud.send(MessageKind.WARNING, "i-1", cluster.clock.now())
    create = cluster.store.assignments.create

    def unavailable(*_: object) -> None:
        raise StoreUnavailable("injected")

    cluster.store.assignments.create = unavailable
    with pytest.raises(StoreUnavailable):
        cluster.schedulers[0].tick()
    assert cluster.cloud.acknowledged == []
    cluster.store.assignments.create = create
    cluster.schedulers[0].tick()
    assert cluster.cloud.acknowledged == [warning]
    assert cluster.store.assignments.get("i-1").value.cordoned


def test_messages_about_instances_of_others_change_nothing_and_are_deleted(cluster: Cluster) -> None:
    cluster.agent("i-1")
    foreign = [
        cluster.cloud.send(kind, "i-foreign", cluster.clock.now())
        for kind in (MessageKind.WARNING, MessageKind.ENDED, MessageKind.LAUNCHED)
    ]
    cluster.run(1)
    cluster.run(8)
    assert {m.kind for m in cluster.cloud.acknowledged} == {m.kind for m in foreign}
    assert cluster.store.assignments.get("i-foreign") is None
    assert cluster.store.ends.scan() == {}


def test_a_warning_about_an_instance_that_is_not_described_yet_waits_for_the_description(cluster: Cluster) -> None:
    cluster.run(1)
    cluster.cloud.send(MessageKind.WARNING, "i-new", cluster.clock.now())
    cluster.run(1)
    assert cluster.cloud.acknowledged == []
    cluster.agent("i-new")
    cluster.run(8)
    assert [m.instance_id for m in cluster.cloud.acknowledged] == ["i-new"]
    assert cluster.store.assignments.get("i-new").value.cordoned


def test_an_instance_that_the_cloud_calls_gone_loses_its_job_at_once(cluster: Cluster) -> None:
    cluster.length = 50
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(5)
    cluster.end("i-1", interrupted=False)
    cluster.cloud.send(MessageKind.ENDED, "i-1", cluster.clock.now())
    cluster.agent("i-2")
    cluster.run(3)
    (lost,) = cluster.events_of_kind("j", EventKind.LOST)
    assert lost.data["cause"] == "terminated"
    assert lost.instance_id == "i-1"
    assert cluster.store.records.get("j").value.owner == "i-2"


def test_nothing_is_put_on_an_instance_that_has_seen_a_notice_itself(cluster: Cluster) -> None:
    agent = cluster.agent("i-1")
    notice = CloudNotice(kind=NoticeKind.INTERRUPTION, source="imds", seen_at=cluster.clock.now())
    agent.record = agent.record.model_copy(update={"notice": notice, "state": InstanceState.DRAINING})
    agent.alive = False
    cluster.store.instances.put("i-1", agent.record)
    cluster.submit("j")
    cluster.run(3)
    assert cluster.store.assignments.scan() == {}


def test_an_instance_that_gave_its_job_back_for_a_notice_gets_none_before_it_has_reported_again(
    cluster: Cluster,
) -> None:
    agent = cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(1)
    lease, agent.lease, agent.alive = agent.lease, None, False
    assert lease is not None
    cluster.store.instances.put("i-1", agent.record.model_copy(update={"state": InstanceState.READY, "job_id": None}))
    lease.release(Reason.NOTICE)  # within the heartbeat's spacing: its record says that it is free
    for _ in range(4):
        cluster.schedulers[0].tick()
        cluster.clock.advance(timedelta(seconds=1))
    assert cluster.state("j") == "PENDING" and cluster.store.records.get("j").value.epoch == 1
    cluster.agent("i-2")
    cluster.run(1)
    assert cluster.store.records.get("j").value.owner == "i-2"


def test_an_instance_that_is_shutting_down_gets_nothing_new(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.end("i-1", interrupted=False, phase=Phase.ENDING)
    cluster.submit("j")
    cluster.run(3)
    assert cluster.state("j") == "PENDING"
    assert cluster.store.assignments.get("i-1").value.cordoned
