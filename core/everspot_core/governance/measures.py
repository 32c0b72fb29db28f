"""Measures that would have made a month cheaper, each with its saving, computed from the events of that month.

A measure without a known saving is not recommended, and says why not. Each saving is computed alone: two measures may
concern the same dollars, and then save less together.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.capacity.market import Market
from everspot_core.costs.attempts import Attempt
from everspot_core.costs.bill import Bill
from everspot_core.costs.prices import HOUR, exact, seconds_between, total
from everspot_core.counting import counted
from everspot_core.governance.audit import interruptions_in
from everspot_core.governance.commitments import Advice, HourlyUse, region
from everspot_core.governance.month import Month
from everspot_core.governance.usage import UsageKind, UsageRow
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.job import JobSubmission, Priority
from everspot_core.jobs.records import Event, EventKind, JobRecord
from everspot_core.jobs.reported_values import MOST_SECONDS, parse_number

HEADROOM = Fraction(5, 4)
"""The memory that a job should request, as a multiple of its measured peak."""
LEAST_SPOT_HOURS = 1
"""Hours of work on Spot from which on a type's price there is known."""
_JOB = (UsageKind.WORK, UsageKind.LOST)
_SPOT_KINDS = (*_JOB, UsageKind.BOOT, UsageKind.DRAIN)
"""What work on spot costs: the use of an instance that a job makes necessary."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure. `saving_usd`: None if no saving is known, and `how` says why; otherwise `how` says how it was
    computed."""

    name: str
    description: str
    saving_usd: Fraction | None
    how: str
    jobs: tuple[str, ...] = ()

    @property
    def recommended(self) -> bool:
        """Whether it is known to save something."""
        return self.saving_usd is not None and self.saving_usd > 0


def best(measures: Iterable[Measure], most: int = 3) -> list[Measure]:
    """Return the recommended measures that save most."""
    worthy = [m for m in measures if m.recommended]
    return sorted(worthy, key=lambda m: (-(m.saving_usd or 0), m.name))[:most]


def end_idle_instances(rows: Iterable[UsageRow]) -> Measure:
    """Let instances go that do nothing."""
    idle_rows = [r for r in rows if r.kind is UsageKind.IDLE and r.seconds >= HOUR]
    return Measure(
        "end-idle-instances",
        "declare less standing capacity, or a shorter idle limit: jobs that wait get elastic capacity",
        total(r.cost for r in idle_rows if r.is_exact),
        f"the cost of {len(idle_rows)} hours in which an instance did nothing from beginning to end; shorter pauses "
        "are not counted, since jobs that come soon need the instances",
    )


def move_to_spot(rows: Sequence[UsageRow], jobs: Mapping[str, JobSubmission]) -> Measure:
    """Have on-demand work of jobs that can wait done on Spot."""
    name, advice = "move-to-spot", "let normal jobs without a deadline run on Spot: less standing on-demand capacity"
    rates, moved, saved, hours = _spot_rates(rows, as_if_billed=True), set[str](), Fraction(0), Fraction(0)
    for row in rows:
        job = jobs.get(row.job_id) if row.job_id is not None else None
        if row.kind is not UsageKind.WORK or row.launch is None or job is None or not row.is_exact:
            continue
        rate = rates.get((row.launch.instance_type, region(row.launch)))
        waits = job.spec.priority is Priority.NORMAL and job.deadline_at is None
        if row.launch.market is not Market.ON_DEMAND or not waits or rate is None:
            continue
        saved += row.cost - row.seconds * rate / HOUR
        hours += row.seconds / HOUR
        moved.add(job.job_id)
    if not moved:
        return Measure(name, advice, None, "no such job worked on-demand on a type that also ran on Spot in this month")
    how = (
        f"{float(hours):,.1f} on-demand hours of {counted(len(moved), 'job')}, less what an hour of work on the same "
        "types cost on Spot in this month: boot, redone work and free time included as if they had been billed"
    )
    return Measure(name, advice, saved, how, tuple(sorted(moved)))


def set_on_demand_floor(rows: Sequence[UsageRow], month_hours: Fraction, catalogue: Catalogue) -> Measure:
    """Have work done on-demand whose hour costs more on Spot, all in, than the list price.

    Args:
        rows: Of the month.
        month_hours: The hours of the month that have passed. A number of instances is steady if it holds over them.
        catalogue: For list prices.
    """
    name = "set-on-demand-floor"
    worked: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for row in rows:
        if row.launch is not None and row.launch.market is Market.SPOT and row.kind is UsageKind.WORK:
            worked[row.launch.instance_type, region(row.launch)] += row.seconds / HOUR
    rates, saved, floors = _spot_rates(rows, as_if_billed=False), Fraction(0), list[str]()
    for kind, rate in sorted(rates.items()):
        listed = catalogue.on_demand(*kind)
        if listed is None or rate <= exact(listed.usd_per_hour):
            continue
        saved += worked[kind] * (rate - exact(listed.usd_per_hour))
        steady = worked[kind] / month_hours if month_hours else Fraction(0)
        floors.append(f"{float(steady):.1f} of {kind[0]} in {kind[1]}")
    if not floors:
        none = "an hour of work on Spot, with boot, drain and redone work, cost less than on-demand on every type"
        return Measure(name, "keep no instance on-demand for the price's sake", None, none if rates else _NO_SPOT)
    advice = f"keep on-demand what runs all the time: on average {', '.join(floors)}"
    how = (
        "the hours of work on Spot on these types, times what an hour cost there above the list price, with boot, "
        "drain and redone work; on-demand instances that idle save less"
    )
    return Measure(name, advice, saved, how)


