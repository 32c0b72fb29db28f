"""A job that loses several spot instances in a row moves to on-demand if the policy allows a choice."""

import pytest
from everspot_core.jobs.records import Market, Request
from everspot_core.schedule.market.failover import PREEMPTIONS
from scheduler_helpers import Cluster


def lose(cluster: Cluster, times: int) -> None:
    """Run the job on one spot instance after another; the cloud preempts each without a notice."""
    for n in range(times):
        cluster.agent(f"i-spot-{n}")
        cluster.run(8)
        assert cluster.store.records.get("j").value.owner == f"i-spot-{n}"
        cluster.end(f"i-spot-{n}", interrupted=True)
        cluster.run(8)


@pytest.mark.parametrize(
    ("losses", "market"), [(PREEMPTIONS - 1, Market.SPOT), (PREEMPTIONS, Market.ON_DEMAND)], ids=["few", "often"]
)
def test_after_so_many_losses_a_job_prefers_on_demand(cluster: Cluster, losses: int, market: Market) -> None:
    cluster.length = 500
    cluster.submit("j")
    lose(cluster, losses)
    cluster.agent("i-next-spot", zone="us-east-1b")  # of a pool that has taken nothing
    cluster.agent("i-on-demand", Market.ON_DEMAND)
    cluster.run(8)
    owner = cluster.store.records.get("j").value.owner
    assert cluster.agents[owner].record.market is market


def test_a_scheduler_that_comes_later_knows_of_the_losses_too(cluster: Cluster) -> None:
    cluster.length = 500
    cluster.submit("j")
    lose(cluster, PREEMPTIONS)
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.agent("i-next-spot")
    cluster.agent("i-on-demand", Market.ON_DEMAND)
    cluster.run(8)
    assert cluster.store.records.get("j").value.owner == "i-on-demand"


def test_drills_are_no_losses(cluster: Cluster) -> None:
    cluster.length = 500
    cluster.submit("j")
    cluster.agent("i-spot")
    for n in range(PREEMPTIONS + 1):
        cluster.run(6)
        request(cluster, n)
        cluster.run(6)
    assert cluster.store.records.get("j").value.preemptions > PREEMPTIONS
    cluster.agent("i-next-spot")
    cluster.agent("i-on-demand", Market.ON_DEMAND)
    request(cluster, 99)
    cluster.run(8)
    assert cluster.agents[cluster.store.records.get("j").value.owner].record.market is Market.SPOT


def request(cluster: Cluster, number: int) -> None:
    cluster.store.drills.create(f"j/{number}", Request(at=cluster.clock.now(), by="test"))
