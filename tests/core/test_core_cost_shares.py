"""The bill of shared instances: each job pays its share, the fleet pays the rest, and the parts add up to the whole."""

from fractions import Fraction

import pytest
from cost_helpers import T0, TYPE, ZONE, at, compute, end, event, launch, price
from everspot_clouds.aws.rules import BILLING
from everspot_core.capacity.catalogue import builtin
from everspot_core.costs.attempts import attempts
from everspot_core.costs.job_budget import spent
from everspot_core.costs.occupancy import Tenure, in_order, parts
from everspot_core.costs.prices import PriceBook, rounded
from everspot_core.costs.team_budgets import ENVIRONMENT, spending
from everspot_core.jobs.records import Event, EventKind
from hypothesis import given
from hypothesis import strategies as st

HOUR = 3600


def seated(job: str, start: float, until: float | None, share: float | None, gpus: int = 0, **kw) -> list[Event]:
    data = {} if share is None else {"share": share, "gpus": gpus}
    events = [event(EventKind.ASSIGNED, start, job=job, instance_type=TYPE, zone=ZONE, market="spot", **data, **kw)]
    return events if until is None else [*events, event(EventKind.FINISHED, until, job=job, step=1, **kw)]


def test_four_quarters_and_what_is_left_are_what_the_instance_cost():
    events = {n: seated(n, 0.25 * HOUR * i, HOUR, 0.25) for i, n in enumerate("abcd")}
    bill = compute([launch()], [end(2 * HOUR)], [price(0.04)], events)
    assert bill.cost == Fraction("0.08")
    assert [job.cost for job in bill.jobs] == [Fraction("0.01") * Fraction(4 - i, 4) for i in range(4)]
    assert sum(job.cost for job in bill.jobs) + sum(u.cost for u in bill.idle) == bill.cost
    assert [float(u.seconds) for u in bill.jobs[1].usages] == [0.75 * HOUR], "a part is not cut by who comes beside it"
    assert sum(u.instance_seconds for u in bill.usages) == 2 * HOUR


def test_what_a_budget_counts_is_what_the_bill_says():
    events = {"a": seated("a", 0, HOUR, 0.25, gpus=1), "b": seated("b", 100, None, 0.5, gpus=2)}
    bill = compute([launch()], [], [price(0.04), price(0.08, 1800)], events, as_of=2 * HOUR)
    for job in bill.jobs:
        used = spent(
            events[job.job_id], submitted_at=T0, now=at(2 * HOUR), launches={"i-1": launch()}, ends={},
            prices=PriceBook([price(0.04), price(0.08, 1800)], builtin()), catalogue=builtin(), rules=BILLING,
        )  # fmt: skip
        assert used.dollars == pytest.approx(float(job.cost), abs=1e-12)
        seconds = float(sum(u.seconds for u in job.usages))
        assert used.gpu_hours == pytest.approx(seconds / HOUR * {"a": 1, "b": 2}[job.job_id])


def test_a_team_pays_the_shares_of_its_jobs():
    tenures = in_order([Tenure("x", at(0), at(HOUR), Fraction(1, 4)), Tenure("y", at(0), at(HOUR), Fraction(1, 2))])
    book = PriceBook([price(0.04)], builtin())
    amounts = spending(launch(), end(HOUR), tenures, gpus=4, book=book, rules=BILLING, since=T0, now=at(2 * HOUR))
    by_team = {team: (round(a.dollars, 9), a.gpu_hours) for (_, team), a in amounts.items()}
    assert by_team == {"x": (0.01, 1.0), "y": (0.02, 2.0), ENVIRONMENT: (0.01, 1.0)}
    assert sum(a.dollars for a in amounts.values()) == pytest.approx(0.04)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.fractions(0, 1, max_denominator=8)), max_size=4).filter(
        lambda seats: sum(gpus for gpus, _ in seats) <= 8
    ),
    st.integers(1, 40),
)
def test_gpu_hours_are_those_of_the_seats_whatever_part_of_the_cost_they_pay(
    seats: list[tuple[int, Fraction]], hours: int
) -> None:
    """A job with 7 of 8 GPUs that follows one with most of the memory has 7 GPU-hours an hour, and not its share's.
    Shares that are more than 1 together are cut, later seats first; GPUs are not."""
    end_at = at(hours * HOUR)
    tenures = in_order([Tenure(f"t{n}", at(0), end_at, share, gpus) for n, (gpus, share) in enumerate(seats)])
    book = PriceBook([price(0.04)], builtin())
    amounts = spending(launch(), None, tenures, gpus=8, book=book, rules=BILLING, since=T0, now=end_at)
    by_team: dict[str, float] = {}
    for (_, team), amount in amounts.items():
        by_team[team] = by_team.get(team, 0.0) + amount.gpu_hours
    assert sum(by_team.values()) == pytest.approx(8 * hours)
    for n, (gpus, _) in enumerate(seats):
        assert by_team.get(f"t{n}", 0.0) == pytest.approx(gpus * hours)
    unpaid, dollars = Fraction(1), {}
    for n, (_, share) in reversed(list(enumerate(seats))):
        dollars[f"t{n}"] = float(min(share, unpaid)) * 0.04 * hours
        unpaid -= min(share, unpaid)
    for team, usd in dollars.items():
        paid = sum(amount.dollars for (_, payer), amount in amounts.items() if payer == team)
        assert paid == pytest.approx(usd)


