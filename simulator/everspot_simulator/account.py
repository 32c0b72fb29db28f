"""The result of a workload, in the same terms for a simulation and for a live cluster, so that both can be compared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from everspot_core.costs.bill import Bill
from everspot_core.costs.prices import total
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Market, Reason, Role

from everspot_simulator.drive import WorkloadRun, simulate
from everspot_simulator.figures import figures
from everspot_simulator.trace import Trace
from everspot_simulator.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The result of a workload. Jobs have the names that their authors gave them.

    Attributes:
        usd: cost of all agent instances from launch to end, without the scheduler's.
        idle_usd_share: the fraction of it that paid for time without a job.
        met: the jobs with a deadline that met it.
        late: the jobs with a deadline that missed it.
        refused: jobs that never started.
        failovers: by job, how often it moved from spot to on-demand; jobs that never did are absent.
    """

    usd: float
    idle_usd_share: float
    met: frozenset[str]
    late: frozenset[str]
    refused: frozenset[str]
    failovers: Mapping[str, int]


def simulated(workload: Workload, traces: Mapping[str, Trace]) -> Account:
    """Return the result that the simulator predicts for a workload. `traces`: by the names that its fleet uses."""
    return of_run(simulate(workload, traces))


def of_run(run: WorkloadRun) -> Account:
    """Return the result of a simulation."""
    totals = figures(run)
    dated = {n: t for n, t in run.tasks.items() if t.submission.deadline_at is not None and not t.refused}
    ends = {n: t.finished_at for n, t in dated.items()}
    markets: dict[str, list[tuple[datetime, Market]]] = {}
    pools = {m.instance_id: m.pool for m in run.machines}
    for attempt in run.attempts:
        market = pools[attempt.instances[0]].market
        markets.setdefault(attempt.job_id, []).append((attempt.began_at, market))
    met = frozenset(n for n, t in dated.items() if _in_time(ends[n], t.submission.deadline_at))
    return Account(
        usd=totals.cost.total,
        idle_usd_share=totals.idle_usd_share,
        met=met,
        late=frozenset(dated) - met,
        refused=frozenset(n for n, t in run.tasks.items() if t.refused),
        failovers=_failovers(markets),
    )


def of_bill(bill: Bill, submissions: Mapping[str, JobSubmission], refused: Iterable[str] = ()) -> Account:
    """Return the result on a live cluster, from its ledger and its events. `refused`: the ids of jobs that never
    started."""
    names = {job: submission.spec.name for job, submission in submissions.items()}
    out = set(refused)
    working = [i for i in bill.instances if i.launch.role is Role.AGENT]
    cost = total(i.cost for i in working)
    idle = total(u.cost for i in working for u in i.usages if u.job_id is None)
    ends: dict[str, datetime | None] = {}
    markets: dict[str, list[tuple[datetime, Market]]] = {}
    for job in (j for j in bill.jobs if j.job_id in names):
        ends[job.job_id] = next((a.end for a in job.attempts if a.reason is Reason.FINISHED), None)
        spans = [(a.start, Market(a.market)) for a in job.attempts if a.market in set(Market)]
        markets[names[job.job_id]] = spans
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
    """Return the differences between a prediction and the result of a cluster, as sentences; empty if both agree.

    `usd`: the allowed relative difference of cost; `failovers`: the allowed difference of the sum of failovers.
    """
    sentences = []
    if abs(lived.usd - promised.usd) > usd * promised.usd:
        sentences.append(f"it cost ${lived.usd:.2f} instead of ${promised.usd:.2f}")
    for label, here, actual in (
        ("done in time", promised.met, lived.met),
        ("late", promised.late, lived.late),
        ("refused", promised.refused, lived.refused),
    ):
        if here != actual:
            sentences.append(f"{label}: {_join_names(actual)} instead of {_join_names(here)}")
    before, after = sum(promised.failovers.values()), sum(lived.failovers.values())
    if abs(after - before) > failovers:
        sentences.append(f"{after} failovers instead of {before}")
    return sentences


def _in_time(end: datetime | None, deadline: datetime | None) -> bool:
    return end is not None and deadline is not None and end <= deadline


def _failovers(markets: Mapping[str, Iterable[tuple[datetime, Market]]]) -> dict[str, int]:
    counts = {}
    for job, spans in markets.items():
        order = [market for _, market in sorted(spans)]
        count = sum((a, b) == (Market.SPOT, Market.ON_DEMAND) for a, b in pairwise(order))
        if count:
            counts[job] = count
    return counts


def _join_names(jobs: Iterable[str]) -> str:
    return ", ".join(sorted(jobs)) or "none"
