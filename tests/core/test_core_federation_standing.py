"""Idle standing instances of a cluster: which visiting job gets one, and when the fleet's own jobs leave."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.federation.decision import DEFAULT, Forecast, MovableJob, MoveWhy, decide_move, describe_move
from everspot_core.federation.forecast import MoveCost, forecast_job
from everspot_core.federation.market import ClusterMarket
from everspot_core.federation.standing import Idle, choose_idle, idle_in, on_standing, standing_home
from everspot_core.jobs.fit import Shape
from everspot_core.jobs.job import JobSpec, JobSubmission, Resources
from everspot_core.jobs.records import Assignment, InstanceRecord, InstanceState, Market, Role
from view_helpers import cluster_view, instance_view, job_view, outlook_view, pool_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SMALL = InstanceType(name="small", vcpus=2, memory_gib=8)
LARGE = InstanceType(name="large", vcpus=8, memory_gib=32)
WAY = MoveCost.for_bytes(10, 0.1, 200)


def job(vcpus=2, *, deadline=None, hours=10.0, nodes=1, **more):
    work = outlook_view(
        remaining=hours * HOUR, remaining_upper=hours * HOUR, changeover=0.1 * HOUR, changeover_upper=0.2 * HOUR
    )
    submission = JobSubmission(
        job_id="j",
        spec=JobSpec(name="j", recipe="r", resources=Resources(vcpus=vcpus, memory_gib=1)),
        submitted_at=NOW - 2 * HOUR,
        deadline_at=None if deadline is None else NOW + deadline * HOUR,
    )
    return job_view(**{"submission": submission, "outlook": work, "nodes": nodes, **more})


def agent(name, kind=SMALL, market=Market.ON_DEMAND, state=InstanceState.READY, **more):
    record = InstanceRecord(
        instance_id=name, cluster="c", role=Role.AGENT, instance_type=kind.name, zone="a", market=market,
        vcpus=kind.vcpus, memory_gib=kind.memory_gib - 0.2, gpus=0, state=state, generation="", booted_at=NOW,
        updated_at=NOW,
    )  # fmt: skip
    return instance_view(instance_id=name, record=record, **more)


def idle(kind=SMALL, count=1, market=Market.ON_DEMAND):
    return Idle(instance_type=kind.name, market=market, shape=Shape.from_machine(kind), count=count)


def peer_market(*lines, promised=0, **more):
    defaults = {"cluster": "peer", "pools": (), "unions": {}, "tick": timedelta(minutes=1)}
    return ClusterMarket(**defaults | {"idle": lines, "promised": promised, **more})


def test_only_what_a_job_could_have_now_and_no_launch_brought_counts_as_idle():
    busy = Assignment(instance_id="busy", job_id="x", epoch=1, changed_at=NOW)
    view = cluster_view(
        instances=(
            agent("free"), agent("other"), agent("large", LARGE, Market.SPOT), agent("busy", assignment=busy),
            agent("launched", launched_for="y"), agent("silent", stale=True), agent("going", ending=True),
            agent("broken", state=InstanceState.DRAINING), instance_view(instance_id="boots"),
        )
    )  # fmt: skip
    idle_counts = {(i.instance_type, i.market): (i.count, i.shape.memory_gib) for i in idle_in(view)}
    assert idle_counts == {("small", "on-demand"): (2, 7.8), ("large", "spot"): (1, 31.8)}
    assert idle_in(replace(view, draining=True)) == ()


@pytest.mark.parametrize(
    ("need", "lines", "promised", "expected"),
    [
        pytest.param(job(), [idle()], 0, "small", id="it fits"),
        pytest.param(job(vcpus=4), [idle()], 0, None, id="too small"),
        pytest.param(job(), [idle()], 1, None, id="promised to others"),
        pytest.param(job(), [idle(count=3)], 2, "small", id="one is left"),
        pytest.param(job(nodes=2), [idle(), idle(LARGE)], 0, None, id="a gang runs on one type"),
        pytest.param(job(), [idle(market=Market.SPOT), idle(LARGE)], 0, "large", id="what is not taken away"),
        pytest.param(job(speeds={"large": 3.0}), [idle(), idle(LARGE)], 0, "large", id="the fastest"),
        pytest.param(job(speeds={"small": 0.0}), [idle()], 0, None, id="it cannot run there"),
    ],
)
def test_a_job_gets_an_idle_instance_that_holds_it_and_that_nobody_waits_for(need, lines, promised, expected):
    idle_line = choose_idle(need, lines, promised)
    assert (idle_line and idle_line.instance_type) == expected


def test_on_an_idle_instance_only_the_way_costs():
    forecast = forecast_job(job(), peer_market(idle()), NOW, move_cost=WAY)
    assert (forecast.feasible, forecast.placed, forecast.paid, forecast.usd, forecast.reason) == (
        True,
        True,
        True,
        pytest.approx(1.0),
        "",
    )
    assert forecast.done_by == NOW + 10.2 * HOUR + WAY.upper
    assert forecast_job(job(), peer_market(idle(market=Market.SPOT)), NOW, move_cost=WAY).done_by is None
    unknown = forecast_job(job(outlook=None), peer_market(idle()), NOW, move_cost=WAY)
    assert (unknown.usd, unknown.usd_per_hour, unknown.done_by) == (None, 0.0, None)


def test_where_nothing_is_idle_and_nothing_launched_a_job_waits():
    forecast = forecast_job(job(), peer_market(idle(), promised=1), NOW, move_cost=WAY)
    assert (forecast.feasible, forecast.placed, forecast.dry_since) == (False, False, NOW - 2 * HOUR)
    assert forecast.reason == "none of its instances is free for it"


def test_an_idle_instance_of_a_cluster_that_also_launches_comes_before_a_launch():
    pool = pool_view(instance_type=LARGE, zone="a", market=Market.ON_DEMAND, usd_per_hour=2.0)
    launched = forecast_job(job(), peer_market(pools=(pool,)), NOW, move_cost=WAY)
    with_idle = forecast_job(job(), peer_market(idle(), pools=(pool,)), NOW, move_cost=WAY)
    assert launched.usd == pytest.approx(2.0 * 10.1 + 1.0) and with_idle.usd == pytest.approx(1.0)


def test_a_job_moves_to_what_is_idle_for_money_too_and_says_so():
    here = Forecast(cluster="home", feasible=True, usd=9.0, done_by=None)
    forecast = forecast_job(job(), peer_market(idle()), NOW, move_cost=WAY)
    move = decide_move(MovableJob(job_id="j", deadline_at=None, has_instance=True), here, [forecast], DEFAULT, NOW)
    assert move.reason is MoveWhy.CHEAPER and describe_move(move).endswith(
        "on an idle instance that is paid for anyway"
    )
    budgeted = MovableJob(job_id="j", deadline_at=None, has_instance=True, budgeted=True)
    assert decide_move(budgeted, here, [forecast], DEFAULT, NOW) is None  # its budget pays what its host takes for it
    assert decide_move(budgeted, here, [replace(forecast, paid=False)], DEFAULT, NOW) is not None


def test_nothing_is_saved_by_leaving_an_instance_that_is_paid_for_anyway():
    home_forecast = Forecast(cluster="home", feasible=True, usd=9.0, done_by=None)
    forecast = forecast_job(job(), peer_market(idle()), NOW, move_cost=WAY)
    traveller = MovableJob(job_id="j", deadline_at=None, has_instance=True)
    assert decide_move(traveller, on_standing(home_forecast), [forecast], DEFAULT, NOW) is None
    assert on_standing(replace(home_forecast, usd=None)).usd is None


def test_a_job_of_a_standing_fleet_leaves_for_no_more_than_half_as_much_again_as_its_own_instances_cost():
    pool = pool_view(instance_type=SMALL, zone="a", market=Market.SPOT, usd_per_hour=1.0)
    home = cluster_view(instances=(agent("i"),), pools=(pool,))
    here = standing_home(job(), home, "home", NOW)
    assert (here.feasible, here.placed, here.dry_since) == (False, False, NOW - 2 * HOUR)
    assert here.on_demand_usd == pytest.approx(10.1)
    for usd, moves in ((15.1, True), (15.2, False)):
        peer = Forecast(cluster="peer", feasible=True, usd=usd, done_by=None)
        assert (decide_move(MovableJob(job_id="j", deadline_at=None), here, [peer], DEFAULT, NOW) is not None) is moves
    never = standing_home(job(vcpus=4), home, "home", NOW)
    assert (never.dry_since, never.on_demand_usd) == (None, None)
    assert never.reason == "none of its instance types can hold it"
