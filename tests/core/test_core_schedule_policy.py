"""The market policy of one job: a table per rule, and no adversary makes it miss a feasible deadline."""

from dataclasses import replace

import pytest
from everspot_core.jobs.records import Market
from everspot_core.schedule import Stay, Why, describe_action
from everspot_core.schedule.market.policy import (
    SHORT_SPELLS_BEFORE_DISTRUST,
    HeldCapacity,
    MarketChoice,
    Need,
    Spot,
    best_strategy,
    choose_market,
    is_safe,
)
from hypothesis import given, settings
from hypothesis import strategies as st

ON_DEMAND = HeldCapacity(market=Market.ON_DEMAND)
ON_SPOT = HeldCapacity(market=Market.SPOT)


def need(time=30.0, remaining=10.0, upper=None, changeover=0.2, changeover_upper=None, tick=0.1) -> Need:
    """Hours. Bounds: as expected, if nothing is said."""
    return Need(
        time=time,
        remaining=remaining,
        remaining_upper=remaining if upper is None else upper,
        changeover=changeover,
        changeover_upper=changeover if changeover_upper is None else changeover_upper,
        tick=tick,
    )


def spot(up=True, age=0.0, ups=(4.0,) * 6, downs=(1.0,) * 6, usd=1.0, on_demand_usd=3.0) -> Spot:
    return Spot(up=up, age=age, ups=ups, downs=downs, usd=usd, on_demand_usd=on_demand_usd)


HERE, AWAY = spot(), spot(up=False)
STEADY = spot(age=200.0, ups=(50.0,) * 12, downs=(0.05,) * 12)
SCARCE = spot(age=0.01, ups=(0.05,) * 30, downs=(5.0,) * 30)
GONE = spot(up=False, age=15.0, ups=(1.0,) * 20, downs=(20.0,) * 20)
SAFE = need(time=10.4)
"""Exactly two changeovers more than the work: one to spot, that comes to nothing, and one to on-demand."""
LATE = need(time=10.4 - 1e-6)
TIGHT = need(time=100.0, remaining=92.0)
BLINKS = (0.1,) * SHORT_SPELLS_BEFORE_DISTRUST


