"""What `decide` can want: the actions of an agent, and the demand to stop that several of them carry."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from everspot_core.records import Notice, Reason

from everspot_train.agent.endings import Ending


class JobKey(NamedTuple):
    """One ownership of a job."""

    job_id: str
    epoch: int


@dataclass(frozen=True)
class Stop:
    """A demand that the training process ends, with what is known of who made it."""

    reason: Reason
    source: str
    seen_at: datetime
    action_at: datetime | None
    deadline: timedelta | None
    term_at: timedelta
    kill_at: timedelta


@dataclass(frozen=True)
class Take:
    """Acquire the lease and start the job."""

    job: JobKey


@dataclass(frozen=True)
class Decline:
    """Give a job back that was put here too late."""

    job: JobKey
    reason: Reason


@dataclass(frozen=True)
class AskToStop:
    """Write stop.json. `first`: the demand is new, so it is also an event of the job."""

    stop: Stop
    first: bool


@dataclass(frozen=True)
class AskForCheckpoint:
    """Write checkpoint.json, because the cloud recommended to be ready."""

    seq: int
    notice: Notice


@dataclass(frozen=True)
class Terminate:
    """SIGTERM to the training process."""


@dataclass(frozen=True)
class Kill:
    """SIGKILL to whatever is left of the training process."""


@dataclass(frozen=True)
class Conclude:
    """The training process is over and the lease is still ours: tell how it ended and give the lease back."""

    ending: Ending
    stop: Stop | None


@dataclass(frozen=True)
class Abandon:
    """The lease is not ours any more: kill what runs and write nothing."""

    why: str


@dataclass(frozen=True)
class Leave:
    """Say GONE and end the agent. `poweroff`: switch the instance off too."""

    why: str
    poweroff: bool


@dataclass(frozen=True)
class Stalled:
    """The program has made no step for many times its usual: say so. `seconds`: real time since the last one."""

    step: int
    seconds: float
    restart: bool


Action = Take | Decline | AskToStop | AskForCheckpoint | Terminate | Kill | Conclude | Abandon | Leave | Stalled