_NO_SPOT = "there was not enough work on Spot to know what an hour of it costs"


def _spot_rates(rows: Iterable[UsageRow], *, as_if_billed: bool) -> dict[tuple[str, str], Fraction]:
    """Return USD for an hour of work on Spot, all in, by type and region, where there was enough of it. `as_if_billed`:
    with the time that was free, which is not to be had on purpose."""
    paid: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    worked: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    unknown = set()
    for row in rows:
        if row.launch is None or row.launch.market is not Market.SPOT or row.kind not in _SPOT_KINDS:
            continue
        kind = row.launch.instance_type, region(row.launch)
        paid[kind] += row.cost + (row.waived if as_if_billed else 0)
        if row.kind is UsageKind.WORK:
            worked[kind] += row.seconds / HOUR
        if not row.is_exact:
            unknown.add(kind)
    return {k: paid[k] / worked[k] for k in worked if worked[k] >= LEAST_SPOT_HOURS and k not in unknown}


@dataclass(frozen=True, slots=True)
class OversizedJob:
    """A job that ran on a larger machine than its memory needed, only because of the resources it asked for. `usd`: its
    cost there in the month; `saving_usd`: at the ratio of list prices."""

    job_id: str
    instance_type: str
    asked_gib: float
    used_gib: float
    would_do: str
    usd: Fraction
    saving_usd: Fraction


def oversized(
    rows: Iterable[UsageRow],
    jobs: Mapping[str, JobSubmission],
    records: Mapping[str, JobRecord],
    catalogue: Catalogue,
    allowed: Collection[str],
) -> list[OversizedJob]:
    """Return the jobs whose measured memory, with headroom, fits a cheaper type with the same processors and GPUs.

    `allowed`: the types that may replace it, which are the types of the cluster. Jobs that share instances, and jobs
    without measurements, are left out.
    """
    spent: dict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
    for row in rows:
        if row.kind in _JOB and row.launch is not None and row.job_id in jobs and row.is_exact:
            spent[row.job_id or "", row.launch.instance_type, region(row.launch)] += row.cost
    candidates = []
    for (job_id, kind, place), usd in sorted(spent.items()):
        record, requested = records.get(job_id), jobs[job_id].spec.resources
        used = record.progress.memory_gib if record is not None else None
        current_type, listed = catalogue.types.get(kind), catalogue.on_demand(kind, place)
        if used is None or current_type is None or listed is None or requested.shared:
            continue
        need = requested.model_copy(update={"memory_gib": max(0.001, float(HEADROOM) * used)})
        other = _cheaper(current_type, catalogue, place, [t for t in allowed if t != kind])
        fit = [
            (usd_, t)
            for usd_, t in other
            if fits(need, Shape.from_machine(t)) and not fits(requested, Shape.from_machine(t))
        ]
        if fit:
            price, instead = min(fit, key=lambda pair: (pair[0], pair[1].name))
            ratio = exact(price) / exact(listed.usd_per_hour)
            candidates.append(
                OversizedJob(job_id, kind, requested.memory_gib, used, instead.name, usd, usd * (1 - ratio))
            )
    return sorted(candidates, key=lambda o: (-o.saving_usd, o.job_id))


def _cheaper(
    current_type: InstanceType, catalogue: Catalogue, place: str, names: Iterable[str]
) -> list[tuple[float, InstanceType]]:
    """Return the cheaper ones of these types with the same processors and GPUs, so that nothing says that they are
    slower."""
    listed = catalogue.on_demand(current_type.name, place)
    cheaper = []
    for name in sorted(set(names)):
        other, price = catalogue.types.get(name), catalogue.on_demand(name, place)
        same = other is not None and (other.arch, other.vcpus, other.gpus, other.gpu, other.gpu_memory_gib) == (
            current_type.arch, current_type.vcpus, current_type.gpus, current_type.gpu, current_type.gpu_memory_gib,
        )  # fmt: skip
        if other is None or not same or price is None or listed is None:
            continue
        if price.usd_per_hour < listed.usd_per_hour:
            cheaper.append((price.usd_per_hour, other))
    return cheaper


@dataclass(frozen=True, slots=True)
class SmallOnGpu:
    """A job that held at most half of its GPU's memory. `usd`: its cost there in the month. Its cost on a smaller GPU
    is unknown, because its speed there is unknown."""

    job_id: str
    instance_type: str
    gpu: str
    memory_gib: float
    used_gib: float
    usd: Fraction


