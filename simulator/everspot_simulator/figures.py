"""The figures of a simulated workload: cost, deadlines, waiting times, fairness, utilization."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from everspot_core.jobs.records import JobState, Market
from everspot_core.schedule.jobs import HOUR

from everspot_simulator.drive import WorkloadRun
from everspot_simulator.state import SimulatedInstance, Task

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedBill:
    """US dollars for every instance that is not free, from launch to end. `idle`: the part for hours without a job."""

    total: float
    spot: float
    on_demand: float
    idle: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTimes:
    """Hours from submission to the first instance, or to refusal or the simulation's end if a job never had one."""

    jobs: int
    mean: float
    p50: float
    p95: float
    max: float

    @classmethod
    def from_hours(cls, waited: Iterable[float]) -> "WaitingTimes":
        """Return the figures of these hours; percentiles by nearest rank."""
        order = sorted(waited)
        if not order:
            return cls(jobs=0, mean=0.0, p50=0.0, p95=0.0, max=0.0)
        half, most = (order[math.ceil(part * len(order)) - 1] for part in (0.5, 0.95))
        return cls(jobs=len(order), mean=statistics.fmean(order), p50=half, p95=most, max=order[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fairness:
    """How evenly instances were shared among teams that had jobs waiting.

    Attributes:
        jain: Jain's index, 1 if each held instances in proportion to its weight, 1/n at worst.
        teams: dollars an hour of the instances that a team held while it waited, over its weight; teams that never
            waited are absent.
    """

    jain: float
    teams: dict[str, float]
    max_wait_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFigures:
    """All figures.

    Attributes:
        misses: jobs that ended after their deadline or had not ended by then, without refused ones.
        utilization: hours in which instances held a job, over hours paid.
        changeovers: how often a job started on instances.
        preemptions: how often a job lost spot instances.
        unfinished: jobs at the end of the simulation.
        idle_usd_share: the fraction of the cost that paid for instances without a job.
    """

    jobs: int
    finished: int
    refused: int
    unfinished: int
    with_deadline: int
    misses: int
    latest_hours: float
    cost: SimulatedBill
    idle_usd_share: float
    waiting: WaitingTimes
    waiting_by_priority: dict[str, WaitingTimes]
    waiting_by_team: dict[str, WaitingTimes]
    fairness: Fairness
    paid_hours: float
    busy_hours: float
    utilization: float
    preemptions: int
    changeovers: int
    launched: int
    launches_refused: int
    hours: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return asdict(self)


def figures(run: WorkloadRun) -> WorkloadFigures:
    """Return the figures of a run."""
    tasks = list(run.tasks.values())
    paid_hours, busy_hours = sum(_paid(run).values()), sum(_busy(run).values())
    late = [x for t in tasks if (x := late_hours(t, run.ended_at)) is not None]
    waited, cost = _first_waits(run), compute_bill(run)
    return WorkloadFigures(
        jobs=len(tasks),
        finished=sum(t.state is JobState.SUCCEEDED for t in tasks),
        refused=sum(t.refused for t in tasks),
        unfinished=sum(not t.state.final for t in tasks),
        with_deadline=len(late) + sum(t.refused for t in tasks),
        misses=sum(x > 0 for x in late),
        latest_hours=max([0.0, *late]),
        cost=cost,
        idle_usd_share=cost.idle / cost.total if cost.total else 0.0,
        waiting=WaitingTimes.from_hours(waited.values()),
        waiting_by_priority=_by(tasks, waited, lambda t: t.job.priority.value),
        waiting_by_team=_by(tasks, waited, lambda t: t.job.team),
        fairness=_fairness(run, max(waited.values(), default=0.0)),
        paid_hours=paid_hours,
        busy_hours=busy_hours,
        utilization=busy_hours / paid_hours if paid_hours else 0.0,
        preemptions=sum(t.preemptions for t in tasks),
        changeovers=len(run.attempts),
        launched=sum(m.launched_for is not None for m in run.machines),
        launches_refused=run.launches_refused,
        hours=(run.ended_at - run.began_at) / HOUR,
    )


def compute_bill(run: WorkloadRun) -> SimulatedBill:
    """Return the cost of the run's instances."""
    paid, busy, free = _paid(run), _busy(run), run.workload.fleet.free_within_hours
    billed = [m for m in run.machines if not (m.interrupted and paid[m.instance_id] < free)]
    dollars = {m.instance_id: m.usd_per_hour * paid[m.instance_id] for m in billed}
    spot = sum(dollars[m.instance_id] for m in billed if m.pool.market is Market.SPOT)
    idle = sum(m.usd_per_hour * (paid[m.instance_id] - busy.get(m.instance_id, 0.0)) for m in billed)
    total = sum(dollars.values())
    return SimulatedBill(total=total, spot=spot, on_demand=total - spot, idle=idle)


def _paid(run: WorkloadRun) -> dict[str, float]:
    """Return hours from launch to end of each instance."""
    return {m.instance_id: (_end(m) - m.launched_at) / HOUR for m in run.machines}


def _busy(run: WorkloadRun) -> dict[str, float]:
    """Return the hours in which each instance held at least one job."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for attempt in run.attempts:
        for name in attempt.instances:
            spans[name].append((attempt.began_at, attempt.ended_at))
    return {
        name: sum(((end - start) / HOUR for start, end in _union(job_spans)), 0.0) for name, job_spans in spans.items()
    }


def late_hours(task: Task, ended_at: datetime) -> float | None:
    """Return hours after the deadline: negative or 0 if it was met, None without one. Up to a millisecond is
    rounding."""
    deadline = task.submission.deadline_at
    if deadline is None or task.refused:
        return None
    late = (task.finished_at if task.finished_at is not None else ended_at) - deadline
    if task.finished_at is None and late <= timedelta(0):
        return 0.0  # there was still time when the simulation ended
    return late / HOUR if late > timedelta(milliseconds=1) else min(0.0, late / HOUR)


def _first_waits(run: WorkloadRun) -> dict[str, float]:
    first: dict[str, datetime] = {}
    for attempt in run.attempts:
        first[attempt.job_id] = min(attempt.began_at, first.get(attempt.job_id, attempt.began_at))
    waits = {}
    for name, task in run.tasks.items():
        over = task.record.changed_at if task.refused and task.record is not None else run.ended_at
        waits[name] = (first.get(name, over) - task.submission.submitted_at) / HOUR
    return waits


def _by(tasks: Iterable[Task], waited: dict[str, float], name: Callable[[Task], str]) -> dict[str, WaitingTimes]:
    groups: dict[str, list[float]] = defaultdict(list)
    for task in tasks:
        groups[name(task)].append(waited[task.job.id])
    return {group: WaitingTimes.from_hours(groups[group]) for group in sorted(groups)}


def _fairness(run: WorkloadRun, max_wait: float) -> Fairness:
    held_by_team: dict[str, list[tuple[Span, float]]] = defaultdict(list)
    attempts: dict[str, list[Span]] = defaultdict(list)
    for attempt in run.attempts:
        span = attempt.began_at, attempt.ended_at
        held_by_team[run.tasks[attempt.job_id].job.team].append((span, attempt.usd_per_hour))
        attempts[attempt.job_id].append(span)
    waits: dict[str, list[Span]] = defaultdict(list)
    for name, task in run.tasks.items():
        waits[task.job.team] += _gaps(task, attempts[name], run.ended_at)
    rates = {}
    for team, spans in sorted(waits.items()):
        waiting = _union(spans)
        span_hours = sum((end - start) / HOUR for start, end in waiting)
        if span_hours > 0:
            dollars = sum(usd * _overlap(span, waiting) for span, usd in held_by_team[team])
            rates[team] = dollars / span_hours / run.workload.teams.get(team, 1.0)
    return Fairness(jain=jain(rates.values()), teams=rates, max_wait_hours=max_wait)


def jain(shares: Iterable[float]) -> float:
    """Return Jain's index of fairness: 1 if all are alike, 1/n if one has everything; 1 if there is nothing to
    share."""
    all_shares = list(shares)
    squares = sum(x * x for x in all_shares)
    return sum(all_shares) ** 2 / (len(all_shares) * squares) if squares else 1.0


def _gaps(task: Task, attempts: Iterable[Span], ended_at: datetime) -> list[Span]:
    """Return the times in which the job waited."""
    over = ended_at
    if task.state.final and task.record is not None:
        over = task.record.changed_at
    gaps, since = [], task.submission.submitted_at
    for start, end in sorted(attempts):
        gaps.append((since, start))
        since = end
    return [(a, b) for a, b in [*gaps, (since, over)] if a < b]


def _union(spans: Iterable[Span]) -> list[Span]:
    """Return the union of the spans, as spans that do not overlap, in order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _overlap(span: Span, others: Iterable[Span]) -> float:
    """Return the hours of the span that lie in the others; those must not overlap."""
    return sum(max(0.0, (min(span[1], end) - max(span[0], start)) / HOUR) for start, end in others)


def _end(machine: SimulatedInstance) -> datetime:
    assert machine.ended_at is not None  # noqa: S101 - a run has ended all of them
    return machine.ended_at
