"""The live scheduler fills every field of the plan's view from the store and from the cloud's answers."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from everspot_clouds.base import MessageKind
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs.records import Market, Notice, NoticeKind, Progress
from everspot_core.schedule import ClusterView, JobView, MeasuredUse, PoolView, plan_standing
from everspot_scheduler import team_usage
from everspot_store import ManualClock
from scheduler_helpers import Cluster, folder_store

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TYPE = "c6i.large"
ON_DEMAND = builtin().on_demand(TYPE, "us-east-1").usd_per_hour


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[[], ClusterView]:
    """The view that the last plan was made from."""
    views: list[ClusterView] = []

    def spy(view: ClusterView, now: Any) -> Any:
        views.append(view)
        return plan_standing(view, now)

    monkeypatch.setattr("everspot_scheduler.phases.decide.plan_standing", spy)
    return lambda: views[-1]


def find_job(view: ClusterView, name: str) -> JobView:
    return next(j for j in view.jobs if j.job_id == name)


def find_pool(view: ClusterView, market: Market, zone: str = "us-east-1a") -> PoolView:
    return next(p for p in view.pools if p.key == (TYPE, zone, market))


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_a_tick_is_as_long_as_the_quietest_one_in_market_time(tmp_path, planned, scale):
    clock = ManualClock(scale=scale)
    here = Cluster(folder_store(tmp_path, clock), clock)
    here.schedulers[0].tick()
    assert planned().tick == here.manifest.limits.longest_tick * scale


def test_the_shares_of_teams_are_those_that_are_declared_now(cluster, planned):
    cluster.run(1)
    assert planned().shares == {}
    cluster.declare(shares={"ants": 3.0})
    cluster.run(8)
    assert planned().shares == {"ants": 3.0}


def test_what_a_team_uses_is_added_up_and_outlives_its_scheduler(cluster, planned):
    cluster.length = 10_000
    cluster.submit("a", tags={"Team": "ants"})
    cluster.submit("b", tags={"Team": "bees"})
    cluster.agent("i-1", Market.ON_DEMAND)
    cluster.run(2)
    owner_of_one = {job for job, started in cluster.starts.items() if started}
    assert len(owner_of_one) == 1
    (team,) = {find_job(planned(), job).team for job in owner_of_one}
    began, before = cluster.clock.now(), planned().usage.get(team, 0.0)
    cluster.run(200)
    hours = (cluster.clock.now() - began) / HOUR
    used = planned().usage
    assert used[team] - before == pytest.approx(ON_DEMAND * hours, rel=0.05)
    assert set(used) == {team}
    cluster.clock.advance(team_usage.WRITE_EVERY)
    cluster.run(2)
    written = cluster.store.notes.usage.read()
    assert written.dollars[team] > used[team]
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(1)
    assert planned().usage[team] >= written.dollars[team]


def test_dollars_of_long_ago_count_less(cluster, planned):
    cluster.length = 10_000
    cluster.submit("a", tags={"Team": "ants"})
    agent = cluster.agent("i-1", Market.ON_DEMAND)
    cluster.run(60)
    agent.lease.release(cluster.agents["i-1"].reason)
    agent.lease = None
    cluster.run(2)
    used = planned().usage["ants"]
    cluster.clock.advance(team_usage.HALF_LIFE)
    cluster.schedulers[0].tick()
    assert planned().usage["ants"] == pytest.approx(used / 2, rel=1e-3)


def test_speeds_are_those_that_were_measured_against_what_the_author_expects(cluster, planned):
    cluster.length = 10_000
    cluster.submit("a", expected_duration="100s")
    cluster.submit("b")
    first = cluster.agent("i-1")
    cluster.agent("i-2")
    cluster.run(4)
    assert (find_job(planned(), "a").speeds, find_job(planned(), "a").measured_speeds) == ({}, frozenset())
    holder = next(agent for agent in cluster.agents.values() if agent.lease.job_id == "a")
    holder.lease.renew(Progress(step=10, total_steps=200, steps_per_second=5.0))  # 200 steps in 100 s would be 2
    cluster.schedulers[0].tick()
    job = find_job(planned(), "a")
    assert (dict(job.speeds), job.measured_speeds) == ({TYPE: 2.5}, {TYPE})
    assert dict(find_job(planned(), "b").speeds) == {}
    holder.lease.renew(Progress(step=11, total_steps=200, steps_per_second=4.0))
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.schedulers[0].tick()
    assert dict(find_job(planned(), "a").speeds) == {TYPE: 2.0}, "the record tells the next scheduler"
    assert first.alive


def test_what_a_job_was_seen_to_use_is_what_its_agents_told_and_the_rest_is_unknown(cluster, planned):
    cluster.length = 10_000
    cluster.submit("a")
    cluster.agent("i-1")
    cluster.run(4)
    assert find_job(planned(), "a").measured is None
    lease = cluster.agents["i-1"].lease
    lease.renew(Progress(step=1, memory_gib=3.5))
    cluster.schedulers[0].tick()
    measured = find_job(planned(), "a").measured
    assert measured == MeasuredUse(vcpus=None, memory_gib=3.5, gpu_memory_gib=None, mixed=None)
    lease.renew(Progress(step=2, memory_gib=3.5, gpu_memory_gib=11.0, mixed=True))
    cluster.schedulers[0].tick()
    measured = find_job(planned(), "a").measured
    assert measured == MeasuredUse(vcpus=None, memory_gib=3.5, gpu_memory_gib=11.0, mixed=True)


def test_the_agents_deadline_counts_before_the_queues(cluster, planned):
    for name in ("i-1", "i-2"):
        cluster.agent(name)
    queue_deadline, agent_deadline = cluster.clock.now() + 2 * SECOND, cluster.clock.now() + 90 * SECOND
    for name in ("i-1", "i-2"):
        cluster.cloud.send(MessageKind.WARNING, name, cluster.clock.now(), deadline=queue_deadline)
    notice = Notice(kind=NoticeKind.INTERRUPTION, source="imds", seen_at=cluster.clock.now(), action_at=agent_deadline)
    agent = cluster.store.instances.get("i-1").value
    cluster.store.instances.put("i-1", agent.model_copy(update={"notice": notice}))
    cluster.run(1)
    assert {i.instance_id: i.deadline for i in planned().instances} == {"i-1": agent_deadline, "i-2": queue_deadline}


def test_a_pool_is_up_from_a_launch_on_and_down_once_it_has_taken_its_last_instance(cluster, planned):
    begin = cluster.clock.now()
    cluster.agent("i-1")
    cluster.agent("i-2")
    cluster.agent("i-base", Market.ON_DEMAND)
    cluster.run(20)
    spot = find_pool(planned(), Market.SPOT)
    assert (spot.behaviour.up, spot.behaviour.since, spot.noticed_at) == (True, begin, None)
    cluster.end("i-1", interrupted=True)
    first = cluster.clock.now()
    cluster.run(20)
    spot = find_pool(planned(), Market.SPOT)
    assert (spot.behaviour.up, spot.behaviour.ups) == (True, ()), "it still holds another one of ours"
    assert first - SECOND <= spot.noticed_at <= first
    warned_at = cluster.clock.now()
    cluster.cloud.send(MessageKind.WARNING, "i-2", warned_at, deadline=warned_at + timedelta(minutes=2))
    cluster.run(2)
    spot = find_pool(planned(), Market.SPOT)
    assert (spot.behaviour.up, spot.behaviour.since, spot.noticed_at) == (False, warned_at, warned_at)
    assert spot.behaviour.ups == (pytest.approx((warned_at - begin) / HOUR),)
    cluster.end("i-2", interrupted=True)
    cluster.run(20)
    assert find_pool(planned(), Market.SPOT).behaviour == spot.behaviour, "the warning came first"
    back = cluster.clock.now()
    cluster.agent("i-3")
    cluster.run(12)
    here = find_pool(planned(), Market.SPOT).behaviour
    assert (here.up, here.since, here.downs) == (True, back, (pytest.approx((back - warned_at) / HOUR),))
    calm = find_pool(planned(), Market.ON_DEMAND)
    assert (calm.behaviour.up, calm.behaviour.since, calm.noticed_at) == (True, begin, None)


def test_the_next_scheduler_knows_the_pools_from_the_ledger(cluster, planned):
    cluster.agent("i-1")
    cluster.run(8)
    cluster.end("i-1", interrupted=True)
    cluster.run(8)
    before = find_pool(planned(), Market.SPOT)
    assert not before.behaviour.up
    cluster.schedulers = [cluster.scheduler("s2")]
    cluster.run(1)
    assert find_pool(planned(), Market.SPOT) == before


def test_an_instance_that_leaves_for_us_says_nothing_against_its_pool_and_old_pools_are_forgotten(cluster, planned):
    cluster.agent("i-1")
    cluster.run(8)
    cluster.end("i-1", interrupted=False)
    cluster.run(8)
    spot = find_pool(planned(), Market.SPOT)
    assert (spot.behaviour.up, spot.noticed_at) == (True, None)
    cluster.clock.advance(timedelta(days=2))
    cluster.run(1)
    assert planned().pools == ()


def test_pools_cost_what_the_cloud_said_last(cluster, planned):
    at = cluster.clock.now()
    cluster.cloud.prices = [
        PricePoint(instance_type=TYPE, zone="us-east-1a", market=Market.SPOT, at=when, usd_per_hour=usd, source="t")
        for when, usd in ((at - HOUR, 0.03), (at - HOUR / 2, 0.05))
    ]
    cluster.agent("i-1")
    cluster.agent("i-base", Market.ON_DEMAND)
    cluster.run(20)
    assert find_pool(planned(), Market.SPOT).usd_per_hour == 0.05
    assert find_pool(planned(), Market.ON_DEMAND).usd_per_hour == ON_DEMAND


def test_a_spot_instance_of_a_pool_that_has_just_taken_one_comes_last(cluster, planned):
    cluster.agent("i-gone")
    cluster.run(8)
    cluster.end("i-gone", interrupted=True)
    cluster.run(8)
    cluster.agent("i-risky")
    cluster.agent("i-calm", zone="us-east-1b")
    cluster.submit("j")
    cluster.run(3)
    assert cluster.store.records.get("j").value.owner == "i-calm"


def test_what_a_standing_driver_cannot_have_is_said_to_be_absent(cluster, planned):
    cluster.length = 100
    cluster.submit("j")
    cluster.agent("i-1")
    cluster.run(12)
    (job,), (instance,) = planned().jobs, planned().instances
    assert (job.nodes, job.outlook, job.measured) == (1, None, None)
    assert (instance.launched_for, instance.residents) == (None, ())
    assert instance.pool == (TYPE, "us-east-1a", Market.SPOT)
    assert instance.launched_at == cluster.cloud.described["i-1"].launched_at
    assert (planned().shared, dict(planned().unions), planned().booting) == (False, {}, 0)
