"""The bill: the cost of instances and its assignment to jobs."""

from datetime import timedelta
from fractions import Fraction

import pytest
from cost_helpers import LISTED, T0, TYPE, ZONE, at, compute, end, event, interrupted_job, launch, price
from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.bill import savings_percent, spent
from everspot_core.costs.prices import PriceBook, rounded
from everspot_core.jobs.records import EventKind, Market


@pytest.mark.parametrize(
    ("market", "life", "interrupted", "expected"),
    [
        (Market.SPOT, 7200, False, Fraction("0.08")),
        (Market.SPOT, 7200, True, Fraction("0.08")),
        (Market.SPOT, 3600, True, Fraction("0.04")),
        (Market.SPOT, 3599, True, 0),
        (Market.SPOT, 3599, False, Fraction("0.04") * 3599 / 3600),
        (Market.SPOT, 1, True, 0),
        (Market.SPOT, 1, False, Fraction("0.04") / 60),
        (Market.SPOT, 59.5, False, Fraction("0.04") / 60),
        (Market.SPOT, 60, False, Fraction("0.04") / 60),
        (Market.SPOT, 61, False, Fraction("0.04") * 61 / 3600),
        (Market.ON_DEMAND, 1800, True, LISTED / 2),
        (Market.ON_DEMAND, 10, False, LISTED / 60),
    ],
)
def test_an_instance_costs_its_seconds_with_a_minimum_and_a_free_first_hour(market, life, interrupted, expected):
    bill = compute([launch(market=market)], [end(life, interrupted=interrupted)], [price(0.04)])
    assert bill.cost == expected
    assert bill.instances[0].free == (expected == 0)


def test_each_moment_costs_its_own_price():
    bill = compute([launch()], [end(3600)], [price(0.01), price(0.04, 900), price(0.02, 2700)])
    assert bill.cost == (900 * Fraction("0.01") + 1800 * Fraction("0.04") + 900 * Fraction("0.02")) / 3600


def test_a_price_change_at_launch_or_at_the_end_makes_no_empty_segment():
    bill = compute([launch()], [end(600)], [price(0.03), price(0.9, 600)])
    assert bill.cost == Fraction("0.03") / 6
    assert len(bill.instances[0].usages[0].paid) == 1


def test_the_minimum_is_paid_at_the_prices_of_the_minute_it_covers():
    bill = compute([launch()], [end(10)], [price(0.36), price(0.72, 30)])
    assert bill.cost == 30 * Fraction("0.36") / 3600 + 30 * Fraction("0.72") / 3600


def test_assumed_prices_are_named():
    early = compute([launch()], [end(600)], [price(0.03, 60)])
    assert early.cost == Fraction("0.03") / 6
    assert any("taken for the time before it" in note for note in early.notes)
    silent = compute([launch()], [end(3600)])
    highest = builtin().spot_range(TYPE, "us-east-1")[1].usd_per_hour
    assert silent.cost == Fraction(repr(highest))
    assert any("highest spot price" in note for note in silent.notes)
    unknown = compute([launch(instance_type="x1.own")], [end(3600)])
    assert unknown.cost == 0
    assert any("none found" in note for note in unknown.notes)


def test_a_running_instance_is_billed_up_to_the_moment_of_the_bill():
    bill = compute([launch()], [end(5000)], [price(0.036)], as_of=1000)
    assert bill.cost == Fraction("0.01")
    assert bill.instances[0].running
    assert compute([launch(seconds=1000)], [], [], as_of=1000).instances == ()


def test_a_job_pays_from_assignment_to_release_and_the_fleet_pays_the_rest():
    launches = [launch(), launch("i-2", Market.ON_DEMAND)]
    bill = compute(launches, [end(720, interrupted=False), end(1300, "i-2")], [price(0.036)], interrupted_job())
    per_second = Fraction("0.036") / 3600
    job = bill.jobs[0]
    assert job.cost == 520 * per_second + 560 * LISTED / 3600
    assert sum(u.cost for u in bill.idle) == 200 * per_second + (1300 - 560) * LISTED / 3600
    assert job.cost + sum(u.cost for u in bill.idle) == bill.cost


def test_a_job_on_an_instance_that_the_ledger_does_not_know_is_named():
    bill = compute([launch()], [], [price(0.036)], {"job-1": [event(EventKind.ASSIGNED, 0, iid="i-9")]}, as_of=400)
    assert bill.jobs[0].cost == 0
    assert any("no launch is recorded of i-9" in note for note in bill.notes)


def test_the_bill_notes_what_the_free_first_hour_waives():
    (usage,) = compute([launch()], [end(1800, interrupted=True)], [price(0.04)]).usages
    assert (usage.cost, usage.waived) == (0, Fraction("0.02"))
    (usage,) = compute([launch()], [end(1800)], [price(0.04)]).usages
    assert (usage.cost, usage.waived) == (Fraction("0.02"), 0)


def test_two_jobs_never_pay_for_the_same_second():
    first = [event(EventKind.ASSIGNED, 0)]
    second = [event(EventKind.ASSIGNED, 50, job="job-2"), event(EventKind.FINISHED, 80, job="job-2")]
    bill = compute([launch()], [end(100)], [price(0.036)], {"job-1": first, "job-2": second})
    assert [float(j.cost) for j in bill.jobs] == [0.0005, 0.0003]
    assert bill.cost == Fraction("0.001")


def test_savings_may_be_negative_or_undefined():
    assert savings_percent(Fraction(3), Fraction(2)) == -50
    assert savings_percent(Fraction(1), Fraction(4)) == 75
    assert savings_percent(Fraction(1), Fraction(0)) is None


@pytest.mark.parametrize(
    ("amount", "shown"), [("0.005", "0.01"), ("0.0049", "0.00"), ("-0.005", "-0.01"), ("1.455", "1.46"), ("2", "2.00")]
)
def test_money_is_rounded_for_display_only_half_away_from_zero(amount, shown):
    assert str(rounded(Fraction(amount))) == shown


def job_spending(events, **kwargs):
    defaults = {
        "submitted_at": T0,
        "now": at(1000),
        "launches": {"i-1": launch()},
        "ends": {},
        "prices": PriceBook([price(0.036)], builtin()),
        "catalogue": builtin(),
        "rules": BILLING,
    }
    return spent(events, **(defaults | kwargs))


def test_spent_agrees_with_the_bill_of_the_same_job():
    events, ends = interrupted_job()["job-1"], {"i-1": end(720), "i-2": end(1300, "i-2")}
    launches = {"i-1": launch(), "i-2": launch("i-2", Market.ON_DEMAND)}
    job_spent = job_spending(events, now=at(2000), launches=launches, ends=ends)
    whole = compute(launches.values(), ends.values(), [price(0.036)], {"job-1": events}, as_of=2000)
    assert job_spent.dollars == pytest.approx(float(whole.jobs[0].cost))
    assert job_spent.wall_clock == timedelta(seconds=2000)


def test_spent_counts_gpu_hours_and_reads_the_assignment_where_the_launch_is_not_recorded_yet():
    events = [event(EventKind.ASSIGNED, 0, instance_type="g4dn.12xlarge", zone=ZONE, market="on-demand")]
    job_spent = job_spending(events, launches={}, now=at(1800))
    assert job_spent.gpu_hours == 2
    assert job_spent.dollars == pytest.approx(3.912 / 2)


def test_a_free_instance_costs_the_budget_nothing():
    events = [event(EventKind.ASSIGNED, 0), event(EventKind.LOST, 500)]
    assert job_spending(events, ends={"i-1": end(500, interrupted=True)}).dollars == 0
