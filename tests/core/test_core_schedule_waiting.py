"""The reasons that a waiting job gets: its pool, and the latest time of an on-demand launch."""

from datetime import timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.timing import Window
from everspot_core.schedule import Hold, Launch, Why
from everspot_core.schedule.jobs import STARVATION_LIMIT
from provision_helpers import (
    HOUR,
    NOW,
    ON_DEMAND,
    SPOT,
    TICK,
    TYPE,
    decide,
    dry,
    instance,
    job,
    lost,
    outlook,
    pool,
)

WORK = outlook(remaining=10, upper=12)
LATEST = NOW + 40 * HOUR - 12 * HOUR - 0.1 * HOUR - 0.25 * HOUR - TICK
"""The deadline, less the work and twice a changeover: one that is broken off, and one that may take its longest."""
FAST = InstanceType(name="fast", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)


def decide_hold(*args, **more) -> Hold:
    (hold,) = (a for a in decide(*args, **more) if isinstance(a, Hold))
    return hold


def test_a_job_that_waits_for_spot_names_the_cheapest_pool_and_the_last_safe_moment() -> None:
    pools = [dry("a", usd=1.2), dry("b"), dry("c", usd=1.3), pool(ON_DEMAND, "a")]
    hold = decide_hold(job(due=40, work=WORK), pools=pools)
    assert (hold.cause, hold.waits_for) == (Why.WAIT_FOR_SPOT, (TYPE.name, "b", SPOT))
    assert hold.on_demand_at == LATEST


def test_the_pool_is_the_one_where_the_work_costs_least() -> None:
    pools = [dry("a"), dry("b", kind=FAST, usd=1.5), pool(ON_DEMAND)]
    hold = decide_hold(job(due=40, work=WORK, speeds={"fast": 2.0}), pools=pools)
    assert hold.waits_for == ("fast", "b", SPOT)


def test_from_that_moment_on_on_demand_is_launched_whatever_it_costs() -> None:
    pools, waiting = [dry(), pool(ON_DEMAND, usd=1000.0)], job(due=40, work=WORK)

    def launch_causes(now) -> list[Why]:
        return [a.cause for a in decide(waiting, pools=pools, now=now) if isinstance(a, Launch)]

    assert Why.LAST_SAFE_MOMENT not in launch_causes(LATEST - TICK)  # it may pay by then: the moment is the latest
    assert launch_causes(LATEST + TICK) == [Why.LAST_SAFE_MOMENT]


@pytest.mark.parametrize("due", [30, 60, 89.9, 90])
def test_with_a_window_that_moment_is_within_the_hours(due: float) -> None:
    """It is noon."""
    window, pools = Window.parse("10:00-20:00"), [dry(), pool(ON_DEMAND, usd=1000.0)]
    waiting = job(due=due, work=outlook(remaining=8, upper=9), window=window)
    at = decide_hold(waiting, pools=pools).on_demand_at
    assert window.is_open(at)

    def launch_causes(now) -> list[Why]:
        return [a.cause for a in decide(waiting, pools=pools, now=now) if isinstance(a, Launch)]

    assert Why.LAST_SAFE_MOMENT not in launch_causes(at - TICK)
    assert launch_causes(at + TICK) == [Why.LAST_SAFE_MOMENT]


def test_without_a_deadline_it_is_in_the_first_hours_after_the_longest_wait() -> None:
    hold = decide_hold(job(ago=1.0, window=Window.parse("11:30-23:00")), pools=[dry(), pool(ON_DEMAND)])
    assert hold.on_demand_at == NOW + 23.5 * HOUR


def test_without_a_deadline_it_is_the_end_of_the_longest_wait() -> None:
    hold = decide_hold(job(ago=1.0), pools=[dry(), pool(ON_DEMAND)])
    assert (hold.cause, hold.on_demand_at) == (Why.NO_SPOT_YET, NOW - HOUR + STARVATION_LIMIT)


def test_what_is_on_its_way_is_what_it_waits_for() -> None:
    coming = instance("i-1", ready=False, zone="b")
    hold = decide_hold(job(due=40, work=WORK), [coming], [pool(zone="a"), pool(zone="b"), pool(ON_DEMAND)])
    assert (hold.cause, hold.waits_for, hold.on_demand_at) == (Why.ON_ITS_WAY, (TYPE.name, "b", SPOT), LATEST)


def test_who_waits_for_on_demand_is_not_told_when_it_will_begin() -> None:
    pools = [dry(), pool(ON_DEMAND, available=0)]
    hold = decide_hold(job(due=12.3, work=WORK), pools=pools)
    assert (hold.cause, hold.waits_for, hold.on_demand_at) == (Why.AT_RISK, (TYPE.name, "a", ON_DEMAND), None)


@pytest.mark.parametrize(
    ("waiting", "pools"),
    [
        (job(due=40, work=WORK), [dry()]),  # no on-demand is ever launched here
        (job(record=lost(not_before=NOW + timedelta(minutes=5))), [pool(), pool(ON_DEMAND)]),
    ],
    ids=["spot alone", "back-off"],
)
def test_there_is_no_moment_where_on_demand_is_not_to_come(waiting, pools) -> None:
    assert decide_hold(waiting, pools=pools).on_demand_at is None


def test_where_nothing_may_be_launched_it_waits_for_no_pool() -> None:
    hold = decide_hold(job(due=40, work=WORK), [instance("i-1", launched_for=None, residents=("other",))])
    assert (hold.waits_for, hold.on_demand_at) == (None, None)
