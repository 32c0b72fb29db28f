"""Decides what the agent does next, as a pure function of its memory and its observation.

`decide_actions` is called several times a second. It returns the new memory and the actions, and `runner.py` carries
these out. All times of type `timedelta` are of CLOCK_MONOTONIC.
"""

from dataclasses import replace
from datetime import timedelta

from everspot_core.cluster.manifest import Limits
from everspot_core.jobs.records import Order, Reason

from everspot_train.agent.actions import (
    Abandon,
    Action,
    AskForCheckpoint,
    AskToStop,
    Conclude,
    Decline,
    EndAgent,
    JobKey,
    Kill,
    Take,
    Terminate,
)
from everspot_train.agent.endings import judge_ending
from everspot_train.agent.pace import StepPace
from everspot_train.agent.stop_demand import LEAST_GRACE, next_demand
from everspot_train.agent.world import LeaseView, Memory, World


def decide_actions(memory: Memory, world: World, limits: Limits) -> tuple[Memory, list[Action]]:
    """Return the new memory and the actions to do now."""
    memory = replace(memory, cordoned=_cordoned(world))
    if memory.job is None:
        return _without_job(memory, world, limits)
    if world.lease is LeaseView.LOST:
        return memory.without_job(world.now), [Abandon("the lease is lost")]
    suspended = world.lease is LeaseView.SUSPENDED
    if suspended and world.now - world.lease_until >= limits.orphan_limit:
        return memory.without_job(world.now), [Abandon("the lease could not be renewed for the orphan limit")]
    if world.shutdown_by is not None and world.now >= world.shutdown_by:
        return memory.without_job(world.now), [Abandon("no time is left to give the job back")]
    if world.running:
        return _while_running(memory, world, limits)
    if suspended:
        return memory, []  # the job may have another owner: the ending is written once the lease is renewed
    ending = judge_ending(_stop_reason(memory), world.exit_code, world.status, world.failure)
    stalled = memory.pace.stalled
    if ending.reason is Reason.STALLED and stalled is not None:
        ending = replace(ending, message=stalled.words)
    if ending.reason is Reason.FENCED:
        return memory.without_job(world.now), [Abandon("the trainer found another owner")]
    # The job stays in memory until the release is known to be done: see `forget_job`.
    return memory, [Conclude(ending, memory.stop)]


def forget_job(memory: Memory, now: timedelta) -> Memory:
    """Return the memory without its job, after the lease was released or the job could not be taken."""
    return memory.without_job(now)


def retry_later(memory: Memory) -> Memory:
    """Return the memory after the store did not answer whether the job can be taken. The next look tries again."""
    return replace(memory, job=None)


def offer_again(memory: Memory, job: JobKey) -> Memory:
    """Return the memory after a job could not be given back. The next look tries again while the job is assigned
    here."""
    return replace(memory, handled=tuple(key for key in memory.handled if key != job))


def _without_job(memory: Memory, world: World, limits: Limits) -> tuple[Memory, list[Action]]:
    if world.others:
        return memory, []  # shared jobs end before the machine is left, or given to one job alone
    if world.shutdown_by is not None:
        return memory, [EndAgent("the agent was told to end", poweroff=False)]
    offer = _offer(memory, world)
    if offer is not None:
        assert world.assignment is not None  # noqa: S101  the offer came from the assignment
        refusal = (world.assignment.reason or Reason.DRAIN) if world.assignment.order is Order.STOP else memory.cordoned
        if refusal is not None:
            return replace(memory, job=offer).without_job(world.now), [Decline(offer, refusal)]
        return replace(memory, job=offer, pace=StepPace()), [Take(offer)]
    if world.leave_reason is not None:
        return memory, [
            EndAgent(f"the scheduler orders this instance to leave: {world.leave_reason.value}", poweroff=True)
        ]
    if world.now - world.store_seen >= limits.orphan_limit:
        return memory, [EndAgent("the store could not be reached for the orphan limit", poweroff=True)]
    idle = world.now - memory.idle_since
    if limits.idle_limit is not None and memory.cordoned in (None, Reason.CORDON) and idle >= limits.idle_limit:
        return memory, [EndAgent("no job for the idle limit", poweroff=True)]
    return memory, []


def _offer(memory: Memory, world: World) -> JobKey | None:
    assignment = world.assignment
    if assignment is None or assignment.job_id is None:
        return None
    key = JobKey(assignment.job_id, assignment.epoch)
    return None if key in memory.handled else key


def _while_running(memory: Memory, world: World, limits: Limits) -> tuple[Memory, list[Action]]:
    actions: list[Action] = []
    demand = next_demand(memory, world, limits)
    if demand is not None:
        actions.append(AskToStop(demand, first=memory.stop is None))
        memory = replace(memory, stop=demand)
    recommended = world.rebalance
    if recommended is not None and recommended.action_at != memory.rebalance_seen:
        memory = replace(
            memory, rebalance_seen=recommended.action_at, checkpoint_requests=memory.checkpoint_requests + 1
        )
        if memory.stop is None:
            actions.append(AskForCheckpoint(memory.checkpoint_requests, recommended))
    stop = memory.stop
    if stop is not None:
        if world.now >= stop.kill_at and not (memory.terminated or memory.killed):
            # The agent stood still, or the deadline came as a surprise.
            stop = replace(stop, kill_at=world.now + LEAST_GRACE)
            return replace(memory, terminated=True, stop=stop), [*actions, Terminate()]
        if world.now >= stop.kill_at and not memory.killed:
            return replace(memory, terminated=True, killed=True), [*actions, Kill()]
        if world.now >= stop.term_at and not memory.terminated:
            return replace(memory, terminated=True), [*actions, Terminate()]
        due = memory.terminated and not (memory.last_called or memory.killed)
        if due and world.now >= stop.last_call_at:
            return replace(memory, last_called=True), [*actions, Terminate(final=True)]
        return memory, actions
    pace, stalled = memory.pace.observe(
        world.status,
        world.now,
        alive_at=world.alive_at if world.alive_at is not None else world.now,
        restart=world.restart_stalled,
    )
    if stalled is not None:
        actions.extend([stalled, Kill()] if stalled.restart else [stalled])
    return replace(memory, pace=pace), actions


def _stop_reason(memory: Memory) -> Reason | None:
    if memory.stop is not None:
        return memory.stop.reason
    stalled = memory.pace.stalled
    return Reason.STALLED if stalled is not None and stalled.restart else None


def _cordoned(world: World) -> Reason | None:
    if world.shutdown_by is not None:
        return Reason.SHUTDOWN
    if world.interruption is not None:
        return Reason.NOTICE
    if world.assignment is not None and world.assignment.cordoned:
        return world.assignment.reason or Reason.NOTICE
    return world.leave_reason or (Reason.CORDON if world.unfit is not None else None)
