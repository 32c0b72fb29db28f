"""Compares the ledger with the cloud's own bill, by instance and hour: time in both, time in one only, and the
difference.

The comparison covers the time of the cluster's instances, which both count. Everything else on the bill is counted
separately, by its kind: credits, taxes and purchases, other months, other things of the same cluster, and things of
others. Where a bill has days or months instead of hours, the ledger is added up to the same steps.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction

from everspot_core.costs.prices import total
from everspot_core.governance.bill_rows import BillRow, plain_key
from everspot_core.governance.month import Month
from everspot_core.governance.usage import Sums, UsageRow

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_ZERO = Fraction(0)
USAGE = "Usage"
SETTLING = timedelta(days=5)
"""How long after the end of a month the clouds may still add its use to the bill."""


class BillStep(StrEnum):
    """The length of time for which the rows of a bill are."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"

    def begin(self, moment: datetime) -> datetime:
        """Return the beginning of the step that contains a moment, in UTC."""
        if self is BillStep.MONTH:
            return Month.containing(moment).begin
        hour = moment.replace(minute=0, second=0, microsecond=0)
        return hour if self is BillStep.HOUR else hour.replace(hour=0)


class MatchKind(StrEnum):
    """Where an instance's time was found, and how to read the amounts.

    - BOTH: in both. HERE, THERE: in one only. UNPRICED: the ledger knows no price or no end of it.
    - NOT_YET: only in the ledger, later than anything in the bill, which lags behind; not in a month that has settled.
    - NOT_WHOLE: in the newest step of the bill of a month that is not over; the bill may have only a part of it.
    """

    BOTH = "both"
    HERE = "only_here"
    THERE = "only_there"
    UNPRICED = "unpriced_here"
    NOT_YET = "not_billed_yet"
    NOT_WHOLE = "not_whole_yet"

    @property
    def compared(self) -> bool:
        """Whether the bill could have all of it."""
        return self not in (MatchKind.NOT_YET, MatchKind.NOT_WHOLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One instance in one step. Dollars are exact."""

    resource: str
    start: datetime
    ledger_usd: Fraction
    bill_usd: Fraction
    match: MatchKind

    @property
    def difference(self) -> Fraction:
        """Ours less theirs."""
        return self.ledger_usd - self.bill_usd


@dataclass(slots=True)
class Count:
    """Rows of a bill that are not compared, and their dollars."""

    rows: int = 0
    usd: Fraction = _ZERO

    def add(self, cost: Fraction) -> None:
        """Count one row."""
        self.rows += 1
        self.usd += cost


@dataclass(slots=True, kw_only=True)
class BillSide:
    """The side of the bill for a cluster and a month, collected row by row with `take`.

    Attributes:
        instance_ids: the ids of all instances of the ledger.
        cluster: the value of the tag of the cluster's instances.
        cluster_tag: the key of that tag.
        as_of: up to when its rows of the cluster's instances count everything; None if they do not say.
        rows: the number of all rows.
        resources: the number of rows that name a resource.
        strangers: instances of somebody else.
    """

    month: Month
    instance_ids: frozenset[str]
    cluster: str
    cluster_tag: str
    costs: dict[tuple[str, datetime], Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    tags: dict[str, Mapping[str, str]] = field(default_factory=dict)
    longest: timedelta = timedelta(0)
    until: datetime | None = None
    as_of: datetime | None = None
    other_charges: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    other_months: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    other_services: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    elsewhere: Count = field(default_factory=Count)
    strangers: set[str] = field(default_factory=set)
    corrections: Count = field(default_factory=Count)
    committed: Count = field(default_factory=Count)
    rows: int = 0
    resources: int = 0

    def take(self, row: BillRow) -> None:
        """Count one row where it belongs."""
        self.rows += 1
        self.resources += bool(row.resource)
        if not self.month.contains(row.start):
            self.other_months[Month.containing(row.start).name].add(row.cost)
            return
        if row.charge != USAGE:
            self.other_charges[row.charge or "(no category)"].add(row.cost)
            return
        if row.end - row.start <= _DAY:
            self.until = max(self.until or row.end, row.end)
        instance = row.instance
        if not self._is_of_cluster(row):
            self.elsewhere.add(row.cost)
            if instance is not None:
                self.strangers.add(instance)
        elif instance is None or not row.timed:
            self.other_services[(row.service if instance is None else row.meter) or "(not named)"].add(row.cost)
        else:
            self._instance(instance, row)

    def _is_of_cluster(self, row: BillRow) -> bool:
        if row.instance in self.instance_ids:
            return True
        cluster_key = plain_key(self.cluster_tag)
        return any(plain_key(key) == cluster_key and value == self.cluster for key, value in row.tags.items())

    def _instance(self, instance: str, row: BillRow) -> None:
        self.costs[instance, row.start] += row.cost
        self.longest = max(self.longest, row.end - row.start)
        self.tags[instance] = {**self.tags.get(instance, {}), **row.tags}
        if row.as_of is not None:
            self.as_of = min(self.as_of or row.as_of, row.as_of)
        if row.correction:
            self.corrections.add(row.cost)
        if row.committed:
            self.committed.add(row.cost)

    @property
    def step(self) -> BillStep:
        """The step of its rows."""
        if self.longest <= _HOUR:
            return BillStep.HOUR
        return BillStep.DAY if self.longest <= _DAY else BillStep.MONTH

    @property
    def newest(self) -> datetime | None:
        """The beginning of the last step that it has, which may not be whole; None where it says up to when it counts,
        and of a bill by months."""
        if self.as_of is not None or self.until is None or self.step is BillStep.MONTH:
            return None
        return self.step.begin(self.until - timedelta(seconds=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """Every instance and step of both sides, by time. `free`: steps in which the cloud took an instance so early that
    it bills nothing. A bill does not have these steps."""

    pairs: tuple[Pair, ...]
    free: int
    step: BillStep

    def pairs_with(self, match: MatchKind) -> list[Pair]:
        """Return those of one sort."""
        return [pair for pair in self.pairs if pair.match is match]

    @property
    def compared(self) -> list[Pair]:
        """Everything that the bill could have."""
        return [pair for pair in self.pairs if pair.match.compared]

    @property
    def ledger_usd(self) -> Fraction:
        """Dollars of the ledger that are compared."""
        return total(pair.ledger_usd for pair in self.compared)

    @property
    def bill_usd(self) -> Fraction:
        """Dollars of the bill that are compared."""
        return total(pair.bill_usd for pair in self.compared)

    @property
    def gap(self) -> Fraction:
        """The sum of the differences of all instances over the whole time, whichever side has more. A surplus of one
        instance does not balance a shortage of another. A shift between two hours of one instance is no gap."""
        each: dict[str, Fraction] = defaultdict(Fraction)
        for pair in self.compared:
            each[pair.resource] += pair.difference
        return total(abs(difference) for difference in each.values())


def reconcile(rows: Iterable[UsageRow], bill: BillSide, *, over: bool = True, settled: bool = False) -> Reconciliation:
    """Put the ledger's rows of a month beside a bill.

    Args:
        over: whether the month is; until then the bill's newest step is not compared, because the cloud may not have
            counted all of it.
        settled: whether the month has been over for `SETTLING`. What is later than anything in the bill is then
            missing in it, as in a bill that is cut off.
    """
    step, newest = bill.step, None if over else bill.newest
    bill_costs: dict[tuple[str, datetime], Fraction] = defaultdict(Fraction)
    for (resource, start), cost in bill.costs.items():
        bill_costs[resource, step.begin(start)] += cost
    ledger_rows: dict[tuple[str, datetime], list[UsageRow]] = defaultdict(list)
    for row in rows:
        if row.kind.here:
            ledger_rows[row.resource, step.begin(row.hour)].append(row)
    pairs, free = [], 0
    for key in sorted({*ledger_rows, *bill_costs}, key=lambda key: (key[1], key[0])):
        own = ledger_rows.get(key, [])
        match = _match(own, key in bill_costs, key[1], None if settled else bill.until)
        if match is None:
            free += 1
            continue
        if newest is not None and key[1] == newest and match in (MatchKind.BOTH, MatchKind.HERE):
            match = MatchKind.NOT_WHOLE
        pairs.append(
            Pair(
                resource=key[0],
                start=key[1],
                ledger_usd=Sums.sum_rows(own).cost,
                bill_usd=bill_costs.get(key, _ZERO),
                match=match,
            )
        )
    return Reconciliation(pairs=tuple(pairs), free=free, step=step)


def _match(own: list[UsageRow], billed: bool, start: datetime, until: datetime | None) -> MatchKind | None:
    """Return where the time was found; None for free time, which is in no bill."""
    if not own:
        return MatchKind.THERE
    if not all(row.is_exact for row in own):
        return MatchKind.UNPRICED
    if billed:
        return MatchKind.BOTH
    if all(row.free for row in own):
        return None
    return MatchKind.NOT_YET if until is not None and start >= until else MatchKind.HERE


@dataclass(frozen=True, slots=True, kw_only=True)
class TagLine:
    """Both sides of the instances that have one value of a tag in the bill; empty: no value. Instances that are not in
    the bill have their own line, with `billed` False."""

    value: str
    billed: bool
    ledger_usd: Fraction
    bill_usd: Fraction
    resources: int


def by_tag(result: Reconciliation, bill: BillSide, key: str) -> list[TagLine]:
    """Return the differences by the bill's own values of a tag, the largest first. They add up to the whole
    difference."""
    tag_key = plain_key(key)
    groups: dict[tuple[bool, str], list[Pair]] = defaultdict(list)
    for pair in result.compared:
        tags = {plain_key(name): value for name, value in bill.tags.get(pair.resource, {}).items()}
        groups[pair.resource in bill.tags, tags.get(tag_key, "")].append(pair)
    lines = [
        TagLine(
            value=value,
            billed=billed,
            ledger_usd=total(p.ledger_usd for p in own),
            bill_usd=total(p.bill_usd for p in own),
            resources=len({p.resource for p in own}),
        )
        for (billed, value), own in groups.items()
    ]
    return sorted(lines, key=lambda line: (-abs(line.ledger_usd - line.bill_usd), line.billed, line.value))
