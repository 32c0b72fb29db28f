"""Anomalies: each kind at its bounds, norms that one expensive day does not move, and messages that are sent once."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from statistics import median

import pytest
from everspot_core.capacity.market import Market, PoolKey
from everspot_core.costs.ledger import PricePoint
from everspot_core.governance.anomalies import (
    KEPT,
    Anomalies,
    AnomalyKind,
    DailySpending,
    Finding,
    IdleInstance,
    StandingInstance,
    daily_norm,
    expensive_pools,
    expensive_teams,
    idle_fleet,
    long_jobs,
    orphaned_capacity,
)
from everspot_core.governance.thresholds import Thresholds
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobRecord, JobState
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 3, 30, 12, tzinfo=UTC)
TODAY = NOW.date()
HOUR = timedelta(hours=1)


def job(held_hours: float, expected: str | None, state: JobState = JobState.RUNNING):
    spec = JobSpec(name="j", recipe="image-classification", expected_duration=expected)
    begun = NOW - timedelta(hours=held_hours)
    owned = {"owner": "i-1", "assigned_at": begun} if state.owned else {}
    record = JobRecord(job_id="j", state=state, epoch=1, changed_at=begun, held_seconds=0.0, **owned)
    return JobSubmission(job_id="j", spec=spec, submitted_at=begun), record


@pytest.mark.parametrize(
    ("long_job", "is_reported"),
    [
        (job(4, "2h"), False),
        (job(4.01, "2h"), True),
        (job(400, None), False),
        (job(9, "2h", JobState.SUCCEEDED), False),
        ((job(9, "2h")[0], None), False),
    ],
)
def test_a_job_is_over_its_estimate_beyond_twice_what_its_author_expected(long_job, is_reported):
    findings = long_jobs([long_job], NOW)
    assert bool(findings) is is_reported
    if is_reported:
        assert findings[0].words == "job j has held instances for 4h1m, 2.0 times its expected duration of 2h"
        assert findings[0].figures == {"held_hours": 4.01, "expected_hours": 2.0}


def days(*dollars: float, team: str = "vision") -> dict[date, dict[str, float]]:
    """The last of them is today's."""
    return {TODAY - timedelta(days=n): {team: usd} for n, usd in enumerate(reversed(dollars))}


@pytest.mark.parametrize(
    ("spent", "is_reported"),
    [
        (days(*[100.0] * 7, 150.0), False),  # half more than ever is the norm's end
        (days(*[100.0] * 7, 150.01), True),
        (days(*[100.0] * 6, 1000.0), False),  # six days are no norm
        (days(*[0.0] * 20, *[100.0] * 6, 1000.0), False),  # days before its first dollar do not count either
        (days(*[1.0] * 10, 5.9), False),  # dollars that nobody minds
        (days(*[1.0] * 10, 6.1), True),
        (days(*[100.0] * 10, 400.0, 3.0), True),  # yesterday counts until today is over
        (days(*[100.0] * 10, 400.0, 3.0, 3.0), False),
        (days(*[80.0, 120.0] * 5, 215.0), False),  # they differ by 40 every day: four spreads are 119
        (days(*[80.0, 120.0] * 5, 225.0), True),
        (days(*[200.0, *[0.0] * 6] * 4, 200.0), False),  # once a week
        (days(*[200.0, *[0.0] * 6] * 4, 301.0), True),
        (days(2.0, *[0.0] * 27, 200.0), True),
        (days(*[100.0] * 7, 900.0, team=""), False),  # boot and idling are no team
    ],
)
def test_a_team_is_over_its_norm_by_what_its_days_let_expect(spent, is_reported):
    assert [f.subject for f in expensive_teams(spent, TODAY)] == (["vision"] if is_reported else [])


