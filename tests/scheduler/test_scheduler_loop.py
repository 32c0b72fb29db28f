"""Whole ticks on a folder store, with agents in this process: the states of jobs."""

import itertools
from datetime import timedelta

import pytest
from everspot_clouds.base import Message, MessageKind, Trouble
from everspot_core.jobs.records import (
    Assignment,
    EventKind,
    Market,
    Reason,
    Request,
)
from everspot_store import StoreDenied, StoreUnavailable
from scheduler_helpers import Cluster


def request(cluster: Cluster) -> Request:
    return Request(at=cluster.clock.now(), by="test")


def test_jobs_are_assigned_run_and_finished_and_each_ownership_is_told_once(cluster: Cluster) -> None:
    for n in range(3):
        cluster.submit(f"j{n}")
    cluster.agent("i-od", Market.ON_DEMAND)
    cluster.agent("i-spot")
    cluster.run(25)
    assert [cluster.state(f"j{n}") for n in range(3)] == ["SUCCEEDED"] * 3
    for n in range(3):
        (event,) = cluster.events_of_kind(f"j{n}", EventKind.ASSIGNED)
        assert event.data["instance_type"] == "c6i.large"
        assert event.data["zone"] == "us-east-1a"
        assert event.data["market"] in ("spot", "on-demand")
        assert event.instance_id in cluster.agents
    assert all(a.value.job_id is None for a in cluster.store.assignments.scan().values())


