"""The ledger as hourly rows: every second has one kind, and every dollar of the bill is in one row."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from cost_helpers import T0, at, compute, end, event, interrupted_job, launch, price
from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.bill import bill
from everspot_core.costs.ledger import UNKNOWN
from everspot_core.governance.month import Month
from everspot_core.governance.usage import Sums, UsageKind, open_ended, usage_rows
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Market, Role
from everspot_core.jobs.visit_records import Away, Trip, TripEnd
from hypothesis import given, settings
from hypothesis import strategies as st
from operations import count_operations

PER_SECOND = Fraction("0.096") / 3600


def by_kind(rows):
    return {
        kind: Sums.sum_rows(r for r in rows if r.kind is kind).seconds
        for kind in UsageKind
        if any(r.kind is kind for r in rows)
    }


def effort(jobs: int) -> int:
    """The operations of the interpreter for the rows of an instance that so many jobs held, one after another."""
    events = {
        f"j-{n}": [
            event(EventKind.ASSIGNED, n * 9, job=f"j-{n}"),
            event(EventKind.FINISHED, n * 9 + 9, job=f"j-{n}", step=1),
        ]
        for n in range(jobs)
    }
    bill = compute([launch()], [], [price(0.04)], events, as_of=jobs * 9)
    return count_operations(lambda: usage_rows(bill))


def test_the_effort_grows_with_the_jobs_of_an_instance_and_not_with_their_square():
    assert effort(400) < 12 * effort(50)


def test_each_second_of_an_interrupted_job_has_its_kind():
    launches = [launch(), launch("i-2", seconds=630), launch("i-s", Market.ON_DEMAND, role=Role.SCHEDULER)]
    bill = compute(launches, [end(640), end(1300, "i-2")], [price(0.04)], interrupted_job(), as_of=2000)
    rows = usage_rows(bill, {"i-1": at(40), "i-2": at(690)})
    # i-1: boot 40, idle until 100, work until the notice at 600, lost until 620, idle until 640.
    # i-2: boot from 630 until 690, idle until 700, lost until 760, work until 1260, idle until 1300.
    assert by_kind(rows) == {
        UsageKind.WORK: 500 + 500, UsageKind.LOST: 20 + 60, UsageKind.BOOT: 40 + 60, UsageKind.IDLE: 60 + 20 + 10 + 40,
        UsageKind.SCHEDULER: 2000,
    }  # fmt: skip
    assert {(r.resource, r.epoch) for r in rows if r.job_id} == {("i-1", 1), ("i-2", 2)}


def test_hours_are_cut_at_the_full_hour_and_at_changes_of_price():
    rows = usage_rows(compute([launch(seconds=1800)], [end(9000)], [price(0.04), price(0.1, 5400)], as_of=9000))
    assert [(r.hour, r.seconds) for r in rows] == [(at(0), 1800), (at(3600), 3600), (at(7200), 1800)]
    assert rows[1].cost == (1800 * Fraction("0.04") + 1800 * Fraction("0.1")) / 3600


def test_unreported_instances_boot_and_reported_ones_idle():
    bill = compute([launch(market=Market.ON_DEMAND), launch("i-2", Market.ON_DEMAND)], as_of=600)
    assert by_kind(usage_rows(bill, {"i-2": at(100)})) == {UsageKind.BOOT: 700, UsageKind.IDLE: 500}


def test_what_shares_leave_is_a_row_of_its_own():
    events = {"a": [event(EventKind.ASSIGNED, 100, job="a", share=0.25), event(EventKind.TRAINING, 100, job="a")]}
    bill = compute([launch(market=Market.ON_DEMAND)], [], [], events, as_of=500)
    rows = usage_rows(bill)
    assert by_kind(rows) == {UsageKind.WORK: 100, UsageKind.BOOT: 100, UsageKind.SHARED: 300}
    assert Sums.sum_rows(rows).cost == 500 * PER_SECOND


def test_a_free_instance_costs_nothing_and_says_what_it_would_have_cost():
    rows = usage_rows(compute([launch()], [end(1800, interrupted=True)], [price(0.04)]))
    assert [(r.cost, r.waived, r.free) for r in rows] == [(0, Fraction("0.02"), True)]


def test_the_billed_minimum_after_a_short_life_is_in_the_rows():
    assert Sums.sum_rows(usage_rows(compute([launch(market=Market.ON_DEMAND)], [end(5)]))).seconds == 60


def test_time_without_a_known_price_is_counted_as_unknown():
    rows = usage_rows(compute([launch(instance_type="x9.none", market=Market.ON_DEMAND)], [end(100)]))
    assert [(r.unpriced_seconds, r.cost, r.is_exact) for r in rows] == [(100, 0, False)]


def test_an_instance_of_which_nobody_knows_how_long_it_ran_is_a_lower_bound():
    """Its end equals its launch; AWS bills at least 60 s."""
    launches = [launch(market=Market.ON_DEMAND), launch("i-2", Market.ON_DEMAND)]
    rows = usage_rows(compute(launches, [end(0, source=UNKNOWN), end(600, "i-2")]))
    assert [(r.resource, r.seconds, r.cost, r.is_exact, r.open_ended) for r in rows] == [
        ("i-1", 60, 60 * PER_SECOND, False, True),
        ("i-2", 600, 600 * PER_SECOND, True, False),
    ]
    assert (Sums.sum_rows(rows).is_exact, Sums.sum_rows(rows[1:]).is_exact) == (False, True)
    assert open_ended(rows) == ["i-1"]


def record(**fields) -> JobRecord:
    return JobRecord(job_id="job-1", state=JobState.PENDING, changed_at=T0, **fields)


def trip(seconds: float, end: TripEnd, **fields) -> Trip:
    return Trip(cluster="beta", visit=f"visit-{seconds}", number=1, since=T0, until=at(seconds), end=end, **fields)


def test_visits_are_rows_of_their_own_in_the_hour_of_their_end():
    records = {
        "job-1": record(
            trips=[
                trip(4000, TripEnd.RETURNED, usd=1.5, egress_usd=0.25, sent_bytes=2 * 10**9, brought_bytes=10**9),
                trip(5000, TripEnd.REFUSED),
                trip(8000, TripEnd.ENDED, usd=None),
            ]
        ),
        "job-2": record(away=Away(cluster="beta", visit="visit-x", number=2, since=T0, usd=0.125)),
    }
    rows = usage_rows(compute([], as_of=11_000), records=records)
    assert [(r.hour, r.kind, r.cost, r.is_exact, r.gigabytes) for r in rows] == [
        (at(3600), UsageKind.ABROAD, Fraction("1.5"), True, 0),
        (at(3600), UsageKind.EGRESS, Fraction("0.25"), True, 3),
        (at(7200), UsageKind.ABROAD, 0, False, 0),
        (at(10_800), UsageKind.ABROAD, Fraction("0.125"), True, 0),
    ]


moments = st.integers(0, 40_000).map(lambda tenths: tenths / 2)


@st.composite
def bills(draw):
    """Bills of random fleets, shares, losses and free instances, with clocks that may contradict each other."""
    ids = [f"i-{n}" for n in range(draw(st.integers(1, 3)))]
    role = st.sampled_from([Role.AGENT, Role.AGENT, Role.SCHEDULER])
    launches = [launch(i, draw(st.sampled_from(list(Market))), draw(moments), draw(role)) for i in ids]
    ends = [
        end(
            (launch_record.launched_at - T0).total_seconds() + draw(moments),
            launch_record.instance_id,
            draw(st.booleans()),
        )
        for launch_record in launches
        if draw(st.booleans())
    ]
    points = [price(draw(st.integers(1, 500)) / 1000, draw(moments)) for _ in range(draw(st.integers(0, 4)))]
    events = {job: _history(draw, ids, job) for job in ("job-1", "job-2")}
    computed_bill = bill(launches, ends, points, events, builtin(), at(draw(moments)), rules=BILLING)
    return computed_bill, {i: at(draw(moments)) for i in ids if draw(st.booleans())}


def _history(draw, ids, job):
    events = []
    for epoch in range(1, draw(st.integers(1, 4))):
        where, start = draw(st.sampled_from(ids)), draw(moments)
        share = draw(st.sampled_from([1, 0.5, 0.3]))
        events.append(event(EventKind.ASSIGNED, start, epoch, where, job, share=share))
        if draw(st.booleans()):
            events.append(event(EventKind.TRAINING, start + 5, epoch, where, job, from_step=epoch))
        if draw(st.booleans()):
            kind = draw(st.sampled_from([EventKind.LOST, EventKind.INTERRUPTED, EventKind.ERROR]))
            events.append(event(kind, start + draw(moments), epoch, where, job, step=3))
    return events


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(bills())
def test_the_rows_add_up_to_the_bill_exactly(drawn_bill):
    computed_bill, reported = drawn_bill
    rows = usage_rows(computed_bill, reported)
    sums = Sums.sum_rows(rows)
    assert (sums.cost, sums.on_demand_cost) == (computed_bill.cost, computed_bill.on_demand_cost)
    assert sums.seconds == sum(u.instance_seconds for u in computed_bill.usages)
    assert sums.waived == sum(u.waived for u in computed_bill.usages)
    for job in computed_bill.jobs:
        job_rows = [r for r in rows if r.job_id == job.job_id]
        assert Sums.sum_rows(job_rows).cost == job.cost
        useful = sum((u.useful_seconds * u.share for u in job.usages), Fraction(0))
        assert Sums.sum_rows(r for r in job_rows if r.kind is UsageKind.WORK).seconds == useful
    for row in rows:
        assert row.hour == row.hour.replace(minute=0, second=0, microsecond=0)
        assert 0 < row.seconds <= 3600
        assert (row.job_id is not None) == (row.kind in (UsageKind.WORK, UsageKind.LOST)) == (row.epoch is not None)
    assert len({(r.hour, r.resource, r.kind, r.job_id, r.epoch) for r in rows}) == len(rows)


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(bills(), moments)
def test_two_halves_of_the_time_are_the_whole(drawn_bill, middle):
    computed_bill, reported = drawn_bill
    cut = at(middle).replace(minute=0, second=0, microsecond=0)
    halves = usage_rows(computed_bill, reported, until=cut) + usage_rows(computed_bill, reported, since=cut)
    assert halves == usage_rows(computed_bill, reported)


def test_a_month_is_read_and_ends_where_the_next_begins():
    month = Month.parse("2026-12")
    assert (month.begin, month.end) == (datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert month.contains(month.begin) and not month.contains(month.end)
    assert month == Month.containing(month.end - timedelta(microseconds=1)) and month.name == "2026-12"
    assert month.over(month.end) and not month.over(month.end - timedelta(seconds=1))


@pytest.mark.parametrize(
    "text", ["2026-13", "2026-00", "26-10", "2026-1", "2026-10-01", "", "october", "0000-01", "9999-12"]
)
def test_what_is_no_month_is_refused(text):
    with pytest.raises(ValueError, match="is not a month, such as 2026-10"):
        Month.parse(text)
