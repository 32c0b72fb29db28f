"""The savings of a commitment to a cloud (one or three years of paying for use, at a discount), by the observed use.

A commitment is paid in every hour, used or not. So it saves money if the use covers it in a larger part of the hours
than its price is of the list price (its break-even). At most the floor is advised: the amount that was used in nearly
every hour. The savings come from a replay of the observed hours. Only the sum that would be owed over the term is
extrapolated.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum

import numpy as np

from everspot_core.capacity.catalogue import zone_region
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.governance.usage import UsageKind, UsageRow
from everspot_core.jobs.records import Market

FLOOR_SHARE = 0.95
"""The floor is what was used in at least this share of the hours."""
LEAST_HOURS = 14 * 24
"""Less is no ground for a year's commitment."""
MONTH_HOURS, YEAR_HOURS = 30 * 24, 8760
_HOUR = timedelta(hours=1)
_DAY_HOURS, _WEEK_HOURS = 24, 7 * 24


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentPlan:
    """A cloud's offer of a commitment. Its statements are dated and have a source.

    Attributes:
        scope: the part of use that one commitment covers, for a type in a region, such as a family in that region; None
            if it covers none.
        whole: the commitment is bought as a number of instances.
        discount: off the list price, as published; None if there is no single published figure.
        at_most: the largest discount that the cloud itself names, which is no estimate.
    """

    key: str
    name: str
    years: int
    scope: Callable[[str, str], str | None]
    whole: bool = False
    discount: float | None = None
    at_most: float | None = None
    source: str
    as_of: date
    rates_at: str = ""