def test_a_freed_instance_gets_its_next_job_in_the_tick_that_sees_it_free(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.submit("a")
    cluster.run(4)
    cluster.submit("b")
    agent = cluster.agents["i-1"]
    while agent.lease is not None:
        agent.turn()
    cluster.schedulers[0].tick()
    assert cluster.store.assignments.get("i-1").value.job_id == "b"


def test_a_silent_owner_loses_its_job_after_the_lease_and_not_before(cluster: Cluster) -> None:
    cluster.length = 50
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(5)
    cluster.agents["i-1"].alive = False
    cluster.agent("i-2")
    cluster.run(14)
    assert cluster.store.records.get("j").value.owner == "i-1"
    cluster.run(4)
    record = cluster.store.records.get("j").value
    assert (record.owner, record.last_reason) == ("i-2", Reason.LOST)
    (lost,) = cluster.events_of_kind("j", EventKind.LOST)
    assert lost.data["cause"] == "expired"


def test_an_epoch_that_was_spent_after_a_loss_has_lost_nothing(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(3)
    cluster.end("i-1", interrupted=False)
    cluster.run(10)
    assert [e.epoch for e in cluster.events_of_kind("j", EventKind.LOST)] == [1]
    cluster.agent("i-2")
    half = Assignment(instance_id="i-2", job_id="j", epoch=2, changed_at=cluster.clock.now())
    cluster.store.assignments.create("i-2", half)
    cluster.store.request_drain(request(cluster))
    cluster.run(2)
    assert cluster.store.records.get("j").value.epoch == 2

    cluster.scheduler("s2").tick()

    assert [e.epoch for e in cluster.events_of_kind("j", EventKind.LOST)] == [1]


def test_a_scheduler_that_starts_anew_grants_the_whole_lease_again(cluster: Cluster) -> None:
    cluster.length = 50
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(5)
    cluster.agents["i-1"].alive = False
    cluster.run(10)
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(14)
    assert cluster.store.records.get("j").value.owner == "i-1"
    cluster.run(3)
    assert cluster.state("j") == "PENDING"


def test_a_drill_interrupts_once_and_its_request_is_gone(cluster: Cluster) -> None:
    cluster.length = 30
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(5)
    cluster.agent("i-2")
    cluster.store.drills.create("j/d1", request(cluster))
    cluster.run(8)
    assert cluster.store.drills.scan() == {}
    cluster.run(20)
    record = cluster.store.records.get("j").value
    assert record.preemptions == 1
    assert [iid for _, iid in cluster.starts["j"]] == ["i-1", "i-2"]


def test_a_drill_whose_request_may_not_be_taken_away_is_still_carried_out_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(_: str) -> None:
        raise StoreDenied("injected")

    monkeypatch.setattr(cluster.store.drills, "delete", denied)
    cluster.length = 40
    for n in range(2):
        cluster.agent(f"i-{n}")
    cluster.submit("j")
    cluster.run(5)
    cluster.store.drills.create("j/d1", request(cluster))
    cluster.run(30)
    assert cluster.store.records.get("j").value.preemptions == 1
    assert len([r for r in caplog.records if r.levelname == "CRITICAL"]) == 1


def test_a_cancelled_job_is_stopped_and_a_waiting_one_ended(cluster: Cluster) -> None:
    cluster.length = 50
    cluster.agent("i-1")
    cluster.submit("running")
    cluster.run(5)
    cluster.submit("waiting")
    for name in ("running", "waiting"):
        cluster.store.cancels.create(name, request(cluster))
    cluster.run(5)
    assert [cluster.state(n) for n in ("running", "waiting")] == ["CANCELLED"] * 2
    assert len(cluster.events_of_kind("waiting", EventKind.CANCELLED)) == 1


def test_a_drain_puts_every_job_back_and_starts_nothing_until_it_is_taken_back(cluster: Cluster) -> None:
    cluster.length = 20
    cluster.agent("i-1")
    cluster.submit("a")
    cluster.run(5)
    cluster.submit("b")
    cluster.store.request_drain(request(cluster))
    cluster.run(10)
    assert [cluster.state(n) for n in "ab"] == ["PENDING"] * 2
    assert cluster.store.records.get("a").value.last_reason is Reason.DRAIN
    cluster.store.clear_drain()
    cluster.run(60)
    assert [cluster.state(n) for n in "ab"] == ["SUCCEEDED"] * 2


def test_a_wall_clock_budget_fails_the_job_with_its_reason(cluster: Cluster) -> None:
    cluster.length = 500
    cluster.agent("i-1")
    cluster.submit("j", budget={"wall_clock": "20s"})
    cluster.submit("k", budget={"wall_clock": "20s"})
    cluster.run(30)
    assert [cluster.state(n) for n in "jk"] == ["FAILED"] * 2
    assert {cluster.store.records.get(n).value.last_reason for n in "jk"} == {Reason.BUDGET}
    (failed,) = cluster.events_of_kind("k", EventKind.FAILED)
    assert failed.data["reason"] == "budget"


def test_a_budget_in_dollars_is_reckoned_from_the_ledger_and_the_events(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.submit("j", budget={"dollars": 0.001})  # c6i.large costs about 0.085 $/h: some 42 s
    cluster.run(30)
    assert cluster.state("j") == "RUNNING"
    cluster.run(40)
    assert cluster.state("j") == "FAILED"


def test_a_job_that_no_type_can_hold_says_so_until_one_can(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.submit("j", resources={"vcpus": 8})
    cluster.run(3)
    assert cluster.state("j") == "PENDING"
    (wait,) = cluster.store.notes.waiting.read().jobs.values()
    assert wait.words.startswith("none of the 1 known instance types can hold it; c6i.large")
    etag = cluster.store.control.get("waiting.json").etag
    cluster.run(30)
    assert cluster.store.control.get("waiting.json").etag == etag
    assert cluster.store.records.get("j") is None, "a job that waits costs its record no write"
    cluster.agent("i-8", vcpus=8)
    cluster.run(2)
    record = cluster.store.records.get("j").value
    assert (record.owner, record.detail) == ("i-8", "")


@pytest.mark.parametrize(("kind", "level"), [(Trouble.CREDENTIALS, "CRITICAL"), (Trouble.THROTTLED, "WARNING")])
def test_the_cloud_failing_stops_no_tick_and_is_asked_less_and_less(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, kind: Trouble, level: str
) -> None:
    cluster.cloud.error, cluster.cloud.kind = OSError("injected"), kind
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(100)
    assert cluster.state("j") == "SUCCEEDED"
    assert level in {r.levelname for r in caplog.records}
    assert cluster.cloud.describe_calls <= 5


def test_instances_are_seen_although_their_ends_cannot_be_read(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.agent("i-1")
    cluster.cloud.ends_error = OSError("injected")
    cluster.run(20)
    assert set(cluster.store.launches.scan()) == {"i-1"}
    assert "reading how instances ended failed" in caplog.text
    assert cluster.cloud.describe_calls >= 4, "descriptions are asked for as often as ever"


def test_the_loop_goes_on_after_an_error_and_ends_when_it_is_told_to(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = cluster.schedulers[0]
    calls = []

    def tick() -> None:
        calls.append(cluster.clock.monotonic())
        if len(calls) < 3:
            raise StoreUnavailable("injected")

    scheduler.tick = tick
    scheduler.run(lambda: len(calls) == 5)
    gaps = [b - a for a, b in itertools.pairwise(calls)]
    assert gaps == [timedelta(seconds=s) for s in (2, 4, 1, 1)]
    assert "the tick was aborted: injected" in caplog.text


def test_a_message_ends_the_wait_for_the_next_tick(cluster: Cluster) -> None:
    scheduler, ticks = cluster.schedulers[0], []
    cluster.agent("i-1")

    def once_asleep(_: timedelta) -> None:
        if len(cluster.clock.slept) == 4:
            cluster.cloud.send(MessageKind.WARNING, "i-1", cluster.clock.now())

    cluster.clock.on_sleep = once_asleep
    tick = scheduler.tick
    scheduler.tick = lambda: (ticks.append(cluster.clock.monotonic()), tick())
    scheduler.run(lambda: len(ticks) == 2)
    assert ticks[1] - ticks[0] == timedelta(seconds=1)
    assert cluster.store.assignments.get("i-1").value.cordoned


def test_an_error_between_two_ticks_ends_no_scheduler(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, ticks, errors = cluster.schedulers[0], list[timedelta](), list[timedelta]()

    def refuse() -> list[Message]:
        errors.append(cluster.clock.monotonic())
        raise RuntimeError("the queue answers nonsense")

    monkeypatch.setattr(scheduler, "tick", lambda: ticks.append(cluster.clock.monotonic()))
    monkeypatch.setattr(cluster.cloud, "messages", refuse)
    scheduler.run(lambda: len(ticks) == 4)
    assert len(errors) == 3
    tick_every = cluster.manifest.limits.tick_every
    assert all(later - earlier >= tick_every for earlier, later in itertools.pairwise(ticks)), "it does not spin"
