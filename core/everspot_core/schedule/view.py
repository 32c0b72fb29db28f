"""What a plan may know of a cluster: plain values, read once, before anything is decided.

Whoever drives the plan (the scheduler's loop, a simulator) makes a view; the plan never asks for more. Times are
market time. Whether a lease stands still is a flag and not a time, because only the observer's own clock can tell.
"""

from dataclasses import dataclass, field
from datetime import datetime

from everspot_core.catalogue import InstanceType
from everspot_core.job import JobSubmission
from everspot_core.manifest import Limits
from everspot_core.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    NoticeKind,
    Order,
    Role,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a job has used so far over all its attempts, open ones included."""

    dollars: float = 0.0
    gpu_hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """A user's wish to see the job interrupted once."""

    drill_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job: what was asked for, how it stands, and what is wanted of it.

    `stale`: the record has stood still for a lease's length by the observer's own clock.
    """

    submission: JobSubmission
    record: JobRecord | None = None
    stale: bool = False
    cancel: bool = False
    drills: tuple[Drill, ...] = ()
    spent: Spent = field(default_factory=Spent)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.submission.job_id

    @property
    def state(self) -> JobState:
        """The record's state; a job that has no record yet is PENDING."""
        return self.record.state if self.record else JobState.PENDING

    @property
    def epoch(self) -> int:
        """The record's epoch; 0 without a record."""
        return self.record.epoch if self.record else 0

    def owned_by(self, assignment: Assignment) -> bool:
        """Whether the lease is exactly the one that this assignment speaks of."""
        record = self.record
        return (
            record is not None
            and record.state.owned
            and record.owner == assignment.instance_id
            and record.epoch == assignment.epoch
            and record.job_id == assignment.job_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance: what it says of itself, what it was told, and what the cloud says of it.

    `stale`: its heartbeat has stood still for a lease's length. `gone`: the cloud, or its own last word, says that it
    runs no more. `doomed`: the cloud will take it, at `deadline` if that is known. `shaky`: the cloud recommends to
    leave it, which may come to nothing.
    """

    instance_id: str
    record: InstanceRecord | None = None
    assignment: Assignment | None = None
    stale: bool = False
    gone: bool = False
    doomed: bool = False
    shaky: bool = False
    deadline: datetime | None = None

    @property
    def idle(self) -> bool:
        """Nothing is assigned to it."""
        return self.assignment is None or self.assignment.job_id is None

    @property
    def notified(self) -> bool:
        """The instance itself has seen an interruption notice."""
        notice = self.record.notice if self.record else None
        return notice is not None and notice.kind is NoticeKind.INTERRUPTION

    @property
    def recommended_away(self) -> bool:
        """A rebalance recommendation stands against it."""
        notice = self.record.notice if self.record else None
        return self.shaky or (notice is not None and notice.kind is NoticeKind.REBALANCE)

    @property
    def healthy(self) -> bool:
        """It is an agent that can be relied on to take a job now: alive, staying, and taking work."""
        return (
            self.record is not None
            and self.record.role is Role.AGENT
            and self.record.state in (InstanceState.READY, InstanceState.BUSY)
            and not (self.stale or self.gone or self.doomed or self.notified)
            and not (self.assignment is not None and self.assignment.doomed)
        )

    @property
    def stopping(self) -> bool:
        """It has been told to stop what it runs."""
        return self.assignment is not None and self.assignment.order is Order.STOP


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Everything a plan may know. `types`: the instance types that this cluster is known to be able to bring.

    `types` holds what was declared in place and what has been seen; the types of present instances need not be in it.
    """

    jobs: tuple[JobView, ...] = ()
    instances: tuple[InstanceView, ...] = ()
    draining: bool = False
    types: tuple[InstanceType, ...] = ()
    limits: Limits = field(default_factory=Limits)
