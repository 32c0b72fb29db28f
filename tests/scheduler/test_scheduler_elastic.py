"""A scheduler that launches instances for jobs, within its cap and at known prices."""

from datetime import timedelta

import pytest
from elastic_helpers import ON_DEMAND, SPOT, TYPE, ZONE, ElasticCluster, elastic, words
from everspot_clouds.base import CloudInstance
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.jobs.records import EventKind, Market, Reason, Role
from everspot_core.schedule import Launch, PoolKey, Why
from everspot_scheduler.elastic.groups import groups, launchable_pools
from everspot_store import Bucket, ManualClock, Store
from everspot_store.testing import MemoryBackend
from scheduler_helpers import folder_store

SECOND = timedelta(seconds=1)


def test_a_job_has_an_instance_launched_runs_on_it_and_leaves_nothing_behind(here):
    here.submit("j")
    here.run(1)
    (intent,) = here.intents()
    assert (intent.seq, intent.jobs, intent.market, intent.template_version) == (1, ("j",), Market.SPOT, "1")
    assert [(i.instance_id, i.job_id) for i in intent.outcome.instances] == [("e-001", "j")]
    assert "being launched for it (c6i.large, us-east-1a, spot)" in words(here, "j")
    here.run(12)
    assert here.state("j") == "SUCCEEDED"
    here.later(minutes=6)
    here.run(3)
    assert here.cloud.alive == set()
    assert here.store.assignments.get("e-001").value.reason is Reason.RELEASE
    assert len(here.cloud.intents) == 1


def test_nothing_is_launched_where_nothing_waits_and_no_intent_is_read_where_nothing_is_elastic(here, cluster):
    here.run(20)
    assert (here.cloud.intents, here.intents()) == ([], [])
    scans = []
    cluster.store.launching.scan = lambda *a, **k: scans.append(a)
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(8)
    assert (cluster.state("j"), scans) == ("SUCCEEDED", [])


def test_equal_needs_are_one_request_and_one_intent(here):
    for n in range(6):
        here.submit(f"j{n}")
    here.run(1)
    (intent,) = here.cloud.intents
    assert sorted(intent.jobs) == [f"j{n}" for n in range(6)]
    assert sorted(i.job_id for i in here.intents()[0].outcome.instances) == sorted(intent.jobs)
    here.run(12)
    assert {here.state(f"j{n}") for n in range(6)} == {"SUCCEEDED"}
    assert len(here.cloud.intents) == 1


def test_what_one_pool_lacks_is_asked_for_again_and_nobody_has_two(here):
    here.cloud.capacity[SPOT] = 2
    for n in range(3):
        here.submit(f"j{n}")
    here.run(1)
    (intent,) = here.intents()
    assert len(intent.outcome.instances) == 2
    (error,) = intent.outcome.errors
    assert (error.kind, error.zone) == (LaunchTrouble.CAPACITY, ZONE)
    here.run(30)
    assert {here.state(f"j{n}") for n in range(3)} == {"SUCCEEDED"}
    assert sum(len(i.outcome.instances) for i in here.intents()) <= 3


def test_a_pool_above_its_max_price_is_not_launched(tmp_path):
    clock = ManualClock()
    here = ElasticCluster(folder_store(tmp_path, clock), clock, markets=[Market.SPOT], max_prices={TYPE: 0.03})
    dear = PricePoint(
        instance_type=TYPE, zone=ZONE, market=Market.SPOT, at=clock.now(), usd_per_hour=0.05, source="test"
    )
    here.cloud.prices.append(dear)
    here.run(1)
    here.submit("j")
    here.run(3)
    assert here.cloud.intents == []
    here.later(minutes=1)
    here.cloud.prices.append(dear.model_copy(update={"at": clock.now(), "usd_per_hour": 0.02}))
    here.run(20)
    assert here.state("j") == "SUCCEEDED"
    assert {p.max_price for i in here.cloud.intents for p in i.pools} == {0.03}
    assert {p.usd_per_hour for p in here.store.prices() if p.market is Market.SPOT} <= {0.05, 0.02}


