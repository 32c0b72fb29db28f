"""What is written of jobs that wait: the reason, since when it holds, the pool, and when on-demand comes."""

import logging
from datetime import timedelta

import pytest
from everspot_core.records import Market
from everspot_core.schedule import Hold, PoolKey, Why
from everspot_scheduler.waiting import WRITE_EVERY, Waits
from everspot_store import Wait, WaitPool
from scheduler_helpers import Cluster

POOL = PoolKey("g5.xlarge", "us-east-1a", Market.SPOT)
HOUR = timedelta(hours=1)


@pytest.fixture
def waits(cluster: Cluster) -> Waits:
    waits = Waits(cluster.store, "s1")
    waits.load()
    return waits


def written(cluster: Cluster) -> Wait:
    found = cluster.store.notes.waiting()
    assert found is not None
    return found.jobs["a"]


def test_the_pool_and_the_moment_of_on_demand_are_written_with_the_reason(cluster: Cluster, waits: Waits) -> None:
    at = cluster.clock.now() + 2 * HOUR
    waits.note([Hold(job_id="a", why=Why.WAIT_FOR_SPOT, figures={"slack_hours": 2.0}, waits_for=POOL, on_demand_at=at)])
    wait = written(cluster)
    assert wait.words == "there is no spot, and 2.00 h may still be waited for it"
    assert wait.waits_for == WaitPool(instance_type="g5.xlarge", zone="us-east-1a", market=Market.SPOT)
    assert wait.on_demand_at == at
    waits.note([Hold(job_id="a", why=Why.DRAIN)])
    cluster.clock.advance(WRITE_EVERY)
    waits.note([Hold(job_id="a", why=Why.DRAIN)])
    assert (written(cluster).waits_for, written(cluster).on_demand_at) == (None, None)


def test_figures_that_move_are_no_other_reason(
    cluster: Cluster, waits: Waits, caplog: pytest.LogCaptureFixture
) -> None:
    began = cluster.clock.now()
    with caplog.at_level(logging.INFO):
        for slack in (2.0, 1.5, 1.0):
            waits.note([Hold(job_id="a", why=Why.WAIT_FOR_SPOT, figures={"slack_hours": slack})])
            cluster.clock.advance(WRITE_EVERY)
    assert (written(cluster).since, written(cluster).words) == (
        began, "there is no spot, and 1.00 h may still be waited for it",
    )  # fmt: skip
    assert caplog.text.count("hold a") == 1
