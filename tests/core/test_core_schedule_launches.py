"""Launched instances in whole plans: waited for, given up, kept for a gang, and released."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.jobs.records import Assignment, InstanceState, Notice, NoticeKind, Reason
from everspot_core.schedule import (
    Assign,
    Finish,
    Hold,
    Launch,
    Release,
    Stay,
    Stop,
    Why,
)
from everspot_core.schedule.jobs import CHANGEOVER_UPPER
from everspot_core.schedule.provisioning.pending_launches import LAUNCH_PATIENCE
from provision_helpers import (
    AWAY,
    HOUR,
    LATEST,
    NEED,
    NOW,
    ON_DEMAND,
    SPOT,
    STEADY,
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


def test_what_is_on_its_way_is_waited_for_and_not_launched_twice():
    for market, due in ((SPOT, 20), (ON_DEMAND, 10.25 + TICK / HOUR)):
        (hold,) = decide(job(due=due, work=WORK), [instance("n-1", market, ready=False)], [pool(), pool(ON_DEMAND)])
        assert (type(hold), hold.cause) == (Hold, Why.ON_ITS_WAY)
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
        spare = view.submission.deadline_at - now - 10.25 * HOUR - TICK
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
    assert decide(view, [instance("n-1", ready=False, ago=bound)], pools)[0].cause is not Why.NEEDED_NO_MORE
    actions = decide(view, [instance("n-1", ready=False, ago=bound + 0.01)], pools)
    assert names(actions, Release) == ["n-1"]
    assert [a.zone for a in actions if isinstance(a, Launch)] == ["b"]


def test_a_move_to_what_never_gets_ready_is_given_up_and_begun_anew():
    view, instances = holding(job(due=20, work=WORK), instance("i-0", ON_DEMAND, ago=9))
    actions = decide(view, [*instances, instance("n-1", ready=False, ago=8)], [pool(), pool(ON_DEMAND)])
    assert names(actions, Release) == ["n-1"]
    assert [a.market for a in actions if isinstance(a, Launch)] == [SPOT]


@pytest.mark.parametrize("fate", [{"is_gone": True}, {"ending": True}, {"stale": True}, {"state": "DRAINING"}])
def test_what_dies_before_it_is_ready_is_launched_anew(fate):
    view = job(due=20, work=WORK)
    dead = instance("n-1", ready="state" in fate, **fate)
    pools = [pool(), pool(ON_DEMAND)]
    rounds = [decide(view, [dead], pools)]
    if "ending" in fate:  # that is noted first
        dead = replace(dead, assignment=Assignment(instance_id="n-1", cordoned=True, changed_at=NOW))
        rounds.append(decide(view, [dead], pools))
        assert names(rounds[-1], Release) == [], "it is left to the cloud for as long as a notice lasts"
        rounds.append(decide(view, [replace(dead, launched_at=NOW - timedelta(minutes=6))], pools))
    assert sum(isinstance(a, Launch) for actions in rounds for a in actions) >= 1
    assert names(rounds[-1], Release) == ([] if "is_gone" in fate else ["n-1"])


def test_what_the_cloud_is_about_to_take_is_left_to_it():
    """Spot that is interrupted in its first hour may cost nothing; what is ended does."""
    cordoned = Assignment(instance_id="n-1", cordoned=True, deadline=NOW + timedelta(minutes=2), changed_at=NOW)
    soon = instance("n-1", ending=True, deadline=NOW + timedelta(minutes=2), assignment=cordoned)
    view, pools = job(due=20, work=WORK), [pool(), pool(ON_DEMAND)]
    assert names(decide(view, [soon], pools), Release) == []
    late = NOW + timedelta(minutes=6)  # the clouds tell the moment approximately, and the first message guesses it
    assert names(decide(view, [soon], pools, now=late), Release) == []
    assert names(decide(view, [soon], pools, now=NOW + timedelta(minutes=8)), Release) == ["n-1"]


def test_what_says_itself_that_it_is_taken_is_left_to_the_cloud_which_says_so_a_little_later():
    notice = Notice(kind=NoticeKind.INTERRUPTION, source="imds", seen_at=NOW, action_at=NOW + timedelta(minutes=2))
    draining_instance = instance("n-1", deadline=notice.action_at)
    draining_instance = replace(
        draining_instance,
        record=draining_instance.record.model_copy(update={"notice": notice, "state": InstanceState.DRAINING}),
    )
    view, pools = job(due=20, work=WORK), [pool(), pool(ON_DEMAND)]
    assert names(decide(view, [draining_instance], pools), Release) == []
    assert names(decide(view, [draining_instance], pools, now=NOW + timedelta(minutes=6)), Release) == []
    assert names(decide(view, [draining_instance], pools, now=NOW + timedelta(minutes=8)), Release) == ["n-1"]


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
        view, instances = holding(job(due=10 + slack, work=WORK, ago=9), instance("i-0", ago=1))
        coming = instance("n-1", ON_DEMAND, ready=False, ago=0.05)
        actions = decide(view, [*instances, coming], [pool(), pool(ON_DEMAND)])
        assert names(actions, Release) == (["n-1"] if turned else [])
        assert not any(isinstance(a, Launch | Stop) for a in actions)


def test_an_owner_that_cannot_be_seen_changes_nothing():
    view, _ = holding(job(due=20, work=WORK), instance("i-0"))
    coming = instance("n-1", ready=False)
    assert decide(view, [coming], [pool(), pool(ON_DEMAND)]) == []


def test_what_is_on_its_way_counts_also_for_a_job_that_sits_on_what_was_launched_for_another():
    """The other job is over, and what it leaves was launched after what is on its way."""
    view, instances = holding(job(critical=True), instance("i-0", launched_for="other", ago=0.01))
    coming = instance("n-1", ON_DEMAND, ready=False, ago=0.05)
    stay = only_action(decide(view, [*instances, coming], [pool(), pool(ON_DEMAND)]), Stay)
    assert stay.cause is Why.ON_ITS_WAY


def test_what_was_launched_at_the_same_moment_as_the_owner_counts_too():
    view, instances = holding(job(critical=True), instance("i-0", ago=0.05))
    coming = instance("n-1", ON_DEMAND, ready=False, ago=0.05)
    assert only_action(decide(view, [*instances, coming], [pool(), pool(ON_DEMAND)]), Stay).cause is Why.ON_ITS_WAY


def test_what_a_job_was_told_to_leave_is_not_on_its_way_to_it():
    """The job left on-demand for spot, which is gone before the job gets there."""
    view = job(due=40, work=WORK, ago=5, record=lost(Reason.MOVE, owner="i-0"))
    actions = decide(view, [instance("i-0", ON_DEMAND, ago=5)], [dry(), pool(ON_DEMAND)])
    assert names(actions, Release) == ["i-0"]
    assert [a.cause for a in actions if isinstance(a, Hold)] == [Why.WAIT_FOR_SPOT]


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
        view, instances = holding(job(due=10.3, work=WORK, nodes=3), *parts)
        actions = decide(view, instances, [dry(), pool(ON_DEMAND)])
        assert names(actions, Release) == []
        assert names(actions, Stay) == ["i-0"]


# When all is over


def test_a_drain_releases_all_that_was_launched_once_it_is_idle():
    runs, instances = holding(job("runs", due=20, work=WORK), instance("i-0", launched_for="runs"))
    waits, boots = job("waits", due=20, work=WORK), instance("i-1", launched_for="waits", ready=False)
    standing = instance("i-2", ON_DEMAND, launched_for=None)
    world = World([runs, waits], [*instances, boots, standing], [pool(), pool(ON_DEMAND)], draining=True)
    world.settle()
    assert sorted(world.instances) == ["i-2"]
    assert not any(isinstance(a, Launch | Assign) for a in world.changes)


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
    view, instances = holding(job(due=20, work=WORK), instance("i-0"))
    world = World([view], instances, [pool(), pool(ON_DEMAND)])
    world.jobs["j"] = replace(view, cancel=True)
    world.settle()
    assert world.instances == {}


def test_without_pools_what_is_on_its_way_is_kept():
    assert names(decide(job(), [instance("n-1", ready=False)]), Release) == []


def test_in_a_short_back_off_the_instance_is_kept_and_in_a_long_one_it_is_not():
    pools, own = [pool(), pool(ON_DEMAND)], instance("i-0", ago=1)
    for hours, is_kept, due in ((0.2, True, 40), (2.0, False, 40), (2.0, True, 9)):
        view = job(due=due, work=WORK, ago=5, record=lost(Reason.ERROR, not_before=NOW + hours * HOUR))
        assert names(decide(view, [own], pools), Release) == ([] if is_kept else ["i-0"])


def test_what_a_critical_job_gets_first_is_left_for_on_demand_as_soon_as_that_is_to_be_had():
    view, instances = holding(job(critical=True), instance("i-0", launched_for=None, ago=2))
    stay = only_action(decide(view, instances, [pool(), pool(ON_DEMAND, available=0)]), Stay)
    assert stay.cause is Why.NO_CAPACITY
    assert only_action(decide(view, instances, [pool(), pool(ON_DEMAND)]), Launch).market is ON_DEMAND


def test_the_order_of_the_view_is_of_no_consequence():
    jobs = [job(f"j{n}", due=20 + n, work=WORK) for n in range(4)]
    boots = [instance(f"n-{n}", launched_for=f"j{n}", ready=False) for n in range(3)]
    pools = [pool(available=1), pool(zone="b", available=1), dry("c"), pool(ON_DEMAND)]
    assert decide(jobs, boots, pools) == decide(jobs[::-1], boots[::-1], pools)


def test_resources_that_no_pool_has_leave_the_job_where_it_was():
    hold = only_action(decide(job(resources=NEED.model_copy(update={"gpus": 8})), pools=[pool()], types=(TYPE,)), Hold)
    assert hold.cause is Why.NO_TYPE_FITS


def test_the_kit_says_what_it_means():
    assert STEADY.age(NOW) == 200
    assert AWAY.age(NOW) == 0
