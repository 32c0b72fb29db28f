"""The automatic checkpoint interval and the cost of a notice: tables and properties of pure functions."""

from datetime import timedelta
from math import isclose, sqrt

import pytest
from everspot_core.capacity.market import Market
from everspot_core.costs.pool_history import USUAL_HOURS, PoolHistory, expected_hours
from everspot_core.jobs.checkpoint_interval import (
    LONGEST,
    LOSS_AT_NOTICE,
    SHORTEST,
    CheckpointCost,
    IntervalCause,
    IntervalChoice,
    NoticeTime,
    choose_interval,
    describe_choice,
    describe_loss,
    fits_notice,
    keep_interval,
    loss_at_notice,
    steps_at_notice,
)
from everspot_core.schedule.market.lifetimes import UPS, Lifetimes
from hypothesis import given
from hypothesis import strategies as st

AWS, GOOGLE = (NoticeTime(timedelta(seconds=seconds), timedelta(seconds=7)) for seconds in (120, 30))
HOUR = timedelta(hours=1)


def cost(stall: float, durable: float, size_bytes: int = 10**9) -> CheckpointCost:
    return CheckpointCost(timedelta(seconds=stall), timedelta(seconds=durable), size_bytes)


costs = st.builds(cost, st.floats(0, 1000), st.floats(0, 5000), st.integers(0, 10**13)).map(
    lambda c: CheckpointCost(c.stall, c.stall + c.durable, c.size_bytes)
)
rates = st.floats(0.01, 10_000).map(lambda hours: timedelta(hours=hours))
notices = st.sampled_from([None, NoticeTime(timedelta(0)), GOOGLE, AWS])


@pytest.mark.parametrize(
    ("measured", "hours", "notice", "seconds", "cause", "fits"),
    [
        (None, 4, AWS, 60, IntervalCause.UNMEASURED, None),
        (cost(2, 10), 8, AWS, sqrt(2 * 2 * 8 * 3600), IntervalCause.BALANCED, True),  # 339 s
        (cost(2, 10), 2, AWS, sqrt(2 * 2 * 2 * 3600), IntervalCause.BALANCED, True),  # a quarter of the time: half
        (cost(20, 60), 4, AWS, sqrt(2 * 20 * 4 * 3600), IntervalCause.BALANCED, True),  # 759 s
        (cost(0.01, 1), 8, AWS, 60, IntervalCause.SHORTEST, True),
        (cost(0, 0), 8, None, 60, IntervalCause.SHORTEST, None),
        (cost(10, 30), 6000, AWS, 3600, IntervalCause.LONGEST, True),
        (cost(0.5, 110), 0.5, AWS, 110, IntervalCause.UPLOAD, True),
        (cost(0.5, 110), 0.5, GOOGLE, 110, IntervalCause.UPLOAD, False),
        (cost(30, 200), 8, AWS, 400, IntervalCause.NOTICE, False),  # 1,315 s would balance: 200 s more are lost
        (cost(1, 200), 8, AWS, sqrt(2 * 8 * 3600), IntervalCause.BALANCED, False),  # 240 s are short enough
        (cost(30, 900), 8, AWS, 900, IntervalCause.UPLOAD, False),
        (cost(30, 200), 8, None, sqrt(2 * 30 * 8 * 3600), IntervalCause.BALANCED, None),
        (cost(600, 700), 0.1, None, 700, IntervalCause.UPLOAD, None),  # no longer than between two interruptions
    ],
)
def test_the_interval_balances_stalls_and_redone_work(measured, hours, notice, seconds, cause, fits):
    choice = choose_interval(measured, timedelta(hours=hours), notice)
    assert choice.interval is not None
    assert isclose(choice.interval.total_seconds(), seconds, rel_tol=1e-6)
    assert (choice.cause, choice.fits_notice) == (cause, fits)


@given(costs, rates, notices)
def test_the_interval_keeps_its_limits_and_leaves_time_for_the_upload(measured, between, notice):
    choice = choose_interval(measured, between, notice)
    assert choice.interval is not None
    assert max(SHORTEST, measured.durable) <= choice.interval <= max(SHORTEST, LONGEST, measured.durable)


@given(costs, rates, notices)
def test_what_a_notice_costs_is_bounded(measured, between, notice):
    choice = choose_interval(measured, between, notice)
    loss = loss_at_notice(measured, choice.interval)
    if choice.fits_notice is False:
        assert loss <= max(LOSS_AT_NOTICE, 2 * measured.durable, SHORTEST + measured.durable)


@given(costs, costs, rates, notices)
def test_more_frequent_interruptions_and_cheaper_checkpoints_never_lengthen_the_interval(cost, other, between, notice):
    cheap = CheckpointCost(min(cost.stall, other.stall), cost.durable, 1)
    dear = CheckpointCost(max(cost.stall, other.stall), cost.durable, 1)
    chosen = [choose_interval(c, between, notice).interval for c in (cheap, dear)]
    assert chosen[0] <= chosen[1]
    assert choose_interval(cost, between / 2, notice).interval <= choose_interval(cost, between, notice).interval


@given(st.floats(0.5, 60), st.floats(0.5, 100))
def test_no_other_interval_wastes_less_where_no_limit_holds(stall, hours):
    between = timedelta(hours=hours)
    choice = choose_interval(cost(stall, stall), between, None)

    def waste(interval: float) -> float:
        return stall / interval + interval / 2 / between.total_seconds()

    if choice.cause is IntervalCause.BALANCED:
        best = choice.interval.total_seconds()
        assert all(waste(best) <= waste(best * factor) * (1 + 1e-9) for factor in (0.5, 0.8, 0.95, 1.05, 1.3, 2))


