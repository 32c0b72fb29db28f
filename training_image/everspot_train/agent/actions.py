"""The actions that `decide_actions` returns, and the demand to stop that several of them carry."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from everspot_core.jobs.records import Notice, Reason

from everspot_train.agent.endings import Ending

LAST_CALL = timedelta(seconds=30)
"""SIGTERM is repeated at most this long before SIGKILL; earlier if a quarter of the program's time is shorter."""


class JobKey(NamedTuple):
    """One ownership of a job."""

    job_id: str
    epoch: int


@dataclass(frozen=True)
class StopDemand:
    """A demand that the training process ends, with its reason and its source."""

    reason: Reason
    source: str
    seen_at: datetime
    action_at: datetime | None
    deadline: timedelta | None
    term_at: timedelta
    kill_at: timedelta

    @property
    def last_call_at(self) -> timedelta:
        """The time at which SIGTERM is also sent to the processes that did not get it from their parents."""
        return self.kill_at - min((self.kill_at - self.term_at) / 4, LAST_CALL)


@dataclass(frozen=True)
class Take:
    """Acquire the lease and start the job."""

    job: JobKey


@dataclass(frozen=True)
class Decline:
    """Give a job back without starting it, because it was assigned too late."""

    job: JobKey
    reason: Reason


@dataclass(frozen=True)
class AskToStop:
    """Write stop.json. `first`: the demand is new, so it is also an event of the job."""

    stop: StopDemand
    first: bool


@dataclass(frozen=True)
class AskForCheckpoint:
    """Write checkpoint.json, because of a rebalance recommendation."""

    seq: int
    notice: Notice


@dataclass(frozen=True)
class Terminate:
    """Send SIGTERM to the training process. `final`: the repeated signal, shortly before SIGKILL."""

    final: bool = False


@dataclass(frozen=True)
class Kill:
    """Send SIGKILL to the remaining processes of the job."""


@dataclass(frozen=True)
class Conclude:
    """Write the ending of a training process that has ended, and release the lease, which this agent holds."""

    ending: Ending
    stop: StopDemand | None


@dataclass(frozen=True)
class Abandon:
    """Kill the job's processes and write nothing, because this agent has lost the lease."""

    reason: str


@dataclass(frozen=True)
class EndAgent:
    """Report GONE and end the agent. `poweroff`: switch the instance off too."""

    reason: str
    poweroff: bool


@dataclass(frozen=True)
class Stalled:
    """Write an event for a program that stalls. `step`: its last step, None if it reports none. `seconds`: real time
    since that step, or since its last sign of life."""

    step: int | None
    seconds: float
    restart: bool

    @property
    def words(self) -> str:
        """The stall in words."""
        if not self.step:
            return f"no step and no sign of life for {self.seconds:.0f} s: no output, no use of the processor"
        return f"no step for {self.seconds:.0f} s after step {self.step}"


Action = Take | Decline | AskToStop | AskForCheckpoint | Terminate | Kill | Conclude | Abandon | EndAgent | Stalled
