"""The scheduler's document on its pools for people: when it changes, and its maximum frequency."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.ledger import PricePoint
from everspot_core.federation.market import ClusterMarket, Headroom
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.records import Market
from everspot_core.schedule import Behaviour, Cap, ClusterView, PoolView
from everspot_scheduler.fleet_status import WRITE_EVERY, FleetStatusWriter
from everspot_store import FleetState, StoreDenied
from everspot_store.peer_market import build_market
from scheduler_helpers import Cluster


def noted(cluster: Cluster) -> FleetState:
    state = cluster.store.notes.fleet.read()
    assert state is not None
    return state


def price(cluster: Cluster, usd: float) -> None:
    at = cluster.clock.now().replace(microsecond=0)
    pool = {"instance_type": "c6i.large", "zone": "us-east-1a", "market": Market.SPOT}
    cluster.cloud.prices.append(PricePoint(**pool, at=at, usd_per_hour=usd, source="test"))


def test_the_pools_are_noted_with_what_they_cost_and_once_while_nothing_changes(cluster: Cluster) -> None:
    price(cluster, 0.04)
    cluster.agent("i-1")
    cluster.run(3)
    cluster.clock.advance(WRITE_EVERY)
    cluster.run(2)
    (pool,) = noted(cluster).pools
    assert (pool.instance_type, pool.zone, pool.market, pool.usd_per_hour) == ("c6i.large", "us-east-1a", "spot", 0.04)
    assert noted(cluster).elastic is None
    etag = cluster.store.control.get("pools.json").etag
    cluster.clock.advance(2 * WRITE_EVERY)
    cluster.run(3)
    assert cluster.store.control.get("pools.json").etag == etag


def test_changes_are_written_together_ten_seconds_after_the_last_write(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(2)
    before = noted(cluster)
    assert [idle.count for idle in before.idle] == [1]
    assert [pool.zone for pool in before.pools] == ["us-east-1a"]
    cluster.agent("i-2", zone="us-east-1b")
    cluster.run(8)  # EC2 has described it by then
    assert noted(cluster) == before
    cluster.run(2)
    assert [pool.zone for pool in noted(cluster).pools] == ["us-east-1a", "us-east-1b"]


def test_a_note_that_cannot_be_written_is_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as denied:

        def deny(state: FleetState) -> None:
            raise StoreDenied("pools.json")

        denied.setattr(cluster.store.notes.fleet, "write", deny)
        cluster.agent("i-1")
        cluster.run(2)
    assert cluster.store.notes.fleet.read() is None
    assert "pools.json" in caplog.text
    cluster.clock.advance(WRITE_EVERY)
    cluster.run(1)
    assert [pool.zone for pool in noted(cluster).pools] == ["us-east-1a"]


def test_another_cluster_reads_the_same_market_from_the_note(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot read a pool's remaining number of instances, only whether the pool may be requested."""
    views = list[ClusterView]()
    with monkeypatch.context() as listening:
        listening.setattr(FleetStatusWriter, "write", lambda _, view: views.append(view))
        cluster.submit("waits")
        cluster.run(1)
    now, kind = cluster.clock.now(), builtin().types["g5.xlarge"]
    behaviour = Behaviour(up=True, since=now, first=now, ups=(2.5,), downs=(1.5, 0.5))
    pools = tuple(
        PoolView(
            instance_type=kind,
            zone="us-east-1a",
            market=market,
            usd_per_hour=usd,
            available=available,
            reserved=False,
            behaviour=behaviour,
            placement_score=7,
            refused_at=(now,),
            noticed_at=now,
            changeover=Changeover(timedelta(seconds=seconds), timedelta(seconds=4 * seconds)),
        )
        for market, usd, available, seconds in ((Market.ON_DEMAND, 1.0, None, 90), (Market.SPOT, 0.4, 0, 60))
    )
    view = replace(views[-1], pools=pools, unions={}, cap=Cap(instances=3, usd_per_hour=4.0))
    FleetStatusWriter(cluster.store, "s").write(view)
    read = build_market(noted(cluster), "c", builtin().types, more=1)
    own = ClusterMarket.from_view("c", view)
    assert (read.pools, read.tick, read.headroom) == (own.pools, own.tick, own.headroom)
    assert read.headroom == Headroom(instances=3, usd_per_hour=4.0) and read.promised == 2  # `waits` needs one, too
    assert read.changeover == Changeover(timedelta(seconds=60), timedelta(seconds=240))
    assert build_market(noted(cluster), "c", {}).pools == ()
