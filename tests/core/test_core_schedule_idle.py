"""Idle launched instances: kept for a while, reused by jobs that they suit, and released in the end."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.records import Assignment, InstanceState, JobRecord, JobState, Reason
from everspot_core.jobs.visit_records import Away
from everspot_core.schedule import Assign, Cap, Launch, Leave, Release, Why, describe_action
from provision_helpers import (
    HOUR,
    NOW,
    OFTEN,
    ON_DEMAND,
    SPOT,
    TYPE,
    WORK,
    decide,
    holding,
    instance,
    job,
    lost,
    names,
    outlook,
    pool,
)

POOLS = [pool(), pool(ON_DEMAND)]
LIMIT = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)


def idle(name="i-0", market=SPOT, minutes=1.0, launched_for="over", **more):
    """Launched for a job that is over, and since then without work."""
    return instance(name, market, launched_for=launched_for, idle_since=NOW - minutes * MINUTE, **{"ago": 5.0, **more})


def release_causes(instances, jobs=(), limit=LIMIT, **more) -> dict[str, Why]:
    """Return the released instances, with the reasons."""
    actions = decide(jobs, instances, POOLS, idle_limit=limit, **more)
    return {a.instance_id: a.cause for a in actions if isinstance(a, Release)}


@pytest.mark.parametrize(("minutes", "is_released"), [(0, False), (4.99, False), (5, True), (60, True)])
def test_what_is_idle_goes_after_the_limit(minutes, is_released):
    assert release_causes([idle(minutes=minutes)]) == ({"i-0": Why.IDLE} if is_released else {})
    assert release_causes([idle(minutes=minutes)], limit=timedelta(0)) == {"i-0": Why.NEEDED_NO_MORE}


def test_it_is_said_how_long_it_was_idle():
    (release,) = decide((), [idle(minutes=7.25)], POOLS, idle_limit=LIMIT)
    assert describe_action(release) == "release i-0: it has been idle for 7.2 min of at most 5.0 min"


def test_what_nobody_knows_the_age_of_goes_at_once_and_what_boots_counts_from_its_launch():
    unknown = replace(idle(), idle_since=None, launched_at=None)
    boots = [instance("b-0", ready=False, launched_for="over", ago=m / 60) for m in (4.9, 5.1)]
    assert release_causes([unknown]) == {"i-0": Why.IDLE}
    assert release_causes(boots[:1]) == {}
    assert release_causes(boots[1:]) == {"b-0": Why.IDLE}


@pytest.mark.parametrize("useless", [{"stale": True}, {"state": InstanceState.DRAINING}])
def test_what_no_job_could_have_any_more_goes_at_once(useless):
    assert release_causes([idle(minutes=0, **useless)]) == {"i-0": Why.NEEDED_NO_MORE}


def test_what_found_itself_broken_is_written_down_against_it_and_leaves():
    (leave,) = decide((), [idle(minutes=0, state=InstanceState.CORDONED)], POOLS, idle_limit=LIMIT)
    assert isinstance(leave, Leave)
    assert (leave.instance_id, leave.cause) == ("i-0", Why.UNFIT)


def test_all_goes_at_once_where_the_cluster_is_drained_or_somebody_waits_for_the_room():
    assert release_causes([idle()], draining=True) == {"i-0": Why.NEEDED_NO_MORE}
    waits = job("large", nodes=2)
    cap = {"cap": Cap(instances=2, usd_per_hour=None)}
    assert release_causes([idle()], [waits], **cap) == {"i-0": Why.NEEDED_NO_MORE}
    assert release_causes([idle()], [waits], cap=Cap(instances=3, usd_per_hour=None)) == {}


def test_it_is_kept_past_the_limit_for_a_job_in_back_off_that_comes_sooner_than_a_changeover():
    for minutes, comes in ((5, True), (7, False)):
        waits = job(record=lost(Reason.ERROR, not_before=NOW + minutes * MINUTE))
        expected = {} if comes else {"i-0": Why.IDLE, "i-1": Why.IDLE}
        causes = release_causes([idle(minutes=9), idle("i-1", minutes=8)], [waits])
        assert causes == ({"i-1": Why.IDLE} if comes else expected)


def test_a_job_in_back_off_keeps_nothing_that_does_not_suit_it():
    waits = job(record=lost(Reason.ERROR, not_before=NOW + 5 * MINUTE))
    assert release_causes([idle(market=ON_DEMAND, minutes=9)], [waits]) == {"i-0": Why.IDLE}


def test_an_idle_instance_is_taken_before_one_is_launched():
    for view in (job(), job(due=40, work=WORK)):
        (assign,) = decide(view, [idle()], POOLS, idle_limit=LIMIT)
        assert isinstance(assign, Assign)
        assert assign.instance_id == "i-0"


def test_of_several_the_cheapest_is_taken_and_of_equals_what_was_used_last():
    instances = [idle("old", minutes=4), idle("fresh", minutes=1), idle("dear", zone="b", minutes=0)]
    pools = [*POOLS, pool(zone="b", usd=1.05)]
    assert names(decide(job(), instances, pools, idle_limit=LIMIT), Assign) == ["fresh"]


def test_standing_instances_come_before_launched_ones():
    instances = [idle("i-0"), instance("s-0", ON_DEMAND, launched_for=None)]
    assert names(decide(job(), instances, POOLS, idle_limit=LIMIT), Assign) == ["s-0"]


@pytest.mark.parametrize(
    ("view", "market", "is_taken"),
    [
        (job(due=40, work=WORK), ON_DEMAND, False),  # there is time for spot, at a third
        (job(), ON_DEMAND, False),
        (job(due=10.3, work=WORK), ON_DEMAND, True),
        (job(due=10.3, work=WORK), SPOT, False),  # past its last safe moment
        (job(critical=True), ON_DEMAND, True),
        (job(critical=True), SPOT, False),
        (job(preempted_at=OFTEN), SPOT, False),
        (job(preempted_at=OFTEN), ON_DEMAND, True),
        (job(due=40), SPOT, True),
    ],
)
def test_nobody_sits_on_a_market_for_hours_to_save_a_launch(view, market, is_taken):
    actions = decide(view, [idle(market=market)], POOLS, idle_limit=LIMIT)
    assert names(actions, Assign) == (["i-0"] if is_taken else [])
    assert sum(isinstance(a, Launch) for a in actions) == (not is_taken)


def test_nobody_sits_on_a_large_type_for_hours_to_save_a_launch():
    """Twice the price for ten hours is more than a launch; for a minute it is less."""
    large = InstanceType(name="large", vcpus=64, memory_gib=256, gpus=8, gpu_memory_gib=24)
    pools = [*POOLS, pool(kind=large, usd=2.0)]
    for remaining, is_taken in ((10.0, False), (0.05, True)):
        actions = decide(job(due=40, work=outlook(remaining)), [idle(kind=large)], pools, idle_limit=LIMIT)
        assert names(actions, Assign) == (["i-0"] if is_taken else [])


@pytest.mark.parametrize(
    ("usd", "room", "view", "is_taken"),
    [
        (1.2, 0, job(), True),
        (1.2, 1, job(), False),  # a cheaper one is launched
        (3.1, 0, job(), False),  # more expensive than on-demand: it would not have been launched
        (1.2, 0, job(work=WORK), False),  # ten hours at a fifth more
        (1.2, 0, job(work=outlook(0.1)), True),
    ],
)
def test_where_the_cap_is_full_a_job_of_unknown_length_takes_what_a_launch_might_have_brought(
    usd, room, view, is_taken
):
    """Or a queue of short jobs would have the fleet replaced over and over, for pools that ran dry before."""
    pools = [*POOLS, pool(zone="b", usd=usd)]
    instances = [idle(zone="b")]
    actions = decide(view, instances, pools, idle_limit=LIMIT, cap=Cap(instances=1 + room, usd_per_hour=None))
    assert names(actions, Assign) == (["i-0"] if is_taken else [])
    assert names(actions, Release) == ([] if is_taken or room else ["i-0"])


def test_an_idle_instance_that_would_be_late_is_not_taken():
    slow = TYPE.model_copy(update={"name": "slow"})
    view = job(due=10.3, work=WORK, speeds={"slow": 0.5})
    actions = decide(
        view, [idle(market=ON_DEMAND, kind=slow)], [*POOLS, pool(ON_DEMAND, kind=slow, usd=1.0)], idle_limit=LIMIT
    )
    assert names(actions, Assign) == []
    assert [a.instance_type for a in actions if isinstance(a, Launch)] == ["t"]


def test_spot_that_is_idle_is_taken_in_an_outage_too():
    pools = [pool(available=0), pool(ON_DEMAND)]
    assert names(decide(job(due=40, work=WORK), [idle()], pools, idle_limit=LIMIT), Assign) == ["i-0"]


def test_what_a_job_left_for_another_market_is_there_for_others_and_not_for_itself():
    idle_on_demand = idle("od", ON_DEMAND, launched_for="j")
    view, instances = holding(job(due=40, work=WORK), instance("i-0", ago=0.1))
    others = job("critical", critical=True)
    actions = decide([view, others], [*instances, idle_on_demand], POOLS, idle_limit=LIMIT)
    assert [(a.job_id, a.instance_id) for a in actions if isinstance(a, Assign)] == [("critical", "od")]
    moved = job(due=40, work=WORK, record=lost(Reason.MOVE, owner="od"))
    assert "od" not in names(decide(moved, [idle_on_demand], POOLS, idle_limit=LIMIT), Assign)


def test_what_a_job_waits_for_is_not_given_to_another_one():
    coming = instance("n-1", launched_for="mine", ago=0.1)
    held_back = lost(Reason.ERROR, not_before=NOW + 2 * MINUTE).model_copy(update={"job_id": "mine"})
    backing_off = job("mine", due=40, work=WORK, record=held_back)
    actions = decide([backing_off, job("other")], [coming], POOLS, idle_limit=LIMIT)
    assert names(actions, Assign) == []
    assert [a.job_id for a in actions if isinstance(a, Launch)] == ["other"]


def test_a_gang_takes_idle_instances_of_one_type_or_none():
    small = InstanceType(name="large", vcpus=64, memory_gib=256, gpus=8, gpu_memory_gib=24)
    instances = [idle("a"), idle("b", kind=small), idle("c")]
    pools = [*POOLS, pool(kind=small, usd=1.0)]
    (assign,) = [a for a in decide(job(nodes=2), instances, pools, idle_limit=LIMIT) if isinstance(a, Assign)]
    assert {assign.instance_id, *assign.gang} == {"a", "c"}
    actions = decide(job(nodes=3), instances, pools, idle_limit=LIMIT)
    assert [a.count for a in actions if isinstance(a, Launch)] == [3]


def test_a_launch_that_was_given_up_is_not_kept_as_idle():
    late = instance("n-1", ready=False, ago=9)
    actions = decide(job(due=99, work=WORK), [late], POOLS, idle_limit=timedelta(hours=20))
    assert names(actions, Release) == ["n-1"]


def test_what_is_left_to_the_cloud_is_not_released():
    assignment = Assignment(instance_id="i-0", cordoned=True, changed_at=NOW)
    soon = idle(minutes=9, ending=True, deadline=NOW + MINUTE, assignment=assignment)
    assert release_causes([soon]) == {}


@pytest.mark.parametrize(
    ("minutes", "more", "is_released"), [(1, {}, False), (5, {}, False), (5.1, {}, True), (1, {"stale": True}, True)]
)
def test_what_is_taken_at_a_time_that_nobody_told_is_left_to_the_cloud_for_as_long_as_a_notice_lasts(
    minutes, more, is_released
):
    """Google Cloud says that it takes an instance, and not when. What is ended before counts as ended by us."""
    assignment = Assignment(instance_id="i-0", cordoned=True, changed_at=NOW)
    soon = idle(minutes=minutes, ending=True, deadline=None, assignment=assignment, **more)
    assert release_causes([soon], limit=timedelta(0)) == ({"i-0": Why.NEEDED_NO_MORE} if is_released else {})


def test_what_was_launched_for_a_job_that_is_away_is_there_for_others_and_is_released():
    away = Away(cluster="other", visit="v", number=1, since=NOW - HOUR)
    gone = job(record=JobRecord(job_id="j", state=JobState.AWAY, epoch=1, changed_at=NOW - HOUR, away=away))
    assert release_causes([idle(minutes=6, launched_for="j")], [gone]) == {"i-0": Why.IDLE}
    assert release_causes([idle(minutes=6, launched_for="j")], [gone], limit=timedelta(0)) == {
        "i-0": Why.NEEDED_NO_MORE
    }
    for limit in (LIMIT, timedelta(0)):
        (assign,) = decide([gone, job("k")], [idle(launched_for="j")], POOLS, idle_limit=limit)
        assert isinstance(assign, Assign) and (assign.job_id, assign.instance_id) == ("k", "i-0")
