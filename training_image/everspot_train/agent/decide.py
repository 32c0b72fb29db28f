"""What the agent does next: a pure function of what it remembers and what it sees.

`decide` is called several times a second. It returns what to remember and what to do; `agent.py` does it and nothing
else. All moments called `timedelta` are of CLOCK_MONOTONIC.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from everspot_core.manifest import Limits
from everspot_core.records import Assignment, Notice, Order, Reason

from everspot_train.agent.actions import (
    Abandon,
    Action,
    AskForCheckpoint,
    AskToStop,
    Conclude,
    Decline,
    JobKey,
    Kill,
    Leave,
    Stalled,
    Stop,
    Take,
    Terminate,
)
from everspot_train.agent.endings import ending_of
from everspot_train.agent.failures import Failure
from everspot_train.agent.pace import Pace
from everspot_train.rundir import Status

__all__ = [
    "Abandon",
    "Action",
    "AskForCheckpoint",
    "AskToStop",
    "Conclude",
    "Decline",
    "JobKey",
    "Kill",
    "Leave",
    "Stalled",
    "Stop",
    "Take",
    "Terminate",
]

PATIENCE = timedelta(minutes=10)
"""A stop without a deadline (drill, drain, budget) waits this long for the checkpoint."""
CANCEL_PATIENCE = timedelta(seconds=30)
"""A cancelled job's checkpoint is of little use to anybody."""
KILL_GRACE = timedelta(seconds=10)
"""Between SIGTERM and SIGKILL where no deadline says otherwise."""
REMEMBERED = 64


class LeaseView(Enum):
    """How the lease of the current job stands. SUSPENDED: its time is up since the store is silent, so that the job may
    have been given to somebody else: nothing is written in the owner's name until it is renewed. LOST: it cannot be."""

    NONE = "none"
    VALID = "valid"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True)
class World:
    """What the agent sees at one moment.

    `real_per_market`: real seconds that a second of market time takes. `lease_until`: when the lease ends, or has
    ended. `failure`: what a program that is over told of its end. `unfit`: why this machine should have no job.
    `upload`: how long the program's folder took last to be kept, which is done once it is over. `restart_stalled`:
    the job wants it.
    """

    now: timedelta
    market: datetime
    real_per_market: float = 1.0
    assignment: Assignment | None = None
    interruption: Notice | None = None
    rebalance: Notice | None = None
    shutdown_by: timedelta | None = None
    lease: LeaseView = LeaseView.NONE
    running: bool = False
    exit_code: int | None = None
    status: Status | None = None
    store_seen: timedelta = timedelta()
    lease_until: timedelta = timedelta()
    failure: Failure | None = None
    unfit: str | None = None
    upload: timedelta = timedelta()
    restart_stalled: bool = False

    def when(self, moment: datetime) -> timedelta:
        """The monotonic moment at which the market's clock will show `moment`."""
        return self.now + (moment - self.market) * self.real_per_market

    @property
    def leaves(self) -> Reason | None:
        """Why the scheduler lets this instance go; None while it does not."""
        if self.assignment is None or self.assignment.order is not Order.LEAVE:
            return None
        return self.assignment.reason or Reason.RELEASE


@dataclass(frozen=True)
class Memory:
    """What the agent remembers from one decision to the next.

    `doomed`: the reason for which this instance takes nothing more, as long as it stands. `handled`: ownerships that
    are over, so that an assignment that still stands there is not taken for a new one.
    """

    job: JobKey | None = None
    stop: Stop | None = None
    terminated: bool = False
    killed: bool = False
    doomed: Reason | None = None
    rebalance_seen: datetime | None = None
    checkpoint_wishes: int = 0
    pace: Pace = Pace()  # noqa: RUF009  frozen
    handled: tuple[JobKey, ...] = ()
    idle_since: timedelta = field(default_factory=timedelta)

    def without_job(self, now: timedelta) -> "Memory":
        """The job is over, however it ended."""
        if self.job is None:
            return self
        handled = (*self.handled, self.job)[-REMEMBERED:]
        return replace(self, job=None, stop=None, terminated=False, killed=False, handled=handled, idle_since=now)


