"""The facts of an audit: the dollars of a month by kind and pool, and the losses.

All facts are sums over the usage rows of the month, so they add up with the report and with the charges.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from everspot_core.capacity.market import PoolKey
from everspot_core.costs.attempts import Interruption
from everspot_core.costs.bill import JobBill
from everspot_core.costs.prices import HOUR, total
from everspot_core.governance.month import Month
from everspot_core.governance.usage import Sums, UsageKind, UsageRow, open_ended
from everspot_core.jobs.records import JobRecord, JobState


@dataclass(frozen=True, slots=True)
class KindSum:
    """One kind of use.

    Attributes:
        hours: of instances, times shares.
        share: of the dollars of the cluster's own instances; None for costs beside them.
    """

    kind: UsageKind
    hours: Fraction
    usd: Fraction
    share: Fraction | None


@dataclass(frozen=True, slots=True)
class PoolSum:
    """One pool of agents. `used`: the share of its hours in which jobs worked."""

    pool: PoolKey
    hours: Fraction
    used: Fraction
    usd: Fraction
    idle_usd: Fraction
    lost_usd: Fraction


@dataclass(frozen=True, slots=True)
class LostWork:
    """The losses by interruptions, and the costs of jobs without success.

    Attributes:
        usd: of the time lost.
        steps_redone: a lower bound if `is_least`.
        failed_usd: of jobs that ended as FAILED, time lost included.
        cancelled_usd: of jobs that ended as CANCELLED, time lost included.
    """

    usd: Fraction
    interruptions: int
    with_notice: int
    steps_redone: int
    is_least: bool
    failed_usd: Fraction
    cancelled_usd: Fraction


@dataclass(frozen=True, slots=True)
class MonthFacts:
    """The facts of a month.

    Attributes:
        usd: of the cluster's own instances, as the report counts it.
        utilisation: the share of the agents' hours in which jobs worked; None without any hours.
        usd_worked: the share of all dollars; None without any dollars.
        unknown_lengths: instances of unknown running time.
    """

    usd: Fraction
    is_exact: bool
    unpriced_hours: Fraction
    unknown_lengths: tuple[str, ...]
    utilisation: Fraction | None
    usd_worked: Fraction | None
    kinds: tuple[KindSum, ...]
    pools: tuple[PoolSum, ...]
    lost: LostWork


def month_facts(
    rows: Sequence[UsageRow], jobs: Iterable[JobBill], records: Mapping[str, JobRecord], month: Month
) -> MonthFacts:
    """Return the facts of a month. `rows`: of this month."""
    here = [row for row in rows if row.kind.here]
    agents = [row for row in here if row.kind is not UsageKind.SCHEDULER]
    whole = Sums.sum_rows(here)
    worked, hours = Sums.sum_rows(r for r in agents if r.kind is UsageKind.WORK), Sums.sum_rows(agents).seconds
    return MonthFacts(
        usd=whole.cost,
        is_exact=whole.is_exact,
        unpriced_hours=whole.unpriced_seconds / HOUR,
        unknown_lengths=tuple(open_ended(here)),
        utilisation=worked.seconds / hours if hours else None,
        usd_worked=worked.cost / whole.cost if whole.cost else None,
        kinds=tuple(_kinds(rows, whole.cost)),
        pools=tuple(_pools(agents)),
        lost=_lost(rows, jobs, records, month),
    )


def _kinds(rows: Sequence[UsageRow], whole: Fraction) -> Iterable[KindSum]:
    for kind in UsageKind:
        own = Sums.sum_rows(row for row in rows if row.kind is kind)
        if own.seconds or own.cost:
            share = own.cost / whole if kind.here and whole else None
            yield KindSum(kind, own.seconds / HOUR, own.cost, share)


def _pools(agents: Iterable[UsageRow]) -> list[PoolSum]:
    """Return the pools, the most expensive first."""
    pools: dict[PoolKey, list[UsageRow]] = defaultdict(list)
    for row in agents:
        if row.launch is not None:
            pools[PoolKey(row.launch.instance_type, row.launch.zone, row.launch.market)].append(row)
    pool_sums = []
    for pool, own in pools.items():
        seconds = total(r.seconds for r in own)
        worked = total(r.seconds for r in own if r.kind is UsageKind.WORK)
        pool_sums.append(
            PoolSum(
                pool=pool,
                hours=seconds / HOUR,
                used=worked / seconds if seconds else Fraction(0),
                usd=total(r.cost for r in own),
                idle_usd=total(r.cost for r in own if r.kind in (UsageKind.IDLE, UsageKind.SHARED)),
                lost_usd=total(r.cost for r in own if r.kind is UsageKind.LOST),
            )
        )
    return sorted(pool_sums, key=lambda p: (-p.usd, p.pool))


def _lost(
    rows: Sequence[UsageRow], jobs: Iterable[JobBill], records: Mapping[str, JobRecord], month: Month
) -> LostWork:
    strokes = [s for job in jobs for s in interruptions_in(job, month)]
    ended: dict[JobState, Fraction] = defaultdict(Fraction)
    for row in rows:
        record = records.get(row.job_id) if row.job_id is not None else None
        if record is not None:
            ended[record.state] += row.cost
    return LostWork(
        usd=total(r.cost for r in rows if r.kind is UsageKind.LOST),
        interruptions=len(strokes),
        with_notice=sum(s.with_notice for s in strokes),
        steps_redone=sum(s.steps_redone or 0 for s in strokes),
        is_least=any(s.steps_redone_is_least for s in strokes),
        failed_usd=ended[JobState.FAILED],
        cancelled_usd=ended[JobState.CANCELLED],
    )


def interruptions_in(job: JobBill, month: Month) -> list[Interruption]:
    """Return the interruptions of a job that came in a month."""

    def came_at(stroke: Interruption) -> datetime:
        return stroke.attempt.notice_at or stroke.attempt.end or stroke.attempt.start

    return [stroke for stroke in job.interruptions if month.contains(came_at(stroke))]
