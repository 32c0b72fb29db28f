"""Commitments: examples by hand, and properties of every advice: at most the floor, never at a loss, nothing for
Spot."""

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest
from everspot_clouds.registry import UnknownCloud, commitment_plans
from everspot_core.capacity.market import Market
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.governance.commitments import (
    LEAST_HOURS,
    YEAR_HOURS,
    CommitmentPlan,
    HourlyUse,
    Span,
    Sureness,
    advised,
    hourly_use,
    whole_use,
)
from everspot_core.governance.usage import UsageKind, UsageRow
from hypothesis import given
from hypothesis import strategies as st

T0 = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PLAN = CommitmentPlan(
    key="p-1y", name="P", years=1, scope=lambda kind, region: "all", source="s", as_of=date(2026, 1, 1)
)


def use(dollars, unit: float | None = None) -> HourlyUse:
    return HourlyUse(plan=PLAN, scope="all", dollars=tuple(map(float, dollars)), unit_usd=unit)


def test_steady_use_saves_its_discount_by_hand():
    advice = advised(use([2.0] * 720), 0.3)
    assert advice is not None
    assert (advice.covers_usd, advice.pays_usd, advice.break_even) == (2.0, pytest.approx(1.4), pytest.approx(0.7))
    assert (advice.utilisation, advice.worst_week, advice.sureness) == (1.0, 1.0, Sureness.FAIR)
    assert advice.saved_usd == pytest.approx(0.6 * 720) == advice.saved_last_month_usd
    assert advice.owed_usd == pytest.approx(1.4 * YEAR_HOURS)


def test_the_floor_bears_a_night_without_use_and_no_peaks():
    """720 hours: 30 without any use, which is less than a twentieth, and peaks on top of 3 dollars an hour."""
    hours = [3.0 + (5.0 if n % 7 == 0 else 0.0) for n in range(720)]
    hours[100:130] = [0.0] * 30
    advice = advised(use(hours), 0.3)
    assert advice is not None
    assert advice.covers_usd == 3.0
    assert advice.saved_usd == pytest.approx(3 * 690 - 3 * 0.7 * 720)
    assert advice.utilisation == pytest.approx(690 / 720)
    # The worst week has 168 - 30 hours of use, 82 %, which is above the break-even of 70 %.
    assert advice.worst_week == pytest.approx(138 / 168)
    assert advice.sureness is Sureness.FAIR
    assert advised(use(hours), 0.1).sureness is Sureness.LOW, "at 90 % that week would have been a loss"


def test_use_that_has_shrunk_counts_as_it_is_now():
    assert use([5.0] * 703 + [2.0] * 17).floor == 5.0, "less than a day is no trend"
    assert use([5.0] * 400 + [2.0] * 320).floor == 2.0
    # 30 hours are less than a twentieth of the month, and more than that of its later half; before, they were the past.
    assert use([5.0] * 690 + [2.0] * 30).floor == 2.0
    assert use([2.0] * 30 + [5.0] * 690).floor == 5.0
    assert advised(use([5.0] * 360 + [0.0] * 360), 0.5) is None


@pytest.mark.parametrize("days", [60, 90, 365])
def test_nothing_is_committed_to_that_is_not_in_use_any_more(days):
    """A fleet that was let go a day and a half ago: it had run in more than 95 % of the hours."""
    unused_hours = 36
    assert advised(use([10.0] * (24 * days - unused_hours) + [0.0] * unused_hours), 0.5) is None
    shrunk = advised(use([10.0] * (24 * days - unused_hours) + [4.0] * unused_hours), 0.5)
    assert shrunk is not None and shrunk.covers_usd == 4.0


def test_instances_are_committed_to_by_whole_numbers():
    advice = advised(use([2.9] * 720, unit=1.0), 0.4)
    assert advice is not None and (advice.units, advice.covers_usd) == (2, 2.0)
    assert advised(use([0.9] * 720, unit=1.0), 0.4) is None


def test_too_few_hours_are_no_ground_for_a_year():
    assert advised(use([2.0] * (LEAST_HOURS - 1)), 0.5) is None
    assert advised(use([2.0] * LEAST_HOURS), 0.5).sureness is Sureness.LOW
    assert advised(use([2.0] * 90 * 24), 0.5).sureness is Sureness.GOOD


@pytest.mark.parametrize("discount", [0.0, 1.0, -0.1, float("nan")])
def test_what_is_no_discount_is_refused(discount):
    with pytest.raises(ValueError, match="a discount lies between 0 and 1"):
        advised(use([1.0] * 720), discount)


@given(
    st.lists(st.integers(0, 8), min_size=14, max_size=40),
    st.floats(0.01, 0.99),
    st.one_of(st.none(), st.floats(0.3, 3)),
)
def test_no_advice_is_above_the_floor_or_at_a_loss(days, discount, unit):
    observed = use([float(n) for n in days for _ in range(24)], unit)
    advice = advised(observed, discount)
    if advice is None:
        return
    assert 0 < advice.covers_usd <= observed.floor + 1e-9
    reached = sum(hour >= advice.covers_usd - 1e-9 for hour in observed.dollars) / len(observed.dollars)
    assert reached >= 0.95
    assert advice.saved_usd > 0 and advice.utilisation > advice.break_even
    # Paying for the commitment and for what is above it is what was paid, less the saving.
    bill = sum(advice.pays_usd + max(0.0, hour - advice.covers_usd) for hour in observed.dollars)
    assert bill == pytest.approx(sum(observed.dollars) - advice.saved_usd)


