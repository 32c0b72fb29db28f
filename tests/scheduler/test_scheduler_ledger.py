"""The ledger has every launch, end and price exactly once, for any number of writers and restarts."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from everspot_clouds.base import CloudEnd, CloudInstance, MessageKind, Phase
from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.costs.ledger import UNKNOWN, LaunchRecord, PricePoint
from everspot_core.jobs.records import Market, Role
from everspot_core.schedule import PoolKey
from everspot_scheduler.close_ledger import settle_ledger
from everspot_scheduler.ledger import GRACE
from pytest import approx
from scheduler_helpers import Cluster


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def price(cluster: Cluster, at: datetime, usd: float, zone: str = "us-east-1a") -> PricePoint:
    return PricePoint(instance_type="c6i.large", zone=zone, market=Market.SPOT, at=at, usd_per_hour=usd, source="test")


def ledger_etags(cluster: Cluster) -> dict[str, str]:
    return {e.key: e.etag for e in cluster.store.control.list("ledger/")}


def test_launches_and_ends_are_written_once_with_the_clouds_own_times(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.agent("i-2", Market.ON_DEMAND)
    cluster.cloud.described["i-s"] = CloudInstance(
        instance_id="i-s",
        instance_type="t3.small",
        zone="us-east-1b",
        market=Market.ON_DEMAND,
        role=Role.SCHEDULER,
        launched_at=cluster.clock.now(),
    )
    cluster.run(10)
    launches = {n: d.value for n, d in cluster.store.launches.scan().items()}
    assert {n: (launch.market, launch.role) for n, launch in launches.items()} == {
        "i-1": (Market.SPOT, Role.AGENT),
        "i-2": (Market.ON_DEMAND, Role.AGENT),
        "i-s": (Market.ON_DEMAND, Role.SCHEDULER),
    }
    cluster.end("i-1", interrupted=True)
    cluster.end("i-2", interrupted=False, phase=Phase.ENDING)
    ended_at = cluster.clock.now()
    cluster.run(12)
    ends = {n: d.value for n, d in cluster.store.ends.scan().items()}
    assert {n: (e.ended_at, e.interrupted, e.source) for n, e in ends.items()} == {
        "i-1": (ended_at, True, "describe"),
        "i-2": (ended_at, False, "describe"),
    }
    before = ledger_etags(cluster)
    cluster.schedulers = [cluster.scheduler("s2"), cluster.scheduler("s3")]
    cluster.run(20)
    assert ledger_etags(cluster) == before


def test_an_assignment_tells_how_often_instances_of_its_pool_are_interrupted(cluster: Cluster) -> None:
    cluster.length = 10_000
    for iid, market, zone in (
        ("i-1", Market.SPOT, "us-east-1a"), ("i-2", Market.SPOT, "us-east-1b"), ("i-3", Market.ON_DEMAND, "us-east-1a"),
    ):  # fmt: skip
        cluster.agent(iid, market, zone)
        cluster.submit(iid)
    cluster.run(3)
    hours_by_instance = {n: d.value.hours_between_interruptions for n, d in cluster.store.assignments.scan().items()}
    assert hours_by_instance == {
        "i-1": approx(4.4, abs=0.01),
        "i-2": approx(4.4, abs=0.01),
        "i-3": approx(6000, abs=0.01),
    }
    cluster.clock.advance(timedelta(hours=2))
    cluster.end("i-1", interrupted=True)
    cluster.run(3)
    cluster.agent("i-4", zone="us-east-1a")
    cluster.run(3)
    assignment = cluster.store.assignments.get("i-4")
    assert assignment is not None and assignment.value.hours_between_interruptions == approx(3.2, abs=0.01), (
        "one of the usual 4.4 hours, and one of 2"
    )


def test_where_the_description_states_no_time_the_first_event_of_the_end_does(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(10)
    began = cluster.clock.now()
    cluster.end("i-1", interrupted=False, stated=False)
    cluster.cloud.send(MessageKind.ENDED, "i-1", began + seconds(7))
    cluster.run(5)
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.cloud.send(MessageKind.ENDING, "i-1", began)  # out of order: the later event was acknowledged alone
    cluster.run(5)
    assert cluster.store.ends.get("i-1").value.ended_at == began + seconds(7)

    cluster.agent("i-2")
    cluster.run(10)
    began = cluster.clock.now()
    cluster.cloud.send(MessageKind.ENDED, "i-2", began + seconds(7))
    cluster.cloud.send(MessageKind.ENDING, "i-2", began)
    cluster.end("i-2", interrupted=False, stated=False)
    cluster.run(5)
    end = cluster.store.ends.get("i-2").value
    assert (end.ended_at, end.source) == (began, "event")
    assert cluster.cloud.inbox == []
    assert {m.instance_id for m in cluster.cloud.acknowledged} == {"i-1", "i-2"}


def test_without_any_stated_time_the_moment_of_the_first_look_stands_in_after_a_grace(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(10)
    cluster.end("i-1", interrupted=False, stated=False)
    began = cluster.clock.now()
    cluster.run(60)
    assert cluster.store.ends.get("i-1") is None
    cluster.run(int(GRACE.total_seconds()))
    end = cluster.store.ends.get("i-1").value
    assert end.source == "observed"
    assert began <= end.ended_at <= began + seconds(10)


def test_an_instance_that_the_cloud_has_forgotten_ended_with_its_last_heartbeat(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.agent("i-2")
    cluster.run(10)
    beat = cluster.store.instances.get("i-1").value.updated_at
    cluster.agents["i-1"].alive = False
    del cluster.cloud.described["i-1"]
    cluster.run(110)
    end = cluster.store.ends.get("i-1").value
    assert (end.ended_at, end.source, end.interrupted) == (beat, "observed", False)


@pytest.mark.parametrize("skew", [timedelta(hours=5), -timedelta(hours=5)], ids=["ahead", "behind"])
def test_a_wrong_clock_of_an_instance_puts_no_hours_on_the_bill(cluster: Cluster, skew: timedelta) -> None:
    cluster.agent("i-1")
    cluster.agent("i-2")
    cluster.run(10)
    launched = cluster.store.launches.get("i-1").value.launched_at
    cluster.agents["i-1"].alive = False
    beat = cluster.store.instances.get("i-1").value
    cluster.store.instances.put("i-1", beat.model_copy(update={"updated_at": beat.updated_at + skew}))
    missed = cluster.clock.now()
    del cluster.cloud.described["i-1"]
    cluster.run(110)
    end = cluster.store.ends.get("i-1").value
    if skew < timedelta():
        assert (end.ended_at, end.source) == (launched, UNKNOWN), "the bill names it"
    else:
        assert end.source == "observed" and missed <= end.ended_at <= missed + seconds(10)


def test_the_launch_of_an_instance_with_a_clock_ahead_is_not_in_the_future(cluster: Cluster) -> None:
    """Given an instance that no description ever showed, whose clock is wrong, when it is put on the bill."""
    cluster.agent("i-1")
    cluster.run(10)
    cluster.schedulers = []
    cluster.agent("i-2")
    cluster.run(60)
    cluster.agents["i-2"].alive = False
    beat = cluster.store.instances.get("i-2").value
    ahead = {name: getattr(beat, name) + timedelta(hours=50) for name in ("booted_at", "updated_at")}
    cluster.store.instances.put("i-2", beat.model_copy(update=ahead))
    del cluster.cloud.described["i-2"]
    cluster.clock.advance(timedelta(hours=2))
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(110)
    launch, end = cluster.store.launches.get("i-2").value, cluster.store.ends.get("i-2").value
    assert launch.launched_at <= cluster.clock.now()
    assert (end.ended_at, end.source) == (launch.launched_at, UNKNOWN)


def test_an_end_that_is_told_beside_the_description_is_written_at_once_with_its_author(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.agent("i-2")
    cluster.run(10)
    ended = cluster.clock.now() - seconds(3)
    cluster.agents["i-1"].alive = False
    del cluster.cloud.described["i-1"]
    cluster.cloud.reported_ends.append(CloudEnd(instance_id="i-1", ended_at=ended, interrupted=True))
    cluster.run(15)
    end = cluster.store.ends.get("i-1").value
    assert (end.ended_at, end.interrupted, end.source) == (ended, True, "describe")


def test_who_ended_an_instance_is_told_beside_the_description_and_when_by_the_description(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(10)
    cluster.end("i-1", interrupted=False)
    stated = cluster.clock.now()
    described = cluster.cloud.described["i-1"]
    cluster.cloud.described["i-1"] = replace(described, interrupted=None, ended_at=stated)
    later = stated + seconds(30)
    cluster.cloud.reported_ends.append(CloudEnd(instance_id="i-1", ended_at=later, interrupted=True))
    cluster.run(15)
    end = cluster.store.ends.get("i-1").value
    assert (end.ended_at, end.interrupted) == (stated, True)


def test_an_instance_that_ended_before_any_scheduler_saw_it_described_is_on_the_bill(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(10)
    cluster.schedulers = []
    booted = cluster.clock.now()
    cluster.agent("i-2")
    cluster.run(60)
    cluster.agents["i-2"].alive = False
    del cluster.cloud.described["i-2"]
    cluster.clock.advance(timedelta(hours=2))
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(110)
    launch, end = cluster.store.launches.get("i-2").value, cluster.store.ends.get("i-2").value
    assert (launch.instance_type, launch.market, launch.launched_at) == ("c6i.large", Market.SPOT, booted)
    assert (end.ended_at - booted, end.source, end.interrupted) == (seconds(59), "observed", False)


def test_an_instance_that_the_cloud_leaves_out_has_not_ended_while_it_beats(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.agent("i-2")
    cluster.run(10)
    left_out = cluster.cloud.described.pop("i-1")
    cluster.run(int(3 * GRACE.total_seconds()))
    assert cluster.store.ends.get("i-1") is None
    cluster.cloud.described["i-1"] = left_out
    cluster.run(10)
    cluster.end("i-1", interrupted=True)
    cluster.run(10)
    assert cluster.store.ends.get("i-1").value.interrupted


def test_what_cannot_be_read_stops_neither_the_ledger_nor_a_drain(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(10)
    cluster.store.control.put("ledger/ends/i-1.json", b"no document")
    cluster.store.control.put("drain.json", b"no document")
    cluster.end("i-1", interrupted=True)
    cluster.submit("job-1")
    cluster.agent("i-2")
    cluster.run(30)
    assert cluster.store.launches.get("i-2") is not None
    assert cluster.store.records.get("job-1") is None  # the drain is heard: nothing new is assigned
    cluster.store.clear_drain()
    cluster.run(30)
    assert cluster.store.records.get("job-1").value.last_owner == "i-2"


def test_prices_cover_each_instance_from_its_launch_and_are_noted_once(cluster: Cluster) -> None:
    start = cluster.clock.now()
    cluster.cloud.prices = [price(cluster, start + seconds(n), 0.9 + n / 10_000) for n in (-7200, -600, 20, 50)]
    cluster.cloud.prices += [price(cluster, start, 0.9, "us-west-2a")]
    cluster.agent("i-1")
    cluster.run(30)
    cluster.run(60)
    spot = [p for p in cluster.store.prices() if p.market is Market.SPOT]
    assert [p.at - start for p in spot] == [seconds(n) for n in (-600, 20, 50)]
    (on_demand,) = [p for p in cluster.store.prices() if p.market is Market.ON_DEMAND]
    assert on_demand.zone == "us-east-1a"
    assert on_demand.at <= start
    assert on_demand.source
    before = ledger_etags(cluster)
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(60)
    assert ledger_etags(cluster) == before


def test_the_ledger_can_be_settled_when_no_scheduler_is_left(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(5)
    cluster.cloud.prices = [price(cluster, cluster.clock.now(), 0.05)]
    cluster.end("i-1", interrupted=True)
    ledger = settle_ledger(cluster.store, cluster.manifest, cluster.cloud)
    assert cluster.store.ends.get("i-1").value.interrupted
    assert ledger.ends.keys() == {"i-1"}
    assert [p.usd_per_hour for p in cluster.store.prices() if p.market is Market.SPOT] == [0.05]


def test_a_price_that_goes_back_counts_from_then_on(cluster: Cluster) -> None:
    """Its declaration had a typing error for a while."""
    ledger, start = cluster.schedulers[0].services.ledger, cluster.clock.now()
    for day, usd in enumerate((30.0, 3.0, 30.0, 30.0)):
        ledger.catalogue = builtin().with_types(
            [InstanceType(name="big", vcpus=8, memory_gib=64, on_demand_usd_per_hour=usd)]
        )
        launch = LaunchRecord(
            instance_id=f"i-{day}", instance_type="big", zone="us-east-1a", market=Market.ON_DEMAND,
            launched_at=start + timedelta(days=day),
        )  # fmt: skip
        ledger.note_catalogue_price(launch)
    written = sorted((p.at - start, p.usd_per_hour) for p in cluster.store.prices() if p.instance_type == "big")
    assert written == [(timedelta(days=day), usd) for day, usd in enumerate((30.0, 3.0, 30.0))]
    hour = start + timedelta(days=10)
    billed = ledger.prices().cost("big", "us-east-1a", Market.ON_DEMAND, hour, hour + timedelta(hours=1))
    assert float(billed) == approx(30.0)
    assert ledger.usd_per_hour(PoolKey("big", "us-east-1a", Market.ON_DEMAND)) == 30.0


def test_a_launch_that_is_seen_late_changes_no_newer_price(cluster: Cluster) -> None:
    ledger, start = cluster.schedulers[0].services.ledger, cluster.clock.now()
    for day, usd in ((2, 3.0), (1, 30.0)):
        ledger.catalogue = builtin().with_types(
            [InstanceType(name="big", vcpus=8, memory_gib=64, on_demand_usd_per_hour=usd)]
        )
        launch = LaunchRecord(
            instance_id=f"i-{day}", instance_type="big", zone="us-east-1a", market=Market.ON_DEMAND,
            launched_at=start + timedelta(days=day),
        )  # fmt: skip
        ledger.note_catalogue_price(launch)
    assert [p.usd_per_hour for p in cluster.store.prices() if p.instance_type == "big"] == [3.0]