def test_prices_of_pools_that_were_never_used_are_known_and_not_written(here):
    here.cloud.prices.append(
        PricePoint(
            instance_type=TYPE, zone=ZONE, market=Market.SPOT, at=here.clock.now(), usd_per_hour=0.0123, source="test"
        )
    )
    here.run(2)
    scheduler = here.schedulers[0]
    assert scheduler.services.ledger.usd_per_hour(SPOT) == 0.0123
    assert here.store.prices() == []


@pytest.mark.parametrize(
    ("cap", "most"), [({"max_instances": 2}, 2), ({"max_instances": 8, "max_usd_per_hour": 0.2}, None)]
)
def test_no_launch_passes_the_cap(tmp_path, cap, most):
    clock = ManualClock()
    here = ElasticCluster(folder_store(tmp_path, clock), clock, markets=[Market.ON_DEMAND], **cap)
    usd = here.schedulers[0].services.ledger.usd_per_hour(ON_DEMAND)
    most = most or int(0.2 / usd)
    for n in range(6):
        here.submit(f"j{n}")
    for _ in range(40):
        here.run(1)
        assert len(here.cloud.alive) <= most
    assert {here.state(f"j{n}") for n in range(6)} == {"SUCCEEDED"}
    assert all(i.usd_per_hour == pytest.approx(usd * i.count) for i in here.cloud.intents)


@pytest.mark.parametrize(("minutes", "most"), [(1, 2), (10, 1)])
def test_a_node_that_others_keep_uses_up_a_part_of_the_cap(tmp_path, minutes, most):
    """A pod of others keeps it from being empty. For some minutes it may be one that is just being ended."""
    clock = ManualClock()
    store = folder_store(tmp_path, clock)
    began = clock.now() - timedelta(hours=1)
    kind = {"instance_type": TYPE, "zone": ZONE, "market": Market.ON_DEMAND, "launched_at": began}
    store.launches.create("i-node", LaunchRecord(instance_id="i-node", role=Role.NODE, **kind))
    store.launches.create("pod", LaunchRecord(instance_id="pod", node="i-node", **kind))
    over = clock.now() - timedelta(minutes=minutes)
    store.ends.create("pod", EndRecord(instance_id="pod", ended_at=over, interrupted=False))
    here = ElasticCluster(store, clock, markets=[Market.ON_DEMAND], max_instances=2)
    here.cloud.described["i-node"] = CloudInstance(instance_id="i-node", role=Role.NODE, **kind)
    for n in range(4):
        here.submit(f"j{n}")
    counts = []
    for _ in range(20):
        here.run(1)
        counts.append(len(here.cloud.alive - {"i-node"}))
    assert max(counts) == most


def test_a_deadline_that_nothing_can_keep_ends_the_job_with_that_reason(here):
    here.submit("j", deadline="30m", expected_duration="5h")
    here.run(2)
    record = here.store.records.get("j").value
    assert (record.state.value, record.last_reason) == ("FAILED", Reason.INFEASIBLE)
    assert "deadline cannot be kept" in record.detail
    (event,) = here.events_of_kind("j", EventKind.FAILED)
    assert event.data["reason"] == "infeasible"
    assert here.cloud.intents == []


def test_what_stands_is_used_before_anything_is_launched_and_is_never_ended(here):
    here.cloud.described["i-1"] = CloudInstance(
        instance_id="i-1", instance_type=TYPE, zone=ZONE, market=Market.ON_DEMAND, role=Role.AGENT,
        launched_at=here.clock.now(),
    )  # fmt: skip
    here.run(2)
    here.submit("a")
    here.run(12)
    assert (here.state("a"), here.cloud.intents) == ("SUCCEEDED", [])
    here.length = 10
    for name in ("b", "c"):  # of another team: how long `a` took says nothing about them
        here.submit(name, tags={"Team": "other"})
    here.run(4)
    assert len(here.cloud.alive) == 2
    here.run(20)
    here.later(minutes=30)
    here.run(5)
    assert {here.state("b"), here.state("c")} == {"SUCCEEDED"}
    assert here.cloud.alive == {"i-1"}


