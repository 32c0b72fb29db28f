"""Budgets of teams and of the whole environment: the caps for a day and a month, the amounts spent, and a forecast.

A cap is in dollars or in GPU-hours. A team's cap counts what its jobs hold. The environment's cap counts every
instance, with boot, idle time and the scheduler's own. Days and months are those of the calendar in UTC.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from fractions import Fraction

from pydantic import Field

from everspot_core.costs.billing import BillingRules
from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.costs.occupancy import Tenure, parts
from everspot_core.costs.prices import HOUR, PriceBook, exact, seconds_between
from everspot_core.documents import Document, Stored, Utc

ENVIRONMENT = ""
"""Stands for the whole environment where a team's name is expected. No team has this name."""
MOST = 1e12
"""The highest possible cap, in dollars or GPU-hours."""
_DAY = timedelta(days=1)


class Period(StrEnum):
    """The length of a budget period."""

    DAY = "day"
    MONTH = "month"

    def begin(self, at: datetime) -> datetime:
        """Return the start of the period that contains a moment."""
        day = at.astimezone(UTC).date()
        return _midnight(day if self is Period.DAY else day.replace(day=1))

    def end(self, at: datetime) -> datetime:
        """Return the end of the period that contains a moment."""
        begun = self.begin(at)
        return begun + _DAY if self is Period.DAY else self.begin(begun + 31 * _DAY)


class Unit(StrEnum):
    """The unit in which a cap counts."""

    DOLLARS = "dollars"
    GPU_HOURS = "gpu_hours"

    @property
    def words(self) -> str:
        """The unit's name for people."""
        return "dollars" if self is Unit.DOLLARS else "GPU-hours"


class Allowance(Stored):
    """The caps of one period. None: no cap in this unit."""

    dollars: float | None = Field(default=None, ge=0, le=MOST)
    gpu_hours: float | None = Field(default=None, ge=0, le=MOST)


class Caps(Stored):
    """The caps of one team, or of the environment."""

    day: Allowance = Allowance()
    month: Allowance = Allowance()

    def for_period(self, period: Period) -> Allowance:
        """Return the caps of a period."""
        return self.day if period is Period.DAY else self.month

    @property
    def unlimited(self) -> bool:
        """Whether there is no cap at all."""
        return self == Caps()


class Budgets(Document):
    """All caps of a cluster, as people have set them last. It is the document `budgets.json`."""

    environment: Caps = Caps()
    teams: dict[str, Caps] = Field(default_factory=dict)
    changed_at: Utc | None = None
    changed_by: str = ""

    def for_team(self, team: str) -> Caps:
        """Return the caps of a team, or of the ENVIRONMENT."""
        return self.environment if team == ENVIRONMENT else self.teams.get(team, Caps())

    def changed(self, team: str, caps: Caps, at: datetime, by: str) -> "Budgets":
        """Return a copy with other caps for a team, or for the ENVIRONMENT. `by`: who changes them."""
        stamp: dict[str, object] = {"changed_at": at, "changed_by": by}
        if team == ENVIRONMENT:
            return self.model_copy(update={"environment": caps, **stamp})
        teams = {name: own for name, own in (self.teams | {team: caps}).items() if not own.unlimited}
        return self.model_copy(update={"teams": dict(sorted(teams.items())), **stamp})

    def limits(self) -> Iterator[tuple[str, Period, Unit, float]]:
        """Yield every cap as a tuple: the team, the period, the unit and the amount."""
        for team, caps in ((ENVIRONMENT, self.environment), *sorted(self.teams.items())):
            for period in Period:
                for unit in Unit:
                    cap = getattr(caps.for_period(period), unit.value)
                    if cap is not None:
                        yield team, period, unit, cap


@dataclass(frozen=True, slots=True)
class Amount:
    """Dollars and GPU-hours."""

    dollars: float = 0.0
    gpu_hours: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        """Return the sum."""
        return Amount(self.dollars + other.dollars, self.gpu_hours + other.gpu_hours)

    def in_unit(self, unit: Unit) -> float:
        """Return the amount in one unit."""
        return self.dollars if unit is Unit.DOLLARS else self.gpu_hours


Spending = Mapping[tuple[date, str], Amount]
"""Amounts by day and team. The key ENVIRONMENT has what belongs to no team: jobs without one, boot and idle time."""


def add(into: dict[tuple[date, str], Amount], spending: Spending) -> None:
    """Add `spending` to `into`."""
    for key, amount in spending.items():
        into[key] = into.get(key, Amount()) + amount


