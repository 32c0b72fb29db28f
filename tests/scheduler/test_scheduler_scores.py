"""When a scheduler requests placement scores, and the scores in its pools."""

from datetime import datetime, timedelta

import pytest
from everspot_clouds.base import PlacementScore
from everspot_core.cluster.manifest import Elastic
from everspot_core.jobs.records import Market
from everspot_scheduler.scores import VALID_FOR
from scheduler_helpers import Cluster

TYPES = ("c6i.large", "m6i.large", "m7i.large")


def score(zone: str, number: int, at: datetime) -> PlacementScore:
    return PlacementScore(types=TYPES, region="us-east-1", zone=zone, count=1, score=number, at=at)


def elastic(markets: list[Market]) -> Elastic:
    types = [*TYPES, "unheard.of"]
    places = {"us-east-1a": "subnet-a"}
    return Elastic(types=types, markets=markets, max_instances=8, template="lt-1", template_version="1", places=places)


@pytest.fixture
def spot(cluster: Cluster) -> Cluster:
    """One that may launch three types on spot, with an instance of each market."""
    cluster.declare(elastic=elastic([Market.SPOT, Market.ON_DEMAND]))
    cluster.agent("i-spot", Market.SPOT)
    cluster.agent("i-base", Market.ON_DEMAND)
    return cluster


def scores(cluster: Cluster) -> dict[Market, int | None]:
    """Return the scores by the market of the pools, from the plan's view."""
    scheduler = cluster.schedulers[0]
    services, now = scheduler.services, cluster.clock.now()
    views = scheduler.observe.pools.look(services.facts, services.ledger, services.elastic, now)
    return {pool.market: pool.placement_score for pool in views}


def test_a_cluster_without_jobs_asks_for_no_scores(spot: Cluster) -> None:
    spot.run(2)
    assert spot.cloud.scored == []


@pytest.mark.parametrize("offer", [None, elastic([Market.ON_DEMAND])], ids=["nothing", "on-demand"])
def test_a_cluster_that_launches_no_spot_asks_for_no_scores(spot: Cluster, offer: Elastic | None) -> None:
    spot.declare(elastic=offer)
    spot.submit("job")
    spot.run(3)
    assert spot.cloud.scored == []


def test_the_pools_of_spot_have_the_cloud_s_scores_as_long_as_they_are_fresh(spot: Cluster) -> None:
    spot.cloud.scores = [score("us-east-1a", 3, spot.clock.now()), score("us-east-1b", 9, spot.clock.now())]
    spot.submit("job")
    spot.length = 10_000
    spot.run(2)
    assert len(spot.cloud.scored) == 1
    spot.clock.advance(timedelta(seconds=60))
    spot.run(1)
    assert spot.cloud.scored == [(TYPES, 0)] * 2  # one group of types, once a minute
    assert scores(spot) == {Market.SPOT: 3, Market.ON_DEMAND: None}
    spot.clock.advance(VALID_FOR - timedelta(seconds=63))
    assert scores(spot)[Market.SPOT] == 3
    spot.clock.advance(timedelta(seconds=1))
    assert scores(spot)[Market.SPOT] is None


def test_a_refusal_stops_no_tick(spot: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> list[PlacementScore]:
        raise OSError("not today")

    spot.cloud.placement_scores = refuse  # type: ignore[method-assign, assignment]
    spot.submit("job")
    spot.run(8)
    assert spot.state("job") == "SUCCEEDED"
    assert "asking for placement scores failed (transient): not today" in caplog.text
