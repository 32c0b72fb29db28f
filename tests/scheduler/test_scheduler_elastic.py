"""A scheduler that launches what jobs need, remembers what it was refused, and lets go what nobody needs."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from elastic_helpers import ON_DEMAND, SPOT, TYPE, ZONE, ElasticCluster, elastic
from everspot_clouds.base import CloudInstance, MessageKind, Trouble
from everspot_core.launching import LaunchTrouble
from everspot_core.ledger import FaultKind, PricePoint
from everspot_core.records import EventKind, InstanceState, Market, Order, Reason, Request, Role
from everspot_core.schedule import Behaviour, Launch, PoolKey, Why
from everspot_scheduler.elastic.groups import groups
from everspot_scheduler.elastic.refusals import REST, REST_MOST
from everspot_scheduler.pools import PRESUMED, pools_of
from everspot_store import Bucket, ManualClock, Store
from everspot_store.testing import MemoryBackend
from scheduler_helpers import folder_store

SECOND = timedelta(seconds=1)


@pytest.fixture
def here(tmp_path) -> ElasticCluster:
    clock = ManualClock()
    return ElasticCluster(folder_store(tmp_path, clock), clock)


def words(here: ElasticCluster, job: str) -> str:
    return here.store.notes.waiting().jobs[job].words


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
    asked = []
    cluster.store.launching.scan = lambda *a, **k: asked.append(a)
    cluster.agent("i-1")
    cluster.submit("j")
    cluster.run(8)
    assert (cluster.state("j"), asked) == ("SUCCEEDED", [])


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
    here.cloud.left[SPOT] = 2
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


def asked(here: ElasticCluster, market: Market = Market.SPOT) -> int:
    return sum(1 for i in here.cloud.intents if i.market is market)


@pytest.fixture
def spot_only(tmp_path) -> ElasticCluster:
    clock = ManualClock()
    return ElasticCluster(folder_store(tmp_path, clock), clock, markets=[Market.SPOT])


def test_a_dry_pool_rests_longer_each_time_and_is_found_again(spot_only):
    here = spot_only
    here.cloud.refuses[SPOT] = LaunchTrouble.CAPACITY
    here.submit("j", deadline="8h", expected_duration="10m")
    here.run(1)
    began, times = here.clock.now(), []
    for _ in range(200):
        before = asked(here)
        here.later(seconds=9)
        here.run(1)
        if asked(here) > before:
            times.append((here.clock.now() - began) / SECOND)
    gaps = [b - a for a, b in zip([0, *times], times, strict=False)]
    assert gaps[0] < REST.total_seconds() + 30
    assert gaps == sorted(gaps) and gaps[-1] < REST_MOST.total_seconds() + 30
    assert "no capacity" in words(here, "j") or "there is no spot" in words(here, "j")
    assert "InsufficientInstanceCapacity" in words(here, "j")
    del here.cloud.refuses[SPOT]
    here.later(minutes=9)
    here.run(20)
    assert here.state("j") == "SUCCEEDED"


def test_the_next_scheduler_knows_what_was_refused(spot_only):
    here = spot_only
    here.cloud.refuses[SPOT] = LaunchTrouble.CAPACITY
    here.submit("j", deadline="8h", expected_duration="10m")
    here.run(2)
    assert asked(here) == 1
    here.schedulers = [here.scheduler("s2")]
    here.run(10)
    assert asked(here) == 1


def test_a_quota_closes_its_family_until_an_instance_of_it_has_ended_or_an_hour_has_passed(spot_only):
    here = spot_only
    here.length = 10_000
    here.submit("a")
    here.run(3)
    here.cloud.refuses[SPOT] = LaunchTrouble.QUOTA
    here.submit("b")
    here.run(2)
    assert asked(here) == 2
    here.later(minutes=40)
    here.run(3)
    assert asked(here) == 2
    here.cloud.end_one("e-001", interrupted=True)
    here.later(seconds=20)
    here.run(8)
    assert asked(here) == 3, "an instance of the family has ended"
    for minutes, times in ((40, 3), (21, 4)):
        here.later(minutes=minutes)
        here.run(3)
        assert asked(here) == times


def test_a_wrong_request_is_never_repeated_before_the_template_has_changed(spot_only, caplog):
    here = spot_only
    here.cloud.refuses[SPOT] = LaunchTrouble.REQUEST
    here.submit("j")
    here.run(1)
    assert [r.levelno for r in caplog.records if "InvalidParameterValue" in r.message] == [logging.ERROR]
    for _ in range(5):
        here.later(hours=9)
        here.schedulers = [here.scheduler("s2")]
        here.run(2)
    assert asked(here) == 1
    assert "InvalidParameterValue as the test wills" in words(here, "j")
    here.declare(elastic=elastic(markets=[Market.SPOT], template_version="2"))
    del here.cloud.refuses[SPOT]
    here.run(24)
    assert (asked(here), here.state("j")) == (2, "SUCCEEDED")


def test_a_pool_dearer_than_its_highest_price_is_not_asked(tmp_path):
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
    assert scheduler._ledger.usd_per_hour(SPOT) == 0.0123
    assert here.store.prices() == []


@pytest.mark.parametrize(
    ("cap", "most"), [({"max_instances": 2}, 2), ({"max_instances": 8, "max_usd_per_hour": 0.2}, None)]
)
def test_no_launch_passes_the_cap(tmp_path, cap, most):
    clock = ManualClock()
    here = ElasticCluster(folder_store(tmp_path, clock), clock, markets=[Market.ON_DEMAND], **cap)
    usd = here.schedulers[0]._ledger.usd_per_hour(ON_DEMAND)
    most = most or int(0.2 / usd)
    for n in range(6):
        here.submit(f"j{n}")
    for _ in range(40):
        here.run(1)
        assert len(here.cloud.alive) <= most
    assert {here.state(f"j{n}") for n in range(6)} == {"SUCCEEDED"}
    assert all(i.usd_per_hour == pytest.approx(usd * i.count) for i in here.cloud.intents)


def test_a_lost_answer_is_asked_for_again_by_the_same_intent_and_brings_nothing_twice(here, caplog):
    here.cloud.lost = TimeoutError("the answer is lost")
    here.cloud.hidden = {"e-001"}
    here.length = 10_000
    here.submit("j")
    here.run(3)
    assert len({i.token for i in here.cloud.intents}) == 1 and len(here.cloud.intents) > 1
    assert [i.outcome for i in here.intents()] == [None]
    assert "got no answer" in words(here, "j")
    here.submit("k")
    here.run(3)
    assert len(here.intents()) == 1, "nothing more is launched before it is known what came of this"
    here.cloud.lost = None
    here.run(12)
    assert [len(i.outcome.instances) for i in here.intents()] == [1, 1]
    assert len(here.cloud.described) == 2


def test_where_answers_are_lost_for_good_the_description_tells_what_came(here):
    here.cloud.lost = TimeoutError("the answer is lost")
    here.submit("j")
    here.run(1)
    assert here.intents()[0].outcome is None
    here.run(12)
    (intent,) = here.intents()
    assert [i.instance_id for i in intent.outcome.instances] == ["e-001"]
    assert here.cloud.alive == {"e-001"}


def test_throttled_launches_are_repeated_slower_and_slower(here):
    here.cloud.lost, here.cloud.kind = OSError("slow down"), Trouble.THROTTLED
    here.cloud.hidden = {"e-001"}
    here.submit("j")
    here.run(60)
    assert 3 <= len(here.cloud.intents) <= 12


def test_an_old_intent_without_outcome_is_not_asked_for_again(here):
    here.cloud.lost = TimeoutError("the answer is lost")
    here.cloud.hidden = {"e-001"}
    here.submit("j")
    here.run(1)
    here.schedulers = []
    here.later(hours=2)
    here.cloud.lost, here.cloud.hidden = None, set()
    here.schedulers = [here.scheduler("s2")]
    here.run(1)
    assert [i.seq for i in here.cloud.intents] == [1, 2], "its job is given up on it, and has another one"
    assert [len(i.outcome.instances) for i in here.intents()] == [1, 1]


def test_what_the_cloud_takes_from_a_job_is_launched_anew(here):
    here.length = 10_000
    here.submit("j")
    here.run(4)
    here.cloud.end_one("e-001", interrupted=True)
    here.cloud.tell(MessageKind.ENDED, "e-001", here.clock.now())
    here.run(12)
    assert here.cloud.alive == {"e-002"}
    assert here.store.records.get("j").value.owner == "e-002"


def test_a_drain_ends_everything_that_was_launched(here):
    here.length = 10_000
    for n in range(3):
        here.submit(f"j{n}")
    here.run(5)
    assert len(here.cloud.alive) == 3
    here.submit("late")
    here.store.request_drain(Request(at=here.clock.now()))
    here.run(12)
    assert here.cloud.alive == set()
    assert {here.state(name) for name in ("j0", "j1", "j2", "late")} == {"PENDING"}
    here.store.clear_drain()
    here.length = 4
    here.run(30)
    assert {here.state(name) for name in ("j0", "j1", "j2", "late")} == {"SUCCEEDED"}


def test_where_nothing_is_elastic_any_more_jobs_finish_and_their_instances_go(here):
    here.length = 30
    here.submit("j")
    here.run(4)
    here.declare(elastic=None)
    here.run(8)
    here.submit("late")
    here.run(20)
    assert here.cloud.alive == {"e-001"}
    here.length = 1
    here.run(40)
    assert (here.state("j"), here.state("late")) == ("SUCCEEDED", "SUCCEEDED")
    here.later(minutes=6)
    here.run(5)
    assert here.cloud.alive == set()


def test_an_end_that_was_lost_is_asked_for_again(here):
    here.submit("j")
    here.run(12)
    here.cloud.stubborn = True
    here.agents["e-001"].alive = False
    here.later(minutes=6)
    here.run(3)
    assert len(here.cloud.terminated) == 1
    here.run(15)
    assert len(here.cloud.terminated) == 1, "not at every tick"
    here.run(40)
    assert len(here.cloud.terminated) == 2
    here.cloud.stubborn = False
    here.schedulers = [here.scheduler("s2")]
    here.run(3)
    assert here.cloud.alive == set(), "the next scheduler finds the order to leave and asks at once"


def test_a_job_is_not_put_on_an_instance_that_is_released_and_not_gone_yet(here):
    here.submit("j")
    here.run(12)
    here.cloud.stubborn = True
    here.agents["e-001"].alive = False
    here.later(minutes=6)
    here.run(2)
    assert here.store.assignments.get("e-001").value.order is Order.LEAVE
    here.submit("k")
    here.run(12)
    assert here.state("k") == "SUCCEEDED"
    assert here.starts["k"][0][1] == "e-002"


def test_an_instance_that_no_intent_tells_of_is_ended_after_a_while_and_gets_no_job(here):
    here.submit("j")
    here.run(1)
    here.store.launching.delete("00000001")
    here.schedulers = [here.scheduler("s2")]
    here.run(10)
    assert here.cloud.alive == {"e-001", "e-002"}
    assert here.starts["j"][0][1] == "e-002", "launched anew: of the first nobody knows whose it is"
    here.later(seconds=90)
    here.run(2)
    assert here.cloud.terminated[0] == ["e-001"]


def test_what_another_cluster_of_the_same_name_has_launched_is_left_alone(here):
    here.submit("j")
    here.run(1)
    mine = here.cloud.described["e-001"]
    here.cloud.described["x-1"] = replace(mine, instance_id="x-1", launch="0" * 32)
    assert mine.launch != "0" * 32
    for _ in range(5):
        here.later(minutes=1)
        here.run(3)
    assert "x-1" in here.cloud.alive


def test_where_an_intent_cannot_be_read_no_instance_is_taken_for_a_stranger(here):
    here.length = 10_000
    here.submit("j")
    here.run(4)
    here.store.control.put("launching/00000001.json", b'{"version": 9}')
    here.schedulers = [here.scheduler("s2")]
    for _ in range(5):
        here.later(minutes=1)
        here.run(3)
    assert here.cloud.alive == {"e-001"} and here.cloud.terminated == []
    here.submit("k")
    here.run(4)
    assert [i.seq for i in here.intents()] == [2]


def test_a_launched_instance_that_is_never_described_counts_for_nothing_after_a_while(here):
    here.boots = False
    here.length = 10_000
    here.submit("j")
    here.cloud.hidden = {"e-001"}
    here.run(3)
    here.later(minutes=6)
    here.boots = True
    here.run(6)
    assert here.store.records.get("j").value.owner == "e-002"


def test_a_deadline_that_nothing_can_keep_ends_the_job_with_that_reason(here):
    here.submit("j", deadline="30m", expected_duration="5h")
    here.run(2)
    record = here.store.records.get("j").value
    assert (record.state.value, record.last_reason) == ("FAILED", Reason.INFEASIBLE)
    assert "deadline cannot be kept" in record.detail
    (event,) = here.told("j", EventKind.FAILED)
    assert event.data["reason"] == "infeasible"
    assert here.cloud.intents == []


def test_intents_are_forgotten_once_they_say_nothing_more_and_never_the_newest(here):
    for n in range(3):
        here.submit(f"j{n}")
        here.run(12)
        here.later(minutes=10)
        here.run(3)
    assert [i.seq for i in here.intents()] == [1, 2, 3]
    here.later(hours=2)
    here.run(8)
    assert [i.seq for i in here.intents()] == [3]
    here.submit("last")
    here.run(3)
    assert [i.seq for i in here.intents()] == [4]


def test_a_family_of_pools_has_behaved_as_one(tmp_path):
    clock = ManualClock()
    here = ElasticCluster(folder_store(tmp_path, clock), clock, places={"us-east-1a": "a", "us-east-1b": "b"})
    other = PoolKey(TYPE, "us-east-1b", Market.SPOT)
    here.cloud.refuses |= dict.fromkeys((SPOT, other), LaunchTrouble.CAPACITY)
    here.submit("j", deadline="20h", expected_duration="1h")
    here.run(2)
    both, began = frozenset({SPOT, other}), here.clock.now()
    assert not seen(here, both).up
    del here.cloud.refuses[other]
    here.length = 10_000
    here.later(minutes=2)
    here.run(12)
    now = seen(here, both)
    assert now.up and now.downs == (pytest.approx(2 / 60, abs=0.02),)
    assert not seen(here, frozenset({SPOT})).up
    assert now.since > began


def seen(here: ElasticCluster, choice: frozenset[PoolKey]) -> Behaviour:
    """How these pools behave together, as the plan is told."""
    scheduler = here.schedulers[0]
    views = scheduler._pools.look(scheduler._facts, scheduler._ledger, scheduler._desk, here.clock.now())
    return scheduler._pools.unions([choice], views)[choice]


def test_a_pool_that_nobody_asks_is_presumed_to_be_up_after_a_while_and_was_down_if_it_refuses_again(spot_only):
    here, alone = spot_only, frozenset({SPOT})
    here.run(1)
    assert seen(here, alone).since == here.clock.now() - SECOND, "nothing is known of it, and it may be tried"
    here.cloud.refuses[SPOT] = LaunchTrouble.CAPACITY
    here.submit("j")
    here.run(1)
    at = here.intents()[0].outcome.settled_at
    assert (seen(here, alone).up, seen(here, alone).since) == (False, at)
    here.store.cancels.create("j", Request(at=at))
    here.run(2)
    here.later(minutes=7)
    assert not seen(here, alone).up
    here.later(minutes=3)
    assert (seen(here, alone).up, seen(here, alone).since) == (True, at + PRESUMED)
    here.submit("k")
    here.run(1)
    assert asked(here) == 2
    assert (seen(here, alone).up, seen(here, alone).since, seen(here, alone).ups) == (False, at, ())


def test_a_launched_machine_that_is_broken_goes_and_is_written_down(here):
    here.boots = False
    here.length = 10_000
    here.submit("j")
    here.run(1)
    here.boot()
    here.agents["e-001"].unfit = InstanceState.CORDONED
    here.agents["e-001"].record = here.agents["e-001"].record.model_copy(update={"detail": "0 of the 1 GPUs are seen"})
    here.boots = True
    here.run(12)
    assert here.store.faults.get("e-001").value.kind is FaultKind.GPUS
    assert here.store.assignments.get("e-001").value.reason is Reason.CORDON
    assert here.cloud.alive == {"e-002"}
    assert here.store.records.get("j").value.owner == "e-002"


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
    here.submit("b")
    here.submit("c")
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
    both = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}
    declared = elastic(types=["c6i.large", "m6i.large"], places=both, zones={"m6i.large": ["us-east-1b", "us-east-1c"]})
    found = {(pool.instance_type, pool.zone) for pool in pools_of(declared)}
    assert found == {("c6i.large", "us-east-1a"), ("c6i.large", "us-east-1b"), ("m6i.large", "us-east-1b")}
    # What was planned before the declaration changed is not asked for any more.
    planned = Launch(
        job_id="j", instance_type="m6i.large", zone="us-east-1a", market=Market.SPOT, ordered=False, why=Why.CRITICAL,
        ranked=tuple(PoolKey("m6i.large", zone, Market.SPOT) for zone in ("us-east-1a", "us-east-1b")),
    )  # fmt: skip
    (group,) = groups([planned], declared)
    assert [pool.zone for pool in group.pools] == ["us-east-1b"]
