"""Capacity of a job's own: what is launched, waited for, moved to, kept and let go, by way of whole plans."""

from dataclasses import replace
from datetime import timedelta

import pytest
from elastic_kit import (
    AWAY,
    HOUR,
    NEED,
    NOW,
    ON_DEMAND,
    SMALL,
    SPOT,
    STEADY,
    TICK,
    TYPE,
    World,
    decide,
    dry,
    holding,
    instance,
    job,
    lost,
    names,
    outlook,
    pool,
)
from everspot_core.catalogue import InstanceType
from everspot_core.records import Assignment, Reason
from everspot_core.schedule import (
    Assign,
    Behaviour,
    Clear,
    Finish,
    Hold,
    Launch,
    Measured,
    Refuse,
    Release,
    Stay,
    Stop,
    Why,
)
from everspot_core.schedule.failover import PREEMPTIONS, WINDOW
from everspot_core.schedule.launches import LAUNCH_PATIENCE
from everspot_core.schedule.outlook import CHANGEOVER_UPPER
from hypothesis import given, settings
from hypothesis import strategies as st

WORK = outlook(10.0)
"""10 h of work, 0.25 h for a changeover at most."""
LATEST = 10.25 + 0.1
"""The least hours to the deadline with which there is time for spot: for a changeover to it, and for one back."""
OFTEN = tuple(NOW - n * WINDOW / (PREEMPTIONS + 1) for n in range(PREEMPTIONS, 0, -1))
"""Lost often enough to fail over."""


def one(actions, kind):
    (action,) = actions
    assert isinstance(action, kind), action
    return action


