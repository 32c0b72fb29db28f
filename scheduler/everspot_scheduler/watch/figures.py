"""Computes the figures of one moment from the facts of a tick. Times and dollars are in market time."""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from everspot_clouds.base import CloudInstance, Phase
from everspot_core.costs.team_budgets import ENVIRONMENT, CapUse
from everspot_core.governance.anomalies import AnomalyKind, over_estimate
from everspot_core.jobs.records import JobState, Market, Role
from everspot_core.jobs.utilization import Utilization, combine
from everspot_core.schedule import ClusterView, Hold, InstanceView, JobView, PoolKey
from everspot_core.schedule.actions import WITHHELD, Why
from everspot_core.schedule.jobs import job_outlook, waiting_since
from everspot_store import ElasticUse, StoreError

from everspot_scheduler.anomalies import AS_USUAL, Unusual
from everspot_scheduler.fleet_status import elastic_use
from everspot_scheduler.ledger import Ledger

NO_TIME = timedelta(0)
_NOT_FOR_AN_INSTANCE = WITHHELD | {Why.BACK_OFF, Why.DENIED}
_HOUR = timedelta(hours=1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickSummary:
    """The observations and decisions of a tick. `instances`: as the cloud describes them."""

    view: ClusterView
    waiting: tuple[Hold, ...]
    instances: tuple[CloudInstance, ...]
    ledger: Ledger
    now: datetime
    unusual: Unusual = AS_USUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFigures:
    """Numbers for people and for alarms.

    - `jobs`: by state; ended jobs count until they are archived. `waiting`: by the code of the reason.
    - `instances`: that live, agents alone, by market, type and phase: coming, idle, busy or leaving.
    - `usd_per_hour`: of everything that lives, by role and market, without instances of unknown price.
    - `pools`: price and placement score of each pool. `launched`, `interrupted`: since the cluster began. `hours`: the
      lives of the instances together, since then.
    - `pending`: the longest and the mean time for which the jobs that wait have waited now.
    - `job_usd`: what each running job has cost so far, by job, team and project.
    - `slack`: the least time that a job has to spare before its deadline; None without deadlines.
    - `late`: jobs that run or wait although their deadline has passed. `over_estimate`: jobs that run far too long.
    - `anomalies`: the open ones, by kind.
    - `over_norm`: pools in use that do worse than usual, by the norm that they exceed.
    - `gpu_use`: of running jobs whose GPUs are measured, by team and project: the share of the last minute in which
      their GPUs computed, and what the rest costs an hour.
    - `budgets`: the spent fraction, by scope (team or environment), team, period and unit; 1 of a budget of 0.
      `budget_used`: the highest of them, without budgets of 0 that have no spending.
    """

    at: datetime
    jobs: Mapping[str, int]
    waiting: Mapping[str, int]
    instances: Mapping[tuple[str, str, str], int]
    usd_per_hour: Mapping[tuple[str, str], float]
    pools: Mapping[PoolKey, tuple[float, int | None]]
    launched: Mapping[PoolKey, int]
    interrupted: Mapping[PoolKey, int]
    hours: Mapping[PoolKey, float]
    pending: Mapping[str, timedelta]
    job_usd: Mapping[tuple[str, str, str], float]
    elastic: ElasticUse | None
    slack: timedelta | None
    late: int
    over_estimate: int
    anomalies: Mapping[str, int]
    over_norm: Mapping[str, int]
    gpu_use: Mapping[tuple[str, str], tuple[float, float]]
    budgets: Mapping[tuple[str, str, str, str], float]
    budget_used: float


@dataclass(slots=True)
class _PoolTotals:
    """How many instances each pool has given and taken, and for how long it had them. They are counted again only when
    the ledger has grown.

    The hours of a pool never fall. The end of an instance is recorded after the fact, so that the exact sum falls
    then, and Prometheus would read that as a restart of the counter and add all hours once more.
    """

    size: tuple[int, int] = (-1, -1)
    launched: Counter[PoolKey] = field(default_factory=Counter)
    interrupted: Counter[PoolKey] = field(default_factory=Counter)
    ended_hours: dict[PoolKey, float] = field(default_factory=dict)
    running: list[tuple[PoolKey, datetime]] = field(default_factory=list)
    published_hours: dict[PoolKey, float] = field(default_factory=dict)

    def count(self, ledger: Ledger) -> None:
        size = len(ledger.launches), len(ledger.ends)
        if size == self.size:
            return
        agents = {
            name: PoolKey(launch.instance_type, launch.zone, launch.market)
            for name, launch in ledger.launches.items()
            if launch.role is Role.AGENT
        }
        self.size, self.launched = size, Counter(agents.values())
        self.interrupted = Counter(
            agents[name] for name, end in ledger.ends.items() if end.interrupted and name in agents
        )
        begun_at = {name: ledger.launches[name].launched_at for name in agents}
        self.running = [(pool, begun_at[name]) for name, pool in agents.items() if name not in ledger.ends]
        ended_hours: dict[PoolKey, float] = defaultdict(float)
        for name, end in ledger.ends.items():
            if name in agents:
                ended_hours[agents[name]] += max(0.0, (end.ended_at - begun_at[name]) / _HOUR)
        self.ended_hours = ended_hours

    def hours(self, now: datetime) -> dict[PoolKey, float]:
        """Return the instance-hours of each pool until now, and never less than before."""
        hours = defaultdict(float, self.ended_hours)
        for pool, begun_at in self.running:
            hours[pool] += max(0.0, (now - begun_at) / _HOUR)
        for pool, total in hours.items():
            self.published_hours[pool] = max(total, self.published_hours.get(pool, 0.0))
        return dict(self.published_hours)


class FigureCounter:
    """Computes the figures of one scheduler from its ticks."""

    def __init__(self) -> None:
        self._pool_totals = _PoolTotals()

    def figures(self, tick: TickSummary, over_norm: Mapping[str, int]) -> MetricFigures:
        """Return the figures of a tick. `over_norm` as in `MetricFigures`."""
        view, now, beyond = tick.view, tick.now, tick.unusual.beyond
        self._pool_totals.count(tick.ledger)
        alive = [i for i in tick.instances if i.phase is Phase.ALIVE]
        dated = [job for job in view.jobs if job.submission.deadline_at is not None and not job.state.final]
        slacks = [_slack(job, now) for job in dated]
        return MetricFigures(
            at=now,
            jobs=Counter(job.state.value.lower() for job in view.jobs),
            waiting=Counter(hold.cause.value for hold in tick.waiting),
            instances=_instances(alive, {i.instance_id: i for i in view.instances}),
            usd_per_hour=_usd_per_hour(alive, tick.ledger),
            pools={pool.key: (pool.usd_per_hour, pool.placement_score) for pool in view.pools},
            launched=self._pool_totals.launched,
            interrupted=self._pool_totals.interrupted,
            hours=self._pool_totals.hours(now),
            pending=_pending(view.jobs, tick.waiting, now),
            job_usd=_job_usd(view.jobs, tick.ledger),
            elastic=elastic_use(view),
            slack=min(slacks, default=None),
            late=sum(1 for job in dated if (job.submission.deadline_at or now) < now),
            over_estimate=sum(over_estimate(job.submission, job.record, now, beyond) for job in view.jobs),
            anomalies={kind.value: 0 for kind in AnomalyKind} | Counter(a.kind for a in tick.unusual.open),
            over_norm=over_norm,
            gpu_use=_gpu_use(view, tick.ledger),
            budgets={_budget(cap_use): _used(cap_use) for cap_use in view.cap_uses},
            budget_used=max((_used(cap_use) for cap_use in view.cap_uses if cap_use.cap or cap_use.spent), default=0.0),
        )


def _pending(jobs: Iterable[JobView], waiting: Iterable[Hold], now: datetime) -> dict[str, timedelta]:
    """Return how long jobs wait for an instance. Jobs that would not run on a free instance are left out."""
    left_out = {hold.job_id for hold in waiting if hold.cause in _NOT_FOR_AN_INSTANCE}
    waits = [
        max(NO_TIME, now - waiting_since(job))
        for job in jobs
        if job.state is JobState.PENDING and job.job_id not in left_out
    ]
    mean = sum(waits, NO_TIME) / len(waits) if waits else NO_TIME
    return {"longest": max(waits, default=NO_TIME), "mean": mean}


def _job_usd(jobs: Iterable[JobView], ledger: Ledger) -> dict[tuple[str, str, str], float]:
    """Return what the running jobs have cost so far. Empty if their events cannot be read now."""
    running = {job.job_id: job for job in jobs if job.state is JobState.RUNNING}
    try:
        use_by_job = ledger.spent((job.submission, job.record) for job in running.values())
    except StoreError as error:
        _log.warning("what jobs have cost is not counted: %s", error)
        return {}
    return {(name, *_team_and_project(running[name])): use.dollars for name, use in use_by_job.items()}


def _team_and_project(job: JobView) -> tuple[str, str]:
    """Return whose job it is; empty for a job of another cluster, where others may have the same names."""
    submission = job.submission
    return submission.team, submission.spec.tags.get("Project", "") if submission.visit is None else ""


def _instances(alive: Iterable[CloudInstance], views: Mapping[str, InstanceView]) -> Counter[tuple[str, str, str]]:
    agents = (i for i in alive if i.role is Role.AGENT)
    return Counter((i.market.value, i.instance_type, _activity(views.get(i.instance_id))) for i in agents)


def _activity(view: InstanceView | None) -> str:
    if view is None or (view.record is None and not view.leaving):
        return "coming"
    if view.leaving or view.ending or view.notified:
        return "leaving"
    return "idle" if view.idle else "busy"


def _usd_per_hour(alive: Iterable[CloudInstance], ledger: Ledger) -> dict[tuple[str, str], float]:
    usd_by_key = {(Role.AGENT.value, market.value): 0.0 for market in Market}
    for i in alive:
        if i.node in ledger.launches:  # the node costs money, and its pod does not once more
            continue
        usd = ledger.usd_per_hour(PoolKey(i.instance_type, i.zone, i.market)) or 0.0
        role = Role.AGENT if i.role is Role.NODE else i.role
        key = role.value, i.market.value
        usd_by_key[key] = usd_by_key.get(key, 0.0) + usd * i.node_share
    return usd_by_key


def _gpu_use(view: ClusterView, ledger: Ledger) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the use of GPUs by team and project. An instance without a known price wastes nothing that is known."""
    instances = {instance.instance_id: instance for instance in view.instances}
    uses: dict[tuple[str, str], list[Utilization]] = {}
    usd: dict[tuple[str, str], float] = {}
    for job in view.jobs:
        use = job.record.progress.recent_use if job.record is not None and job.state is JobState.RUNNING else None
        if job.record is None or use is None or use.gpu_share is None:
            continue
        key = _team_and_project(job)
        uses.setdefault(key, []).append(use)
        owner = instances.get(job.record.owner or "")
        hourly = _job_usd_per_hour(job.job_id, owner, ledger) if owner is not None else 0.0
        usd[key] = usd.get(key, 0.0) + (1 - use.gpu_share) * hourly
    return {key: (combine(parts).gpu_share or 0.0, usd[key]) for key, parts in uses.items()}


def _job_usd_per_hour(job_id: str, owner: InstanceView, ledger: Ledger) -> float:
    """Return the hourly cost of a job's part of its instance; 0 if the price is not known."""
    record, assignment = owner.record, owner.assignment
    if record is None or assignment is None:
        return 0.0
    pool = PoolKey(record.instance_type, record.zone, record.market)
    return (ledger.usd_per_hour(pool) or 0.0) * assignment.share(job_id)


def _slack(job: JobView, now: datetime) -> timedelta:
    """Return the time to the deadline, less the work that is left and, for a job that holds nothing, the changeover."""
    work, deadline = job_outlook(job), job.submission.deadline_at or now
    if work is None:
        return deadline - now
    return deadline - now - work.remaining_upper - (NO_TIME if job.state.owned else work.changeover_upper)


def _used(cap_use: CapUse) -> float:
    """Return the fraction that is spent. A budget of 0 is used up from the beginning."""
    return cap_use.spent / cap_use.cap if cap_use.cap else 1.0


def _budget(cap_use: CapUse) -> tuple[str, str, str, str]:
    scope = "environment" if cap_use.team == ENVIRONMENT else "team"
    return scope, cap_use.team, cap_use.period.value, cap_use.unit.value
