"""Elastic capacity in whole plans: launches for a job, and its moves to launched instances."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.records import Reason
from everspot_core.schedule import (
    Assign,
    Behaviour,
    ClearAssignment,
    Hold,
    Launch,
    Refuse,
    Release,
    Stay,
    Why,
)
from everspot_core.schedule.jobs import STARVATION_LIMIT
from everspot_core.schedule.market.policy import SHORT_SPELLS_BEFORE_DISTRUST
from provision_helpers import (
    HOUR,
    LATEST,
    NEED,
    NOW,
    OFTEN,
    ON_DEMAND,
    SPOT,
    TICK,
    TYPE,
    WORK,
    World,
    decide,
    dry,
    holding,
    instance,
    job,
    lost,
    names,
    only_action,
    outlook,
    pool,
)

BLINKING = Behaviour(
    up=True,
    since=NOW,
    first=NOW - 9 * HOUR,
    ups=(0.05,) * SHORT_SPELLS_BEFORE_DISTRUST,
    downs=(1.0,) * SHORT_SPELLS_BEFORE_DISTRUST,
)


@pytest.mark.parametrize(
    ("view", "pools", "market", "zone", "cause"),
    [
        (job(due=20, work=WORK), [pool(), pool(ON_DEMAND)], SPOT, "a", Why.SPOT_AVAILABLE),
        (job(due=LATEST, work=WORK), [pool(), pool(ON_DEMAND)], SPOT, "a", Why.SPOT_AVAILABLE),
        (job(due=LATEST - 0.001, work=WORK), [pool(), pool(ON_DEMAND)], ON_DEMAND, "a", Why.LAST_SAFE_MOMENT),
        (job(due=LATEST - 0.001, work=WORK), [dry(), pool(ON_DEMAND)], ON_DEMAND, "a", Why.LAST_SAFE_MOMENT),
        (job(due=20, work=WORK), [pool(ON_DEMAND)], ON_DEMAND, "a", Why.NO_SPOT),
        (job(due=20, work=WORK), [dry(), pool(zone="b", usd=2.0), pool(ON_DEMAND)], SPOT, "b", Why.SPOT_AVAILABLE),
        (job(due=20), [pool(), pool(ON_DEMAND)], SPOT, "a", Why.UNKNOWN_LENGTH),
        (job(due=20), [dry(), pool(ON_DEMAND)], ON_DEMAND, "a", Why.UNKNOWN_LENGTH),
        (job(), [pool(), pool(ON_DEMAND)], SPOT, "a", Why.PREFERRED_MARKET),
        (job(), [pool(ON_DEMAND)], ON_DEMAND, "a", Why.NO_SPOT),
        (job(preempted_at=OFTEN), [pool(), pool(ON_DEMAND)], ON_DEMAND, "a", Why.FAILED_OVER),
        (job(ago=STARVATION_LIMIT / HOUR), [dry(), pool(ON_DEMAND)], ON_DEMAND, "a", Why.WAITED_LONG),
        (job(critical=True), [pool(), pool(ON_DEMAND)], ON_DEMAND, "a", Why.CRITICAL),
        (job(critical=True, due=99, work=WORK), [pool(), pool(ON_DEMAND)], ON_DEMAND, "a", Why.CRITICAL),
        (
            job(critical=True),
            [pool(ON_DEMAND, usd=1.0), pool(ON_DEMAND, "b", usd=9.0, reserved=True)],
            ON_DEMAND,
            "b",
            Why.CRITICAL,
        ),
        (
            job(critical=True),
            [pool(ON_DEMAND), pool(ON_DEMAND, "b", reserved=True, available=0)],
            ON_DEMAND,
            "a",
            Why.CRITICAL,
        ),
    ],
)
def test_what_a_job_with_nothing_is_launched(view, pools, market, zone, cause):
    launch = only_action(decide(view, pools=pools), Launch)
    assert (launch.market, launch.zone, launch.cause, launch.count) == (market, zone, cause, 1)


@pytest.mark.parametrize(
    ("view", "pools", "cause"),
    [
        (job(due=40, work=WORK), [dry(), pool(ON_DEMAND)], Why.WAIT_FOR_SPOT),
        (job(), [dry(), pool(ON_DEMAND)], Why.NO_SPOT_YET),
        (job(ago=STARVATION_LIMIT / HOUR - 0.01), [dry(), pool(ON_DEMAND)], Why.NO_SPOT_YET),
        (job(ago=STARVATION_LIMIT / HOUR), [dry(), pool(ON_DEMAND, available=0)], Why.NO_CAPACITY),
        (job(due=40, work=WORK), [pool(behaviour=BLINKING), pool(ON_DEMAND)], Why.SHORT_SPELLS),
        (job(due=LATEST - 0.001, work=WORK), [dry(), pool(ON_DEMAND, available=0)], Why.AT_RISK),
        (job(critical=True), [dry(), pool(ON_DEMAND, available=0)], Why.NO_CAPACITY),
        (job(due=20, work=WORK, record=lost(Reason.ERROR, not_before=NOW + HOUR)), [pool()], Why.BACK_OFF),
        (job(due=20, work=WORK, nodes=2), [pool(available=1), pool(ON_DEMAND, available=1)], Why.WAIT_FOR_SPOT),
    ],
)
def test_what_a_job_waits_for(view, pools, cause):
    assert (
        only_action(decide(view, [instance("s", ON_DEMAND, launched_for=None, stale=True)], pools), Hold).cause is cause
    )


def test_a_job_in_back_off_is_launched_nothing_even_where_nothing_has_been_seen_yet():
    view = job(due=20, work=WORK, record=lost(Reason.ERROR, not_before=NOW + HOUR))
    assert isinstance(only_action(decide(view, pools=[pool(), pool(ON_DEMAND)]), Hold), Hold)


def test_what_runs_well_stays():
    for market, due in ((SPOT, 20.0), (ON_DEMAND, 10.1)):
        view, instances = holding(job(due=due, work=WORK), instance("i-0", market, ago=1))
        stay = only_action(decide(view, instances, [pool(), pool(ON_DEMAND)]), Stay)
        assert (stay.instance_id, stay.cause) == ("i-0", Why.RUNS_WELL)


def test_standing_instances_come_first_and_standing_on_demand_is_not_left():
    standing = instance("i-0", ON_DEMAND, launched_for=None)
    view = job(due=40, work=WORK)
    assert only_action(decide(view, [standing], [pool(), pool(ON_DEMAND)]), Assign).instance_id == "i-0"
    view, instances = holding(view, standing)
    assert only_action(decide(view, instances, [pool(), pool(ON_DEMAND)]), Stay).cause is Why.RUNS_WELL


@pytest.mark.parametrize("nodes", [1, 3])
def test_back_to_spot_goes_by_launch_stop_clear_assign_and_release(nodes):
    instances = [instance(f"od-{n}", ON_DEMAND, ago=5) for n in range(nodes)]
    view, instances = holding(job(due=20, work=WORK, nodes=nodes), *instances)
    world = World([view], instances, [pool(), pool(ON_DEMAND)])
    (launch,) = world.round()
    assert (launch.market, launch.cause, launch.count) == (SPOT, Why.BACK_TO_SPOT, nodes)
    assert world.round() == []  # it boots, and the job trains on
    world.boot()
    (stop,) = world.round()
    assert (stop.instance_id, stop.reason, stop.cause) == ("od-0", Reason.MOVE, Why.MOVE)
    cleared = world.round()
    assert names(cleared, ClearAssignment) == sorted(i.instance_id for i in instances)
    last = world.round()
    (assign,) = [a for a in last if isinstance(a, Assign)]
    assert sorted((assign.instance_id, *assign.gang)) == [f"n-{n + 1}" for n in range(nodes)]
    assert names(last, Release) == sorted(i.instance_id for i in instances)
    assert world.round() == []
    assert sorted(world.instances) == [f"n-{n + 1}" for n in range(nodes)]


def test_at_the_last_safe_moment_a_job_on_spot_trains_on_until_on_demand_is_ready():
    view, instances = holding(job(due=10.1, work=WORK, ago=9), instance("i-0", ago=1))
    world = World([view], instances, [pool(), pool(ON_DEMAND)])
    (launch,) = world.round()
    assert (launch.market, launch.cause) == (ON_DEMAND, Why.LAST_SAFE_MOMENT)
    assert world.round() == []
    world.boot()
    assert world.settle() == 3
    assert sorted(world.instances) == ["n-1"]
    assert world.jobs["j"].record.owner == "n-1"


def test_an_infeasible_deadline_is_refused_with_the_earliest_time_and_its_cost():
    """10 h by the upper bound at speed 1; the fast type does twice as much for $5: 0.25 h, a tick, 5 h at 2 nodes."""
    least = 5.25 + TICK / HOUR
    fast = InstanceType(name="fast", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
    view = job(due=5.2, work=outlook(8.0, upper=10.0), nodes=2, speeds={"fast": 2.0})
    pools = [pool(), pool(ON_DEMAND), pool(ON_DEMAND, usd=5.0, kind=fast), pool(ON_DEMAND, "b", usd=6.0, kind=fast)]
    refuse = only_action(decide(view, pools=pools), Refuse)
    assert refuse.earliest == NOW + timedelta(hours=least)
    assert refuse.usd == pytest.approx(5.0 * least * 2, abs=0.005)
    launch = only_action(decide(replace(view, submission=job(due=least).submission), pools=pools), Launch)
    assert (launch.instance_type, launch.cause) == ("fast", Why.LAST_SAFE_MOMENT)


def test_the_types_that_a_job_names_are_launched_though_another_costs_less():
    other = InstanceType(name="other", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
    pools = [pool(), pool(usd=5.0, kind=other)]
    other_need = NEED.model_copy(update={"instance_types": ("other",)})
    assert only_action(decide(job(resources=other_need), pools=pools), Launch).instance_type == "other"
    assert only_action(decide(job(), pools=pools), Launch).instance_type == "t"


def test_an_infeasible_deadline_is_refused_where_an_instance_is_free_too():
    standing = instance("i-0", ON_DEMAND, launched_for=None)
    assert only_action(decide(job(due=3.0, work=WORK), [standing], [pool(), pool(ON_DEMAND)]), Refuse).earliest > NOW


def test_of_those_that_wait_the_one_that_is_ahead_gets_the_last_instance_of_a_pool():
    teams = [job("a", tags={"Team": "rich"}), job("b", tags={"Team": "poor"})]
    launch, hold = decide(teams, pools=[pool(available=1)], usage={"rich": 90.0, "poor": 1.0})
    assert isinstance(launch, Launch)
    assert (launch.job_id, hold.job_id) == ("b", "a")


@pytest.mark.parametrize(
    ("due", "market"),
    [(11.0, SPOT), (10.1, ON_DEMAND), (9.0, ON_DEMAND), (8.5, SPOT), (0.5, SPOT), (-2.0, SPOT)],
)
def test_a_job_that_is_late_for_good_is_launched_as_one_without_a_deadline(due, market):
    """The job takes 10 hours, and was submitted 2 hours ago."""
    view = job(due=due, work=WORK, ago=2.0, record=lost())
    assert only_action(decide(view, pools=[pool(), pool(ON_DEMAND)]), Launch).market is market


FAST = TYPE.model_copy(update={"name": "fast"})
QUICK = {"due": 6.3, "work": outlook(24.0), "ago": 1.0, "speeds": {"fast": 4.0}}
"""24 hours of work, 6 on the fast type, which leaves 0.3 hours to spare."""


def with_fast_pool(**fast_pool):
    return {"pools": [pool(), pool(ON_DEMAND), pool(ON_DEMAND, kind=FAST, usd=6.0, **fast_pool)], "types": (TYPE, FAST)}


@pytest.mark.parametrize("available", [5, 0])
@pytest.mark.parametrize("spot_is_coming", [False, True])
def test_a_job_in_time_stays_on_its_fast_instance_when_its_pool_has_no_more(available, spot_is_coming):
    view, instances = holding(job(**QUICK), instance("i-0", ON_DEMAND, kind=FAST, ago=1.0))
    instances += [instance("i-1")] * spot_is_coming
    actions = decide(view, instances, **with_fast_pool(available=available))
    assert [a.cause for a in actions if isinstance(a, Stay)] == [Why.RUNS_WELL]
    assert names(actions, Release) == ["i-1"] * spot_is_coming


@pytest.mark.parametrize("on_spot", [False, True])
def test_the_last_instance_of_a_fast_pool_is_kept_for_the_job_that_it_was_launched_for(on_spot):
    view, coming = job(**QUICK), instance("i-1", ON_DEMAND, kind=FAST, ready=False)
    instances = []
    if on_spot:
        view, instances = holding(view, instance("i-0", ago=1.0))
    action = only_action(decide(view, [*instances, coming], **with_fast_pool(available=0)), Stay if on_spot else Hold)
    assert action.cause is Why.ON_ITS_WAY


def test_a_fast_pool_that_has_been_dry_for_long_before_is_used_while_it_has_capacity():
    behaviour = Behaviour(up=True, since=NOW - HOUR, first=NOW - 900 * HOUR, ups=(50.0,), downs=(30.0,))
    launch = only_action(decide(job(**QUICK), **with_fast_pool(behaviour=behaviour)), Launch)
    assert (launch.instance_type, launch.market) == ("fast", ON_DEMAND)


@pytest.mark.parametrize("available", [None, 0])
def test_a_deadline_that_was_feasible_at_submission_is_never_refused(available):
    view = job(due=9.0, work=WORK, ago=2.0)
    (action,) = decide(view, pools=[dry(), pool(ON_DEMAND, available=available)])
    assert isinstance(action, Launch if available is None else Hold)


def test_where_on_demand_has_run_dry_the_job_holds_what_it_has_and_says_that_it_is_at_risk():
    view, instances = holding(job(due=10.1, work=WORK, ago=9), instance("i-0", ago=1))
    stay = only_action(decide(view, instances, [pool(), pool(ON_DEMAND, available=0)]), Stay)
    assert (stay.instance_id, stay.cause) == ("i-0", Why.AT_RISK)


def test_where_on_demand_has_run_dry_spot_is_better_than_nothing_and_is_launched_once():
    world = World([job(due=10.1, work=WORK, ago=9)], (), [pool(), pool(ON_DEMAND, available=0)])
    (launch,) = world.round()
    assert (launch.market, launch.cause) == (SPOT, Why.AT_RISK)
    assert world.round() == []
    world.boot()
    world.settle()
    assert world.jobs["j"].record.owner == "n-1"
    world.pools = (pool(), pool(ON_DEMAND))
    (launch,) = world.round()
    assert launch.market is ON_DEMAND


def test_after_on_demand_ran_dry_the_job_starts_earlier():
    due, droughts = 11.0, Behaviour(up=True, since=NOW - HOUR, first=NOW - 99 * HOUR, ups=(9.0,), downs=(2.0,))
    calm, burnt = pool(ON_DEMAND), pool(ON_DEMAND, behaviour=droughts)
    assert only_action(decide(job(due=due, work=WORK), pools=[pool(), calm]), Launch).market is SPOT
    assert only_action(decide(job(due=due, work=WORK), pools=[pool(), burnt]), Launch).market is ON_DEMAND
    # A pool that never ran dry is there too.
    pools = [pool(), burnt, pool(ON_DEMAND, "b")]
    assert only_action(decide(job(due=due, work=WORK), pools=pools), Launch).market is SPOT