def test_a_crowd_fills_the_cap_at_once_by_few_requests_and_is_drained_by_what_was_launched(clock):
    store = Store(
        Bucket("memory://control", MemoryBackend(), clock), Bucket("memory://data", MemoryBackend(), clock), clock
    )
    here = ElasticCluster(store, clock, max_instances=25)
    here.length = 1
    jobs = [f"j{n:03d}" for n in range(200)]
    for n, job in enumerate(jobs):
        here.submit(job, **({"deadline": "8h", "expected_duration": "1m"} if n % 3 else {}))
    here.run(1)
    assert len(here.cloud.alive) == 25
    for _ in range(60):
        here.run(1)
        assert len(here.cloud.alive) <= 25
        if len([r for r in store.records.scan().values() if r.value.state.final]) == len(jobs):
            break
    assert {here.state(job) for job in jobs} == {"SUCCEEDED"}
    assert len(here.cloud.described) == 25 and len(here.cloud.intents) <= 4
    here.run(2)
    here.later(minutes=6)
    here.run(3)
    assert here.cloud.alive == set()
    assert sum(len(batch) for batch in here.cloud.terminated) == 25 and len(here.cloud.terminated) <= 2


def test_a_type_is_launched_only_in_the_zones_that_are_said_to_have_it():
    subnets = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}
    declared = elastic(
        types=["c6i.large", "m6i.large"], places=subnets, zones={"m6i.large": ["us-east-1b", "us-east-1c"]}
    )
    pools = {(pool.instance_type, pool.zone) for pool in launchable_pools(declared)}
    assert pools == {("c6i.large", "us-east-1a"), ("c6i.large", "us-east-1b"), ("m6i.large", "us-east-1b")}
    # Launches that were planned before the declaration changed are no longer requested.
    planned = Launch(
        job_id="j", instance_type="m6i.large", zone="us-east-1a", market=Market.SPOT, ordered=False, cause=Why.CRITICAL,
        ranked=tuple(PoolKey("m6i.large", zone, Market.SPOT) for zone in ("us-east-1a", "us-east-1b")),
    )  # fmt: skip
    (group,) = groups([planned], declared)
    assert [pool.zone for pool in group.pools] == ["us-east-1b"]


def test_what_runs_at_an_unknown_price_counts_as_the_dearest_in_the_cap_and_in_the_note(tmp_path):
    """The type is no longer launched and has no catalogue price, but its instance still costs money."""
    clock = ManualClock()
    here = ElasticCluster(folder_store(tmp_path, clock), clock, markets=[Market.ON_DEMAND], max_usd_per_hour=0.2)
    usd = here.schedulers[0].services.ledger.usd_per_hour(ON_DEMAND)
    here.boots = False
    for n in range(2):
        here.submit(f"j{n}")
    here.run(1)
    assert len(here.cloud.alive) == 2
    unknown = {"instance_type": "x9.unpriced"}
    for name, intent in ((i.name, i) for i in here.intents()):
        brought = [instance.model_copy(update=unknown) for instance in intent.outcome.instances]
        outcome = intent.outcome.model_copy(update={"instances": tuple(brought)})
        here.store.launching.put(name, intent.model_copy(update={"outcome": outcome}))
    here.submit("j2")
    here.run(12)
    assert here.store.notes.fleet.read().elastic.usd_per_hour == pytest.approx(2 * usd)
    assert len(here.cloud.alive) == 2
    assert f"${2 * usd:.2f} of $0.20 an hour" in words(here, "j2")


def test_without_a_price_nothing_is_launched_and_the_job_says_why(tmp_path):
    clock = ManualClock()
    kind = InstanceType(name="own.unpriced", vcpus=8, memory_gib=32)
    here = ElasticCluster(folder_store(tmp_path, clock), clock, types=[kind.name], max_usd_per_hour=1.0)
    here.declare(elastic=here.manifest.elastic, instance_types=[kind])
    here.submit("j")
    here.run(3)
    assert here.cloud.intents == []
    assert words(here, "j").endswith("no price is known of any pool, so nothing is launched")
    at = {"zone": ZONE, "market": Market.SPOT, "at": clock.now(), "usd_per_hour": 0.05, "source": "test"}
    here.cloud.prices.append(PricePoint(instance_type=kind.name, **at))
    here.later(minutes=1)
    here.run(2)
    assert [i.usd_per_hour for i in here.cloud.intents] == [0.05]
