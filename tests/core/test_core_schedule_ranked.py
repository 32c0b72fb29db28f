"""The pools of one launch, best first, and whether their order counts."""

from datetime import timedelta

import pytest
from everspot_core.schedule import Behaviour, Launch
from everspot_core.schedule.market.offers import INDIFFERENCE
from hypothesis import given
from hypothesis import strategies as st
from provision_helpers import (
    HOUR,
    NOW,
    ON_DEMAND,
    SPOT,
    STEADY,
    TYPE,
    WORK,
    decide,
    dry,
    instance,
    job,
    only_action,
    pool,
)

SLOW = TYPE.model_copy(update={"name": "slow"})
FLEETING = Behaviour(up=True, since=NOW - HOUR, first=NOW - 99 * HOUR, ups=(0.5,) * 40, downs=(0.5,) * 40)
LITTLE, MUCH = 1 + INDIFFERENCE / 2, 1 + INDIFFERENCE * 2


def launched(view, pools, **more) -> tuple[list[str], bool]:
    """The zones (and types other than the usual one) that are named, in order."""
    launch = only_action(decide(view, pools=pools, **more), Launch)
    assert launch.ranked[0] == (launch.instance_type, launch.zone, launch.market)
    assert {p.market for p in launch.ranked} == {launch.market}
    assert len(set(launch.ranked)) == len(launch.ranked)
    return [p.zone if p.instance_type == "t" else f"{p.instance_type}-{p.zone}" for p in launch.ranked], launch.ordered


def spot(zone, usd=1.0, **more):
    return pool(zone=zone, usd=usd, **more)


def on_demand(zone, usd=3.0, **more):
    return pool(ON_DEMAND, zone, usd, **more)


@pytest.mark.parametrize(
    ("pools", "ranked", "ordered"),
    [
        ([spot("a"), on_demand("a")], ["a"], False),
        ([spot("b"), spot("a"), on_demand("a")], ["a", "b"], False),
        ([spot("a", LITTLE), spot("b"), on_demand("a")], ["b", "a"], False),
        ([spot("a", MUCH), spot("b"), on_demand("a")], ["b", "a"], True),
        # Pools without capacity, and pools as expensive as on-demand, are left out.
        ([spot("a"), dry("b"), spot("c", 3.0), on_demand("a")], ["a"], False),
        ([spot("a"), spot("b", behaviour=FLEETING), on_demand("a")], ["a", "b"], True),
        ([spot("a", refused_at=(NOW,)), spot("b"), on_demand("a")], ["b", "a"], True),
        ([spot("a", noticed_at=NOW), spot("b"), on_demand("a")], ["b"], False),
    ],
)
def test_all_pools_of_spot_that_would_do_are_named_best_first(pools, ranked, ordered):
    for view in (job(due=40, work=WORK), job()):
        assert launched(view, pools) == (ranked, ordered)


def test_the_order_counts_by_the_cost_of_work_and_not_by_the_price_of_an_hour():
    """A type of half the speed at half the price is as good; at the same price it is not."""
    view = job(due=60, work=WORK, speeds={"slow": 0.5})
    assert launched(view, [spot("a"), spot("b", 0.5, kind=SLOW), on_demand("a")])[1] is False
    assert launched(view, [spot("a"), spot("b", 1.0, kind=SLOW), on_demand("a")]) == (["a", "slow-b"], True)


@pytest.mark.parametrize(
    ("pools", "ranked", "ordered"),
    [
        ([on_demand("a"), on_demand("b")], ["a", "b"], False),
        ([on_demand("a", 3.0 * MUCH), on_demand("b")], ["b", "a"], True),
        ([on_demand("a"), on_demand("b", 9.0, reserved=True)], ["b", "a"], True),
        ([on_demand("a", refused_at=(NOW - timedelta(minutes=1),)), on_demand("b")], ["b", "a"], True),
        ([on_demand("a"), on_demand("b", available=0)], ["a"], False),
    ],
)
def test_on_demand_pools_that_would_do_are_named_best_first(pools, ranked, ordered):
    for view in (job(critical=True), job(due=10.3, work=WORK)):
        assert launched(view, pools) == (ranked, ordered)


def test_on_demand_that_would_be_late_is_named_only_where_all_is_late():
    pools = [on_demand("a"), on_demand("b", 0.5, kind=SLOW)]
    speeds = {"speeds": {"slow": 0.5}}
    assert launched(job(due=10.3, work=WORK, **speeds), pools) == (["a"], False)
    assert launched(job(due=30, work=WORK, **speeds), pools) == (["slow-b", "a"], True)
    assert launched(job(due=10, work=WORK, ago=1, **speeds), pools) == (["a", "slow-b"], True)


def test_a_pool_whose_launch_was_given_up_is_not_asked_again_at_once():
    lost = instance("n-1", ready=False, ago=9)
    view, pools = job(due=99, work=WORK), [spot("a"), spot("b"), on_demand("a")]
    (launch,) = [a for a in decide(view, [lost], pools) if isinstance(a, Launch)]
    assert [p.zone for p in launch.ranked] == ["b"]
    (launch,) = [a for a in decide(view, [lost], [pools[0], pools[2]]) if isinstance(a, Launch)]
    assert [p.zone for p in launch.ranked] == ["a"]


def test_equal_needs_name_the_same_pools_so_that_one_request_serves_them():
    pools = [spot("a"), spot("b"), on_demand("a")]
    launches = decide([job(f"j{n}", due=40, work=WORK) for n in range(5)], pools=pools)
    assert {(a.ranked, a.ordered) for a in launches} == {(tuple(p.key for p in pools[:2]), False)}


@given(
    usd=st.lists(st.integers(20, 600).map(lambda cents: cents / 100), min_size=1, max_size=6),
    due=st.sampled_from([None, 10.3, 40.0]),
    nodes=st.sampled_from([1, 3]),
)
def test_whatever_is_named_holds_the_job_gives_enough_and_is_ranked_by_what_work_costs(usd, due, nodes):
    pools = [spot(f"z{n}", u, behaviour=STEADY, available=n or None) for n, u in enumerate(usd)] + [on_demand("a", 2.0)]
    launch = only_action(decide(job(due=due, work=WORK, nodes=nodes), pools=pools), Launch)
    by_key = {p.key: p for p in pools}
    ranked_pools = [by_key[key] for key in launch.ranked]
    assert all(p.has_capacity(nodes) for p in ranked_pools)
    assert [p.usd_per_hour for p in ranked_pools] == sorted(p.usd_per_hour for p in ranked_pools)
    if launch.market is SPOT and ranked_pools[0].usd_per_hour < 2.0:
        assert all(p.usd_per_hour < 2.0 for p in ranked_pools)
    dearest, cheapest = max(p.usd_per_hour for p in ranked_pools), min(p.usd_per_hour for p in ranked_pools)
    assert launch.ordered is (dearest > cheapest * (1 + INDIFFERENCE))
