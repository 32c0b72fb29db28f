"""Whole ticks: released instances, moved jobs, and the removal of old documents."""

from datetime import timedelta
from pathlib import Path

import pytest
from elastic_helpers import ElasticCluster, elastic
from everspot_clouds.base import CloudInstance, MessageKind, Phase
from everspot_core.cluster.manifest import Standing
from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs import lease
from everspot_core.jobs.records import InstanceState, JobState, Market, Reason, RollRequest
from everspot_scheduler.manifest_watch import TICKS_TO_SETTLE
from everspot_scheduler.retire import AT_ONCE
from everspot_store import Bucket, ManualClock, Store
from scheduler_helpers import LIMITS, Cluster, folder_store

HOUR = timedelta(hours=1)


def alive(cluster: Cluster) -> list[str]:
    return sorted(name for name, agent in cluster.agents.items() if agent.alive)


def settle(cluster: Cluster, seconds: int = 8) -> None:
    """Wait until a new declaration is read and has been stable for long enough."""
    cluster.run(7)
    cluster.clock.advance(TICKS_TO_SETTLE * LIMITS.tick_every)
    for agent in cluster.agents.values():
        agent.turn()
    cluster.run(seconds)


def aged(cluster: Cluster, *names: str, market: Market = Market.SPOT) -> None:
    """Instances that have been there for hours."""
    for name in names:
        cluster.agent(name, market)
    cluster.run(1)
    cluster.clock.advance(HOUR)
    for agent in cluster.agents.values():
        agent.turn()