class Sureness(StrEnum):
    """How much the observed hours say of the years to come."""

    LOW = "low"  # fewer than 30 days, or a week in which the commitment would have cost more than it saved
    FAIR = "fair"
    GOOD = "good"  # 90 days or more, and every week above the break-even


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyUse:
    """List dollars in each full hour of a span, oldest first. Plans of `whole` instances have today's list price in all
    hours, `unit_usd` for each instance: at the prices of each hour the same instances would be fewer or more."""

    plan: CommitmentPlan
    scope: str
    dollars: tuple[float, ...]
    unit_usd: float | None = None

    @property
    def floor(self) -> float:
        """List dollars that were used in nearly every hour: of the whole span, or of its later half if that is less.

        The floor never exceeds the use of the last week, apart from one day: use that has ended is no floor, however
        long it lasted.
        """
        hours = np.asarray(self.dollars)
        if len(hours) == 0:
            return 0.0
        return min(_reached(hours), _reached(hours[len(hours) // 2 :]), _lately(hours))


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One commitment.

    Attributes:
        covers_usd: dollars an hour that it covers, at list price.
        pays_usd: dollars an hour that it costs.
        units: instances, if it is bought by number.
        break_even: the share of the commitment that has to be used.
        utilisation: the share that was used.
        worst_week: the share that was used in the worst week.
        saved_usd: in the observed hours.
        saved_last_month_usd: in the last 30 days of them.
        owed_usd: over the term, used or not.
    """

    covers_usd: float
    pays_usd: float
    units: int | None
    break_even: float
    utilisation: float
    worst_week: float
    saved_usd: float
    saved_last_month_usd: float
    owed_usd: float
    sureness: Sureness


def advised(use: HourlyUse, discount: float) -> Advice | None:
    """Return the commitment that saves most without being above the floor; None if none saves, or too little is known.

    `discount`: off the list price, above 0 and below 1.

    Raises:
        ValueError: if it is not.
    """
    if not 0 < discount < 1:
        raise ValueError(f"a discount lies between 0 and 1, not {discount}")
    hours = np.asarray(use.dollars)
    if len(hours) < LEAST_HOURS:
        return None
    levels = {_whole(level, use.unit_usd) for level in (use.floor, min(use.floor, float(hours.min())))}
    level = max(levels, key=lambda level: _saved(hours, level, discount))
    saved = _saved(hours, level, discount)
    if level <= 0 or saved <= 0:
        return None
    worst = min(_used(hours[n : n + _WEEK_HOURS], level) for n in range(0, len(hours) - _WEEK_HOURS + 1, 24))
    return Advice(
        covers_usd=level,
        pays_usd=level * (1 - discount),
        units=round(level / use.unit_usd) if use.unit_usd else None,
        break_even=1 - discount,
        utilisation=_used(hours, level),
        worst_week=worst,
        saved_usd=saved,
        saved_last_month_usd=_saved(hours[-MONTH_HOURS:], level, discount),
        owed_usd=level * (1 - discount) * use.plan.years * YEAR_HOURS,
        sureness=_sureness(len(hours), worst, 1 - discount),
    )


def _reached(hours: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    """Return the most that was used in FLOOR_SHARE of the hours, or more of them."""
    ordered = np.sort(hours)
    return float(ordered[int((1 - FLOOR_SHARE) * len(ordered) + 1e-9)])


def _lately(hours: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    """Return the most that was used in all hours of the last week but a day of them."""
    week = np.sort(hours[-_WEEK_HOURS:])
    return float(week[min(_DAY_HOURS, len(week) - 1)])


def _whole(level: float, unit: float | None) -> float:
    return level if unit is None else int(level / unit + 1e-9) * unit


def _saved(hours: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", level: float, discount: float) -> float:
    """Return the list dollars that the commitment would have covered, less its own cost."""
    return float(np.minimum(hours, level).sum() - level * (1 - discount) * len(hours))


def _used(hours: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", level: float) -> float:
    return float(np.minimum(hours, level).mean() / level)


def _sureness(hours: int, worst: float, break_even: float) -> Sureness:
    if hours < MONTH_HOURS or worst < break_even:
        return Sureness.LOW
    return Sureness.GOOD if hours >= 3 * MONTH_HOURS else Sureness.FAIR


@dataclass(frozen=True, slots=True)
class Span:
    """Full hours, from `begin` until `end`."""

    begin: datetime
    end: datetime

    @classmethod
    def from_launch(cls, first: datetime, until: datetime, longest: timedelta) -> "Span":
        """Return the full hours before `until`: from the first launch, or as many as `longest` has."""
        end = until.replace(minute=0, second=0, microsecond=0)
        begin = max(end - longest, first.replace(minute=0, second=0, microsecond=0) + _HOUR)
        return cls(min(begin, end), end)

    @property
    def hours(self) -> int:
        """How many."""
        return (self.end - self.begin) // _HOUR

    def place(self, hour: datetime) -> int | None:
        """Return the place of an hour in it; None outside."""
        return (hour - self.begin) // _HOUR if self.begin <= hour < self.end else None


ListPrice = Callable[[LaunchRecord], float | None]
"""Returns today's list price of an hour of a launch's type; None if it is unknown."""


def hourly_use(
    rows: Iterable[UsageRow], plans: Sequence[CommitmentPlan], listed: ListPrice, span: Span
) -> list[HourlyUse]:
    """Return the on-demand use that each plan would cover, by plan and scope.

    Rows without a known price are left out. Spot is left out as well, because no plan applies to it.
    """
    dollars: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0] * span.hours)
    units: dict[tuple[int, str], float] = {}
    for row in rows:
        place = span.place(row.hour)
        if place is None or row.launch is None or row.launch.market is not Market.ON_DEMAND or not row.is_exact:
            continue
        for number, plan in enumerate(plans):
            scope = plan.scope(row.launch.instance_type, region(row.launch))
            if scope is None:
                continue
            usd = float(row.cost)
            if plan.whole:
                unit = listed(row.launch)
                if unit is None:
                    continue
                units[number, scope], usd = unit, unit * float(row.seconds) / 3600
            dollars[number, scope][place] += usd
    return [
        HourlyUse(
            plan=plans[number],
            scope=scope,
            dollars=tuple(usd_by_hour),
            unit_usd=units.get((number, scope)),
        )
        for (number, scope), usd_by_hour in sorted(dollars.items())
        if sum(usd_by_hour) > 0
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeUse:
    """All use, Spot included.

    Attributes:
        floor_usd: list dollars of all use in nearly every hour.
        spot_share: Spot's share of the list dollars.
        spot_discount: the discount of Spot off the list price; None without Spot.
    """

    floor_usd: float
    spot_share: float
    spot_discount: float | None


def whole_use(rows: Iterable[UsageRow], listed: ListPrice, span: Span) -> WholeUse | None:
    """Return all use of instances at list price. None without any."""
    hours, at_list, paid = [0.0] * span.hours, dict.fromkeys(Market, 0.0), 0.0
    for row in rows:
        place = span.place(row.hour)
        usd = listed(row.launch) if row.launch is not None and row.kind is not UsageKind.EGRESS else None
        if place is None or row.launch is None or usd is None or not row.is_exact:
            continue
        worth = usd * float(row.seconds) / 3600
        hours[place] += worth
        at_list[row.launch.market] += worth
        paid += float(row.cost + row.waived) if row.launch.market is Market.SPOT else 0.0
    whole, spot = sum(at_list.values()), at_list[Market.SPOT]
    if whole <= 0:
        return None
    floor = _reached(np.asarray(hours))
    return WholeUse(floor_usd=floor, spot_share=spot / whole, spot_discount=1 - paid / spot if spot else None)


def region(launch: LaunchRecord) -> str:
    """Return the region of an instance; its zone, if that names none."""
    try:
        return zone_region(launch.zone)
    except ValueError:
        return launch.zone
