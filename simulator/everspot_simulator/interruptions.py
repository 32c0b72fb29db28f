"""Spot interruptions of a simulated cluster: a pool whose capacity shrinks takes its youngest instances first.

Where the fleet has a notice, an instance learns that long ahead that it will be taken. Its jobs then stop working,
checkpoint and release their leases. The instance is paid until it is taken, idle or not.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from everspot_core.jobs.records import Market, Reason
from everspot_core.schedule.view import PoolKey

from everspot_simulator.state import SimulatedInstance, Task

if TYPE_CHECKING:
    from everspot_simulator.cluster import Cluster


def interrupt(cluster: "Cluster") -> None:
    """Give the notices that are due, and take the instances whose time is up or whose pool shrank without notice."""
    notice = cluster.fleet.notice
    for key in (k for k in cluster.supply.keys if k.market is Market.SPOT):
        if notice:
            _notify(cluster, key, cluster.now + notice)
        for machine in [m for m in cluster.machines.values() if m.pool == key]:
            if machine.taken_at is not None and machine.taken_at <= cluster.now:
                _take(cluster, machine)
        for machine in _excess(_staying(cluster, key), cluster.supply.count(key, cluster.now) or 0):
            _take(cluster, machine)


def next_interruption(cluster: "Cluster") -> list[datetime]:
    """Return the moments at which a notice may be due, and those at which instances with notice are taken."""
    notice = cluster.fleet.notice
    change = cluster.supply.next_change(cluster.now + notice) if notice else None
    moments = [m.taken_at for m in cluster.machines.values() if m.taken_at is not None]
    return [*moments, change - notice] if change is not None else moments


def room(cluster: "Cluster", key: PoolKey) -> int | None:
    """Return how many more instances a pool can give now; None if there is no limit.

    It gives no instance that it would take back within the length of a notice.
    """
    count = cluster.supply.count(key, cluster.now)
    if count is None:
        return None
    until = cluster.now + cluster.fleet.notice
    least = min([count, *(n for _, n in _changes(cluster, key, until))])
    held_count = sum(m.pool == key for m in cluster.machines.values())
    return max(0, min(count - held_count, least - len(_staying(cluster, key))))


def is_up(cluster: "Cluster", key: PoolKey) -> bool:
    """Return whether the pool has capacity now, and will have some for the length of a notice."""
    until = cluster.now + cluster.fleet.notice
    return cluster.supply.count(key, cluster.now) != 0 and all(n for _, n in _changes(cluster, key, until))


def _notify(cluster: "Cluster", key: PoolKey, until: datetime) -> None:
    """Give notice to the instances that will be taken by `until`; their jobs begin to checkpoint."""
    for moment, count in _changes(cluster, key, until):
        for machine in _excess(_staying(cluster, key), count):
            machine.taken_at = moment
            cluster.noticed[key] = cluster.now
            for name in machine.residents:
                _stop_working(cluster.tasks[name], cluster.now, min(moment, cluster.now + cluster.fleet.save))


def _stop_working(task: Task, now: datetime, back_at: datetime) -> None:
    if task.back_at is None:
        task.done, task.stopped_at, task.back_at = task.done_by(now), now, back_at
    else:
        task.back_at = min(task.back_at, back_at)


def _take(cluster: "Cluster", machine: SimulatedInstance) -> None:
    for name in list(machine.residents):
        lose(cluster, cluster.tasks[name])
    cluster.noticed[machine.pool] = cluster.now
    cluster.end(machine, interrupted=True)


def lose(cluster: "Cluster", task: Task) -> None:
    """End the attempt of a job that loses its instance to the market; it waits again."""
    cluster.give_back(task, Reason.NOTICE)
    task.preemptions += 1
    task.preempted_at.append(cluster.now)


def _staying(cluster: "Cluster", key: PoolKey) -> list[SimulatedInstance]:
    return [m for m in cluster.machines.values() if m.pool == key and m.taken_at is None]


def _excess(instances: list[SimulatedInstance], count: int) -> list[SimulatedInstance]:
    """Return the youngest instances beyond the pool's count."""
    order = sorted(instances, key=lambda m: (m.launched_at, m.instance_id), reverse=True)
    return order[: max(0, len(instances) - count)]


def _changes(cluster: "Cluster", key: PoolKey, until: datetime) -> list[tuple[datetime, int]]:
    """Return the moments after now up to `until` at which any pool changes, each with this pool's count from then
    on."""
    if until <= cluster.now or cluster.supply.count(key, cluster.now) is None:
        return []
    changes, at = list[tuple[datetime, int]](), cluster.supply.next_change(cluster.now)
    while at is not None and at <= until:
        changes.append((at, cluster.supply.count(key, at) or 0))
        at = cluster.supply.next_change(at)
    return changes
