"""What the market takes from a simulated cluster: instances for which a pool has no room any more, youngest first.

With notice, an instance knows so long before that it will be taken. Its jobs stop working then, save, and give their
leases back; it is paid until it is taken, be it with nothing to do.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from everspot_core.records import Market, Reason
from everspot_core.schedule.view import PoolKey
from everspot_core.simulate.members import SimulatedInstance, Task

if TYPE_CHECKING:
    from everspot_core.simulate.cluster import Cluster


def interrupt(cluster: "Cluster") -> None:
    """Give the notices that are due, end what is due to be taken, and let go of what nobody was told of."""
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
    """The moments at which a notice may be due, or an instance is taken of which notice was given."""
    notice = cluster.fleet.notice
    change = cluster.supply.next_change(cluster.now + notice) if notice else None
    moments = [m.taken_at for m in cluster.machines.values() if m.taken_at is not None]
    return [*moments, change - notice] if change is not None else moments


def room(cluster: "Cluster", key: PoolKey) -> int | None:
    """How many more instances a pool would give now; None: as many as are asked for. It gives none that it would take
    back within the time of a notice.
    """
    count = cluster.supply.count(key, cluster.now)
    if count is None:
        return None
    until = cluster.now + cluster.fleet.notice
    least = min([count, *(n for _, n in _changes(cluster, key, until))])
    held = sum(m.pool == key for m in cluster.machines.values())
    return max(0, min(count - held, least - len(_staying(cluster, key))))


def is_up(cluster: "Cluster", key: PoolKey) -> bool:
    """Whether the pool has any capacity, and goes on having some for the time of a notice."""
    until = cluster.now + cluster.fleet.notice
    return cluster.supply.count(key, cluster.now) != 0 and all(n for _, n in _changes(cluster, key, until))


def _notify(cluster: "Cluster", key: PoolKey, until: datetime) -> None:
    """Those that will be taken by then are told, and their jobs begin to save."""
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
    """The job is back, without what was taken from it."""
    cluster.give_back(task, Reason.NOTICE)
    task.preemptions += 1
    task.preempted_at.append(cluster.now)


def _staying(cluster: "Cluster", key: PoolKey) -> list[SimulatedInstance]:
    return [m for m in cluster.machines.values() if m.pool == key and m.taken_at is None]


def _excess(held: list[SimulatedInstance], count: int) -> list[SimulatedInstance]:
    """The youngest of those for which there is no room."""
    order = sorted(held, key=lambda m: (m.launched_at, m.instance_id), reverse=True)
    return order[: max(0, len(held) - count)]


def _changes(cluster: "Cluster", key: PoolKey, until: datetime) -> list[tuple[datetime, int]]:
    """The pool's counts from each change of any pool on, after now and until then."""
    if until <= cluster.now or cluster.supply.count(key, cluster.now) is None:
        return []
    found, at = list[tuple[datetime, int]](), cluster.supply.next_change(cluster.now)
    while at is not None and at <= until:
        found.append((at, cluster.supply.count(key, at) or 0))
        at = cluster.supply.next_change(at)
    return found
