"""The figures of a simulated workload on several clusters: deadlines, dollars, and moves by reason."""

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from everspot_core.jobs.records import JobState
from everspot_core.schedule.jobs import HOUR

from everspot_simulator.federated_drive import FederatedRun
from everspot_simulator.figures import SimulatedBill, WaitingTimes, compute_bill, late_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures:
    """The figures of one cluster.

    Attributes:
        jobs: submitted there.
        finished: there, of every home.
        egress_usd: of bytes sent from there on; a way over the home counts where it began.
        cost: of its instances.
    """

    jobs: int
    finished: int
    arrived: int
    left: int
    egress_usd: float
    cost: SimulatedBill
    launched: int
    launches_refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedFigures:
    """All figures.

    Attributes:
        misses: jobs that ended after their deadline or had not ended by then, without refused ones.
        met_share: of the deadlines that were not refused, the fraction that was met; 1 without any.
        usd: of all instances, without `egress_usd`.
        moves: by reason.
        moved: jobs that moved at all.
        declined: offers that the other cluster did not take.
        undated_waits: for each job without a deadline, the hours without an instance from its submission to its end.
    """

    jobs: int
    finished: int
    refused: int
    unfinished: int
    with_deadline: int
    misses: int
    met_share: float
    latest_hours: float
    usd: float
    egress_usd: float
    gigabytes: float
    moves: dict[str, int]
    moved: int
    declined: int
    undated_waits: WaitingTimes
    hours: float
    clusters: dict[str, ClusterFigures]

    @property
    def total_usd(self) -> float:
        """Instances and egress."""
        return self.usd + self.egress_usd

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {**asdict(self), "total_usd": self.total_usd}


def federated_figures(run: FederatedRun) -> FederatedFigures:
    """Return the figures of a run."""
    tasks = [job.task for job in run.jobs.values()]
    ended_at = max(each.ended_at for each in run.runs.values())
    late = [x for t in tasks if (x := late_hours(t, ended_at)) is not None]
    misses, clusters = sum(x > 0 for x in late), {name: _cluster(run, name) for name in run.runs}
    return FederatedFigures(
        jobs=len(tasks),
        finished=sum(t.state is JobState.SUCCEEDED for t in tasks),
        refused=sum(t.refused for t in tasks),
        unfinished=sum(not t.state.final for t in tasks),
        with_deadline=len(late),
        misses=misses,
        met_share=1 - misses / len(late) if late else 1.0,
        latest_hours=max([0.0, *late]),
        usd=sum(c.cost.total for c in clusters.values()),
        egress_usd=sum(m.usd for m in run.moves),
        gigabytes=sum(m.gigabytes for m in run.moves),
        moves=dict(sorted(Counter(m.reason.value for m in run.moves).items())),
        moved=len({m.job_id for m in run.moves}),
        declined=run.declined,
        undated_waits=WaitingTimes.from_hours(_undated_waits(run, ended_at).values()),
        hours=(ended_at - min(each.began_at for each in run.runs.values())) / HOUR,
        clusters=clusters,
    )


def _undated_waits(run: FederatedRun, ended_at: datetime) -> dict[str, float]:
    """Return the hours without an instance of each job without a deadline; until `ended_at` for one that has not
    ended."""
    undated = {name: job.task for name, job in run.jobs.items() if job.submission.deadline_at is None}
    waits = {
        name: ((task.finished_at or ended_at) - run.jobs[name].submission.submitted_at) / HOUR
        for name, task in undated.items()
    }
    for attempt in (a for each in run.runs.values() for a in each.attempts if a.job_id in undated):
        waits[attempt.job_id] -= (attempt.ended_at - attempt.began_at) / HOUR
    return waits


def _cluster(run: FederatedRun, name: str) -> ClusterFigures:
    here = run.runs[name]
    return ClusterFigures(
        jobs=sum(j.home == name for j in run.jobs.values()),
        finished=sum(t.state is JobState.SUCCEEDED for t in here.tasks.values()),
        arrived=sum(m.goal == name for m in run.moves),
        left=sum(m.origin == name for m in run.moves),
        egress_usd=sum(m.usd for m in run.moves if m.origin == name),
        cost=compute_bill(here),
        launched=sum(m.launched_for is not None for m in here.machines),
        launches_refused=here.launches_refused,
    )
