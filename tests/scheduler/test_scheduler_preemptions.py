"""A job that loses several spot instances in a row moves to on-demand if the policy allows a choice."""

import pytest
from everspot_core.jobs.records import Market, Request
from everspot_core.schedule.market.failover import PREEMPTIONS
from everspot_scheduler.preemptions import Preemptions
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


def test_a_job_that_runs_on_on_demand_keeps_the_times_of_its_losses(cluster: Cluster) -> None:
    """Without them it would go back to spot after an hour, however often it was taken today."""
    cluster.length = 500
    cluster.submit("j")
    lose(cluster, PREEMPTIONS)
    waiting = Preemptions(cluster.store)
    times = waiting.preemption_times(cluster.store.records.scan())
    cluster.agent("i-on-demand", Market.ON_DEMAND)
    cluster.run(8)
    assert cluster.state("j") == "RUNNING" and len(times["j"]) == PREEMPTIONS
    for preemptions in (waiting, Preemptions(cluster.store)):
        assert preemptions.preemption_times(cluster.store.records.scan()) == times


def test_each_loss_is_in_the_times_that_follow_it(cluster: Cluster) -> None:
    cluster.length = 500
    cluster.submit("j")
    preemptions, counts = Preemptions(cluster.store), list[int]()
    for n in range(PREEMPTIONS + 2):
        cluster.agent(f"i-{n}", zone="us-east-1b")
        cluster.run(8)
        preemptions.preemption_times(cluster.store.records.scan())
        cluster.end(cluster.store.records.get("j").value.owner, interrupted=True)
        cluster.run(8)
        counts.append(len(preemptions.preemption_times(cluster.store.records.scan()).get("j", ())))
    assert counts == [0] * (PREEMPTIONS - 1) + [PREEMPTIONS, PREEMPTIONS + 1, PREEMPTIONS + 2]
