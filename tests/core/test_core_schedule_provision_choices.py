"""The pool and the type of a launch, in whole plans."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.schedule import (
    Behaviour,
    Launch,
    Stay,
    Why,
)
from everspot_core.schedule.messages import because
from provision_helpers import (
    HOUR,
    LATEST,
    NOW,
    OFTEN,
    ON_DEMAND,
    SMALL,
    SPOT,
    TICK,
    TYPE,
    WORK,
    decide,
    holding,
    instance,
    job,
    only_action,
    pool,
)
from view_helpers import measured_view


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
    assert only_action(decide(view, pools=[noticed, pool(zone="b"), pool(ON_DEMAND)]), Launch).zone == "b"
    assert only_action(decide(view, pools=[noticed, pool(ON_DEMAND)]), Launch).zone == "a"


@pytest.mark.parametrize("view", [job(due=20, work=WORK), job()])
def test_spot_that_costs_more_than_on_demand_is_not_taken(view):
    """Not even where its pool ranks first for other reasons, and not by a job that goes back to spot."""
    gave_notice = pool(zone="cheap", usd=2.0, refused_at=(NOW,) * 4)
    dear = pool(zone="dear", usd=4.0)
    assert only_action(decide(view, pools=[gave_notice, dear, pool(ON_DEMAND)]), Launch).zone == "cheap"
    running, instances = holding(view, instance("i-0", ON_DEMAND, ago=40))
    assert only_action(decide(running, instances, [dear, pool(ON_DEMAND)]), Stay).instance_id == "i-0"


def test_a_job_without_a_deadline_takes_on_demand_where_spot_is_dear():
    launch = only_action(decide(job(), pools=[pool(usd=4.0), pool(ON_DEMAND)]), Launch)
    assert (launch.market, launch.cause) == (ON_DEMAND, Why.OTHER_MARKET)


def test_of_on_demand_types_the_one_in_time_is_taken_then_the_cheapest():
    slow = InstanceType(name="slow", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
    pools = [pool(ON_DEMAND), pool(ON_DEMAND, kind=slow, usd=1.0)]
    for due, name in ((20.3, "slow"), (20.25, "t"), (10.25 + TICK / HOUR, "t")):
        for work, length in ((WORK, None), (None, timedelta(hours=10))):
            view = job(due=due, work=work, expected_duration=length, speeds={"slow": 0.5})
            assert only_action(decide(view, pools=pools), Launch).instance_type == name
    # Too late for both: the earlier one. A reserved one that is late is of no use.
    late = job(due=10.0, work=WORK, ago=1, speeds={"slow": 0.5})
    assert only_action(decide(late, pools=pools), Launch).instance_type == "t"
    reserved = [pools[0], replace(pools[1], reserved=True)]
    assert (
        only_action(decide(job(due=15, work=WORK, speeds={"slow": 0.5}), pools=reserved), Launch).instance_type == "t"
    )


def test_a_pool_that_refused_just_now_comes_last():
    refused = pool(ON_DEMAND, "a", usd=1.0, refused_at=(NOW - timedelta(minutes=1),))
    long_ago = pool(ON_DEMAND, "a", usd=1.0, refused_at=(NOW - timedelta(days=1),))
    for work in (WORK, None):
        view = job(due=20, work=work)
        assert only_action(decide(view, pools=[refused, pool(ON_DEMAND, "b")]), Launch).zone == "b"
        assert only_action(decide(view, pools=[long_ago, pool(ON_DEMAND, "b")]), Launch).zone == "a"
        two_pools = [refused, pool(ON_DEMAND, "b", refused_at=(NOW,))]
        assert only_action(decide(view, pools=two_pools), Launch).zone == "a"  # the turn goes round


def test_speed_counts_for_the_last_safe_moment():
    """Spot of the usual type; on-demand is twice as fast, so that 10 h of work take 5 h there."""
    fast = InstanceType(name="fast", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
    pools = [pool(), pool(ON_DEMAND, kind=fast, usd=5.0)]
    for due, market in ((LATEST - 5, SPOT), (LATEST - 5.01, ON_DEMAND)):
        view = job(due=due, work=WORK, speeds={"fast": 2.0})
        assert only_action(decide(view, pools=pools), Launch).market is market


def test_a_type_of_no_speed_is_left_alone():
    view = job(due=20, work=WORK, speeds={"t": 1.0, "broken": 0.0})
    broken = TYPE.model_copy(update={"name": "broken"})
    pools = [pool(kind=broken, usd=0.1), pool(ON_DEMAND, kind=broken, usd=0.1), pool(usd=2.0), pool(ON_DEMAND)]
    assert only_action(decide(view, pools=pools), Launch).instance_type == "t"


def test_the_smaller_type_is_launched_after_many_losses_if_it_is_the_better_one():
    """It uses 12 of its requested 24 GiB, with mixed precision."""
    view = job(
        due=60,
        work=WORK,
        preempted_at=OFTEN,
        measured=measured_view(vcpus=4, memory_gib=8, gpu_memory_gib=12, mixed=True),
        speeds={"t": 1.0, "small": 0.9},
    )
    pools = [pool(), pool(ON_DEMAND), pool(kind=SMALL, usd=0.3)]
    launch = only_action(decide(view, pools=pools), Launch)
    assert (launch.instance_type, launch.cause) == ("small", Why.SMALLER_TYPE)
    usual = only_action(decide(view, pools=[*pools[:2], pool(kind=SMALL, usd=2.0)]), Launch)
    assert (usual.instance_type, usual.cause) == ("t", Why.SPOT_AVAILABLE)
    for other in (replace(view, preempted_at=()), replace(view, measured=None)):
        assert only_action(decide(other, pools=pools), Launch).instance_type == "t"


def test_a_launch_of_a_smaller_type_says_that_the_job_changes_to_mixed_precision():
    """Given a job that used 15 GiB in fp32 and allows the change, when an instance with 14 GiB is launched, then the
    reason names the change."""
    view = job(
        due=60,
        work=WORK,
        preempted_at=OFTEN,
        measured=measured_view(vcpus=4, memory_gib=8, gpu_memory_gib=15, mixed=False),
        speeds={"t": 1.0, "small": 0.9},
    )
    spec = view.submission.spec.model_copy(update={"mixed_on_failover": True})
    allowed = replace(view, submission=view.submission.model_copy(update={"spec": spec}))
    pools = [pool(), pool(ON_DEMAND), pool(kind=SMALL, usd=0.3)]
    launch = only_action(decide(allowed, pools=pools), Launch)
    assert (launch.instance_type, launch.cause) == ("small", Why.SMALLER_MIXED)
    assert "mixed precision" in because(launch)
    assert only_action(decide(view, pools=pools), Launch).instance_type == "t"


def test_safety_does_not_rest_on_a_type_that_is_too_small():
    view = job(
        due=LATEST - 1,
        work=WORK,
        ago=5,
        preempted_at=OFTEN,
        measured=measured_view(vcpus=4, memory_gib=8, gpu_memory_gib=12, mixed=True),
        speeds={"t": 1.0, "small": 2.0},
    )
    launch = only_action(decide(view, pools=[pool(), pool(ON_DEMAND), pool(ON_DEMAND, kind=SMALL)]), Launch)
    assert (launch.instance_type, launch.market) == ("t", ON_DEMAND)


def test_a_pool_that_is_presumed_to_be_back_and_is_asked_for_another_job_has_been_away_all_the_time():
    """Otherwise each request would restart the outage of a long drought, and no job would see its age."""
    away = Behaviour().observe(True, NOW - 99 * HOUR).observe(False, NOW - 30 * HOUR)
    presumed = away.presumed(NOW - TICK)
    assert (presumed.up, presumed.age(NOW), presumed.outage(NOW)) == (True, TICK / HOUR, 30.0)
    assert presumed.observe(False, NOW).outage(NOW) == 0.0 == Behaviour().observe(True, NOW - HOUR).outage(NOW)
    jobs = [job(name, due=11, work=WORK) for name in ("first", "second")]
    actions = decide(jobs, (), [pool(behaviour=presumed, available=1), pool(ON_DEMAND)])
    first, second = (next(a for a in actions if a.job_id == name) for name in ("first", "second"))
    assert isinstance(first, Launch) and first.market is SPOT
    assert second.cause is Why.ON_DEMAND_PAYS and second.figures["down_hours"] == 30.0