def test_a_team_over_its_norm_is_told_with_its_figures():
    (finding,) = expensive_teams(days(*[100.0] * 10, 1300.0, 400.0), TODAY)
    assert (
        finding.words
        == "team vision has spent $1,300.00 on 2026-03-29; its usual day is $100.00, and its norm ends at $150.00"
    )
    assert finding.figures == {"spent_usd": 1300.0, "usual_usd": 100.0, "norm_usd": 150.0}


@given(st.lists(st.floats(0, 1e6), min_size=7, max_size=28), st.floats(1e6, 1e12))
def test_one_dear_day_moves_a_norm_by_no_more_than_a_day_of_the_usual_kind(usual, dear):
    """A mean would follow the outlier. With a robust norm the second expensive day is reported as well."""
    calm, after = daily_norm(usual), daily_norm([*usual, dear])
    assert after[0] <= max(usual)
    assert calm[1] >= calm[0] + 5
    assert median(usual) == calm[0]


def test_a_fleet_is_idle_when_most_of_it_has_been_for_long():
    long, short = NOW - 2 * HOUR, NOW - HOUR
    assert idle_fleet([], NOW) == []
    assert idle_fleet([IdleInstance(1.0, long), IdleInstance(1.0, None)], NOW) == [], "half of it is not most"
    assert idle_fleet([IdleInstance(1.0, short)], NOW) == []
    (finding,) = idle_fleet([IdleInstance(1.5, long), IdleInstance(None, long), IdleInstance(9.0, short)], NOW)
    assert finding.words == "2 of 3 instances have had no work for 2h or longer: at least $1.50 an hour"


def test_a_pool_is_dear_at_twice_its_month():
    pool = PoolKey("c6i.large", "us-east-1a", Market.SPOT)

    def points(*prices: tuple[float, float]) -> list[PricePoint]:
        return [
            PricePoint(**pool._asdict(), at=NOW - timedelta(days=d), usd_per_hour=usd, source="t") for d, usd in prices
        ]

    assert expensive_pools([pool], points((40, 0.05), (1, 0.1)), NOW) == [], "0.1 is less than twice the mean of 0.0517"
    (finding,) = expensive_pools([pool], points((40, 0.05), (1, 0.11)), NOW)
    assert (finding.kind, finding.subject) == (AnomalyKind.POOL_PRICE, "c6i.large in us-east-1a, spot")
    assert finding.figures["mean_usd_per_hour"] == pytest.approx((29 * 0.05 + 0.11) / 30)
    assert expensive_pools([pool], points((2, 0.01), (0.1, 0.5)), NOW) == [], "two days tell no month"
    assert expensive_pools([], points((40, 0.05), (1, 0.5)), NOW) == []


def test_each_threshold_moves_where_its_anomaly_begins():
    long = [IdleInstance(1.0, NOW - HOUR), IdleInstance(1.0, NOW - HOUR), IdleInstance(1.0, None)]
    pool = PoolKey("c6i.large", "us-east-1a", Market.SPOT)
    dear = [
        PricePoint(**pool._asdict(), at=NOW - timedelta(days=d), usd_per_hour=usd, source="t")
        for d, usd in ((40, 0.05), (1, 0.11))
    ]
    spent = days(*[100.0] * 10, 180.0)
    looks = {
        "job": lambda beyond: long_jobs([job(5, "2h")], NOW, beyond),
        "team": lambda beyond: expensive_teams(spent, TODAY, beyond),
        "idle": lambda beyond: idle_fleet(long, NOW, beyond),
        "price": lambda beyond: expensive_pools([pool], dear, NOW, beyond),
    }
    higher = {
        "job_times": 3,
        "team_share": 1,
        "team_usd": 90,
        "idle_for": 2 * HOUR,
        "idle_share": 0.7,
        "price_times": 3,
    }
    base = Thresholds(idle_for=HOUR)
    assert all(look(base) for look in looks.values()), "each is found"
    for name, value in higher.items():
        beyond = base.model_copy(update={name: value})
        assert [kind for kind, look in looks.items() if not look(beyond)] == [name.partition("_")[0]]
    spread = days(*[80.0, 120.0] * 5, 225.0)
    assert expensive_teams(spread, TODAY) and not expensive_teams(spread, TODAY, Thresholds(team_spreads=5))


