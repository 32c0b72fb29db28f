"""Finds anomalies: jobs far over their estimate, teams over their norm, idle fleets, expensive pools.

Each finding is a function of figures that a scheduler has anyway. A finding is open as long as it is found. So it is
reported once, and again only after it was over.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from statistics import median

from pydantic import Field

from everspot_core.capacity.market import PoolKey
from everspot_core.costs.baselines import price_and_mean
from everspot_core.costs.ledger import PricePoint
from everspot_core.counting import counted
from everspot_core.documents import Document, Stored, Utc, format_duration
from everspot_core.governance.thresholds import USUAL, Thresholds
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord

NORM_DAYS, LEAST_DAYS = 28, 7
"""The number of past days that a team's norm is computed from. A team with fewer days has no norm."""
MONTH, LEAST_PRICED = timedelta(days=30), timedelta(days=3)
"""The span of a pool's mean price, and the part of the span that has to be known."""
UPDATE_TAKES = timedelta(minutes=15)
"""Market time from the launch of a fleet's first instance until the update that made the fleet has ended."""
KEPT = 100
"""The most findings that are kept after they were over, the newest ones."""
_TO_SIGMA = 1.4826  # of a normal distribution, the standard deviation by the median absolute deviation


class AnomalyKind(StrEnum):
    """The kinds of findings."""

    JOB_OVER_ESTIMATE = "job-over-estimate"
    TEAM_OVER_NORM = "team-over-norm"
    IDLE_FLEET = "idle-fleet"
    POOL_PRICE = "pool-price"
    ORPHANED_CAPACITY = "orphaned-capacity"
    TYPE_SUSPENDED = "type-suspended"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        subject: the job, team or pool.
        figures: dollars, hours or counts, by name.
    """

    kind: AnomalyKind
    subject: str
    words: str
    figures: Mapping[str, float] = field(default_factory=dict)


class Anomaly(Stored):
    """A finding with its time. `kind` is text, because a newer release may know more kinds."""

    kind: str
    subject: str
    words: str = Field(description="For people, with the figures of the moment at which it was found first.")
    figures: dict[str, float] = Field(default_factory=dict)
    since: Utc
    over_at: Utc | None = Field(default=None, description="When it was found no more; None: it is open.")


class Anomalies(Document):
    """The document `ledger/anomalies.json`: the open anomalies, and the past ones."""

    scheduler_id: str
    updated_at: Utc
    open: list[Anomaly] = Field(default_factory=list)
    over: list[Anomaly] = Field(default_factory=list, description="The newest last.")

    def followed(self, findings: Iterable[Finding], now: datetime) -> "Anomalies":
        """Return the open and the past anomalies after another look. An open anomaly keeps its moment, its words and
        its figures until one of the figures has doubled. Then it is over, and another one is open since now, so that
        people hear of a day of $9,000 after one of $200."""
        by_key = {(f.kind.value, f.subject): f for f in findings}
        going_on = [a for a in self.open if (a.kind, a.subject) in by_key and not _doubled(a, by_key)]
        open_keys = {(a.kind, a.subject) for a in going_on}
        new = [
            Anomaly(kind=f.kind.value, subject=f.subject, words=f.words, figures=dict(f.figures), since=now)
            for key, f in sorted(by_key.items())
            if key not in open_keys
        ]
        ended = [a.model_copy(update={"over_at": now}) for a in self.open if (a.kind, a.subject) not in open_keys]
        return self.model_copy(update={"open": [*going_on, *new], "over": [*self.over, *ended][-KEPT:]})


def _doubled(anomaly: Anomaly, findings: Mapping[tuple[str, str], Finding]) -> bool:
    """Return whether one of the figures of an open anomaly is twice what it was."""
    now = findings[anomaly.kind, anomaly.subject].figures
    return any(now.get(name, 0.0) >= 2 * then for name, then in anomaly.figures.items() if then > 0)


class DailySpending(Document):
    """The document `ledger/spending.json`: dollars by day in UTC and team, as a scheduler has added them up. The empty
    team has the costs of no team: jobs without one, boot and idle time."""

    updated_at: Utc
    days: dict[date, dict[str, float]] = Field(default_factory=dict)

    def with_days(self, days: Mapping[date, Mapping[str, float]], now: datetime) -> "DailySpending":
        """Return a copy in which these days replace the known ones, without days that are too old for every norm."""
        first = now.date() - timedelta(days=NORM_DAYS + 2)
        merged = {day: dict(teams) for day, teams in {**self.days, **days}.items() if day >= first}
        return self.model_copy(update={"days": dict(sorted(merged.items())), "updated_at": now})


def over_estimate(
    submission: JobSubmission, record: JobRecord | None, now: datetime, beyond: Thresholds = USUAL
) -> bool:
    """Return whether a job that has not ended has held instances for far longer than its author expected."""
    expected = submission.spec.expected_duration
    held_for = record.held_time(now) if record is not None and not record.state.final else None
    return expected is not None and held_for is not None and held_for > beyond.job_times * expected


def long_jobs(
    jobs: Iterable[tuple[JobSubmission, JobRecord | None]], now: datetime, beyond: Thresholds = USUAL
) -> list[Finding]:
    """Return the jobs over their estimate."""
    findings = []
    for submission, record in jobs:
        expected, held_for = submission.spec.expected_duration, record.held_time(now) if record is not None else None
        if expected and held_for and over_estimate(submission, record, now, beyond):
            words = (
                f"job {submission.job_id} has held instances for {_span(held_for)}, {held_for / expected:.1f} times "
                f"its expected duration of {_span(expected)}"
            )
            hours = {"held_hours": _hours(held_for), "expected_hours": _hours(expected)}
            findings.append(Finding(AnomalyKind.JOB_OVER_ESTIMATE, submission.job_id, words, hours))
    return findings


def expensive_teams(days: Mapping[date, Mapping[str, float]], today: date, beyond: Thresholds = USUAL) -> list[Finding]:
    """Return the teams that have spent far more than usual today or yesterday, each with the more expensive day.

    `days`: dollars by day and team. A day that is missing between others had no spending. A team without LEAST_DAYS of
    days since its first dollar has no norm. The norm of a team that spends on few days is that of these days.
    """
    findings = []
    for team in sorted({team for teams in days.values() for team in teams} - {""}):
        near = (_dear_day(days, team, day, beyond) for day in (today, today - timedelta(days=1)))
        over = [hit for hit in near if hit is not None]
        if over:
            findings.append(max(over, key=lambda hit: hit.figures["spent_usd"]))
    return findings


def _dear_day(days: Mapping[date, Mapping[str, float]], team: str, day: date, beyond: Thresholds) -> Finding | None:
    spent = days.get(day, {}).get(team, 0.0)
    first = min((d for d, teams in days.items() if teams.get(team, 0.0) > 0), default=day)
    span = min(NORM_DAYS, (day - first).days)
    if span < LEAST_DAYS:
        return None
    before = [days.get(day - timedelta(days=n), {}).get(team, 0.0) for n in range(1, span + 1)]
    usual, most = daily_norm(before, beyond)
    if not usual and any(before):  # it spends on less than half of the days
        usual, most = daily_norm([dollars for dollars in before if dollars], beyond)
    if spent <= most:
        return None
    norm = f"its usual day is ${usual:,.2f}, and its norm ends at ${most:,.2f}"
    words = f"team {team} has spent ${spent:,.2f} on {day}; {norm}"
    return Finding(AnomalyKind.TEAM_OVER_NORM, team, words, {"spent_usd": spent, "usual_usd": usual, "norm_usd": most})


def daily_norm(days: Sequence[float], beyond: Thresholds = USUAL) -> tuple[float, float]:
    """Return the usual dollars of a day, and the most that is not over the norm."""
    usual = median(days)
    spread = _TO_SIGMA * median(abs(x - usual) for x in days)
    return usual, usual + max(beyond.team_spreads * spread, beyond.team_share * usual, beyond.team_usd)


@dataclass(frozen=True, slots=True)
class IdleInstance:
    """An instance of the fleet.

    Attributes:
        usd_per_hour: None if unknown.
        since: without work since then, None if it has some.
    """

    usd_per_hour: float | None
    since: datetime | None


def idle_fleet(instances: Sequence[IdleInstance], now: datetime, beyond: Thresholds = USUAL) -> list[Finding]:
    """Return the finding that most of the fleet has had no work for long, or none."""
    idle = [i for i in instances if i.since is not None and now - i.since >= beyond.idle_for]
    if not idle or len(idle) <= beyond.idle_share * len(instances):
        return []
    usd = sum(i.usd_per_hour for i in idle if i.usd_per_hour is not None)
    unknown = sum(i.usd_per_hour is None for i in idle)
    costs = f"at least ${usd:,.2f}" if unknown else f"${usd:,.2f}"
    long = f"{_span(beyond.idle_for)} or longer"
    words = f"{len(idle)} of {len(instances)} instances have had no work for {long}: {costs} an hour"
    figures = {"idle": float(len(idle)), "instances": float(len(instances)), "usd_per_hour": usd}
    return [Finding(AnomalyKind.IDLE_FLEET, "fleet", words, figures)]


@dataclass(frozen=True, slots=True)
class StandingInstance:
    """An instance that runs and that no scheduler launched.

    Attributes:
        instance_id: The cloud's name of it.
        part_of: The fleet or group that keeps it running; empty if none does.
        role: `agent` or `scheduler`.
        launched_at: Market time.
        usd_per_hour: Its price; None if it is not known.
    """

    instance_id: str
    part_of: str
    role: str
    launched_at: datetime
    usd_per_hour: float | None


def orphaned_capacity(instances: Iterable[StandingInstance], declared: Collection[str], now: datetime) -> list[Finding]:
    """Return a finding for each fleet or group that runs instances of the cluster and that its stack does not declare.

    Args:
        instances: All that exist.
        declared: The names of the fleets and groups that the stack declares.
        now: An instance younger than `UPDATE_TAKES` may be of a fleet that an update is still about to declare.
    """
    groups: dict[str, list[StandingInstance]] = {}
    for instance in instances:
        if instance.part_of not in declared and now - instance.launched_at >= UPDATE_TAKES:
            groups.setdefault(instance.part_of or instance.instance_id, []).append(instance)
    return [_orphaned(name, members) for name, members in sorted(groups.items())]


def _orphaned(name: str, instances: Sequence[StandingInstance]) -> Finding:
    usd = sum(instance.usd_per_hour for instance in instances if instance.usd_per_hour is not None)
    unknown = any(instance.usd_per_hour is None for instance in instances)
    roles = " and ".join(sorted({instance.role for instance in instances}))
    words = (
        f"{name} belongs to no stack and runs {counted(len(instances), 'instance')} ({roles}) for "
        f"{'at least ' if unknown else ''}${usd:,.3f} an hour; `everspot doctor` says how to remove it"
    )
    figures = {"instances": float(len(instances)), "usd_per_hour": usd}
    return Finding(AnomalyKind.ORPHANED_CAPACITY, name, words, figures)


def suspensions(messages: Mapping[str, str]) -> list[Finding]:
    """Return a finding for each instance type that is not launched, because its machines were of no use. `messages`:
    the reasons, by type."""
    return [Finding(AnomalyKind.TYPE_SUSPENDED, name, message) for name, message in sorted(messages.items())]


def expensive_pools(
    pools: Iterable[PoolKey], points: Iterable[PricePoint], now: datetime, beyond: Thresholds = USUAL
) -> list[Finding]:
    """Return the pools among these whose price is far above its mean of a month. `points`: at least those of the
    pools."""
    priced: dict[PoolKey, list[PricePoint]] = {pool: [] for pool in pools}
    for point in points:
        pool = PoolKey(point.instance_type, point.zone, point.market)
        if pool in priced:
            priced[pool].append(point)
    findings = []
    for pool, own in sorted(priced.items()):
        price_and_norm = price_and_mean(own, now, MONTH, LEAST_PRICED)
        if price_and_norm is not None and price_and_norm[0] > beyond.price_times * price_and_norm[1]:
            name = f"{pool.instance_type} in {pool.zone}, {pool.market.value}"
            price, mean = price_and_norm
            words = f"{name} costs ${price:.4f} an hour, {price / mean:.1f} times its mean of 30 days, ${mean:.4f}"
            prices = {"usd_per_hour": price, "mean_usd_per_hour": mean}
            findings.append(Finding(AnomalyKind.POOL_PRICE, name, words, prices))
    return findings


def _span(span: timedelta) -> str:
    return format_duration(timedelta(minutes=max(1, round(span.total_seconds() / 60))))


def _hours(span: timedelta) -> float:
    return round(span / timedelta(hours=1), 4)
