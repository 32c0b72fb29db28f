"""The bill cut into rows by instance, hour in UTC, kind of use, job and attempt.

Every second of every instance is in exactly one kind, so the rows of a bill add up to the bill, exactly:

- `work`: a job held it and worked. `lost`: a job held it in a span that an interruption cost it: from the notice or the
  last durable checkpoint until it trained again, redone work included.
- `boot`: from the launch until its agent reported, or a job was assigned to it. `idle`: it was up and held by nobody.
  `drain`: of a node, from the end of its last agent until it is gone. `shared`: the rest of an instance that jobs hold
  only in shares. `scheduler`: a scheduler's own instance.

The costs of visits to other clusters are in rows of two more kinds, each in the hour in which the visit ended (or in
the hour of the bill, while the visit goes on): `abroad` is the host's bill for its instances, `egress` the copied bytes
at the manifest's price. The sum of a report (`cost_usd`) leaves out both. The host's own ledger has the first one, too.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise

from everspot_core.costs.attempts import Attempt
from everspot_core.costs.bill import Bill, InstanceBill, Usage
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.costs.prices import Basis, PriceSegment, exact, seconds_between, total
from everspot_core.jobs.records import JobRecord, Role
from everspot_core.jobs.visit_records import Trip, TripEnd

_ZERO = Fraction(0)
_HOUR = timedelta(hours=1)
_NEVER = datetime.max.replace(tzinfo=UTC)


class UsageKind(StrEnum):
    """The kind of use of a row; see the module's definitions."""

    WORK = "work"
    LOST = "lost"
    BOOT = "boot"
    IDLE = "idle"
    DRAIN = "drain"
    SHARED = "shared"
    SCHEDULER = "scheduler"
    ABROAD = "abroad"
    EGRESS = "egress"

    @property
    def here(self) -> bool:
        """Whether it is use of the cluster's own instances, which is all that a report's `cost_usd` counts."""
        return self not in (UsageKind.ABROAD, UsageKind.EGRESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """One kind of use of one instance in one hour, by one attempt of a job where a job had it. Dollars are exact.

    Attributes:
        hour: its beginning.
        resource: the instance's id, or a visit's.
        launch: None for visits.
        seconds: of the instance, times the share of it.
        cost: the billed dollars.
        waived: dollars that are not billed because the cloud took the instance so early.
        on_demand_cost: of useful time at list price.
        unpriced_seconds: have no known price and cost 0 here.
        open_ended: nobody knows when the instance ended; its `seconds` are the minimum that the cloud bills.
        is_exact: False if `cost` is a lower bound because of either, or because a host did not report its bill.
        gigabytes: copied, of kind `egress`.
    """

    hour: datetime
    kind: UsageKind
    resource: str
    launch: LaunchRecord | None = None
    job_id: str | None = None
    epoch: int | None = None
    seconds: Fraction = _ZERO
    cost: Fraction = _ZERO
    waived: Fraction = _ZERO
    on_demand_cost: Fraction = _ZERO
    unpriced_seconds: Fraction = _ZERO
    free: bool = False
    is_exact: bool = True
    open_ended: bool = False
    gigabytes: Fraction = _ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over rows; the fields are those of `UsageRow`."""

    seconds: Fraction = _ZERO
    cost: Fraction = _ZERO
    waived: Fraction = _ZERO
    on_demand_cost: Fraction = _ZERO
    unpriced_seconds: Fraction = _ZERO
    is_exact: bool = True

    @classmethod
    def sum_rows(cls, rows: Iterable[UsageRow]) -> "Sums":
        """Return the sums of some rows."""
        all_rows = list(rows)
        return cls(
            seconds=total(r.seconds for r in all_rows),
            cost=total(r.cost for r in all_rows),
            waived=total(r.waived for r in all_rows),
            on_demand_cost=total(r.on_demand_cost for r in all_rows),
            unpriced_seconds=total(r.unpriced_seconds for r in all_rows),
            is_exact=all(r.is_exact for r in all_rows),
        )


def open_ended(rows: Iterable[UsageRow]) -> list[str]:
    """Return the ids of the instances whose running time is unknown."""
    return sorted({row.resource for row in rows if row.open_ended})


@dataclass(frozen=True, slots=True)
class _Piece:
    """A span at one price, within one hour, of one kind."""

    start: datetime
    end: datetime
    price: PriceSegment
    listed: PriceSegment | None


def usage_rows(
    bill: Bill,
    reported_at: Mapping[str, datetime] | None = None,
    records: Mapping[str, JobRecord] | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[UsageRow]:
    """Return the rows of a bill, by hour, resource, kind, job and attempt.

    Args:
        bill: Of the whole cluster.
        reported_at: When the agent of each instance first reported, by instance id. Without it, an instance boots until
            a job is assigned to it; an instance that never reported has booted all its life.
        records: Of the jobs, for their visits to other clusters; without them, visits are left out.
        since: Only use from then on.
        until: Only use before then.
    """
    window = _Window(since, until)
    attempts_by_instance: dict[str, list[Attempt]] = {}
    for job in bill.jobs:
        for attempt in job.attempts:
            if attempt.instance_id is not None:
                attempts_by_instance.setdefault(attempt.instance_id, []).append(attempt)
    all_rows: list[UsageRow] = []
    for instance in bill.instances:
        agents = [pod.name for pod in instance.pods] or [instance.launch.instance_id]
        attempts = [attempt for agent in agents for attempt in attempts_by_instance.get(agent, ())]
        reports = [reported_at[agent] for agent in agents if reported_at and agent in reported_at]
        all_rows += _of_instance(instance, sorted(attempts, key=lambda a: a.start), min(reports, default=None), window)
    for job_id, record in sorted((records or {}).items()):
        all_rows += (row for row in visit_rows(job_id, record, bill.as_of) if window.contains(row.hour))
    return sorted(all_rows, key=lambda r: (r.hour, r.resource, r.kind, r.job_id or "", r.epoch or 0))


@dataclass(frozen=True, slots=True)
class _Window:
    since: datetime | None
    until: datetime | None

    def contains(self, moment: datetime) -> bool:
        return (self.since is None or moment >= self.since) and (self.until is None or moment < self.until)

    def clip(self, start: datetime, end: datetime) -> tuple[datetime, datetime]:
        return max(start, self.since or start), min(end, self.until or end)


@dataclass(slots=True)
class _Tally:
    seconds: Fraction = _ZERO
    dollars: Fraction = _ZERO
    listed: Fraction = _ZERO
    unpriced: Fraction = _ZERO
    free: bool = field(default=False)


def _of_instance(
    instance: InstanceBill, attempts: Sequence[Attempt], reported: datetime | None, window: _Window
) -> Iterator[UsageRow]:
    launch, booted, drained = instance.launch, _booted(instance, reported), _drained(instance)
    tallies: dict[tuple[datetime, UsageKind, str | None, int | None], _Tally] = {}
    attempts_by_job: dict[str | None, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        attempts_by_job[attempt.job_id].append(attempt)
    for usage in instance.usages:
        job_attempts = attempts_by_job[usage.job_id]
        starts = [a.start for a in job_attempts]
        for piece in _pieces(usage, [booted, drained, *starts], window):
            epoch = job_attempts[max(0, bisect_right(starts, piece.start) - 1)].epoch if job_attempts else None
            key = _hour(piece.start), _kind(usage, piece, booted, drained), usage.job_id, epoch
            tally = tallies.setdefault(key, _Tally())
            seconds = seconds_between(piece.start, piece.end) * usage.share
            tally.seconds += seconds
            tally.dollars += seconds * piece.price.usd_per_hour / 3600
            tally.listed += seconds * piece.listed.usd_per_hour / 3600 if piece.listed is not None else _ZERO
            tally.unpriced += seconds if piece.price.basis is Basis.NONE else _ZERO
            tally.free = usage.free
    for (hour, kind, job_id, epoch), tally in tallies.items():
        yield UsageRow(
            hour=hour,
            kind=kind,
            resource=launch.instance_id,
            launch=launch,
            job_id=job_id,
            epoch=epoch,
            seconds=tally.seconds,
            cost=_ZERO if tally.free else tally.dollars,
            waived=tally.dollars if tally.free else _ZERO,
            on_demand_cost=tally.listed,
            unpriced_seconds=tally.unpriced,
            free=tally.free,
            is_exact=not (tally.unpriced or instance.unknown),
            open_ended=instance.unknown,
        )


def _booted(instance: InstanceBill, reported: datetime | None) -> datetime:
    """Return the moment after which the instance is idle if nobody holds it."""
    first = min((u.paid[0].start for u in instance.usages if u.job_id is not None and u.paid), default=None)
    moments = [moment for moment in (reported, first) if moment is not None]
    return min(moments) if moments else _NEVER


def _drained(instance: InstanceBill) -> datetime:
    """Return the moment after which a node that has ended had no agent any more."""
    if instance.running or not instance.pods:
        return _NEVER
    return max(pod.end for pod in instance.pods)


def _kind(usage: Usage, piece: _Piece, booted: datetime, drained: datetime) -> UsageKind:
    if usage.job_id is not None:
        return UsageKind.LOST if piece.listed is None else UsageKind.WORK
    if usage.launch.role is Role.SCHEDULER:
        return UsageKind.SCHEDULER
    if usage.share < exact(usage.launch.node_share):
        return UsageKind.SHARED
    if piece.start >= drained:
        return UsageKind.DRAIN
    return UsageKind.BOOT if piece.start < booted else UsageKind.IDLE


def _pieces(usage: Usage, moments: Iterable[datetime], window: _Window) -> Iterator[_Piece]:
    """Yield the parts of a use: cut at changes of price, full hours, the bounds of lost time, and `moments`."""
    starts = [s.start for s in usage.listed]
    cuts = sorted({*moments, *starts, *(s.end for s in usage.listed)})
    for price in usage.paid:
        start, end = window.clip(price.start, price.end)
        if start >= end:
            continue
        points = {start, end, *cuts[bisect_right(cuts, start) : bisect_left(cuts, end)], *_hours(start, end)}
        for begin, stop in pairwise(sorted(points)):
            at = bisect_right(starts, begin) - 1
            listed = usage.listed[at] if at >= 0 and usage.listed[at].end > begin else None
            yield _Piece(begin, stop, price, listed)


def _hours(start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the full hours between two moments."""
    moment = _hour(start) + _HOUR
    while moment < end:
        yield moment
        moment += _HOUR


def _hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def visit_rows(job_id: str, record: JobRecord, as_of: datetime) -> Iterator[UsageRow]:
    """Yield the costs of a job's visits to other clusters: the visits that are over, and the one that goes on.
    `record`: as it was at `as_of`."""
    for trip in record.trips:
        yield from _trip(job_id, trip)
    away = record.away
    if away is not None:
        yield UsageRow(
            hour=_hour(as_of),
            kind=UsageKind.ABROAD,
            resource=away.visit,
            job_id=job_id,
            cost=exact(away.usd or 0.0),
            is_exact=away.usd is not None,
        )


def _trip(job_id: str, trip: Trip) -> Iterator[UsageRow]:
    hour = _hour(trip.until)
    ran = trip.end in (TripEnd.RETURNED, TripEnd.ENDED)
    if trip.usd or ran:
        cost, is_priced = max(_ZERO, exact(trip.usd or 0.0)), trip.usd is not None
        yield UsageRow(
            hour=hour, kind=UsageKind.ABROAD, resource=trip.visit, job_id=job_id, cost=cost, is_exact=is_priced
        )
    if trip.egress_usd:
        moved = Fraction(trip.sent_bytes + trip.brought_bytes, 10**9)
        yield UsageRow(
            hour=hour,
            kind=UsageKind.EGRESS,
            resource=trip.visit,
            job_id=job_id,
            cost=exact(trip.egress_usd),
            gigabytes=moved,
        )