def test_what_is_found_again_is_open_since_its_first_time_and_over_when_it_is_not():
    finding = Finding(AnomalyKind.IDLE_FLEET, "fleet", "2 of 3", {"idle": 2.0})
    first = Anomalies(scheduler_id="s", updated_at=NOW).followed([finding], NOW)
    again = first.followed([Finding(AnomalyKind.IDLE_FLEET, "fleet", "3 of 3")], NOW + HOUR)
    assert again.open == first.open, "what a person was told stays as it was told"
    over = Anomalies.read(again.to_json()).followed([], NOW + 2 * HOUR)
    assert (over.open, [(a.since, a.over_at) for a in over.over]) == ([], [(NOW, NOW + 2 * HOUR)])
    assert over.followed([finding], NOW + 3 * HOUR).open[0].since == NOW + 3 * HOUR
    for n in range(KEPT + 5):
        over = over.followed([finding] if n % 2 == 0 else [], NOW)
    assert len(over.over) <= KEPT


def test_an_open_anomaly_is_opened_anew_when_one_of_its_figures_has_doubled():
    """A day of $200 does not silence one of $9,000."""
    spending = days(*[100.0] * 10, 200.0)
    anomalies = Anomalies(scheduler_id="s", updated_at=NOW).followed(expensive_teams(spending, TODAY), NOW)
    words = []
    for hour, usd in enumerate((399.0, 5000.0, 9000.0, 10000.0), start=1):
        spending[TODAY] = {"vision": usd}
        anomalies = anomalies.followed(expensive_teams(spending, TODAY), NOW + hour * HOUR)
        words.append([anomaly.figures["spent_usd"] for anomaly in anomalies.open])
    assert words == [[200.0], [5000.0], [5000.0], [10000.0]]
    ended = [(anomaly.figures["spent_usd"], anomaly.over_at) for anomaly in anomalies.over]
    assert ended == [(200.0, NOW + 2 * HOUR), (5000.0, NOW + 4 * HOUR)]


def test_days_are_replaced_by_newer_sums_and_forgotten_when_no_norm_needs_them():
    daily_spending = DailySpending(updated_at=NOW, days={date(2026, 1, 1): {"a": 1.0}, TODAY: {"a": 1.0}})
    read_back = DailySpending.read(daily_spending.with_days({TODAY: {"a": 2.0}}, NOW).to_json())
    assert read_back.days == {TODAY: {"a": 2.0}}


ORPHAN = StandingInstance("i-1", "fleet-9", "agent", NOW - timedelta(hours=1), 0.5)


@pytest.mark.parametrize(
    ("instances", "subjects", "usd"),
    [
        ([ORPHAN], ["fleet-9"], 0.5),
        ([ORPHAN, replace(ORPHAN, instance_id="i-2")], ["fleet-9"], 1.0),
        ([replace(ORPHAN, part_of="fleet-1")], [], 0),
        ([replace(ORPHAN, part_of="")], ["i-1"], 0.5),
        ([replace(ORPHAN, usd_per_hour=None)], ["fleet-9"], 0.0),
        ([replace(ORPHAN, launched_at=NOW - timedelta(minutes=14))], [], 0),  # an update may be about to declare it
        ([replace(ORPHAN, part_of="group-2", role="scheduler"), ORPHAN], ["fleet-9", "group-2"], 0.5),
    ],
)
def test_capacity_that_no_stack_declares_is_found_with_its_cost(
    instances: list[StandingInstance], subjects: list[str], usd: float
) -> None:
    findings = orphaned_capacity(instances, ["fleet-1", "group-1"], NOW)
    assert [finding.subject for finding in findings] == subjects
    assert not findings or findings[0].figures["usd_per_hour"] == usd
    assert all("belongs to no stack" in finding.words and "an hour" in finding.words for finding in findings)
