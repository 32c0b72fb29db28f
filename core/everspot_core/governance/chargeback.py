"""The costs of a month by the value of a tag, such as by team, in lines that add up to the whole.

A line for each value has the work of its jobs, here and at other clusters. Costs that no team asked for have their own
lines: time lost to interruptions, boot, idle time, unused shares, the scheduler. Jobs that visit from other clusters
are one line, because their home charges them, by this cluster's bill. So every dollar is in exactly one line.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from everspot_core.costs.gpu_waste import wasted_gpu_cost
from everspot_core.costs.prices import total
from everspot_core.governance.usage import Sums, UsageKind, UsageRow
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.utilization import Utilization

KEYS = ("Team", "Project", "Environment", "ModelVersion")
"""The default tags that costs are charged by."""


class LineKind(StrEnum):
    """The owner of a line: one VALUE of the tag, the jobs without the tag, or nobody."""

    VALUE = "value"
    UNTAGGED = "untagged"
    VISITORS = "visitors"
    LOST = "lost"
    BOOT = "boot"
    IDLE = "idle"
    DRAIN = "drain"
    SHARED = "shared"
    SCHEDULER = "scheduler"


_OF_NOBODY = {
    UsageKind.LOST: LineKind.LOST,
    UsageKind.BOOT: LineKind.BOOT,
    UsageKind.IDLE: LineKind.IDLE,
    UsageKind.DRAIN: LineKind.DRAIN,
    UsageKind.SHARED: LineKind.SHARED,
    UsageKind.SCHEDULER: LineKind.SCHEDULER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeLine:
    """One line.

    Attributes:
        sums: of its rows, which are in no other line.
        lost: dollars of the same jobs in the line of lost time.
        jobs: how many jobs are in it.
        gpu_cost: dollars of its work here by jobs whose use of GPUs was measured.
        wasted_gpu_cost: the part of them that was paid while no kernel ran on these GPUs. A job's share is that of all
            its measured time, in whichever month.
    """

    kind: LineKind
    value: str
    sums: Sums
    lost: Fraction
    jobs: int
    gpu_cost: Fraction = Fraction(0)
    wasted_gpu_cost: Fraction = Fraction(0)

    @property
    def gpu_utilization(self) -> Fraction | None:
        """The share of `gpu_cost` that was paid while they computed; None if nothing was measured."""
        return 1 - self.wasted_gpu_cost / self.gpu_cost if self.gpu_cost else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    """The lines of one tag, values first, the most expensive first. Their `sums` add up to `whole`."""

    key: str
    lines: tuple[ChargeLine, ...]
    whole: Sums


def charges(
    rows: Iterable[UsageRow],
    submissions: Mapping[str, JobSubmission],
    key: str,
    uses: Mapping[str, Utilization] | None = None,
) -> Charges:
    """Return the charges of a month's rows by the tag `key`. `uses`: what jobs used of their machines, by their ids."""
    groups: dict[tuple[LineKind, str], list[UsageRow]] = defaultdict(list)
    lost: dict[str, Fraction] = defaultdict(Fraction)
    all_rows = list(rows)
    for row in all_rows:
        submission = submissions.get(row.job_id or "")
        value = submission.spec.tags.get(key, "") if submission is not None else ""
        kind = _line_kind(row, submission, value)
        if kind is LineKind.LOST:
            lost[value] += row.cost
        groups[kind, value if kind is LineKind.VALUE else ""].append(row)
    # Jobs of a value may have worked in other months, and lost time in this one.
    for value in lost:
        groups.setdefault((LineKind.VALUE if value else LineKind.UNTAGGED, value), [])
    lines = [
        ChargeLine(
            kind=kind,
            value=value,
            sums=Sums.sum_rows(own),
            lost=lost.get(value, Fraction(0)) if kind in (LineKind.VALUE, LineKind.UNTAGGED) else Fraction(0),
            jobs=len({row.job_id for row in own if row.job_id is not None}),
            gpu_cost=gpu_cost,
            wasted_gpu_cost=wasted,
        )
        for (kind, value), own in groups.items()
        for gpu_cost, wasted in [_gpu_costs(own, uses or {})]
    ]
    order = list(LineKind)
    ordered = sorted(lines, key=lambda line: (order.index(line.kind), -line.sums.cost, line.value))
    return Charges(key=key, lines=tuple(ordered), whole=Sums.sum_rows(all_rows))


def _gpu_costs(rows: Iterable[UsageRow], uses: Mapping[str, Utilization]) -> tuple[Fraction, Fraction]:
    """Return the dollars of work here on GPUs that were measured, and the wasted part of them."""
    measured, wasted = Fraction(0), Fraction(0)
    for row in rows:
        part = wasted_gpu_cost(row.cost, uses.get(row.job_id or "")) if row.kind is UsageKind.WORK else None
        if part is not None:
            measured, wasted = measured + row.cost, wasted + part
    return measured, wasted


def _line_kind(row: UsageRow, submission: JobSubmission | None, value: str) -> LineKind:
    if submission is not None and submission.visit is not None:
        return LineKind.VISITORS
    if row.kind in _OF_NOBODY:
        return _OF_NOBODY[row.kind]
    return LineKind.VALUE if value else LineKind.UNTAGGED


def apportioned(amounts: Sequence[Fraction], places: int) -> list[Fraction]:
    """Return the amounts, none of them negative, rounded to `places` decimals such that they add up to their rounded
    sum: the largest remainders are rounded up, the first of equal ones first."""
    unit = Fraction(1, 10**places)
    whole = [amount // unit for amount in amounts]
    sum_ = total(amounts) / unit
    units_left = int(sum_ + Fraction(1, 2)) - sum(whole)
    raised = set(sorted(range(len(amounts)), key=lambda n: (whole[n] - amounts[n] / unit, n))[:units_left])
    return [(count + (n in raised)) * unit for n, count in enumerate(whole)]