@pytest.mark.parametrize(
    ("durable", "notice", "fits"), [(113, AWS, True), (114, AWS, False), (23, GOOGLE, True), (24, GOOGLE, False)]
)
def test_the_reserve_of_a_notice_is_not_for_the_upload(durable, notice, fits):
    assert fits_notice(cost(1, durable), notice) is fits
    assert fits_notice(cost(1, durable), None) is None


def test_no_notice_leaves_no_time():
    assert NoticeTime(timedelta(0), timedelta(seconds=7)).usable == timedelta(0)


@pytest.mark.parametrize(
    ("interval", "every_steps", "steps"),
    [
        (timedelta(seconds=400), None, 1200),  # 600 s at 2 steps a second
        (None, 50, 450),  # and the 200 s of the checkpoint
        (timedelta(seconds=400), 50, 450),
        (timedelta(seconds=400), 5000, 1200),
        (timedelta(seconds=100), None, 800),  # the next one begins when the one before is durable
    ],
)
def test_the_steps_that_a_notice_costs(interval, every_steps, steps):
    assert steps_at_notice(cost(30, 200), interval, 2.0, every_steps) == steps


@pytest.mark.parametrize(
    ("interval", "fits", "announced", "announced_fits", "differs"),
    [
        (100, True, 100, True, False),
        (124, True, 100, True, False),
        (126, True, 100, True, True),
        (100, True, 126, True, True),
        (100, False, 100, True, True),
        (100, True, 100, None, False),
        (None, True, None, True, False),
        (None, True, 100, True, True),
    ],
)
def test_an_interval_is_announced_when_it_changes_by_more_than_a_quarter(
    interval, fits, announced, announced_fits, differs
):
    spans = [timedelta(seconds=seconds) if seconds is not None else None for seconds in (interval, announced)]
    choice = IntervalChoice(interval=spans[0], cause=IntervalCause.BALANCED, fits_notice=fits)
    assert choice.differs_from(spans[1], fits_notice=announced_fits) is differs


def test_new_measurements_count_half():
    blend = cost(2, 10, 5).blended(cost(4, 30, 7))
    assert blend == cost(3, 20, 7)


def test_the_authors_interval_stays_and_the_notice_is_judged_all_the_same():
    choice = keep_interval(timedelta(minutes=30), cost(30, 200), AWS)
    assert (choice.interval, choice.cause, choice.fits_notice) == (HOUR / 2, IntervalCause.CHOSEN, False)
    assert keep_interval(None, None, AWS).fits_notice is None


@pytest.mark.parametrize(
    ("measured", "notice", "words"),
    [
        (None, AWS, "no checkpoint has been measured yet"),
        (cost(2, 10), AWS, "a checkpoint of 1 GB stalls training for 2 s, and an interruption comes about every 8 h"),
        (
            cost(0.04, 1),
            AWS,
            "the shortest, since a checkpoint of 1 GB stalls training for 0.04 s, and an interruption ",
        ),
        (
            cost(900, 950),
            None,
            "the longest, since a checkpoint of 1 GB stalls training for 900 s, and an interruption ",
        ),
        (cost(0.5, 1500), AWS, "a checkpoint of 1 GB takes 1,500 s to be durable"),
        (cost(30, 200), AWS, "a notice then costs at most 10m of work"),
    ],
)
def test_the_reason_is_told_with_figures(measured, notice, words):
    between = timedelta(hours=8)
    choice = choose_interval(measured, between, notice)
    assert describe_choice(choice, measured, between).startswith(words)


def test_the_loss_at_a_notice_is_one_sentence():
    large = cost(30, 240, 150 * 10**9)
    assert describe_loss(large, AWS.length, timedelta(minutes=6), 1200) == (
        "a checkpoint of 150 GB takes 240 s to be durable, longer than a notice of 120 s leaves: an interruption costs "
        "up to 1,200 steps (10 min)"
    )
    assert describe_loss(large, AWS.length, timedelta(minutes=6), None).endswith("costs up to 10 min of work")


@pytest.mark.parametrize(
    ("market", "hours", "interruptions", "expected"),
    [
        (Market.SPOT, 0, 0, 4.4),
        (Market.SPOT, 95.6, 0, 100),  # none taken in that time: the usual one is yet to come
        (Market.SPOT, 95.6, 9, 10),
        (Market.ON_DEMAND, 0, 0, 6000),
        (Market.ON_DEMAND, 2000, 1, 4000),
    ],
)
def test_the_rate_of_a_pool_is_that_of_its_market_until_it_has_a_history(market, hours, interruptions, expected):
    history = PoolHistory(launches=20, hours=hours, lifetimes=(1.0,) * interruptions)
    assert isclose(expected_hours(history, market), expected)


def test_a_pool_that_takes_everything_at_once_still_has_a_rate():
    history = PoolHistory(launches=10**5, lifetimes=(0.0,) * 10**5)
    assert expected_hours(history, Market.SPOT) == 0.001


def test_the_usual_hours_of_spot_are_those_of_the_plans_own_prior():
    prior = Lifetimes.from_hazard(UPS.hazards())
    assert isclose(USUAL_HOURS[Market.SPOT], prior.residual(1), abs_tol=0.05)
