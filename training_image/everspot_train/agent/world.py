"""What the agent sees at one moment, and what it remembers from one to the next: what `decide` decides from.

All moments called `timedelta` are of CLOCK_MONOTONIC.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from everspot_core.records import Assignment, Notice, Order, Reason

from everspot_train.agent.actions import JobKey, Stop
from everspot_train.agent.failures import Failure
from everspot_train.agent.pace import StepPace
from everspot_train.rundir import Status

REMEMBERED = 64
"""Ownerships that are over."""


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
    the job wants it. `others`: jobs share this machine.
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
    others: bool = False

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

    `cordoned`: the reason for which this instance takes nothing more, as long as it stands. `handled`: ownerships that
    are over, so that an assignment that still stands there is not taken for a new one.
    """

    job: JobKey | None = None
    stop: Stop | None = None
    terminated: bool = False
    killed: bool = False
    cordoned: Reason | None = None
    rebalance_seen: datetime | None = None
    checkpoint_requests: int = 0
    pace: StepPace = StepPace()  # noqa: RUF009  frozen
    handled: tuple[JobKey, ...] = ()
    idle_since: timedelta = field(default_factory=timedelta)

    def without_job(self, now: timedelta) -> "Memory":
        """The job is over, however it ended."""
        if self.job is None:
            return self
        handled = (*self.handled, self.job)[-REMEMBERED:]
        return replace(self, job=None, stop=None, terminated=False, killed=False, handled=handled, idle_since=now)