@pytest.mark.parametrize(
    ("view", "pools", "market", "zone", "why"),
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
def test_what_a_job_with_nothing_is_launched(view, pools, market, zone, why):
    launch = one(decide(view, pools=pools), Launch)
    assert (launch.market, launch.zone, launch.why, launch.count) == (market, zone, why, 1)


@pytest.mark.parametrize(
    ("view", "pools", "why"),
    [
        (job(due=40, work=WORK), [dry(), pool(ON_DEMAND)], Why.WAIT_FOR_SPOT),
        (job(), [dry(), pool(ON_DEMAND)], Why.NO_CAPACITY),
        (job(due=LATEST - 0.001, work=WORK), [dry(), pool(ON_DEMAND, available=0)], Why.AT_RISK),
        (job(critical=True), [dry(), pool(ON_DEMAND, available=0)], Why.NO_CAPACITY),
        (job(due=20, work=WORK, record=lost(Reason.ERROR, not_before=NOW + HOUR)), [pool()], Why.BACK_OFF),
        (job(due=20, work=WORK, nodes=2), [pool(available=1), pool(ON_DEMAND, available=1)], Why.WAIT_FOR_SPOT),
    ],
)
def test_what_a_job_waits_for(view, pools, why):
    assert one(decide(view, [instance("s", ON_DEMAND, launched_for=None, stale=True)], pools), Hold).why is why


def test_a_job_in_back_off_is_launched_nothing_even_where_nothing_has_been_seen_yet():
    view = job(due=20, work=WORK, record=lost(Reason.ERROR, not_before=NOW + HOUR))
    assert isinstance(one(decide(view, pools=[pool(), pool(ON_DEMAND)]), Hold), Hold)


def test_what_runs_well_stays():
    for market, due in ((SPOT, 20.0), (ON_DEMAND, 10.1)):
        view, held = holding(job(due=due, work=WORK), instance("i-0", market, ago=1))
        stay = one(decide(view, held, [pool(), pool(ON_DEMAND)]), Stay)
        assert (stay.instance_id, stay.why) == ("i-0", Why.RUNS_WELL)


def test_standing_instances_come_first_and_standing_on_demand_is_not_left():
    standing = instance("i-0", ON_DEMAND, launched_for=None)
    view = job(due=40, work=WORK)
    assert one(decide(view, [standing], [pool(), pool(ON_DEMAND)]), Assign).instance_id == "i-0"
    view, held = holding(view, standing)
    assert one(decide(view, held, [pool(), pool(ON_DEMAND)]), Stay).why is Why.RUNS_WELL


@pytest.mark.parametrize("nodes", [1, 3])
def test_back_to_spot_goes_by_launch_stop_clear_assign_and_release(nodes):
    held = [instance(f"od-{n}", ON_DEMAND, ago=5) for n in range(nodes)]
    view, held = holding(job(due=20, work=WORK, nodes=nodes), *held)
    world = World([view], held, [pool(), pool(ON_DEMAND)])
    (launch,) = world.round()
    assert (launch.market, launch.why, launch.count) == (SPOT, Why.BACK_TO_SPOT, nodes)
    assert world.round() == []  # it boots, and the job trains on
    world.boot()
    (stop,) = world.round()
    assert (stop.instance_id, stop.reason, stop.why) == ("od-0", Reason.MOVE, Why.MOVE)
    cleared = world.round()
    assert names(cleared, Clear) == sorted(i.instance_id for i in held)
    last = world.round()
    (assign,) = [a for a in last if isinstance(a, Assign)]
    assert sorted((assign.instance_id, *assign.gang)) == [f"n-{n + 1}" for n in range(nodes)]
    assert names(last, Release) == sorted(i.instance_id for i in held)
    assert world.round() == []
    assert sorted(world.instances) == [f"n-{n + 1}" for n in range(nodes)]


def test_at_the_last_safe_moment_a_job_on_spot_trains_on_until_on_demand_is_ready():
    view, held = holding(job(due=10.1, work=WORK, ago=9), instance("i-0", ago=1))
    world = World([view], held, [pool(), pool(ON_DEMAND)])
    (launch,) = world.round()
    assert (launch.market, launch.why) == (ON_DEMAND, Why.LAST_SAFE_MOMENT)
    assert world.round() == []
    world.boot()
    assert world.settle() == 3
    assert sorted(world.instances) == ["n-1"]
    assert world.jobs["j"].record.owner == "n-1"


def test_an_infeasible_deadline_is_refused_with_the_earliest_time_and_its_cost():
    """10 h by the upper bound at speed 1; the fast type does twice as much for $5: 0.25 h + 5 h at 2 nodes."""
    fast = InstanceType(name="fast", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
    view = job(due=5.2, work=outlook(8.0, upper=10.0), nodes=2, speeds={"fast": 2.0})
    pools = [pool(), pool(ON_DEMAND), pool(ON_DEMAND, usd=5.0, kind=fast), pool(ON_DEMAND, "b", usd=6.0, kind=fast)]
    refuse = one(decide(view, pools=pools), Refuse)
    assert refuse.earliest == NOW + timedelta(hours=5.25)
    assert refuse.usd == pytest.approx(5.0 * 5.25 * 2)
    launch = one(decide(replace(view, submission=job(due=5.25).submission), pools=pools), Launch)
    assert (launch.instance_type, launch.why) == ("fast", Why.LAST_SAFE_MOMENT)


@pytest.mark.parametrize("available", [None, 0])
def test_a_deadline_that_was_feasible_at_submission_is_never_refused(available):
    view = job(due=9.0, work=WORK, ago=2.0)
    (action,) = decide(view, pools=[dry(), pool(ON_DEMAND, available=available)])
    assert isinstance(action, Launch if available is None else Hold)


def test_where_on_demand_has_run_dry_the_job_holds_what_it_has_and_says_that_it_is_at_risk():
    view, held = holding(job(due=10.1, work=WORK, ago=9), instance("i-0", ago=1))
    stay = one(decide(view, held, [pool(), pool(ON_DEMAND, available=0)]), Stay)
    assert (stay.instance_id, stay.why) == ("i-0", Why.AT_RISK)


def test_where_on_demand_has_run_dry_spot_is_better_than_nothing_and_is_launched_once():
    world = World([job(due=10.1, work=WORK, ago=9)], (), [pool(), pool(ON_DEMAND, available=0)])
    (launch,) = world.round()
    assert (launch.market, launch.why) == (SPOT, Why.AT_RISK)
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
    assert one(decide(job(due=due, work=WORK), pools=[pool(), calm]), Launch).market is SPOT
    assert one(decide(job(due=due, work=WORK), pools=[pool(), burnt]), Launch).market is ON_DEMAND
    # A pool that never ran dry is there too.
    pools = [pool(), burnt, pool(ON_DEMAND, "b")]
    assert one(decide(job(due=due, work=WORK), pools=pools), Launch).market is SPOT


def test_two_jobs_do_not_get_the_same_scarce_instance():
    jobs = [job(name, due=20 + n, work=WORK) for n, name in enumerate("xyz")]
    pools = [pool(available=1), pool(zone="b", usd=1.5, available=1), pool(ON_DEMAND)]
    launched = {a.job_id: (a.zone, a.market) for a in decide(jobs, pools=pools) if isinstance(a, Launch)}
    assert launched["x"] == ("a", SPOT)
    assert launched["y"] == ("b", SPOT)
    assert launched.get("z", ("a", ON_DEMAND)) == ("a", ON_DEMAND)


def test_never_back_into_the_pool_that_just_gave_notice_while_another_one_gives():
    noticed = pool(usd=0.5, noticed_at=NOW - timedelta(minutes=5))
    view = job(due=20, work=WORK)
    assert one(decide(view, pools=[noticed, pool(zone="b"), pool(ON_DEMAND)]), Launch).zone == "b"
    assert one(decide(view, pools=[noticed, pool(ON_DEMAND)]), Launch).zone == "a"


@pytest.mark.parametrize("view", [job(due=20, work=WORK), job()])
def test_spot_that_costs_more_than_on_demand_is_not_taken(view):
    """Not even where its pool ranks first for other reasons, and not by a job that goes back to spot."""
    gave_notice = pool(zone="cheap", usd=2.0, refused_at=(NOW,) * 4)
    dear = pool(zone="dear", usd=4.0)
    assert one(decide(view, pools=[gave_notice, dear, pool(ON_DEMAND)]), Launch).zone == "cheap"
    running, held = holding(view, instance("i-0", ON_DEMAND, ago=40))
    assert one(decide(running, held, [dear, pool(ON_DEMAND)]), Stay).instance_id == "i-0"


def test_a_job_without_a_deadline_takes_on_demand_where_spot_is_dear():
    launch = one(decide(job(), pools=[pool(usd=4.0), pool(ON_DEMAND)]), Launch)
    assert (launch.market, launch.why) == (ON_DEMAND, Why.OTHER_MARKET)


def test_of_on_demand_types_the_one_in_time_is_taken_then_the_cheapest():
    slow = InstanceType(name="slow", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
    pools = [pool(ON_DEMAND), pool(ON_DEMAND, kind=slow, usd=1.0)]
    for due, name in ((20.3, "slow"), (20.2, "t"), (10.25, "t")):
        for work, length in ((WORK, None), (None, timedelta(hours=10))):
            view = job(due=due, work=work, expected_duration=length, speeds={"slow": 0.5})
            assert one(decide(view, pools=pools), Launch).instance_type == name
    # Too late for both: the earlier one. A reserved one that is late is of no use.
    late = job(due=10.0, work=WORK, ago=1, speeds={"slow": 0.5})
    assert one(decide(late, pools=pools), Launch).instance_type == "t"
    reserved = [pools[0], replace(pools[1], reserved=True)]
    assert one(decide(job(due=15, work=WORK, speeds={"slow": 0.5}), pools=reserved), Launch).instance_type == "t"


def test_a_pool_that_refused_just_now_comes_last():
    refused = pool(ON_DEMAND, "a", usd=1.0, refused_at=(NOW - timedelta(minutes=1),))
    long_ago = pool(ON_DEMAND, "a", usd=1.0, refused_at=(NOW - timedelta(days=1),))
    for work in (WORK, None):
        view = job(due=20, work=work)
        assert one(decide(view, pools=[refused, pool(ON_DEMAND, "b")]), Launch).zone == "b"
        assert one(decide(view, pools=[long_ago, pool(ON_DEMAND, "b")]), Launch).zone == "a"
        both = [refused, pool(ON_DEMAND, "b", refused_at=(NOW,))]
        assert one(decide(view, pools=both), Launch).zone == "a"  # the turn goes round


def test_speed_counts_for_the_last_safe_moment():
    """Spot of the usual type; on-demand is twice as fast, so that 10 h of work take 5 h there."""
    fast = InstanceType(name="fast", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
    pools = [pool(), pool(ON_DEMAND, kind=fast, usd=5.0)]
    for due, market in ((LATEST - 5, SPOT), (LATEST - 5.01, ON_DEMAND)):
        view = job(due=due, work=WORK, speeds={"fast": 2.0})
        assert one(decide(view, pools=pools), Launch).market is market


def test_a_type_of_no_speed_is_left_alone():
    view = job(due=20, work=WORK, speeds={"t": 1.0, "broken": 0.0})
    broken = TYPE.model_copy(update={"name": "broken"})
    pools = [pool(kind=broken, usd=0.1), pool(ON_DEMAND, kind=broken, usd=0.1), pool(usd=2.0), pool(ON_DEMAND)]
    assert one(decide(view, pools=pools), Launch).instance_type == "t"


def test_the_smaller_type_is_launched_after_many_losses_if_it_is_the_better_one():
    """It uses 12 of the 24 GiB that it asked for, with mixed precision."""
    view = job(
        due=60,
        work=WORK,
        preempted_at=OFTEN,
        measured=Measured(vcpus=4, memory_gib=8, gpu_memory_gib=12, mixed=True),
        speeds={"t": 1.0, "small": 0.9},
    )
    pools = [pool(), pool(ON_DEMAND), pool(kind=SMALL, usd=0.3)]
    launch = one(decide(view, pools=pools), Launch)
    assert (launch.instance_type, launch.why) == ("small", Why.SMALLER_TYPE)
    usual = one(decide(view, pools=[*pools[:2], pool(kind=SMALL, usd=2.0)]), Launch)
    assert (usual.instance_type, usual.why) == ("t", Why.SPOT_AVAILABLE)
    for other in (replace(view, preempted_at=()), replace(view, measured=None)):
        assert one(decide(other, pools=pools), Launch).instance_type == "t"


def test_safety_does_not_rest_on_a_type_that_is_too_small():
    view = job(
        due=LATEST - 1,
        work=WORK,
        ago=5,
        preempted_at=OFTEN,
        measured=Measured(vcpus=4, memory_gib=8, gpu_memory_gib=12, mixed=True),
        speeds={"t": 1.0, "small": 2.0},
    )
    launch = one(decide(view, pools=[pool(), pool(ON_DEMAND), pool(ON_DEMAND, kind=SMALL)]), Launch)
    assert (launch.instance_type, launch.market) == ("t", ON_DEMAND)


# What is on its way


def test_what_is_on_its_way_is_waited_for_and_not_launched_twice():
    for market, due in ((SPOT, 20), (ON_DEMAND, 10.25)):
        (hold,) = decide(job(due=due, work=WORK), [instance("n-1", market, ready=False)], [pool(), pool(ON_DEMAND)])
        assert (type(hold), hold.why) == (Hold, Why.ON_ITS_WAY)
        world = World([job(due=due, work=WORK)], (), [pool(), pool(ON_DEMAND)])
        (launch,) = world.round()
        assert launch.market is market
        assert world.settle() == 0
        world.boot()
        assert world.settle() == 1
        assert world.jobs["j"].record.owner == "n-1"


def test_of_two_launches_the_last_is_kept():
    view = job(due=20, work=WORK)
    twice = [instance("n-1", ready=False, ago=0.02), instance("n-2", ready=False, ago=0.01)]
    assert names(decide(view, twice, [pool(), pool(ON_DEMAND)]), Release) == ["n-1"]


def test_spot_that_is_on_its_way_is_let_go_at_the_last_safe_moment():
    view = job(due=10.25 + TICK / HOUR - 0.001, work=WORK, ago=1)
    actions = decide(view, [instance("n-1", ready=False)], [pool(), pool(ON_DEMAND)])
    assert names(actions, Release) == ["n-1"]
    assert [a.market for a in actions if isinstance(a, Launch)] == [ON_DEMAND]


def test_spot_that_does_not_get_ready_in_time_costs_no_deadline():
    """However late it boots: at the last moment at which nothing has come of it, on-demand is launched."""
    view, coming = job(due=LATEST + 0.1, work=WORK), instance("n-1", ready=False)
    for minutes in range(20):
        now = NOW + minutes * TICK
        spare = view.submission.deadline_at - now - 10.25 * HOUR
        actions = decide(view, [coming], [pool(), pool(ON_DEMAND)], now=now)
        launched = [a.market for a in actions if isinstance(a, Launch)]
        assert launched == ([] if spare >= TICK else [ON_DEMAND])
        if launched:
            assert spare >= timedelta(0)
            break
    else:
        raise AssertionError("it waits for ever")


@pytest.mark.parametrize("upper", [0.25, 0.6])
@pytest.mark.parametrize("view", [job(due=99, work=WORK), job()])
def test_a_launch_that_never_gets_ready_is_given_up_and_another_pool_is_tried(view, upper):
    if view.outlook is not None:
        view = replace(view, outlook=outlook(10.0, changeover_upper=upper))
        bound = LAUNCH_PATIENCE * max(upper, CHANGEOVER_UPPER / HOUR)
    else:
        bound = LAUNCH_PATIENCE * CHANGEOVER_UPPER / HOUR
    pools = [pool(), pool(zone="b", usd=1.1), pool(ON_DEMAND)]
    assert decide(view, [instance("n-1", ready=False, ago=bound)], pools)[0].why is not Why.NEEDED_NO_MORE
    actions = decide(view, [instance("n-1", ready=False, ago=bound + 0.01)], pools)
    assert names(actions, Release) == ["n-1"]
    assert [a.zone for a in actions if isinstance(a, Launch)] == ["b"]


def test_a_move_to_what_never_gets_ready_is_given_up_and_begun_anew():
    view, held = holding(job(due=20, work=WORK), instance("i-0", ON_DEMAND, ago=9))
    actions = decide(view, [*held, instance("n-1", ready=False, ago=8)], [pool(), pool(ON_DEMAND)])
    assert names(actions, Release) == ["n-1"]
    assert [a.market for a in actions if isinstance(a, Launch)] == [SPOT]


@pytest.mark.parametrize("fate", [{"gone": True}, {"doomed": True}, {"stale": True}, {"state": "DRAINING"}])
def test_what_dies_before_it_is_ready_is_launched_anew(fate):
    view = job(due=20, work=WORK)
    dead = instance("n-1", ready="state" in fate, **fate)
    pools = [pool(), pool(ON_DEMAND)]
    rounds = [decide(view, [dead], pools)]
    if "doomed" in fate:  # that is noted first
        dead = replace(dead, assignment=Assignment(instance_id="n-1", doomed=True, changed_at=NOW))
        rounds.append(decide(view, [dead], pools))
    assert sum(isinstance(a, Launch) for actions in rounds for a in actions) >= 1
    assert names(rounds[-1], Release) == ([] if "gone" in fate else ["n-1"])


def test_what_the_cloud_is_about_to_take_is_left_to_it():
    """Spot that is interrupted in its first hour may cost nothing; what is ended does."""
    doomed = Assignment(instance_id="n-1", doomed=True, deadline=NOW + timedelta(minutes=2), changed_at=NOW)
    soon = instance("n-1", doomed=True, deadline=NOW + timedelta(minutes=2), assignment=doomed)
    view, pools = job(due=20, work=WORK), [pool(), pool(ON_DEMAND)]
    assert names(decide(view, [soon], pools), Release) == []
    assert names(decide(view, [soon], pools, now=NOW + timedelta(minutes=3)), Release) == ["n-1"]


def test_on_demand_that_was_called_at_the_last_moment_is_not_let_go_for_a_place_on_standing_spot():
    standing, coming = instance("i-0", launched_for=None, ago=50), instance("n-1", ON_DEMAND, ready=False)
    pools = [pool(), pool(ON_DEMAND)]
    world = World([job(due=LATEST - 0.01, work=WORK, ago=1)], [standing, coming], pools)
    (assign,) = world.round()
    assert assign.instance_id == "i-0"
    assert world.round() == []
    world.boot()
    world.settle()
    assert world.jobs["j"].record.owner == "n-1"
    assert sorted(world.instances) == ["i-0", "n-1"]  # the standing one stays


def test_on_demand_that_is_on_its_way_is_let_go_once_a_place_on_standing_spot_will_do():
    standing, coming = instance("i-0", launched_for=None, ago=50), instance("n-1", ON_DEMAND, ready=False)
    actions = decide(job(due=20, work=WORK), [standing, coming], [pool(), pool(ON_DEMAND)])
    assert names(actions, Assign) == ["i-0"]
    assert names(actions, Release) == ["n-1"]


def test_a_move_to_on_demand_is_not_turned_round_by_a_little_more_slack():
    for slack, turned in ((0.3, False), (0.45, False), (1.0, True)):
        view, held = holding(job(due=10 + slack, work=WORK, ago=9), instance("i-0", ago=1))
        coming = instance("n-1", ON_DEMAND, ready=False, ago=0.05)
        actions = decide(view, [*held, coming], [pool(), pool(ON_DEMAND)])
        assert names(actions, Release) == (["n-1"] if turned else [])
        assert not any(isinstance(a, Launch | Stop) for a in actions)


def test_an_owner_that_cannot_be_seen_changes_nothing():
    view, _ = holding(job(due=20, work=WORK), instance("i-0"))
    coming = instance("n-1", ready=False)
    assert decide(view, [coming], [pool(), pool(ON_DEMAND)]) == []


def test_what_is_on_its_way_counts_also_for_a_job_that_sits_on_what_was_launched_for_another():
    """The other job is over, and what it leaves was launched after what is on its way."""
    view, held = holding(job(critical=True), instance("i-0", launched_for="other", ago=0.01))
    coming = instance("n-1", ON_DEMAND, ready=False, ago=0.05)
    stay = one(decide(view, [*held, coming], [pool(), pool(ON_DEMAND)]), Stay)
    assert stay.why is Why.ON_ITS_WAY


def test_what_was_launched_at_the_same_moment_as_the_owner_counts_too():
    view, held = holding(job(critical=True), instance("i-0", ago=0.05))
    coming = instance("n-1", ON_DEMAND, ready=False, ago=0.05)
    assert one(decide(view, [*held, coming], [pool(), pool(ON_DEMAND)]), Stay).why is Why.ON_ITS_WAY


def test_what_a_job_was_told_to_leave_is_not_on_its_way_to_it():
    """It left on-demand for spot, which is gone before the job came there."""
    view = job(due=40, work=WORK, ago=5, record=lost(Reason.MOVE, owner="i-0"))
    actions = decide(view, [instance("i-0", ON_DEMAND, ago=5)], [dry(), pool(ON_DEMAND)])
    assert names(actions, Release) == ["i-0"]
    assert [a.why for a in actions if isinstance(a, Hold)] == [Why.WAIT_FOR_SPOT]


# Gangs


def test_a_gang_of_which_one_is_lost_on_the_way_is_given_up_whole():
    view, pools = job(due=20, work=WORK, nodes=3), [pool(), pool(ON_DEMAND)]
    whole = [instance(f"n-{n}", ready=False) for n in range(3)]
    assert not any(isinstance(a, Launch | Release) for a in decide(view, whole, pools))
    broken = [whole[0], whole[1], replace(whole[2], stale=True)]
    actions = decide(view, broken, pools)
    assert [a.count for a in actions if isinstance(a, Launch)] == [3]
    assert names(actions, Release) == ["n-0", "n-1", "n-2"]


def test_half_a_gang_is_not_kept_for_ever():
    view, pools = job(due=99, work=WORK, nodes=3), [pool(), pool(ON_DEMAND)]
    bound = LAUNCH_PATIENCE * CHANGEOVER_UPPER / HOUR
    fresh = [instance(f"n-{n}") for n in range(2)]
    assert not any(isinstance(a, Launch | Release | Assign) for a in decide(view, fresh, pools))
    old = [instance(f"n-{n}", ago=bound + 0.01) for n in range(2)]
    actions = decide(view, old, pools)
    assert names(actions, Release) == ["n-0", "n-1"]
    assert [a.count for a in actions if isinstance(a, Launch)] == [3]


def test_no_part_of_a_gang_that_runs_is_released():
    for market in (SPOT, ON_DEMAND):
        parts = [instance(f"i-{n}", market, ago=1) for n in range(3)]
        view, held = holding(job(due=10.3, work=WORK, nodes=3), *parts)
        actions = decide(view, held, [dry(), pool(ON_DEMAND)])
        assert names(actions, Release) == []
        assert names(actions, Stay) == ["i-0"]


# When all is over


def test_a_drain_releases_all_that_was_launched_once_it_is_idle():
    runs, held = holding(job("runs", due=20, work=WORK), instance("i-0", launched_for="runs"))
    waits, boots = job("waits", due=20, work=WORK), instance("i-1", launched_for="waits", ready=False)
    standing = instance("i-2", ON_DEMAND, launched_for=None)
    world = World([runs, waits], [*held, boots, standing], [pool(), pool(ON_DEMAND)], draining=True)
    world.settle()
    assert sorted(world.instances) == ["i-2"]
    assert not any(isinstance(a, Launch | Assign) for a in world.told)


@pytest.mark.parametrize("pools", [(), (pool(), pool(ON_DEMAND))])
@pytest.mark.parametrize("ready", [True, False])
def test_what_was_launched_for_a_job_that_is_cancelled_is_released(pools, ready):
    view = job(due=20, work=WORK, cancel=True)
    world = World([view], [instance("n-1", ready=ready)], pools)
    changes = world.round()
    assert [type(a) for a in changes if not isinstance(a, Release)] == [Finish]
    world.settle()
    assert world.instances == {}


def test_a_job_that_is_over_leaves_nothing_behind():
    view, held = holding(job(due=20, work=WORK), instance("i-0"))
    world = World([view], held, [pool(), pool(ON_DEMAND)])
    world.jobs["j"] = replace(view, cancel=True)
    world.settle()
    assert world.instances == {}


def test_without_pools_what_is_on_its_way_is_kept():
    assert names(decide(job(), [instance("n-1", ready=False)]), Release) == []


def test_in_a_short_back_off_the_instance_is_kept_and_in_a_long_one_it_is_not():
    pools, own = [pool(), pool(ON_DEMAND)], instance("i-0", ago=1)
    for hours, kept, due in ((0.2, True, 40), (2.0, False, 40), (2.0, True, 9)):
        view = job(due=due, work=WORK, ago=5, record=lost(Reason.ERROR, not_before=NOW + hours * HOUR))
        assert names(decide(view, [own], pools), Release) == ([] if kept else ["i-0"])


def test_what_a_critical_job_gets_first_is_left_for_on_demand_as_soon_as_that_is_to_be_had():
    view, held = holding(job(critical=True), instance("i-0", launched_for=None, ago=2))
    stay = one(decide(view, held, [pool(), pool(ON_DEMAND, available=0)]), Stay)
    assert stay.why is Why.NO_CAPACITY
    assert one(decide(view, held, [pool(), pool(ON_DEMAND)]), Launch).market is ON_DEMAND


def test_the_order_of_the_view_is_of_no_consequence():
    jobs = [job(f"j{n}", due=20 + n, work=WORK) for n in range(4)]
    boots = [instance(f"n-{n}", launched_for=f"j{n}", ready=False) for n in range(3)]
    pools = [pool(available=1), pool(zone="b", available=1), dry("c"), pool(ON_DEMAND)]
    assert decide(jobs, boots, pools) == decide(jobs[::-1], boots[::-1], pools)


def test_resources_that_no_pool_has_leave_the_job_where_it_was():
    hold = one(decide(job(resources=NEED.model_copy(update={"gpus": 8})), pools=[pool()], types=(TYPE,)), Hold)
    assert hold.why is Why.NO_TYPE_FITS


def test_the_kit_says_what_it_means():
    assert STEADY.age(NOW) == 200
    assert AWAY.age(NOW) == 0


# Whatever happens


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some jobs, gangs among them, some of them due; a standing fleet; pools that may be scarce."""
    jobs = []
    for n in range(draw(st.integers(1, 4))):
        left, nodes = draw(st.sampled_from([1.0, 5.0])), draw(st.sampled_from([1, 1, 2, 3]))
        due = draw(st.none() | st.floats(0.5, 4.0).map(lambda times, left=left: left * times + 0.3))
        lost_at = OFTEN if draw(st.booleans()) else ()
        critical = draw(st.integers(0, 3)) == 0
        work = outlook(left) if draw(st.integers(0, 3)) else None
        jobs.append(job(f"j{n}", due=due, work=work, nodes=nodes, critical=critical, preempted_at=lost_at))
    standing = [
        instance(f"s-{n}", draw(st.sampled_from([SPOT, ON_DEMAND])), launched_for=None, ago=99)
        for n in range(draw(st.integers(0, 3)))
    ]
    count = st.none() | st.integers(0, 4)
    pools = [pool(available=draw(count)), pool(zone="b", usd=draw(st.floats(0.5, 4.0)), available=draw(count))]
    pools += [pool(ON_DEMAND, available=draw(count)), dry("c")]
    return World(jobs, standing, pools)


FATES = st.lists(st.tuples(st.sampled_from(["boot", "lose", "pass", "plan", "cancel", "turn"]), st.integers(0, 99)))


@given(world=worlds(), fates=FATES)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_gangs_are_whole_what_stands_stays_and_nothing_is_left_behind(world, fates):
    """`World` itself sees to it that only what was launched and is idle is released, and that every plan settles."""
    standing = {n for n, i in world.instances.items() if i.launched_for is None}
    for fate, dice in fates:
        befall(world, fate, dice, standing)
        world.settle()
        check_gangs(world)
        assert standing <= set(world.instances)
        assert on_its_way_at_most_once(world)
    world.more["draining"] = True
    for _ in range(2):
        world.settle()
    assert set(world.instances) == standing


def befall(world: World, fate: str, dice: int, standing: set[str]) -> None:
    names_, jobs = sorted(world.instances), sorted(world.jobs)
    match fate:
        case "boot":
            world.boot()
        case "lose" if names_:
            name = names_[dice % len(names_)]
            standing.discard(name)
            world.lose(name)
        case "pass":
            world.now += dice * TICK
        case "cancel":
            view = world.jobs[jobs[dice % len(jobs)]]
            world.jobs[view.job_id] = replace(view, cancel=True)
        case "turn":  # a scarce pool gives, or gives no more
            pools = list(world.pools)
            pools[dice % 3] = replace(pools[dice % 3], available=dice % 5)
            world.pools = tuple(pools)


def check_gangs(world: World) -> None:
    for view in world.jobs.values():
        held = [i for i in world.instances.values() if i.assignment is not None and i.assignment.job_id == view.job_id]
        assert len(held) == (view.nodes if view.state.owned else 0)
    for action in world.told:
        if isinstance(action, Assign):
            assert len({action.instance_id, *action.gang}) == world.jobs[action.job_id].nodes
        elif isinstance(action, Launch):
            assert action.count == world.jobs[action.job_id].nodes


def on_its_way_at_most_once(world: World) -> bool:
    """Beside what a job holds there is one launch at most."""
    for view in world.jobs.values():
        idle = [i for i in world.instances.values() if i.launched_for == view.job_id and i.idle]
        if len(idle) > view.nodes:
            return False
    return True