def spending(
    launch: LaunchRecord,
    ended: EndRecord | None,
    tenures: Sequence[Tenure],
    *,
    gpus: int,
    book: PriceBook,
    rules: BillingRules,
    since: datetime,
    now: datetime,
) -> dict[tuple[date, str], Amount]:
    """Return the cost of one instance from `since` to `now`, by the rules of the bill.

    `tenures`: the instance's tenures in order, with the team as holder. `gpus`: the number of GPUs of its type.
    """
    running = ended is None or ended.ended_at > now
    end = now if ended is None or running else max(ended.ended_at, launch.launched_at)
    waived = not running and ended is not None and ended.interrupted and rules.is_free(launch, end - launch.launched_at)
    dollars: dict[tuple[date, str], Fraction] = defaultdict(Fraction)
    gpu_seconds: dict[tuple[date, str], Fraction] = defaultdict(Fraction)
    billed_share = exact(launch.node_share)
    minimum, billed_gpus = rules.minimum_life(launch), gpus * billed_share
    for piece in parts(launch.launched_at, end, minimum, tenures, gpus=billed_gpus):
        share = piece.share * billed_share
        for begin, stop in _days(max(piece.start, since), piece.end):
            key = begin.date(), piece.holder or ENVIRONMENT
            gpu_seconds[key] += seconds_between(begin, stop) * piece.gpus
            if not waived:
                dollars[key] += book.cost(launch.instance_type, launch.zone, launch.market, begin, stop) * share
    return {key: Amount(float(dollars.get(key, 0)), float(of_key / HOUR)) for key, of_key in gpu_seconds.items()}


def spent(spending_by_day: Spending, team: str, since: datetime) -> Amount:
    """Return the amount that a team, or the whole ENVIRONMENT, has spent since a midnight."""
    first = since.astimezone(UTC).date()
    amounts = [a for (day, owner), a in spending_by_day.items() if day >= first and team in (ENVIRONMENT, owner)]
    return Amount(sum(a.dollars for a in amounts), sum(a.gpu_hours for a in amounts))


@dataclass(frozen=True, slots=True, kw_only=True)
class CapUse:
    """One cap in its present period, and the amount spent of it. `team`: its team, or ENVIRONMENT."""

    team: str
    period: Period
    unit: Unit
    cap: float
    spent: float
    until: datetime

    @property
    def empty(self) -> bool:
        """Whether the cap is reached."""
        return self.spent >= self.cap

    def concerns(self, team: str) -> bool:
        """Return whether this cap counts the spending of the team's jobs."""
        return self.team in (ENVIRONMENT, team)


def cap_uses(budgets: Budgets, spending_by_day: Spending, now: datetime) -> tuple[CapUse, ...]:
    """Return every cap in its present period. `spending_by_day`: amounts that cover at least these periods."""
    return tuple(
        CapUse(
            team=team,
            period=period,
            unit=unit,
            cap=cap,
            spent=spent(spending_by_day, team, period.begin(now)).in_unit(unit),
            until=period.end(now),
        )
        for team, period, unit, cap in budgets.limits()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """The spending of a running job in each hour, until its expected end."""

    team: str
    usd_per_hour: float
    gpus: float
    until: datetime

    def costs(self, unit: Unit, now: datetime, until: datetime) -> float:
        """Return the part of it between `now` and `until`."""
        hours = max(timedelta(0), min(self.until, until) - now) / timedelta(hours=1)
        return hours * (self.usd_per_hour if unit is Unit.DOLLARS else self.gpus)


def committed(commitments: Iterable[Commitment], team: str, unit: Unit, now: datetime, until: datetime) -> float:
    """Return the amount that the running jobs of a team, or of the ENVIRONMENT, will spend before `until`."""
    return sum(c.costs(unit, now, until) for c in commitments if team in (ENVIRONMENT, c.team))


def forecast(spent: float, committed: float, lately: float, span: timedelta, remaining: timedelta) -> float:
    """Return the expected amount at the end of a period.

    It assumes the rate of the last `span`, in which `lately` was spent, for the time `remaining`. It adds at least the
    amount that is `committed`.
    """
    going_on = lately * (remaining / span) if span > timedelta(0) else 0.0
    return spent + max(committed, going_on)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _days(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the span, cut at every midnight in UTC."""
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    while start < end:
        stop = min(end, Period.DAY.end(start))
        yield start, stop
        start = stop
