"""What teams and the whole environment may spend in a day and in a month, and what they have spent and will spend.

A cap is in dollars or in GPU-hours. A team's is for what its jobs hold; the environment's for every instance, boot,
idling and the scheduler's own included. Days and months are those of the calendar in UTC.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from fractions import Fraction

from pydantic import Field

from everspot_core.billing import BillingRules
from everspot_core.documents import Document, Stored, Utc
from everspot_core.holds import Tenure, parts
from everspot_core.ledger import EndRecord, LaunchRecord
from everspot_core.prices import HOUR, PriceBook, seconds_between

ENVIRONMENT = ""
"""In place of a team: everything. No team has this name."""
MOST = 1e12
"""No cap is higher, in dollars or GPU-hours."""
_DAY = timedelta(days=1)


class Period(StrEnum):
    """For how long a cap holds before it begins anew."""

    DAY = "day"
    MONTH = "month"

    def begin(self, at: datetime) -> datetime:
        """When the period in which a moment lies has begun."""
        day = at.astimezone(UTC).date()
        return _midnight(day if self is Period.DAY else day.replace(day=1))

    def end(self, at: datetime) -> datetime:
        """When the period in which a moment lies is over."""
        begun = self.begin(at)
        return begun + _DAY if self is Period.DAY else self.begin(begun + 31 * _DAY)


class Unit(StrEnum):
    """What is counted."""

    DOLLARS = "dollars"
    GPU_HOURS = "gpu_hours"

    @property
    def words(self) -> str:
        """For people."""
        return "dollars" if self is Unit.DOLLARS else "GPU-hours"


class Allowance(Stored):
    """What may be spent in one period; None: as much as is asked for."""

    dollars: float | None = Field(default=None, ge=0, le=MOST)
    gpu_hours: float | None = Field(default=None, ge=0, le=MOST)


class Caps(Stored):
    """What one team, or the environment, may spend."""

    day: Allowance = Allowance()
    month: Allowance = Allowance()

    def of(self, period: Period) -> Allowance:
        """What holds for a period."""
        return self.day if period is Period.DAY else self.month

    @property
    def unlimited(self) -> bool:
        """Whether there is no cap at all."""
        return self == Caps()


class Budgets(Document):
    """The caps of a cluster, as people have set them last."""

    environment: Caps = Caps()
    teams: dict[str, Caps] = Field(default_factory=dict)
    changed_at: Utc | None = None
    changed_by: str = ""

    def of(self, team: str) -> Caps:
        """The caps of a team, or of the ENVIRONMENT."""
        return self.environment if team == ENVIRONMENT else self.teams.get(team, Caps())

    def changed(self, team: str, caps: Caps, at: datetime, by: str) -> "Budgets":
        """With other caps for a team, or for the ENVIRONMENT."""
        stamp: dict[str, object] = {"changed_at": at, "changed_by": by}
        if team == ENVIRONMENT:
            return self.model_copy(update={"environment": caps, **stamp})
        teams = {name: own for name, own in (self.teams | {team: caps}).items() if not own.unlimited}
        return self.model_copy(update={"teams": dict(sorted(teams.items())), **stamp})

    def limits(self) -> Iterator[tuple[str, Period, Unit, float]]:
        """Every cap: whose, for how long, of what, how much."""
        for team, caps in ((ENVIRONMENT, self.environment), *sorted(self.teams.items())):
            for period in Period:
                for unit in Unit:
                    cap = getattr(caps.of(period), unit.value)
                    if cap is not None:
                        yield team, period, unit, cap


@dataclass(frozen=True, slots=True)
class Amount:
    """Dollars and GPU-hours."""

    dollars: float = 0.0
    gpu_hours: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        """Both together."""
        return Amount(self.dollars + other.dollars, self.gpu_hours + other.gpu_hours)

    def of(self, unit: Unit) -> float:
        """The one of the two."""
        return self.dollars if unit is Unit.DOLLARS else self.gpu_hours


Spending = Mapping[tuple[date, str], Amount]
"""What was spent by day and team. What no team answers for (jobs that name none, boot, idling) is under ENVIRONMENT."""


def add(into: dict[tuple[date, str], Amount], spending: Spending) -> None:
    """Add one to the other."""
    for key, amount in spending.items():
        into[key] = into.get(key, Amount()) + amount


def spending(
    launch: LaunchRecord,
    ended: EndRecord | None,
    holds: Sequence[Tenure],
    *,
    gpus: int,
    book: PriceBook,
    rules: BillingRules,
    since: datetime,
    now: datetime,
) -> dict[tuple[date, str], Amount]:
    """What one instance has cost from `since` to `now`, by the rules of the bill. `holds`: in order, by team; `gpus`:
    how many its type has."""
    running = ended is None or ended.ended_at > now
    end = now if ended is None or running else max(ended.ended_at, launch.launched_at)
    waived = not running and ended is not None and ended.interrupted and rules.is_free(launch, end - launch.launched_at)
    dollars: dict[tuple[date, str], Fraction] = defaultdict(Fraction)
    seconds: dict[tuple[date, str], Fraction] = defaultdict(Fraction)
    for holder, start, until, share in parts(launch.launched_at, end, rules.minimum, holds):
        for begin, stop in _days(max(start, since), until):
            key = begin.date(), holder or ENVIRONMENT
            seconds[key] += seconds_between(begin, stop) * share
            if not waived:
                dollars[key] += book.cost(launch.instance_type, launch.zone, launch.market, begin, stop) * share
    return {key: Amount(float(dollars[key]), float(seconds[key] * gpus / HOUR)) for key in seconds}


def spent(found: Spending, team: str, since: datetime) -> Amount:
    """What a team, or the ENVIRONMENT, has spent from a midnight on."""
    first = since.astimezone(UTC).date()
    mine = [a for (day, whose), a in found.items() if day >= first and team in (ENVIRONMENT, whose)]
    return Amount(sum(a.dollars for a in mine), sum(a.gpu_hours for a in mine))


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """One cap in its present period, and what is spent of it. `team`: whose; ENVIRONMENT for all together."""

    team: str
    period: Period
    unit: Unit
    cap: float
    spent: float
    until: datetime

    @property
    def empty(self) -> bool:
        """Whether nothing of it is left."""
        return self.spent >= self.cap

    def concerns(self, team: str) -> bool:
        """Whether jobs of this team spend of it."""
        return self.team in (ENVIRONMENT, team)


def purses(budgets: Budgets, found: Spending, now: datetime) -> tuple[Purse, ...]:
    """Every cap in its present period. `found`: at least all that was spent in them."""
    return tuple(
        Purse(
            team=team,
            period=period,
            unit=unit,
            cap=cap,
            spent=spent(found, team, period.begin(now)).of(unit),
            until=period.end(now),
        )
        for team, period, unit, cap in budgets.limits()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """What a job that runs will go on to spend each hour, until it is expected to end."""

    team: str
    usd_per_hour: float
    gpus: float
    until: datetime

    def costs(self, unit: Unit, now: datetime, until: datetime) -> float:
        """How much of that falls between now and a moment."""
        hours = max(timedelta(0), min(self.until, until) - now) / timedelta(hours=1)
        return hours * (self.usd_per_hour if unit is Unit.DOLLARS else self.gpus)


def committed(commitments: Iterable[Commitment], team: str, unit: Unit, now: datetime, until: datetime) -> float:
    """What the jobs of a team, or of the ENVIRONMENT, that run now will spend before a moment."""
    return sum(c.costs(unit, now, until) for c in commitments if team in (ENVIRONMENT, c.team))


def forecast(spent: float, committed: float, lately: float, span: timedelta, left: timedelta) -> float:
    """What will be spent by the end of a period if things go on as they lately did, and no less than is committed.
    `lately`: what was spent within the last `span`; `left`: how long the period goes on."""
    going_on = lately * (left / span) if span > timedelta(0) else 0.0
    return spent + max(committed, going_on)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _days(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """A span cut at every midnight."""
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    while start < end:
        stop = min(end, Period.DAY.end(start))
        yield start, stop
        start = stop