def list_price(launch: LaunchRecord) -> float | None:
    return {"c6i.large": 0.1, "m6i.large": 0.2}.get(launch.instance_type)


@pytest.mark.parametrize("usd", [("0.15", "0.1"), ("0.05", "0.1"), ("0.1", "0.1")])
def test_a_change_of_the_list_price_changes_no_number_of_instances(usd):
    """Three instances in all hours; the price changes after the half of them. Today's is $0.10."""
    rows = [row(hour, Market.ON_DEMAND, usd[hour >= LEAST_HOURS // 2]) for hour in range(LEAST_HOURS) for _ in range(3)]
    (plan,) = [plan for plan in commitment_plans("aws") if plan.key == "reserved-1y"]
    (observed,) = hourly_use(rows, [plan], list_price, Span(T0, T0 + LEAST_HOURS * HOUR))
    advice = advised(observed, 0.4)
    assert advice is not None and advice.units == 3
    assert (advice.covers_usd, advice.saved_usd) == (pytest.approx(0.3), pytest.approx(0.3 * 0.4 * LEAST_HOURS))
    assert hourly_use(rows, [plan], lambda _: None, Span(T0, T0 + LEAST_HOURS * HOUR)) == []


def row(hour: int, market: Market, usd: str, kind="c6i.large", **more) -> UsageRow:
    launch = LaunchRecord(instance_id="i-1", instance_type=kind, zone="us-east-1a", market=market, launched_at=T0)
    values = {"kind": UsageKind.WORK, "seconds": Fraction(3600), "cost": Fraction(usd), **more}
    return UsageRow(hour=T0 + hour * HOUR, resource="i-1", launch=launch, **values)


def test_hours_hold_on_demand_use_alone_by_what_a_plan_covers():
    rows = [
        row(0, Market.ON_DEMAND, "0.1"), row(0, Market.ON_DEMAND, "0.2", "m6i.large"), row(2, Market.ON_DEMAND, "0.1"),
        row(1, Market.SPOT, "0.05"), row(1, Market.ON_DEMAND, "9", is_exact=False), row(9, Market.ON_DEMAND, "9"),
    ]  # fmt: skip
    plans = commitment_plans("aws")[:3]
    uses = {(u.plan.key, u.scope): u for u in hourly_use(rows, plans, list_price, Span(T0, T0 + 3 * HOUR))}
    assert {key: u.dollars for key, u in uses.items()} == {
        ("compute-1y", "all of EC2"): pytest.approx((0.3, 0.0, 0.1)),
        ("instance-1y", "c6i in us-east-1"): (0.1, 0.0, 0.1),
        ("instance-1y", "m6i in us-east-1"): (0.2, 0.0, 0.0),
        ("reserved-1y", "c6i.large in us-east-1"): (0.1, 0.0, 0.1),
        ("reserved-1y", "m6i.large in us-east-1"): (0.2, 0.0, 0.0),
    }
    assert uses["reserved-1y", "c6i.large in us-east-1"].unit_usd == pytest.approx(0.1)


def test_all_use_says_what_spot_already_saves():
    rows = [
        row(0, Market.ON_DEMAND, "0.1"),
        row(0, Market.SPOT, "0.03"),
        row(1, Market.SPOT, "0", waived=Fraction("0.03")),
    ]
    total_use = whole_use(rows, lambda launch: 0.1, Span(T0, T0 + 2 * HOUR))
    assert total_use is not None
    assert (total_use.floor_usd, total_use.spot_share, total_use.spot_discount) == (
        pytest.approx(0.1), pytest.approx(2 / 3), pytest.approx(0.7),
    )  # fmt: skip
    assert whole_use(rows, lambda launch: None, Span(T0, T0 + 2 * HOUR)) is None


def test_a_span_has_full_hours_of_the_cluster_alone():
    until = T0 + timedelta(days=40, minutes=30)
    assert Span.from_launch(T0 + timedelta(minutes=5), until, timedelta(days=90)) == Span(
        T0 + HOUR, T0 + timedelta(days=40)
    )
    assert Span.from_launch(T0, until, timedelta(days=30)).hours == 720
    assert Span.from_launch(until, until, timedelta(days=30)).hours == 0


@pytest.mark.parametrize(
    ("kind", "scopes"),
    [
        ("n2-standard-8", {"flexible-1y": "Compute Engine without GPUs", "resource-1y": "n2 in us-central1"}),
        ("g2-standard-4", {"resource-1y": "g2 in us-central1"}),
        ("n1-standard-8+t4", {"resource-1y": "n1 with t4 in us-central1"}),
        ("e2-small", {}),
    ],
)
def test_what_googles_plans_cover(kind, scopes):
    scope_by_plan = {p.key: p.scope(kind, "us-central1") for p in commitment_plans("gcp") if p.years == 1}
    assert {key: scope for key, scope in scope_by_plan.items() if scope is not None} == scopes


def test_every_plan_is_dated_and_has_its_source():
    for cloud in ("aws", "gcp", "folder"):
        plans = commitment_plans(cloud)
        assert len({p.key for p in plans}) == len(plans)
        for plan in plans:
            assert plan.source and plan.rates_at and plan.as_of <= date.today()  # noqa: DTZ011 - the table's own day
            assert plan.discount is None or 0 < plan.discount < 1
    with pytest.raises(UnknownCloud):
        commitment_plans("elsewhere")
