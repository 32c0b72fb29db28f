"""A corrupt document in the store, from any writer, does not stop the ticks for other jobs."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from everspot_core.cluster.notify import Notifications
from everspot_core.costs.ledger import UNKNOWN
from everspot_core.costs.team_budgets import Budgets
from everspot_core.jobs.records import EventKind, Market, Reason
from everspot_scheduler.fleet_status import FleetStatusWriter
from everspot_store import BadDocument, Bucket, ManualClock, Store
from everspot_store.testing import MemoryBackend
from scheduler_helpers import Cluster

TOPIC = "arn:aws:sns:us-east-1:123456789012:topic"
BEYOND = "9999-12-31T23:59:59-12:00"  # a moment that Python has in its own zone, and not in UTC


@pytest.fixture
def worn(clock: ManualClock) -> Cluster:
    """A cluster with a document of every kind: jobs that run, wait and have ended, instances that live and are gone."""
    buckets = (Bucket(f"memory:///{name}", MemoryBackend(), clock) for name in ("control", "data"))
    cluster = Cluster(Store(*buckets, clock=clock), clock)
    cluster.declare(notifications=Notifications(topic_arn=TOPIC))
    budgets = Budgets.model_validate({"teams": {"ants": {"month": {"dollars": 1000}}}})
    cluster.store.control.put("budgets.json", budgets.to_json())
    for name in ("i-gone", "i-1", "i-2"):
        cluster.agent(name, Market.ON_DEMAND)
    cluster.submit("done", tags={"Team": "ants"})
    cluster.run(10)
    cluster.length = 10**6
    for name in ("one", "two", "waits"):
        cluster.submit(name, budget={"dollars": 50}, expected_duration="1h")
    cluster.run(3)
    cluster.end("i-gone", interrupted=True)
    cluster.run(3)
    return cluster


def rewritten(cluster: Cluster, key: str, change: Callable[[Any], Any]) -> None:
    entry = cluster.store.control.get(key)
    assert entry is not None, key
    cluster.store.control.put(key, json.dumps(change(json.loads(entry.value))).encode())


def goes_on(cluster: Cluster) -> None:
    """Check that a newly started scheduler ticks without errors and assigns a new job to a new instance."""
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.clock.advance(timedelta(minutes=6))
    for agent in cluster.agents.values():
        with suppress(BadDocument):  # of the agent whose document it is
            agent.turn()
    cluster.submit("new")
    cluster.agent("i-new", Market.ON_DEMAND)
    for _ in range(30):
        cluster.schedulers[0].tick()
        cluster.agents["i-new"].turn()
        cluster.clock.advance(timedelta(seconds=1))
    assert cluster.store.schedulers.get("s2") is not None, "a tick reaches its end"
    assert any(iid == "i-new" for starts in cluster.starts.values() for _, iid in starts)


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("records/one.json", "held_seconds", float("inf")),
        ("records/one.json", "held_seconds", 10**30),
        ("records/one.json", "changed_at", BEYOND),
        ("records/one.json", "job_id", "two"),
        ("jobs/one.json", "job_id", "two"),
        ("jobs/one.json", "submitted_at", BEYOND),
        ("instances/i-1.json", "instance_id", "i-2"),
        ("assignments/i-1.json", "instance_id", "i-2"),
        ("ledger/launches/i-1.json", "instance_id", "i-2"),
        ("ledger/launches/i-1.json", "launched_at", "0001-01-01T00:00:00Z"),
        ("ledger/ends/i-gone.json", "instance_id", "i-2"),
        ("told/_since/anomaly.json", "at", "yesterday"),
        ("told/_since/failed.json", "at", BEYOND),
    ],
)
def test_a_document_that_makes_no_sense_stops_no_tick(worn: Cluster, key: str, field: str, value: object) -> None:
    rewritten(worn, key, lambda document: document | {field: value})
    goes_on(worn)


@pytest.mark.parametrize("usd", [float("inf"), float("nan"), -1.0, 1e-300])
def test_a_price_that_is_none_stops_no_tick(worn: Cluster, usd: float) -> None:
    (key, *_) = [entry.key for entry in worn.store.control.list("ledger/prices/")]
    rewritten(worn, key, lambda price: price | {"usd_per_hour": usd})
    goes_on(worn)
    assert all(point.usd_per_hour >= 0 for point in worn.store.prices())


def test_an_event_that_tells_of_no_market_stops_no_tick(worn: Cluster) -> None:
    """Only the event describes an instance whose launch is not in the ledger."""
    keys = [entry.key for entry in worn.store.control.list("events/one/")]
    (key,) = [key for key in keys if b'"assigned"' in worn.store.control.get(key).value.lower()]
    rewritten(worn, key, lambda event: event | {"data": event["data"] | {"market": "LOST"}})
    worn.store.launches.delete(worn.starts["one"][0][1])
    goes_on(worn)


@pytest.mark.parametrize("kind", ["training", "stepped"])
def test_a_time_that_a_job_s_program_tells_stops_no_tick(worn: Cluster, kind: str) -> None:
    """Any program may write `seconds`. It is read when the attempt has ended, to measure what a changeover takes."""
    agent = worn.agents[worn.starts["one"][0][1]]
    times = {"seconds": 10**400, "next_seconds": 1}
    worn.store.event_writer("one", 1, agent.iid, agent.iid).emit(EventKind(kind), **times)
    agent.lease.release(Reason.NOTICE)
    agent.lease, agent.alive = None, False
    goes_on(worn)


def test_an_instance_whose_last_heartbeat_cannot_be_read_has_reported(worn: Cluster) -> None:
    worn.clock.advance(timedelta(hours=2))
    worn.run(20)
    key = "ledger/instances/i-gone.json"
    rewritten(worn, key, lambda heartbeat: heartbeat | {"zone": 7})
    goes_on(worn)
    assert worn.store.faults.get("i-gone") is None


def test_an_instance_that_vanishes_without_a_heartbeat_ended_nobody_knows_when(worn: Cluster) -> None:
    """Its end was never reported, so its cost is unknown and not zero."""
    worn.agent("i-mute", Market.ON_DEMAND)
    worn.run(15)
    worn.store.instances.delete("i-mute")
    for name in ("i-mute", "i-1"):
        del worn.cloud.described[name], worn.agents[name]
    worn.store.control.put("instances/i-1.json", b"{")
    for _ in range(3):
        worn.clock.advance(timedelta(minutes=2))
        for agent in worn.agents.values():
            agent.turn()
        worn.schedulers[0].tick()
    ends = {name: worn.store.ends.get(name) for name in ("i-mute", "i-1")}
    assert {name: end and end.value.source for name, end in ends.items()} == {"i-mute": UNKNOWN, "i-1": UNKNOWN}


def test_what_cannot_be_told_to_people_is_logged_once_and_stops_nothing(
    worn: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: FleetStatusWriter, view: object) -> None:
        raise OverflowError("a span of two thousand years")

    monkeypatch.setattr(FleetStatusWriter, "write", broken)
    worn.run(5)
    assert caplog.text.count("the state of pools failed") == 1
    goes_on(worn)