def decide(memory: Memory, world: World, limits: Limits) -> tuple[Memory, list[Action]]:
    """What to remember and what to do now."""
    memory = replace(memory, doomed=_doom(world))
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
        return memory, []  # how it ended is told once the lease is renewed: until then it may be another's job
    ending = ending_of(_asked(memory), world.exit_code, world.status, world.failure)
    stalled = memory.pace.stalled
    if ending.reason is Reason.STALLED and stalled is not None:
        ending = replace(ending, message=f"no step for {stalled.seconds:.0f} s after step {stalled.step}")
    if ending.reason is Reason.FENCED:
        return memory.without_job(world.now), [Abandon("the trainer found another owner")]
    # The job stays in memory until the release is known to be done: `concluded` forgets it.
    return memory, [Conclude(ending, memory.stop)]


def concluded(memory: Memory, now: timedelta) -> Memory:
    """What to remember once the lease has been given back, or a job could not be taken."""
    return memory.without_job(now)


def postponed(memory: Memory) -> Memory:
    """What to remember where the store could not say whether the job can be taken: the next look tries again."""
    return replace(memory, job=None)


def offered_again(memory: Memory, job: JobKey) -> Memory:
    """What to remember where a job could not be given back yet: as long as it is assigned here, it is tried again."""
    return replace(memory, handled=tuple(key for key in memory.handled if key != job))


def _without_job(memory: Memory, world: World, limits: Limits) -> tuple[Memory, list[Action]]:
    if world.shutdown_by is not None:
        return memory, [Leave("the agent was told to end", poweroff=False)]
    offer = _offer(memory, world)
    if offer is not None:
        assert world.assignment is not None  # noqa: S101  an offer comes from it
        refusal = (world.assignment.reason or Reason.DRAIN) if world.assignment.order is Order.STOP else memory.doomed
        if refusal is not None:
            return replace(memory, job=offer).without_job(world.now), [Decline(offer, refusal)]
        return replace(memory, job=offer, pace=Pace()), [Take(offer)]
    if world.leaves is not None:
        return memory, [Leave(f"the scheduler lets this instance go: {world.leaves.value}", poweroff=True)]
    if world.now - world.store_seen >= limits.orphan_limit:
        return memory, [Leave("the store could not be reached for the orphan limit", poweroff=True)]
    idle = world.now - memory.idle_since
    if limits.idle_limit is not None and memory.doomed in (None, Reason.CORDON) and idle >= limits.idle_limit:
        return memory, [Leave("no job for the idle limit", poweroff=True)]
    return memory, []


def _offer(memory: Memory, world: World) -> JobKey | None:
    assignment = world.assignment
    if assignment is None or assignment.job_id is None:
        return None
    key = JobKey(assignment.job_id, assignment.epoch)
    return None if key in memory.handled else key


def _while_running(memory: Memory, world: World, limits: Limits) -> tuple[Memory, list[Action]]:
    actions: list[Action] = []
    demand = _demand(memory, world, limits)
    if demand is not None:
        actions.append(AskToStop(demand, first=memory.stop is None))
        memory = replace(memory, stop=demand)
    recommended = world.rebalance
    if recommended is not None and recommended.action_at != memory.rebalance_seen:
        memory = replace(memory, rebalance_seen=recommended.action_at, checkpoint_wishes=memory.checkpoint_wishes + 1)
        if memory.stop is None:
            actions.append(AskForCheckpoint(memory.checkpoint_wishes, recommended))
    if memory.stop is not None:
        if world.now >= memory.stop.kill_at and not memory.killed:
            return replace(memory, terminated=True, killed=True), [*actions, Kill()]
        if world.now >= memory.stop.term_at and not memory.terminated:
            return replace(memory, terminated=True), [*actions, Terminate()]
        return memory, actions
    pace, stalled = memory.pace.seen(world.status, world.now, restart=world.restart_stalled)
    if stalled is not None:
        actions.extend([stalled, Kill()] if stalled.restart else [stalled])
    return replace(memory, pace=pace), actions