def test_a_lower_target_lets_idle_instances_go_and_never_a_busy_one(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.declare(standing=Standing(spot_units=3))
    aged(cluster, "i-1", "i-2", "i-3")
    cluster.submit("j")
    settle(cluster)
    busy = cluster.store.records.get("j").value.owner
    assert alive(cluster) == ["i-1", "i-2", "i-3"]
    cluster.declare(standing=Standing(spot_units=1))
    cluster.run(7)
    assert alive(cluster) == ["i-1", "i-2", "i-3"]  # the fleets follow in their own time
    settle(cluster)
    assert alive(cluster) == [busy]
    assert cluster.store.records.get("j").value.preemptions == 0
    cluster.declare(standing=Standing(spot_units=0))
    settle(cluster)
    assert (alive(cluster), cluster.state("j")) == ([busy], "RUNNING")


def test_a_new_generation_replaces_idle_instances_in_shares_and_busy_ones_on_request(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.declare(generation="old", standing=Standing(spot_units=2))
    aged(cluster, "i-1", "i-2")
    cluster.submit("j")
    cluster.run(8)
    busy = cluster.store.records.get("j").value.owner
    (idle,) = {"i-1", "i-2"} - {busy}
    cluster.declare(generation="new", limits=LIMITS.model_copy(update={"lease_ttl": timedelta(seconds=20)}))
    settle(cluster, 10)
    assert alive(cluster) == [busy]
    cluster.agent("i-3")  # the fleet's replacement
    settle(cluster)
    assert alive(cluster) == sorted([busy, "i-3"])
    cluster.store.request_roll(RollRequest(at=cluster.clock.now(), generation="new"))
    cluster.run(12)
    record = cluster.store.records.get("j").value
    assert (alive(cluster), record.owner, record.preemptions, record.errors) == (["i-3"], "i-3", 1, 0)
    assert idle != busy


def test_a_generation_that_no_new_instance_has_replaces_nothing(cluster: Cluster) -> None:
    cluster.declare(generation="old")
    aged(cluster, "i-1")
    cluster.declare(generation="new")
    cluster.run(7)
    cluster.manifest = cluster.manifest.model_copy(update={"generation": "another"})
    cluster.clock.advance(timedelta(minutes=3))
    cluster.agent("i-2")
    cluster.run(20)
    assert "i-2" in alive(cluster)


def test_a_market_whose_new_instances_are_of_the_old_generation_stops_the_replacing_of_both(cluster: Cluster) -> None:
    cluster.declare(generation="old")
    aged(cluster, "i-1")
    aged(cluster, "i-2", market=Market.ON_DEMAND)
    cluster.declare(generation="new")
    cluster.run(7)
    cluster.clock.advance(timedelta(minutes=3))
    cluster.agent("i-3", Market.ON_DEMAND)  # that fleet has followed, the other one has not
    cluster.manifest = cluster.manifest.model_copy(update={"generation": "old"})
    cluster.agent("i-4")
    for agent in cluster.agents.values():
        agent.turn()
    cluster.run(20)
    assert {"i-3", "i-4"} <= set(alive(cluster))


def test_a_launched_instance_of_an_old_generation_is_replaced_in_a_roll(tmp_path: Path, clock: ManualClock) -> None:
    here = ElasticCluster(folder_store(tmp_path, clock), clock)
    here.length = 200
    here.declare(elastic=elastic(), generation="old")
    here.submit("j")
    here.run(20)
    (old,) = here.launched()
    here.declare(elastic=elastic(), generation="new")
    here.run(20)
    assert here.store.records.get("j").value.owner == old
    here.store.request_roll(RollRequest(at=here.clock.now(), generation="new"))
    here.run(40)
    record = here.store.records.get("j").value
    assert (record.preemptions, record.errors) == (1, 0)
    assert record.owner in here.cloud.alive and here.agents[record.owner].record.generation == "new"
    assert old not in here.cloud.alive and len(here.intents()) == 2


def test_launched_instances_that_stay_of_an_old_generation_are_not_replaced_for_ever(
    tmp_path: Path, clock: ManualClock
) -> None:
    here = ElasticCluster(folder_store(tmp_path, clock), clock)
    here.declare(elastic=elastic(), generation="new")
    here.run(8)
    here.manifest = here.manifest.model_copy(update={"generation": "old"})  # what its machines are launched with
    here.later(minutes=3)
    here.store.request_roll(RollRequest(at=here.clock.now(), generation="new"))
    here.submit("j")
    here.run(40)
    assert (here.state("j"), len(here.intents())) == ("SUCCEEDED", 1)


def test_while_somebody_else_sizes_a_fleet_its_excess_stays(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.declare(standing=Standing(spot_units=2))
    aged(cluster, "i-1", "i-2")
    settle(cluster)
    for name in ("i-3", "i-4"):  # the fleet launches more than cluster.json declares
        aged(cluster, name)
        cluster.run(8)
    assert alive(cluster) == ["i-1", "i-2", "i-3", "i-4"]
    messages = [r.getMessage() for r in caplog.records if "resizes the fleet" in r.getMessage()]
    assert messages == [
        "i-3 was launched although the spot fleet already had its declared 2 units: something else resizes the fleet, "
        "so no instance is released as excess"
    ]
    cluster.declare(standing=Standing(spot_units=1))  # the next declaration restarts the wait
    settle(cluster)
    assert len(alive(cluster)) == 1


def test_what_replaces_a_machine_that_is_going_is_no_sign_of_another_hand(cluster: Cluster) -> None:
    cluster.declare(standing=Standing(spot_units=2))
    aged(cluster, "i-1", "i-2")
    settle(cluster)
    cluster.cloud.send(MessageKind.REBALANCE, "i-2", cluster.clock.now())
    cluster.run(2)
    aged(cluster, "i-3")
    cluster.run(8)
    assert alive(cluster) == ["i-1", "i-3"]


def test_a_job_that_failed_goes_elsewhere_and_a_machine_that_fails_two_jobs_is_cordoned(cluster: Cluster) -> None:
    cluster.length = 200
    for name in ("i-1", "i-2", "i-3", "i-4"):
        cluster.agent(name)
    cluster.agents["i-1"].breaks = True
    for name in ("a", "b"):
        cluster.submit(name, retries={"errors": 2, "backoff": "1s"})
        cluster.run(8)
    records = {n: cluster.store.records.get(n).value for n in "ab"}
    assert {n: (r.errors, r.failed_on, r.state) for n, r in records.items()} == dict.fromkeys(
        "ab", (1, ["i-1"], JobState.RUNNING)
    )
    cluster.run(4)
    (fault,) = cluster.store.faults.scan().values()
    assert (fault.value.instance_id, fault.value.kind) == ("i-1", FaultKind.JOBS)
    assert "a, b" in fault.value.detail
    assert "i-1" not in alive(cluster)


def test_an_instance_that_found_itself_unfit_gets_nothing_and_leaves_with_its_reason_written(cluster: Cluster) -> None:
    agent = cluster.agent("i-1")
    agent.unfit = InstanceState.CORDONED
    agent.record = agent.record.model_copy(update={"detail": "3 GPUs are seen, its type has 4"})
    agent.turn()
    cluster.submit("j")
    cluster.run(4)
    assert (cluster.state("j"), alive(cluster)) == ("PENDING", [])
    fault = cluster.store.faults.get("i-1").value
    assert (fault.kind, fault.detail) == (FaultKind.GPUS, "it is not fit for jobs: 3 GPUs are seen, its type has 4")


@pytest.mark.parametrize(
    ("phase", "interrupted", "minutes", "reported"),
    [
        (Phase.ALIVE, None, 11, True),
        (Phase.ALIVE, None, 5, False),
        (Phase.ENDED, False, 10, True),
        (Phase.ENDED, True, 11, False),
        (Phase.ENDED, None, 11, False),
        (Phase.ENDED, False, 3, False),
    ],
)
def test_an_instance_that_never_reported_within_the_boot_deadline_is_a_fault(
    cluster: Cluster, phase: Phase, interrupted: bool | None, minutes: int, reported: bool
) -> None:
    cluster.agent("i-1")
    was = cluster.cloud.described["i-1"]
    at = cluster.clock.now()
    cluster.clock.advance(timedelta(minutes=minutes))
    fields = {n: getattr(was, n) for n in ("instance_type", "zone", "market", "role", "launched_at")}
    ended = at + timedelta(minutes=minutes) if phase is Phase.ENDED else None
    cluster.cloud.described["i-2"] = CloudInstance(
        instance_id="i-2", image="ami-1", phase=phase, interrupted=interrupted, ended_at=ended, **fields
    )
    cluster.run(2)
    faults = cluster.store.faults.scan()
    assert list(faults) == (["i-2"] if reported else [])
    assert not reported or (faults["i-2"].value.kind, faults["i-2"].value.image) == (FaultKind.NEVER_REPORTED, "ami-1")


@pytest.mark.parametrize(
    ("kind", "minutes", "late"),
    [("p4d.24xlarge", 15, False), ("p4d.24xlarge", 21, True), ("c5.metal", 25, False), ("c5.metal", 31, True)],
)
def test_a_type_that_boots_slowly_is_given_longer(cluster: Cluster, kind: str, minutes: int, late: bool) -> None:
    cluster.agent("i-1")
    launched_at = cluster.clock.now()
    cluster.clock.advance(timedelta(minutes=minutes))
    was = cluster.cloud.described["i-1"]
    fields = {n: getattr(was, n) for n in ("zone", "market", "role")}
    cluster.cloud.described["i-2"] = CloudInstance(
        instance_id="i-2", instance_type=kind, image="ami-1", phase=Phase.ALIVE, launched_at=launched_at, **fields
    )
    cluster.run(2)
    assert list(cluster.store.faults.scan()) == (["i-2"] if late else [])


class CountingBucket:
    """Counts what is asked of a bucket, by operation and first part of the key."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.requests: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> object:
        inner = getattr(self._bucket, name)
        if name not in ("get", "list", "put", "create", "replace", "delete"):
            return inner

        def call(*args: object) -> object:
            self.requests.append((name, str(args[0]).split("/")[0]))
            return inner(*args)

        return call


def test_what_has_ended_leaves_the_tables_and_a_tick_asks_nothing_of_it(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.submit("old")
    cluster.run(10)
    assert cluster.state("old") == "SUCCEEDED"
    cluster.end("i-1", interrupted=False)
    cluster.run(10)
    cluster.agent("i-2")
    cluster.submit("live")
    cluster.length = 10_000
    cluster.run(3)
    assert "old" in cluster.store.records.scan()
    cluster.clock.advance(HOUR)
    cluster.agents["i-2"].turn()
    del cluster.cloud.described["i-1"]
    cluster.run(3)
    hot = [cluster.store.jobs, cluster.store.records, cluster.store.instances, cluster.store.assignments]
    assert [list(table.scan()) for table in hot] == [["live"], ["live"], ["i-2"], ["i-2"]]
    assert cluster.store.archive.get("old").record.state is JobState.SUCCEEDED
    assert cluster.store.past_instances.get("i-1").value.instance_type == "c6i.large"
    bucket = CountingBucket(cluster.store.control)
    fresh = cluster.scheduler("next", Store(bucket, cluster.store.data, cluster.clock))
    for _ in range(2):
        bucket.requests.clear()
        fresh.tick()
        assert "archive" not in {part for _, part in bucket.requests}
    assert ("list", "events") not in bucket.requests
    assert sum(name == "list" for name, _ in bucket.requests) == 6


def test_waiting_jobs_with_a_budget_are_not_asked_about_again_and_again(cluster: Cluster) -> None:
    for n in range(5):
        cluster.submit(f"j{n}", budget={"dollars": 5})
    bucket = CountingBucket(cluster.store.control)
    scheduler = cluster.scheduler("s", Store(bucket, cluster.store.data, cluster.clock))
    for _ in range(30):
        scheduler.tick()
        cluster.clock.advance(timedelta(seconds=1))
    assert ("list", "events") not in bucket.requests
    cluster.agent("i-1")
    cluster.length = 10_000
    for _ in range(60):
        scheduler.tick()
        cluster.agents["i-1"].turn()
        cluster.clock.advance(timedelta(seconds=1))
    assert 1 <= bucket.requests.count(("list", "events")) <= 2  # once for each change of its owner or state


def test_a_backlog_of_finished_jobs_goes_by_and_by(cluster: Cluster) -> None:
    now = cluster.clock.now()
    for n in range(AT_ONCE + 3):
        job = cluster.submit(f"j{n:02}")
        cluster.store.records.create(job.job_id, lease.close(None, job.job_id, Reason.CANCEL, now))
    cluster.clock.advance(HOUR)
    cluster.schedulers[0].tick()
    assert len(cluster.store.jobs.scan()) == 3
    cluster.schedulers[0].tick()
    assert (len(cluster.store.jobs.scan()), len(cluster.store.archive.keys())) == (0, AT_ONCE + 3)
