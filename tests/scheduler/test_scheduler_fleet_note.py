"""What a scheduler writes of its pools for people: when it changes, and not too often."""

import pytest
from everspot_core.ledger import PricePoint
from everspot_core.records import Market
from everspot_scheduler.fleet_note import WRITE_EVERY
from everspot_store import FleetState, StoreDenied
from scheduler_helpers import Cluster


def noted(cluster: Cluster) -> FleetState:
    state = cluster.store.notes.fleet()
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
    etag = cluster.store.notes._fleet.get("pools").etag
    cluster.clock.advance(2 * WRITE_EVERY)
    cluster.run(3)
    assert cluster.store.notes._fleet.get("pools").etag == etag


def test_changes_are_written_together_ten_seconds_after_the_last_write(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.run(2)
    before = noted(cluster)
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

        denied.setattr(cluster.store.notes, "write_fleet", deny)
        cluster.agent("i-1")
        cluster.run(2)
    assert cluster.store.notes.fleet() is None
    assert "pools.json" in caplog.text
    cluster.clock.advance(WRITE_EVERY)
    cluster.run(1)
    assert [pool.zone for pool in noted(cluster).pools] == ["us-east-1a"]
