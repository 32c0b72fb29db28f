"""What a workload came to, told alike of a simulation and of a cluster that has lived through it, to be compared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from everspot_core.cost import Bill
from everspot_core.job import JobSubmission
from everspot_core.prices import total
from everspot_core.records import Market, Reason, Role
from everspot_core.schedule import plan
from everspot_core.simulate.drive import Plan, WorkloadRun, simulate
from everspot_core.simulate.figures import figures
from everspot_core.simulate.trace import Trace
from everspot_core.simulate.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Jobs are named as their author names them.

    `usd`: of all instances that work, from launch to end; the scheduler's own is not in it. `idle_usd_share`: the part
    for time without a job, from 0 to 1. `met`, `late`: jobs with a deadline by whether they were done by then;
    `refused`: those that were not begun. `failovers`: by job, how often it went on on-demand after spot, if it did.
    """

    usd: float
    idle_usd_share: float
    met: frozenset[str]
    late: frozenset[str]
    refused: frozenset[str]
    failovers: Mapping[str, int]


def simulated(workload: Workload, traces: Mapping[str, Trace], plan: Plan = plan) -> Account:
    """What the simulator promises of a workload. `traces`: by the names that its fleet uses."""
    return of_run(simulate(workload, traces, plan))


def of_run(run: WorkloadRun) -> Account:
    """What came of a simulation."""
    told = figures(run)
    dated = {n: t for n, t in run.tasks.items() if t.submission.deadline_at is not None and not t.refused}
    ends = {n: t.finished_at for n, t in dated.items()}
    markets: dict[str, list[tuple[datetime, Market]]] = {}
    pools = {m.instance_id: m.pool for m in run.machines}
    for attempt in run.attempts:
        there = pools[attempt.instances[0]].market
        markets.setdefault(attempt.job_id, []).append((attempt.began_at, there))
    met = frozenset(n for n, t in dated.items() if _in_time(ends[n], t.submission.deadline_at))
    return Account(
        usd=told.cost.total,
        idle_usd_share=told.idle_usd_share,
        met=met,
        late=frozenset(dated) - met,
        refused=frozenset(n for n, t in run.tasks.items() if t.refused),
        failovers=_failovers(markets),
    )


def of_bill(bill: Bill, submissions: Mapping[str, JobSubmission], refused: Iterable[str] = ()) -> Account:
    """What came of a cluster, by its ledger and its events. `refused`: the ids of jobs that were not begun."""
    names = {job: submission.spec.name for job, submission in submissions.items()}
    out = set(refused)
    working = [i for i in bill.instances if i.launch.role is Role.AGENT]
    cost = total(i.cost for i in working)
    idle = total(u.cost for i in working for u in i.usages if u.job_id is None)
    ends: dict[str, datetime | None] = {}
    markets: dict[str, list[tuple[datetime, Market]]] = {}
    for job in (j for j in bill.jobs if j.job_id in names):
        ends[job.job_id] = next((a.end for a in job.attempts if a.reason is Reason.FINISHED), None)
        held = [(a.start, Market(a.market)) for a in job.attempts if a.market in set(Market)]
        markets[names[job.job_id]] = held
    dated = {j: s.deadline_at for j, s in submissions.items() if s.deadline_at is not None and j not in out}
    met = {job for job, deadline in dated.items() if _in_time(ends.get(job), deadline)}
    return Account(
        usd=float(cost),
        idle_usd_share=float(idle / cost) if cost else 0.0,
        met=frozenset(names[job] for job in met),
        late=frozenset(names[job] for job in dated.keys() - met),
        refused=frozenset(names[job] for job in out),
        failovers=_failovers(markets),
    )


def differences(promised: Account, lived: Account, *, usd: float = 0.1, failovers: int = 1) -> list[str]:
    """In which respects a cluster did not keep what was promised, in words; empty if it did.

    `usd`: the part by which the dollars may differ; `failovers`: by how many all of them may.
    """
    found = []
    if abs(lived.usd - promised.usd) > usd * promised.usd:
        found.append(f"it cost ${lived.usd:.2f} instead of ${promised.usd:.2f}")
    for what, here, there in (
        ("done in time", promised.met, lived.met),
        ("late", promised.late, lived.late),
        ("refused", promised.refused, lived.refused),
    ):
        if here != there:
            found.append(f"{what}: {_named(there)} instead of {_named(here)}")
    before, after = sum(promised.failovers.values()), sum(lived.failovers.values())
    if abs(after - before) > failovers:
        found.append(f"{after} failovers instead of {before}")
    return found


def _in_time(end: datetime | None, deadline: datetime | None) -> bool:
    return end is not None and deadline is not None and end <= deadline


def _failovers(markets: Mapping[str, Iterable[tuple[datetime, Market]]]) -> dict[str, int]:
    found = {}
    for job, held in markets.items():
        order = [market for _, market in sorted(held)]
        count = sum((a, b) == (Market.SPOT, Market.ON_DEMAND) for a, b in pairwise(order))
        if count:
            found[job] = count
    return found


def _named(jobs: Iterable[str]) -> str:
    return ", ".join(sorted(jobs)) or "none"