@pytest.mark.parametrize(
    ("event_data", "share"),
    [({}, 1), ({"share": 0.25}, Fraction(1, 4)), ({"share": 0}, 0), ({"share": 7}, 1), ({"share": "x"}, 1)],
)
def test_a_share_that_is_none_is_the_whole(event_data, share):
    (attempt,) = attempts([event(EventKind.ASSIGNED, 0, **event_data)])
    assert attempt.share == share


def test_exclusive_tenure_overrides_overlapping_shares():
    events = {"a": seated("a", 0, 700, 0.5), "x": seated("x", 600, 900, None), "b": seated("b", 890, 1000, 0.5)}
    bill = compute([launch()], [end(1000)], [price(0.036)], events)
    assert {j.job_id: float(j.cost) for j in bill.jobs} == pytest.approx({"a": 0.003, "x": 0.0029, "b": 0.00055})


moments = st.integers(0, 200)
shares = st.sampled_from([Fraction(n, 8) for n in (1, 2, 3, 5, 8)])


@given(st.lists(st.tuples(st.sampled_from("abcd"), moments, moments, shares), max_size=9), moments)
def test_at_each_moment_the_shares_add_up_to_one(claims, life):
    tenures = in_order(Tenure(n, at(s), at(s + d), share) for n, s, d, share in claims)
    intervals = parts(T0, at(life), BILLING.minimum, tenures)
    whole = sum(((p.end - p.start).total_seconds() * p.share for p in intervals), Fraction(0))
    assert whole == max(life, 60)
    for moment in {piece.start for piece in intervals}:
        assert sum(p.share for p in intervals if p.start <= moment < p.end) == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), moments, moments, st.floats(0, 1)), max_size=6))
def test_to_the_cent_the_jobs_and_the_rest_are_the_instance(claims):
    events: dict[str, list[Event]] = {}
    for epoch, (name, start, span, share) in enumerate(claims, 1):
        own = seated(name, start * 100, start * 100 + span * 100, share, epoch=epoch)
        events[name] = [
            *events.get(name, []),
            *own[:1],
            event(EventKind.LOST, start * 100 + span * 100, epoch, job=name),
        ]
    bill = compute([launch()], [end(30_000)], [price(0.0404), price(0.0701, 9_000)], events)
    assert sum((j.cost for j in bill.jobs), Fraction(0)) + sum((u.cost for u in bill.idle), Fraction(0)) == bill.cost
    assert bill.cost == compute([launch()], [end(30_000)], [price(0.0404), price(0.0701, 9_000)]).cost
    assert rounded(bill.cost, 2) == rounded(sum((u.cost for u in bill.usages), Fraction(0)), 2)


def test_a_seat_with_all_gpus_pays_for_the_instance_beside_a_seat_that_pays_nothing() -> None:
    """The share of the first is 1, which is not the whole instance: a job without GPUs fits beside it."""
    events = {"all": seated("all", 0, 1000, 1.0, gpus=4), "none": seated("none", 500, 1000, 0.0, gpus=0)}
    bill = compute([launch()], [end(1000)], [price(0.036)], events)
    assert {job.job_id: float(job.cost) for job in bill.jobs} == pytest.approx({"all": 0.01, "none": 0.0})