def _asked(memory: Memory) -> Reason | None:
    if memory.stop is not None:
        return memory.stop.reason
    stalled = memory.pace.stalled
    return Reason.STALLED if stalled is not None and stalled.restart else None


def _doom(world: World) -> Reason | None:
    if world.shutdown_by is not None:
        return Reason.SHUTDOWN
    if world.interruption is not None:
        return Reason.NOTICE
    if world.assignment is not None and world.assignment.doomed:
        return world.assignment.reason or Reason.NOTICE
    return world.leaves or (Reason.CORDON if world.unfit is not None else None)


def _demand(memory: Memory, world: World, limits: Limits) -> Stop | None:
    """The demand to stop, if it is new or tighter than the one that stands. The first reason given stands."""
    candidates = [stop for stop in (_by_cloud(world), _by_order(memory, world), _by_shutdown(world)) if stop]
    if not candidates:
        return None
    deadlines = [by for _, _, _, by in candidates if by is not None]
    deadline = min(deadlines, default=None)
    standing = memory.stop
    if standing is None:
        reason, source, action_at, _ = candidates[0]
        return _stop(reason, source, world, action_at, deadline, limits)
    if deadline is None or (standing.deadline is not None and deadline >= standing.deadline - timedelta(seconds=1)):
        return None
    tighter = _stop(standing.reason, standing.source, world, standing.action_at, deadline, limits)
    return replace(tighter, seen_at=standing.seen_at)


_Candidate = tuple[Reason, str, datetime | None, timedelta | None]


def _by_cloud(world: World) -> _Candidate | None:
    notice = world.interruption
    if notice is None:
        return None
    by = world.when(notice.action_at) if notice.action_at else None
    return (Reason.NOTICE, notice.source, notice.action_at, by)


def _by_order(memory: Memory, world: World) -> _Candidate | None:
    order = world.assignment
    if order is None or (order.order is not Order.LEAVE and memory.job != (order.job_id, order.epoch)):
        return None
    if order.order is Order.RUN:
        return None
    reason = order.reason or (Reason.RELEASE if order.order is Order.LEAVE else Reason.DRAIN)
    source = "queue" if reason is Reason.NOTICE else reason.value
    return (reason, source, order.deadline, world.when(order.deadline) if order.deadline else None)


def _by_shutdown(world: World) -> _Candidate | None:
    return (Reason.SHUTDOWN, "shutdown", None, world.shutdown_by) if world.shutdown_by is not None else None


def _stop(
    reason: Reason,
    source: str,
    world: World,
    action_at: datetime | None,
    deadline: timedelta | None,
    limits: Limits,
) -> Stop:
    if deadline is not None:
        # A word that comes late, or of a market that runs fast, leaves half of what is left for the checkpoint.
        margin = min(limits.stop_margin, max(deadline - world.now, timedelta()) / 2)
        term_at, kill_at = deadline - margin, deadline - margin / 2
    else:
        term_at = world.now + (CANCEL_PATIENCE if reason is Reason.CANCEL else PATIENCE)
        kill_at = term_at + KILL_GRACE
    if world.status is None:
        # The program never said where it is: it does not use the trainer library (or has not begun), so nothing
        # would answer stop.json. It gets its SIGTERM now and the whole time to heed it.
        # Its folder is kept once it is over, for which it leaves as much time as that took last, or half of what is
        # left; without a deadline it may take as long as a checkpoint may.
        if deadline is not None:
            kill_at -= min(world.upload, (kill_at - world.now) / 2)
        elif reason is Reason.CANCEL:
            kill_at = world.now + KILL_GRACE
        term_at = world.now
    return Stop(reason, source, world.market, action_at, deadline, term_at, kill_at)
