"""Runs a whole workload on a simulated cluster with a plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.jobs.records import Market
from everspot_core.schedule import Action, ClusterView, Hold, Stay, Why, plan

from everspot_simulator.cluster import Cluster
from everspot_simulator.executor import carry_out
from everspot_simulator.invariants import check
from everspot_simulator.state import SimulatedAttempt, SimulatedInstance, Task, hours
from everspot_simulator.supply import BEGIN
from everspot_simulator.trace import Trace
from everspot_simulator.workload import Workload

ROUNDS = 8
"""The most plans at one moment. At the cap six of them may act: instances are cleared, given to a job, given back by it
and cleared again, then released, and others are launched. A scheduler takes fewer, and goes on in its next tick."""

Plan = Callable[[ClusterView, datetime], list[Action]]

_WAITS_FOR_EVENTS = frozenset(
    {
        Why.NO_FREE_INSTANCE,
        Why.NO_TYPE_FITS,
        Why.NOTHING_SEEN,
        Why.TOO_FEW_FREE,
        Why.NO_CAPACITY,
        Why.NO_SPOT,
        Why.CRITICAL,
        Why.PREFERRED_MARKET,
        Why.OTHER_MARKET,
        Why.LAST_SAFE_MOMENT,
    }
)
_FOR_GOOD = frozenset({Why.NO_TYPE_FITS, Why.NOTHING_SEEN})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkloadRun:
    """A simulated workload.

    Attributes:
        ended_at: when the last job was over, or the horizon; instances are paid until then.
        plans: how often the plan was asked.
    """

    workload: Workload
    tasks: Mapping[str, Task]
    machines: Sequence[SimulatedInstance]
    attempts: Sequence[SimulatedAttempt]
    began_at: datetime
    ended_at: datetime
    launches_refused: int
    plans: int


def simulate(workload: Workload, traces: Mapping[str, Trace], plan: Plan = plan) -> WorkloadRun:
    """Simulate until every job is over, the rest can never run, or the horizon is reached.

    The plan is asked after every event, and again after a tick if a job waits for time to pass or the plan still has
    changes to make. `traces`: by the names that the workload's fleet uses.

    Raises:
        Broken: if the plan breaks an invariant.
    """
    return drive(Cluster(workload, traces), plan)


def drive(cluster: Cluster, plan: Plan = plan) -> WorkloadRun:
    """Simulate as `simulate`, from the beginning of this cluster on."""
    plans = 0
    tick = timedelta(seconds=cluster.workload.fleet.tick_seconds)
    horizon = BEGIN + hours(cluster.workload.horizon_hours)
    while True:
        plan_count, again, stuck = plan_until_stable(cluster, plan)
        plans += plan_count
        if cluster.over or (stuck and cluster.quiet):
            break
        moments = [m for m in (cluster.next_moment(), cluster.now + tick if again else None) if m is not None]
        if not moments or min(moments) > horizon:
            cluster.pass_to(horizon)
            break
        cluster.pass_to(min(moments))
    cluster.close()
    return close_run(cluster, plans)


def close_run(cluster: Cluster, plans: int) -> WorkloadRun:
    """Return the run of a cluster that was closed."""
    return WorkloadRun(
        workload=cluster.workload,
        tasks=cluster.tasks,
        machines=cluster.ended,
        attempts=cluster.attempts,
        began_at=BEGIN,
        ended_at=cluster.now,
        launches_refused=cluster.launches_refused,
        plans=plans,
    )


def plan_until_stable(cluster: Cluster, plan: Plan) -> tuple[int, bool, bool]:
    """Plan and act until nothing changes.

    Return how many plans that took, whether to ask again after a tick, and whether no waiting job can ever run.
    """
    for count in range(1, ROUNDS + 1):
        actions = plan(cluster.view(), cluster.now)
        changes = sum(carry_out(action, cluster) for action in actions)
        check(cluster)
        if not changes:
            still = [a for a in actions if isinstance(a, Hold | Stay)]
            stuck = bool(still) and all(a.cause in _FOR_GOOD for a in still)
            return count, any(_asks_for_time(a, cluster) for a in still), stuck
    return ROUNDS, True, False


def _asks_for_time(action: Hold | Stay, cluster: Cluster) -> bool:
    """Return whether the plan may decide differently after some time without any event.

    It does not for a job that trains on spot as fast as it could anywhere, since such a job keeps its slack.
    """
    if action.cause is not Why.RUNS_WELL:
        return action.cause not in _WAITS_FOR_EVENTS
    task = cluster.tasks[action.job_id]
    if task.submission.deadline_at is None or action.figures.get("market") != Market.SPOT.value:
        return False
    trains = task.works_from is not None and task.works_from <= cluster.now
    return not trains or task.speed < max(1.0, *task.job.speeds.values(), 0.0)
