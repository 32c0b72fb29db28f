"""Runs a workload on several simulated clusters, which take over jobs from each other.

The clusters have one clock. Each plans on its own, after its own events. At an interval all of them look at their jobs.
A job that is better off elsewhere is offered to one other cluster, by that cluster's last published market. The other
cluster accepts or declines, by its present market. A job that moves keeps its progress, and is in no queue while its
checkpoint is copied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from everspot_core.federation.decision import DEFAULT, MovableJob, Move, MoveWhy, decide_move, needs_no_move
from everspot_core.federation.forecast import MoveCost, forecast_job
from everspot_core.federation.market import ClusterMarket, waited_for
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.lease import waits_since
from everspot_core.jobs.records import JobRecord, Order, Reason
from everspot_core.schedule import JobView, PoolKey, plan
from everspot_core.schedule.jobs import critical

from everspot_simulator.cluster import Cluster
from everspot_simulator.drive import WorkloadRun, close_run, plan_until_stable
from everspot_simulator.federated import FederatedWorkload
from everspot_simulator.state import Task, hours
from everspot_simulator.supply import BEGIN
from everspot_simulator.trace import Trace

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedMove:
    """A move of a job. `usd`: of the bytes that left clusters for it."""

    job_id: str
    reason: MoveWhy
    origin: str
    goal: str
    at: datetime
    gigabytes: float
    usd: float


@dataclass(slots=True, kw_only=True, eq=False)
class FederatedJob:
    """A job and its place.

    Attributes:
        at: None on the way to `goal`.
        records: its record in each cluster that it has left.
        waits_since: when it had begun to wait, as of its last departure.
        declined: when each cluster last declined it.
    """

    task: Task
    home: str
    submission: JobSubmission
    at: str | None
    goal: str
    arrives_at: datetime | None = None
    moved_at: datetime | None = None
    waits_since: datetime | None = None
    declined: dict[str, datetime] = field(default_factory=dict)
    records: dict[str, JobRecord | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedRun:
    """A simulated workload on several clusters. `declined`: offers that the cluster asked did not take."""

    workload: FederatedWorkload
    runs: Mapping[str, WorkloadRun]
    jobs: Mapping[str, FederatedJob]
    moves: Sequence[FederatedMove]
    declined: int


def simulate_federated(
    workload: FederatedWorkload,
    traces: Mapping[str, Trace],
    *,
    moving: bool = True,
) -> FederatedRun:
    """Simulate until every job is over, or the horizon is reached.

    `traces`: by the names that the fleets use. `moving`: False: every job stays at home, to compare with.

    Raises:
        Broken: if the plan breaks an invariant.
    """
    federation = _Federation(workload, traces)
    interval = timedelta(seconds=workload.terms.every_seconds)
    horizon, look = BEGIN + hours(workload.horizon_hours), BEGIN if moving else _NEVER
    while not federation.over:
        now = min(look, federation.next_moment())
        if now > horizon:
            federation.pass_to(horizon, everyone=True)
            break
        federation.pass_to(now, everyone=now == look)
        if now == look:
            federation.look()
            look = now + interval
    return federation.close()


class _Member:
    """One cluster. `due`: when its plan is asked again without any event."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name, self.cluster, self.plans = name, cluster, 0
        self._due, self._next = _NEVER, _NEVER
        self.plan_until_stable()

    @property
    def next_moment(self) -> datetime:
        return self._next

    def pass_to(self, now: datetime) -> None:
        """Advance to `now`, and plan if there is anything to plan for."""
        event = self._next <= now
        self.cluster.pass_to(now)
        if event:
            self.plan_until_stable()

    def plan_until_stable(self) -> None:
        """Plan until nothing changes."""
        cluster, self._due = self.cluster, _NEVER
        if not cluster.over or cluster.machines:
            plan_count, again, _ = plan_until_stable(cluster, plan)
            self.plans += plan_count
            self._due = cluster.now + timedelta(seconds=cluster.fleet.tick_seconds) if again else _NEVER
        self._next = min(self._due, cluster.next_moment() or _NEVER)