def small_on_gpus(rows: Iterable[UsageRow], records: Mapping[str, JobRecord], catalogue: Catalogue) -> list[SmallOnGpu]:
    """Return the jobs whose measured GPU memory, with headroom, is at most half of each GPU's; the most expensive
    first."""
    spent: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for row in rows:
        if row.kind in _JOB and row.launch is not None and row.job_id is not None and row.is_exact:
            spent[row.job_id, row.launch.instance_type] += row.cost
    candidates = []
    for (job_id, kind), usd in spent.items():
        record, current_type = records.get(job_id), catalogue.types.get(kind)
        used = record.progress.gpu_memory_gib if record is not None else None
        if (
            used is None
            or current_type is None
            or current_type.gpu is None
            or float(HEADROOM) * used > current_type.gpu_memory_gib / 2
        ):
            continue
        candidates.append(SmallOnGpu(job_id, kind, current_type.gpu, current_type.gpu_memory_gib, used, usd))
    return sorted(candidates, key=lambda s: (-s.usd, s.job_id))


def ask_for_less_memory(candidates: Sequence[OversizedJob], measured: int) -> Measure:
    """Have jobs ask for the memory that they use. `measured`: of how many jobs the memory is known."""
    name, advice = (
        "ask-for-less-memory",
        "lower `resources.memory_gib` of these jobs to what they use, with a quarter more",
    )
    if not candidates:
        none = "no job ran on a larger type for the sake of memory alone that it did not use"
        return Measure(name, advice, None, none if measured else "the memory of no job was measured")
    how = (
        "what these jobs cost on their types, at the ratio of the list prices of types with as many processors and GPUs"
    )
    jobs = tuple(sorted({o.job_id for o in candidates}))
    return Measure(name, advice, total(o.saving_usd for o in candidates), how, jobs)


def checkpoint_more_often(
    rows: Sequence[UsageRow], bill: Bill, events: Mapping[str, Sequence[Event]], month: Month, pace: float
) -> Measure:
    """Halve the time between checkpoints of jobs that lose work without notice. `pace`: seconds of market time in a
    real second, because programs report real time."""
    ends = {i.launch.instance_id: i.end for i in bill.instances}
    name, advice = "checkpoint-more-often", "let these jobs checkpoint twice as often, by `checkpoint.every`"
    rows_by_job: dict[str | None, list[UsageRow]] = defaultdict(list)
    for row in rows:
        if row.kind in _JOB:
            rows_by_job[row.job_id].append(row)
    saved, affected_jobs = Fraction(0), []
    for job in bill.jobs:
        strokes = [s for s in interruptions_in(job, month) if not s.with_notice]
        redone = total(_redone(s.attempt, ends) for s in strokes)
        own = rows_by_job.get(job.job_id, [])
        seconds = total(r.seconds for r in own)
        written = [
            parse_number(e.data.get("seconds"), 0, MOST_SECONDS)
            for e in events.get(job.job_id, ())
            if e.kind is EventKind.CHECKPOINTED and e.data.get("trigger") == "interval" and month.contains(e.at)
        ]
        if not redone or not seconds or not all(r.is_exact for r in own):
            continue
        took = [seconds for seconds in written if seconds is not None]
        if not written or len(took) < len(written):
            continue
        more = total(exact(x) * exact(pace) for x in took)
        gain = (redone / 2 - more) * total(r.cost for r in own) / seconds
        if gain > 0:
            saved += gain
            affected_jobs.append(job.job_id)
    if not affected_jobs:
        return Measure(
            name, advice, None, "no job lost more work without notice than further checkpoints would have cost"
        )
    how = (
        "half of the work that was lost without notice, less as many checkpoints again as were written, at their length"
    )
    return Measure(name, advice, saved, how, tuple(sorted(affected_jobs)))


def _redone(attempt: Attempt, ends: Mapping[str, datetime]) -> Fraction:
    """Return seconds of work that an attempt did after its last durable checkpoint. Its instance may have ended before
    the loss was found."""
    durable = attempt.durable_at or attempt.training_at
    ends_known = [m for m in (attempt.end, ends.get(attempt.instance_id or "")) if m is not None]
    return (
        max(Fraction(0), seconds_between(durable, min(ends_known)))
        if durable is not None and ends_known
        else Fraction(0)
    )


def commit_to_use(offers: Sequence[tuple[HourlyUse, Advice]]) -> Measure:
    """Commit to the floor of on-demand use. `offers`: of the month's hours; plans overlap, so the best one counts."""
    name = "commit-to-use"
    if not offers:
        reason = (
            "no plan with a known discount saves on the month's floor of on-demand use, or too little is known of it"
        )
        return Measure(name, "a commitment to the cloud", None, reason)
    use, advice = max(offers, key=lambda pair: pair[1].saved_usd)
    years = counted(use.plan.years, "year")
    commitment = (
        f"{use.plan.name}, {years}: ${advice.pays_usd:,.4f} an hour for {use.scope}; ${advice.owed_usd:,.2f} are owed"
    )
    how = f"a replay of {len(use.dollars)} hours at {100 * (1 - advice.break_even):.1f} % off the list price"
    return Measure(name, commitment, exact(round(advice.saved_usd, 9)), how)
