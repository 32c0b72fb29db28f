"""The invariants of a simulated cluster, whatever a plan does."""

from collections import Counter
from typing import TYPE_CHECKING

from everspot_core.jobs.fit import Shape
from everspot_core.jobs.records import Market
from everspot_core.schedule.actions import Action
from everspot_core.schedule.placement.hosts import total_room

if TYPE_CHECKING:
    from everspot_simulator.cluster import Cluster


class Broken(RuntimeError):
    """A plan's action, or the cluster's state, breaks an invariant."""


def need(right: bool, rule: str, action: Action) -> None:
    """Raise unless the rule holds.

    Raises:
        Broken: naming the rule and the action that breaks it.
    """
    if not right:
        raise Broken(f"{rule}: {action}")


def check(cluster: "Cluster") -> None:
    """Check that leases, instances and capacity agree.

    Raises:
        Broken: naming the rule that does not hold, and where.
    """
    residents = Counter((m.instance_id, name) for m in cluster.machines.values() for name in m.residents)
    by_task = Counter((m.instance_id, t.job.id) for t in cluster.tasks.values() for m in t.instances)
    _need(
        residents == by_task,
        "jobs and instances agree on who holds whom",
        (residents - by_task) + (by_task - residents),
    )
    _need(all(n == 1 for n in by_task.values()), "a job is on an instance once", by_task)
    for task in cluster.tasks.values():
        _need(
            task.state.owned is bool(task.instances), "a job that holds instances has an owner, and no other has", task
        )
        if task.instances:
            owner = task.record.owner if task.record is not None else None
            _need(owner == task.instances[0].instance_id, "the lease names the first instance", task)
            _need(len(task.instances) == task.job.nodes, "a gang is never split", task)
    for machine in cluster.machines.values():
        _check_room(cluster, machine.instance_id)
    counts = Counter(m.pool for m in cluster.machines.values())
    for key, count in counts.items():
        capacity = cluster.supply.count(key, cluster.now) if key.market is Market.SPOT else None
        _need(capacity is None or count <= capacity, "no pool gives more than it has", key)
    _check_standing(cluster)
    _check_cap(cluster)


def _check_room(cluster: "Cluster", name: str) -> None:
    machine = cluster.machines[name]
    _need(cluster.fleet.shared or len(machine.residents) <= 1, "an instance holds one job", name)
    used = [total_room(cluster.tasks[resident].job.resources) for resident in machine.residents]
    has = total_room(Shape.from_machine(machine.instance_type))
    # A millionth more is rounding.
    right = all(sum(parts) <= limit + 1e-6 for limit, *parts in zip(has, *used, strict=True))
    _need(right, "no instance holds more than it has room for", name)


def _check_standing(cluster: "Cluster") -> None:
    present = Counter(m.pool for m in cluster.machines.values() if m.launched_for is None)
    for line in cluster.fleet.standing:
        if line.market is Market.ON_DEMAND and cluster.supply.count(line.key, cluster.now) is None:
            _need(present[line.key] == line.count, "the base is always there", line.key)


def _check_cap(cluster: "Cluster") -> None:
    cap, launched = cluster.fleet.cap, [m for m in cluster.machines.values() if m.launched_for is not None]
    if cap is not None:
        usd = sum(m.usd_per_hour for m in launched)
        _need(len(launched) <= cap.instances, "no more is launched than the cap allows", len(launched))
        right = cap.usd_per_hour is None or usd <= cap.usd_per_hour + 1e-6
        _need(right, "what is launched costs no more an hour than the cap allows", usd)


def _need(right: bool, rule: str, where: object) -> None:
    if not right:
        raise Broken(f"{rule}: {where}")
