"""Budgets of teams and of the environment: their periods, the spending by the bill's rules, and the jobs that may
run."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from cost_helpers import T0, at, compute, end, interrupted_job, launch, price
from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.attempts import attempts
from everspot_core.costs.occupancy import Tenure, in_order
from everspot_core.costs.prices import PriceBook
from everspot_core.costs.team_budgets import (
    ENVIRONMENT,
    Allowance,
    Amount,
    Budgets,
    Caps,
    Commitment,
    Period,
    Unit,
    add,
    cap_uses,
    committed,
    forecast,
    spending,
    spent,
)
from everspot_core.jobs.records import Market
from hypothesis import given, settings
from test_core_cost_properties import moments, worlds


@pytest.mark.parametrize(
    ("moment", "day", "month"),
    [
        ("2026-05-17T13:05:00+00:00", ("2026-05-17", "2026-05-18"), ("2026-05-01", "2026-06-01")),
        ("2026-12-31T23:59:59+00:00", ("2026-12-31", "2027-01-01"), ("2026-12-01", "2027-01-01")),
        ("2028-02-29T00:00:00+00:00", ("2028-02-29", "2028-03-01"), ("2028-02-01", "2028-03-01")),
        ("2026-05-01T01:00:00+02:00", ("2026-04-30", "2026-05-01"), ("2026-04-01", "2026-05-01")),
    ],
)
def test_days_and_months_are_those_of_the_calendar_in_utc(moment, day, month) -> None:
    for period, span in ((Period.DAY, day), (Period.MONTH, month)):
        edges = [edge(datetime.fromisoformat(moment)) for edge in (period.begin, period.end)]
        assert edges == [datetime.fromisoformat(d).replace(tzinfo=UTC) for d in span]


def count(launches, ends, points, events, now, *, cuts=()) -> dict[tuple[date, str], Amount]:
    """Return the spending of every instance, with a job's name as its team; computed in several steps if `cuts` is
    given."""
    book, ended = PriceBook(points, builtin()), {e.instance_id: e for e in ends}
    amounts: dict[tuple[date, str], Amount] = {}
    for launch_record in launches:
        if launch_record.launched_at >= now:
            continue
        tenures = in_order(
            Tenure(job, a.start, a.end or now)
            for job, own in events.items()
            for a in attempts(own)
            if a.instance_id == launch_record.instance_id
        )
        for since, until in pairwise(
            [launch_record.launched_at, *(c for c in cuts if launch_record.launched_at < c < now), now]
        ):
            settings = {"gpus": 2, "book": book, "rules": BILLING, "since": since, "now": until}
            add(amounts, spending(launch_record, ended.get(launch_record.instance_id), tenures, **settings))
    return amounts


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(worlds(), moments)
def test_what_is_spent_is_what_is_billed_to_each_team_and_to_all(world, as_of) -> None:
    launches, ends, points, events = world
    bill = compute(launches, ends, points, events, as_of)
    amounts = count(launches, ends, points, events, at(as_of))
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    assert spent(amounts, ENVIRONMENT, begin).dollars == pytest.approx(float(bill.cost))
    for job in bill.jobs:
        assert spent(amounts, job.job_id, begin).dollars == pytest.approx(float(job.cost))
        job_seconds = sum(float(u.seconds) for u in job.usages)
        assert spent(amounts, job.job_id, begin).gpu_hours == pytest.approx(2 * job_seconds / 3600)


def test_what_is_reckoned_in_parts_is_the_same_as_what_is_reckoned_at_once() -> None:
    world = [launch("i-1"), launch("i-2", Market.ON_DEMAND)], [end(60_000, "i-1")], [price(0.04), price(0.05, 3000)]
    once = count(*world, interrupted_job(), at(100_000))
    parts = count(*world, interrupted_job(), at(100_000), cuts=[at(s) for s in (300, 7200, 50_000)])
    assert {k: (pytest.approx(a.dollars), pytest.approx(a.gpu_hours)) for k, a in once.items()} == {
        k: (a.dollars, a.gpu_hours) for k, a in parts.items()
    }
    assert sorted({day for day, _ in once}) == [date(2026, 3, 1), date(2026, 3, 2)], "T0 is noon"


def test_spot_that_the_cloud_takes_in_its_first_hour_takes_gpu_hours_and_no_dollars() -> None:
    amounts = count([launch()], [end(1800, interrupted=True)], [price(0.04)], {}, at(7200))
    assert amounts == {(T0.date(), ENVIRONMENT): Amount(0.0, 1.0)}


def test_a_cap_knows_its_period_and_whose_jobs_spend_of_it() -> None:
    day, other = T0.date(), T0.date() - timedelta(days=1)
    amounts = {(day, "vision"): Amount(3, 1), (other, "vision"): Amount(50, 9), (day, ENVIRONMENT): Amount(1, 0)}
    caps = Budgets(
        environment=Caps(month=Allowance(dollars=100)), teams={"vision": Caps(day=Allowance(dollars=3, gpu_hours=2))}
    )
    env, dollars, hours = cap_uses(caps, amounts, T0)
    assert (env.spent, env.cap, env.until, env.empty) == (4, 100, datetime(2026, 4, 1, tzinfo=UTC), False)
    assert (dollars.spent, dollars.until, dollars.empty) == (3, datetime(2026, 3, 2, tzinfo=UTC), True)
    assert (hours.spent, hours.unit, hours.empty) == (1, Unit.GPU_HOURS, False)
    assert [p.concerns("speech") for p in (env, dollars)] == [True, False]
    assert cap_uses(Budgets(), amounts, T0) == ()


def test_a_cap_that_is_taken_away_leaves_nothing_of_its_team() -> None:
    with_cap = Budgets().changed("vision", Caps(day=Allowance(dollars=0)), T0, "ann")
    assert [limit[0] for limit in with_cap.limits()] == ["vision"]
    none = with_cap.changed("vision", Caps(), at(1), "bob")
    assert (none.teams, none.changed_at, none.changed_by) == ({}, at(1), "bob")
    assert not list(none.limits())


def test_what_runs_is_committed_until_it_ends_or_the_period_does() -> None:
    runs = [
        Commitment(team="vision", usd_per_hour=2, gpus=4, until=T0 + timedelta(hours=3)),
        Commitment(team="speech", usd_per_hour=1, gpus=1, until=T0 + timedelta(hours=100)),
    ]
    tonight = T0 + timedelta(hours=12)
    assert committed(runs, "vision", Unit.DOLLARS, T0, tonight) == 6
    assert committed(runs, "vision", Unit.GPU_HOURS, T0, tonight) == 12
    assert committed(runs, ENVIRONMENT, Unit.DOLLARS, T0, tonight) == 18


@pytest.mark.parametrize(
    ("already", "bound", "lately", "hours", "expected"),
    [(10, 2, 24, 12, 22), (10, 20, 24, 12, 30), (10, 0, 0, 12, 10), (10, 2, 24, 0, 12)],
)
def test_a_forecast_goes_on_as_of_late_and_never_below_what_is_committed(
    already, bound, lately, hours, expected
) -> None:
    assert forecast(already, bound, lately, timedelta(hours=24), timedelta(hours=hours)) == expected