class _Federation:
    """The clusters, the jobs, and the time that passes for all of them."""

    def __init__(self, workload: FederatedWorkload, traces: Mapping[str, Trace]) -> None:
        self._workload, self._now = workload, BEGIN
        self._members = {name: _Member(name, Cluster(each, traces)) for name, each in workload.clusters.items()}
        self._jobs: dict[str, FederatedJob] = {}
        self._moves: list[FederatedMove] = []
        self._published: dict[str, ClusterMarket] = {}
        self._declined = 0

    @property
    def over(self) -> bool:
        """Whether every job is over."""
        return not self._on_the_way() and all(m.cluster.over for m in self._members.values())

    def next_moment(self) -> datetime:
        """Return the next event of any cluster, or arrival of a job."""
        arrivals = [j.arrives_at for j in self._on_the_way() if j.arrives_at is not None]
        return min([*arrivals, *(m.next_moment for m in self._members.values())])

    def pass_to(self, now: datetime, *, everyone: bool) -> None:
        """Advance the clusters that have an event now, or all of them; then let jobs arrive."""
        self._now = now
        for member in self._members.values():
            if everyone or member.next_moment <= now:
                member.pass_to(now)
        for job in self._on_the_way():
            if job.arrives_at is not None and job.arrives_at <= now:
                self._arrive(job)

    def look(self) -> None:
        """Offer every job that should move to the other clusters."""
        fresh = {name: self._market(name) for name in self._members}
        published = self._published or fresh
        self._register()
        for job in sorted(self._jobs.values(), key=lambda j: (j.submission.deadline_at or _NEVER, j.task.job.id)):
            if job.at is not None and not job.task.state.final:
                self._consider(job, fresh, published)
        self._published = {name: self._market(name) for name in self._members}

    def close(self) -> FederatedRun:
        """End the simulation."""
        for member in self._members.values():
            member.cluster.pass_to(self._now)
            member.cluster.close()
        self._register()
        runs = {name: close_run(m.cluster, m.plans) for name, m in self._members.items()}
        return FederatedRun(
            workload=self._workload, runs=runs, jobs=self._jobs, moves=self._moves, declined=self._declined
        )

    def _register(self) -> None:
        """Note the jobs that were submitted since: each is at its home."""
        for name, member in self._members.items():
            for task in member.cluster.tasks.values():
                if task.job.id not in self._jobs:
                    new = FederatedJob(task=task, home=name, submission=task.submission, at=name, goal=name)
                    self._jobs[task.job.id] = new

    def _on_the_way(self) -> list[FederatedJob]:
        return [j for j in self._jobs.values() if j.at is None]

    def _market(self, name: str) -> ClusterMarket:
        """Return the market of a cluster, less the needs of its own waiting jobs and of the jobs on the way to it."""
        cluster = self._members[name].cluster
        view, fleet = cluster.view(), cluster.fleet
        coming = sum(j.task.job.nodes for j in self._on_the_way() if j.goal == name)
        changeover = Changeover(hours(fleet.expected_hours), hours(fleet.upper_hours))
        return ClusterMarket.from_view(name, view, changeover=changeover, promised=waited_for(view, self._now) + coming)

    def _consider(
        self, job: FederatedJob, fresh: dict[str, ClusterMarket], published: Mapping[str, ClusterMarket]
    ) -> None:
        """Offer the job to another cluster if it is better off there."""
        assert job.at is not None  # noqa: S101 - it is in a cluster
        member, now = self._members[job.at], self._now
        held_pool, ready_at = _held_pool(job.task, member.cluster)
        view = job.task.view(now, member.cluster.fleet, ready_at)
        here = forecast_job(view, replace(fresh[job.at], promised=0), now, held_pool=held_pool)
        traveller = MovableJob(
            job_id=job.task.job.id,
            deadline_at=job.submission.deadline_at,
            has_instance=held_pool is not None,
            critical=critical(view),
            moved_at=job.moved_at,
            declined=job.declined,
        )
        if needs_no_move(traveller, here, DEFAULT):
            return
        others = [n for n in self._members if n != job.at]
        elsewhere = [forecast_job(view, published[n], now, move_cost=self._passage(job, n)) for n in others]
        move = decide_move(traveller, here, elsewhere, DEFAULT, now)
        if move is not None:
            self._offer(job, view, move, fresh)

    def _offer(self, job: FederatedJob, view: JobView, move: Move, fresh: dict[str, ClusterMarket]) -> None:
        goal, move_cost = move.cluster, self._passage(job, move.cluster)
        if not forecast_job(view, fresh[goal], self._now, move_cost=move_cost).feasible:
            job.declined[goal] = self._now
            self._declined += 1
            return
        fresh[goal] = replace(fresh[goal], promised=fresh[goal].promised + job.task.job.nodes)
        self._depart(job, move, move_cost)

    def _depart(self, job: FederatedJob, move: Move, move_cost: MoveCost) -> None:
        assert job.at is not None  # noqa: S101 - it is in a cluster
        member, task = self._members[job.at], job.task
        if task.instances:
            for machine in task.instances:
                if machine.assignment is not None:
                    update = {"order": Order.STOP, "reason": Reason.MOVE, "changed_at": self._now}
                    machine.assignment = machine.assignment.model_copy(update=update)
            member.cluster.give_back(task, Reason.MOVE)
        job.waits_since = waits_since(task.record, task.submission)
        job.records[job.at] = task.record
        del member.cluster.tasks[task.job.id]
        self._moves.append(
            FederatedMove(
                job_id=task.job.id,
                reason=move.reason,
                origin=job.at,
                goal=move.cluster,
                at=self._now,
                gigabytes=task.job.checkpoint_gb,
                usd=move_cost.usd,
            )
        )
        job.at, job.goal, job.arrives_at, job.moved_at = None, move.cluster, self._now + move_cost.expected, self._now
        member.plan_until_stable()

    def _arrive(self, job: FederatedJob) -> None:
        """Put the job into the queue of its goal: at home unchanged, elsewhere as a visit, whose wait goes on."""
        member, task = self._members[job.goal], job.task
        visit = {"submitted_at": job.waits_since or self._now, "forced": True}
        task.submission = job.submission.model_copy(update=visit if job.goal != job.home else {})
        task.record = job.records.get(job.goal)
        job.at, job.arrives_at = job.goal, None
        member.pass_to(self._now)
        member.cluster.tasks[task.job.id] = task
        member.plan_until_stable()

    def _passage(self, job: FederatedJob, goal: str) -> MoveCost:
        """Return the way to another cluster. From one host to the next it leads home, as only the home deals with
        others."""
        legs = [job.at or job.home] if job.home in (job.at, goal) else [job.at or job.home, job.home]
        rate, egress = self._workload.terms.gigabytes_per_hour, self._workload.egress
        ways = [MoveCost.for_bytes(job.task.job.checkpoint_gb, egress[origin], rate) for origin in legs]
        return ways[0] if len(ways) == 1 else ways[0] + ways[1]


def _held_pool(task: Task, cluster: Cluster) -> tuple[PoolKey | None, datetime | None]:
    """Return the pool of the instances that the job holds, or that are on their way to it; and when the latter are
    ready."""
    if task.instances:
        return task.instances[0].pool, None
    coming = [m for m in cluster.machines.values() if m.launched_for == task.job.id]
    return (coming[0].pool, max(m.ready_at for m in coming)) if coming else (None, None)
