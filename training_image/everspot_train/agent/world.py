"""The input of `decide_actions`: the agent's observation at one moment, and its memory.

All times of type `timedelta` are of CLOCK_MONOTONIC.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from everspot_core.jobs.records import Assignment, Notice, Order, Reason

from everspot_train.agent.actions import JobKey, StopDemand
from everspot_train.agent.failures import Failure
from everspot_train.agent.pace import StepPace
from everspot_train.rundir import Status

REMEMBERED = 64
"""The number of past attempts that are remembered."""


class LeaseView(Enum):
    """The state of the present job's lease. SUSPENDED: it has ended because the store does not answer, and the job may
    have another owner; nothing is published until it is renewed. LOST: it cannot be renewed."""

    NONE = "none"
    VALID = "valid"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True)
class World:
    """The agent's observation at one moment.

    - `real_per_market`: real seconds in a second of market time.
    - `lease_until`: when the lease ends, or has ended.
    - `failure`: the failure of a program that has ended.
    - `unfit`: why this machine should get no job; None if it may.
    - `upload`: the duration of the last upload of the program's folder, which is repeated after the program's end.
    - `restart_stalled`: whether the job has to be restarted after a stall.
    - `alive_at`: the time of the program's last sign of life; None: now.
    - `has_to_stop`: whether the agent has to end the program because of the job's `stop`.
    - `others`: whether other jobs share this machine.
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
    alive_at: timedelta | None = None
    has_to_stop: bool = False
    others: bool = False

    def when(self, moment: datetime) -> timedelta:
        """Convert a market time to monotonic time."""
        return self.now + (moment - self.market) * self.real_per_market

    @property
    def leave_reason(self) -> Reason | None:
        """The reason of the scheduler's order to leave; None without such an order."""
        if self.assignment is None or self.assignment.order is not Order.LEAVE:
            return None
        return self.assignment.reason or Reason.RELEASE


@dataclass(frozen=True)
class Memory:
    """The agent's memory from one decision to the next.

    Attributes:
        cordoned: why this instance takes no further jobs at present; None if it takes jobs.
        handled: past attempts, so that an assignment that still names one of them does not count as new.
    """

    job: JobKey | None = None
    stop: StopDemand | None = None
    terminated: bool = False
    last_called: bool = False
    killed: bool = False
    cordoned: Reason | None = None
    rebalance_seen: datetime | None = None
    checkpoint_requests: int = 0
    pace: StepPace = StepPace()  # noqa: RUF009  frozen
    handled: tuple[JobKey, ...] = ()
    idle_since: timedelta = field(default_factory=timedelta)

    def without_job(self, now: timedelta) -> "Memory":
        """Return the memory after the end of the job."""
        if self.job is None:
            return self
        handled = (*self.handled, self.job)[-REMEMBERED:]
        return replace(
            self,
            job=None,
            stop=None,
            terminated=False,
            last_called=False,
            killed=False,
            handled=handled,
            idle_since=now,
        )
