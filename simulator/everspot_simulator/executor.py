"""Carries out a plan's actions on a simulated cluster, as the scheduler does on a real one.

An action that a plan must not ask for raises an error. The simulation has no half-done assignments, dead leases or
drills, and therefore not the actions that respond to them.
"""

from typing import assert_never

from everspot_core.jobs import lease
from everspot_core.jobs.fit import Shape, lacking
from everspot_core.jobs.records import Assignment, JobState, Order, Reason
from everspot_core.schedule.actions import (
    Action,
    Assign,
    ClearAssignment,
    CompleteAssignment,
    Cordon,
    DropDrills,
    Expire,
    Finish,
    Hold,
    Launch,
    Leave,
    Refuse,
    Release,
    RestoreAssignment,
    Stay,
    Stop,
    VoidAssignment,
)
from everspot_core.schedule.view import PoolKey

from everspot_simulator.cluster import Cluster
from everspot_simulator.invariants import Broken, need
from everspot_simulator.state import SimulatedInstance, Task


def carry_out(action: Action, cluster: Cluster) -> bool:
    """Carry out the action and return whether it changed anything.

    Raises:
        Broken: if the action is impossible, or would break an invariant.
    """
    match action:
        case Hold() | Stay():
            return False
        case Assign():
            _assign(action, cluster)
        case ClearAssignment():
            _clear(action, cluster)
        case Stop():
            _stop(action, cluster)
        case Finish():
            _finish(action, cluster)
        case Launch():
            _launch(action, cluster)
        case Release():
            _release(action, cluster)
        case Refuse():
            _refuse(action, cluster)
        case Cordon():
            _cordon(action, cluster)
        case CompleteAssignment() | VoidAssignment() | RestoreAssignment() | Expire() | DropDrills() | Leave():
            raise Broken(f"nothing has happened that asks for {action}")
        case _:
            assert_never(action)
    return True


def _assign(action: Assign, cluster: Cluster) -> None:
    task = _task(action.job_id, action.epoch - 1, cluster, action)
    need(task.state is JobState.PENDING, "only a job that waits is assigned", action)
    names = (action.instance_id, *action.gang)
    need(len(set(names)) == task.job.nodes, "a gang runs whole, on different instances", action)
    machines = tuple(_machine(name, cluster, action) for name in names)
    need(len({m.instance_type.name for m in machines}) == 1, "a gang runs on one type", action)
    for machine in machines:
        need(machine.record is not None, "an instance that boots takes no job", action)
        shared, assignment = cluster.fleet.shared, machine.assignment
        need(shared or not machine.residents, "an instance holds one job", action)
        need(
            shared or assignment is None or assignment.job_id is None,
            "an assignment is cleared before the next",
            action,
        )
        lacks = lacking(task.job.resources, Shape.from_machine(machine.instance_type))
        need(not lacks, f"an instance has what its job needs, and not too little of {lacks}", action)
    kind = action.instance_type, action.zone, action.market
    need(machines[0].pool == kind, "an action says where it puts a job", action)
    task.record = lease.assign(task.record, action.job_id, action.instance_id, cluster.now)
    if not cluster.fleet.shared:
        for machine in machines:
            machine.assignment = Assignment(
                instance_id=machine.instance_id, job_id=action.job_id, epoch=action.epoch, changed_at=cluster.now
            )
    cluster.begin_attempt(task, machines)


def _clear(action: ClearAssignment, cluster: Cluster) -> None:
    machine = _machine(action.instance_id, cluster, action)
    assignment = machine.assignment
    need(assignment is not None and assignment.epoch == action.epoch, "what is cleared is what was seen", action)
    need(action.job_id not in machine.residents, "an instance that holds a job is not cleared of it", action)
    cordoned = assignment is not None and assignment.cordoned
    machine.assignment = Assignment(instance_id=action.instance_id, cordoned=cordoned, changed_at=cluster.now)


def _cordon(action: Cordon, cluster: Cluster) -> None:
    """Cordon an instance that has had its notice. Its jobs know of the notice too and stop by themselves."""
    machine = _machine(action.instance_id, cluster, action)
    need(machine.taken_at is not None, "only what is about to be taken is cordoned", action)
    assignment = machine.assignment or Assignment(instance_id=action.instance_id, changed_at=cluster.now)
    update: dict[str, object] = {"cordoned": True, "changed_at": cluster.now}
    if assignment.job_id is not None:
        update |= {"order": Order.STOP, "reason": Reason.NOTICE, "deadline": action.deadline}
    machine.assignment = assignment.model_copy(update=update)


def _stop(action: Stop, cluster: Cluster) -> None:
    """The owner checkpoints and releases the lease. It takes no time: all progress up to this moment counts."""
    task = _task(action.job_id, action.epoch, cluster, action)
    owner = task.record.owner if task.record is not None else None
    need(bool(task.instances) and owner == action.instance_id, "only the owner is told to stop", action)
    for machine in task.instances:
        if machine.assignment is not None:
            update = {"order": Order.STOP, "reason": action.reason, "changed_at": cluster.now}
            machine.assignment = machine.assignment.model_copy(update=update)
    cluster.give_back(task, action.reason)


def _finish(action: Finish, cluster: Cluster) -> None:
    task = _task(action.job_id, action.epoch, cluster, action)
    need(not task.instances, "a job that somebody owns is stopped first", action)
    task.record = lease.close(task.record, action.job_id, action.reason, cluster.now)


def _launch(action: Launch, cluster: Cluster) -> None:
    """Launch all the instances, or none if the pool has too few."""
    key = PoolKey(action.instance_type, action.zone, action.market)
    need(key in {p.key for p in cluster.fleet.pools}, "instances come from pools of the fleet", action)
    need(action.count >= 1, "at least one instance is launched", action)
    task = cluster.tasks.get(action.job_id)
    need(task is not None and not task.state.final, "instances are launched for jobs that are not over", action)
    available = cluster.available(key)
    if available is not None and available < action.count:
        cluster.refused_at[key].append(cluster.now)
        cluster.launches_refused += 1
        return
    for _ in range(action.count):
        cluster.launch(key, action.job_id)


def _release(action: Release, cluster: Cluster) -> None:
    machine = _machine(action.instance_id, cluster, action)
    need(machine.launched_for is not None, "the standing fleet is never released", action)
    need(not machine.residents, "an instance that holds a job is not released", action)
    cluster.end(machine, interrupted=False)


def _refuse(action: Refuse, cluster: Cluster) -> None:
    task = _task(action.job_id, action.epoch, cluster, action)
    need(task.state is JobState.PENDING and not cluster.has_run(task), "a job that has begun is not refused", action)
    task.refused = True
    record = task.record or lease.pending(action.job_id, cluster.now)
    task.record = record.model_copy(update={"state": JobState.FAILED, "changed_at": cluster.now})


def _task(job_id: str, epoch: int, cluster: Cluster, action: Action) -> Task:
    task = cluster.tasks.get(job_id)
    if task is None:
        raise Broken(f"there is no such job: {action}")
    need((task.record.epoch if task.record is not None else 0) == epoch, "the epoch is the one that was seen", action)
    return task


def _machine(name: str, cluster: Cluster, action: Action) -> SimulatedInstance:
    machine = cluster.machines.get(name)
    if machine is None:
        raise Broken(f"there is no such instance: {action}")
    return machine