@pytest.mark.parametrize(
    ("job_need", "current", "market", "mode", "cause"),
    [
        (need(), None, HERE, Market.SPOT, Why.SPOT_AVAILABLE),
        (need(), None, AWAY, None, Why.WAIT_FOR_SPOT),
        (need(), None, None, Market.ON_DEMAND, Why.NO_SPOT),
        (TIGHT, None, GONE, Market.ON_DEMAND, Why.ON_DEMAND_PAYS),
        # Spot that blinks is believed once it has outlasted a changeover, as any one of the last few spells did.
        (need(), None, spot(age=0.19, ups=BLINKS), None, Why.SHORT_SPELLS),
        (need(), None, spot(age=0.2, ups=BLINKS), Market.SPOT, Why.SPOT_AVAILABLE),
        (need(), None, spot(age=0.0, ups=BLINKS[1:]), Market.SPOT, Why.SPOT_AVAILABLE),
        (need(), None, spot(age=0.0, ups=(*BLINKS[1:], 0.2)), Market.SPOT, Why.SPOT_AVAILABLE),
        (need(), ON_SPOT, spot(age=0.1, ups=BLINKS), Market.SPOT, Why.RUNS_WELL),
        (need(changeover=0.0, tick=0.01), None, spot(age=0.0, ups=BLINKS), Market.SPOT, Why.SPOT_AVAILABLE),
        (SAFE, None, HERE, Market.SPOT, Why.SPOT_AVAILABLE),
        (LATE, None, HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (LATE, None, AWAY, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (need(time=-1.0), None, HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (need(time=10.2), ON_SPOT, HERE, Market.SPOT, Why.RUNS_WELL),
        (need(time=10.2 - 1e-6), ON_SPOT, HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        # In its changeover it makes no progress until the next tick, or less.
        (need(time=10.3), replace(ON_SPOT, changing=0.1), HERE, Market.SPOT, Why.RUNS_WELL),
        (need(time=10.3 - 1e-6), replace(ON_SPOT, changing=0.1), HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (need(time=10.25), replace(ON_SPOT, changing=0.05), HERE, Market.SPOT, Why.RUNS_WELL),
        (need(time=10.25), replace(ON_SPOT, changing=0.06), HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        # On a slow type it makes less than on-demand would.
        (need(time=10.25), replace(ON_SPOT, speed=0.5), HERE, Market.SPOT, Why.RUNS_WELL),
        (need(time=10.25), replace(ON_SPOT, speed=0.4), HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (need(), ON_DEMAND, STEADY, Market.SPOT, Why.BACK_TO_SPOT),
        (TIGHT, ON_DEMAND, SCARCE, Market.ON_DEMAND, Why.STAY_ON_DEMAND),
        (need(remaining=0.05), ON_DEMAND, STEADY, Market.ON_DEMAND, Why.STAY_ON_DEMAND),
        (need(), ON_DEMAND, AWAY, Market.ON_DEMAND, Why.RUNS_WELL),
        (need(), ON_DEMAND, None, Market.ON_DEMAND, Why.RUNS_WELL),
        (LATE, ON_DEMAND, STEADY, Market.ON_DEMAND, Why.RUNS_WELL),
        (SAFE, ON_DEMAND, STEADY, Market.SPOT, None),
    ],
)
def test_what_it_holds_and_why(job_need, current, market, mode, cause):
    to = choose_market(job_need, current, market)
    if cause is None:  # whether it pays to go back with so little to spare is not a matter of safety
        assert to.cause in (Why.BACK_TO_SPOT, Why.STAY_ON_DEMAND)
    else:
        assert (to.market, to.cause) == (mode, cause)
    words = describe_action(Stay(job_id="j", instance_id="i", cause=to.cause, figures=to.figures))
    assert "{" not in words
    assert "}" not in words


def test_upper_bounds_and_not_expectations_decide_what_is_safe():
    assert is_safe(need(time=10.4))
    assert not is_safe(need(time=10.4, upper=10.01))
    assert not is_safe(need(time=10.4, changeover_upper=0.21))
    assert is_safe(need(time=10.4, remaining=0.0, upper=10.0, changeover=0.0, changeover_upper=0.2))


def test_time_for_spot_is_time_until_the_next_decision_and_time_for_a_changeover():
    assert is_safe(need(time=10.4, tick=0.2))
    assert not is_safe(need(time=10.4, tick=0.21))
    assert is_safe(need(time=10.3, tick=0.1, changeover=0.1, changeover_upper=0.2))
    assert not is_safe(need(time=10.3, tick=0.1, changeover=0.11, changeover_upper=0.2))


def test_it_waits_up_to_the_threshold_of_the_best_way_and_no_longer():
    job_need = need(time=40.0, remaining=36.0)
    wait = best_strategy(job_need, AWAY).wait
    for age, mode in ((wait - 1e-6, None), (wait, Market.ON_DEMAND), (wait + 1.0, Market.ON_DEMAND)):
        if age >= 0:
            assert choose_market(job_need, None, replace(AWAY, age=age)).market is mode


def test_it_goes_back_from_the_threshold_of_the_best_way_on():
    job_need = need(time=40.0, remaining=30.0)
    for age in (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0):
        here = replace(HERE, age=age)
        assert (choose_market(job_need, ON_DEMAND, here).market is Market.SPOT) == (
            age >= best_strategy(job_need, here).back
        )


def test_more_slack_never_turns_waiting_into_on_demand():
    """On the same spot, with all lengths of the outage."""
    for age in (0.0, 0.2, 1.0, 4.0):
        waits = [
            choose_market(need(time=10.4 + slack), None, replace(AWAY, age=age)).market is None
            for slack in (0.0, 0.5, 1.0, 2.0, 5.0, 20.0, 80.0)
        ]
        enough = waits.index(True) if True in waits else len(waits)
        assert all(waits[max(enough, 2) :])


def test_it_is_final_only_where_the_work_is_known_and_nothing_else_can_follow():
    assert choose_market(LATE, None, HERE).final
    assert choose_market(LATE, ON_DEMAND, HERE).final
    assert not choose_market(replace(LATE, remaining=9.0), None, HERE).final
    assert not choose_market(SAFE, None, GONE).final


@given(
    time=st.floats(-5.0, 200.0),
    remaining=st.just(0.0) | st.floats(1e-6, 50.0),
    more=st.floats(0.0, 20.0),
    changeover=st.floats(0.0, 1.0),
    tick=st.floats(0.001, 1.0),
    current=st.sampled_from([None, ON_DEMAND, ON_SPOT, replace(ON_SPOT, changing=0.1, speed=0.7)]),
    market=st.sampled_from([None, HERE, AWAY, STEADY, SCARCE, GONE]),
)
@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
def test_every_course_can_be_followed_and_put_into_words(time, remaining, more, changeover, tick, current, market):
    job_need = need(time, remaining, remaining + more, changeover, changeover * 1.5, tick)
    to = choose_market(job_need, current, market)
    assert isinstance(to, MarketChoice)
    assert to == choose_market(job_need, current, market)
    if to.market is Market.SPOT and (current is None or current.market is Market.ON_DEMAND):
        assert market is not None
        assert market.up
        assert is_safe(job_need)
    if to.market is None:
        assert current is None
        assert is_safe(job_need)
    words = describe_action(Stay(job_id="j", instance_id="i", cause=to.cause, figures=to.figures))
    assert "{" not in words
    assert "}" not in words
