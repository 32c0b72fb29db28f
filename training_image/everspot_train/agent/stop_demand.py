"""Decides when and why a running program has to stop, and how much time it gets, by pure functions."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from everspot_core.cluster.manifest import Limits
from everspot_core.jobs.records import Order, Reason

from everspot_train.agent.actions import StopDemand
from everspot_train.agent.world import Memory, World

PATIENCE = timedelta(minutes=10)
"""The longest wait for the checkpoint at a stop without a deadline (drill, drain, budget)."""
CANCEL_PATIENCE = timedelta(seconds=30)
"""The longest wait for a cancelled job's checkpoint, short because the checkpoint is of little use."""
KILL_GRACE = timedelta(seconds=10)
"""The time between SIGTERM and SIGKILL if there is no deadline."""

LEAST_GRACE = timedelta(seconds=2)
"""The least time between SIGTERM and SIGKILL if SIGTERM comes late."""
SHORTEST_NOTICE = timedelta(seconds=30)
"""The assumed time until the interruption if the announced time is past already, because the clock of this machine or
of the scheduler is wrong. No cloud's notice is shorter."""


def next_demand(memory: Memory, world: World, limits: Limits) -> StopDemand | None:
    """Return the demand to stop if it is new or has an earlier deadline than the present one. The first reason
    stays. A deadline that is past when it is first seen counts as unknown, and as `SHORTEST_NOTICE` from now."""
    demands = (_by_metric(world), _by_cloud(world), _by_order(memory, world), _by_shutdown(world))
    candidates = [stop for stop in demands if stop]
    if not candidates:
        return None
    standing = memory.stop
    deadlines = [by for _, _, _, by in candidates if by is not None]
    deadline = min((by for by in deadlines if by > world.now), default=None)
    if deadline is None and deadlines and (standing is None or standing.deadline is None):
        deadline = world.now + SHORTEST_NOTICE
    if standing is None:
        reason, source, action_at, _ = candidates[0]
        return _stop(reason, source, world, action_at, deadline, limits)
    if deadline is None or (standing.deadline is not None and deadline >= standing.deadline - timedelta(seconds=1)):
        return None
    tighter = _stop(standing.reason, standing.source, world, standing.action_at, deadline, limits)
    return replace(tighter, seen_at=standing.seen_at)


class _Demand(NamedTuple):
    """One demand that the program ends: its reason, its source, and its deadline."""

    reason: Reason
    source: str
    action_at: datetime | None
    by: timedelta | None


def _by_metric(world: World) -> _Demand | None:
    """Return the demand of the job's `stop`. It takes precedence, because the program then counts as finished."""
    return _Demand(Reason.FINISHED, "stop", None, None) if world.has_to_stop else None


def _by_cloud(world: World) -> _Demand | None:
    notice = world.interruption
    if notice is None:
        return None
    by = world.when(notice.action_at) if notice.action_at else None
    return _Demand(Reason.NOTICE, notice.source, notice.action_at, by)


def _by_order(memory: Memory, world: World) -> _Demand | None:
    order = world.assignment
    if order is None or (order.order is not Order.LEAVE and memory.job != (order.job_id, order.epoch)):
        return None
    if order.order is Order.RUN:
        return None
    reason = order.reason or (Reason.RELEASE if order.order is Order.LEAVE else Reason.DRAIN)
    source = "queue" if reason is Reason.NOTICE else reason.value
    return _Demand(reason, source, order.deadline, world.when(order.deadline) if order.deadline else None)


def _by_shutdown(world: World) -> _Demand | None:
    return _Demand(Reason.SHUTDOWN, "shutdown", None, world.shutdown_by) if world.shutdown_by is not None else None


def stop_margin(limits: Limits, time_left: timedelta) -> timedelta:
    """Return how long before the interruption of the instance the agent kills all processes. If a notice is short, or
    market time runs fast, half of the time stays for the checkpoint."""
    return min(limits.stop_margin, max(time_left, timedelta()) / 2)


def _stop(
    reason: Reason,
    source: str,
    world: World,
    action_at: datetime | None,
    deadline: timedelta | None,
    limits: Limits,
) -> StopDemand:
    if deadline is not None:
        margin = stop_margin(limits, deadline - world.now)
        term_at, kill_at = deadline - margin, deadline - margin / 2
    else:
        term_at = world.now + (CANCEL_PATIENCE if reason is Reason.CANCEL else PATIENCE)
        kill_at = term_at + KILL_GRACE
    if world.status is None:
        # The program has never reported: it does not use the trainer library (or has not begun), so nothing would read
        # stop.json. It gets SIGTERM now, and all the time to react. Its folder is uploaded after its end. The time that
        # the last upload took is reserved for that, at most half of the remaining time; without a deadline it may take
        # as long as a checkpoint.
        if deadline is not None:
            kill_at -= min(world.upload, (kill_at - world.now) / 2)
        elif reason is Reason.CANCEL:
            kill_at = world.now + KILL_GRACE
        term_at = world.now
    return StopDemand(reason, source, world.market, action_at, deadline, term_at, kill_at)
