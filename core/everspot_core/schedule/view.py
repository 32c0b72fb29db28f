"""What a plan may know of a cluster: plain values, collected before anything is decided.

A driver (the scheduler's loop, a simulator) makes a view, and the plan asks for nothing else. No field has a default:
a driver that knows nothing about a field says so, and one that forgets a field does not pass the type checker. All
times are market time. Whether a lease stands still is a flag and not a time, because only the observer's own clock
can tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from everspot_core.budgets import Purse
from everspot_core.catalogue import InstanceType
from everspot_core.changeover import Changeover
from everspot_core.job import JobSubmission
from everspot_core.ledger import FaultRecord
from everspot_core.manifest import Limits, Standing
from everspot_core.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    NoticeKind,
    Order,
    Role,
)
from everspot_core.schedule.market.behaviour import Behaviour


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a job has used so far over all its attempts, open ones included."""

    dollars: float
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """A user's request to interrupt the job once, as an exercise."""

    drill_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """How much work a job has left, and how long it takes to begin again on another instance.

    Work is told in the time that it takes on an instance of speed 1. A changeover consists of launch, set-up and the
    progress that is lost. `left` and `changeover` are expected values; the plan keeps the deadline even if both turn
    out to be their upper bounds. `changing` is what remains of the changeover that is under way, zero without one.
    """

    left: timedelta
    left_upper: timedelta
    changeover: timedelta
    changeover_upper: timedelta
    changing: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The most that a job was seen to use; None: nobody has measured that, and what its author asked for counts.

    `mixed` says that it trains in mixed precision.
    """

    vcpus: float | None
    memory_gib: float | None
    gpu_memory_gib: float | None
    mixed: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job: what its author asked for, how it stands, and what its author or the cluster wants of it now.

    - `record` is None until something has been decided about the job.
    - `stale`: the record has stood still for the length of a lease, by the observer's own clock.
    - `nodes`: how many instances it needs at once; more than one make a gang.
    - `after`: the jobs that have to succeed before it begins, each with its state; None: nobody knows the job.
    - `outlook`: what the driver has measured or knows; None leaves the plan with what the author expects.
    - `changeover`: what a changeover has been found to take, where `outlook` is None; None: nobody has measured any.
    - `preempted_at`: when it lost spot instances lately, oldest first.
    - `measured`: None if nobody has measured what it uses.
    - `speeds`: work per hour by instance type, relative to the speed that `outlook`, or else the author's expected
      duration, speaks of. Types that are not named count as 1. `measured_speeds` names the types whose speed was seen
      with this job; the others are the catalogue's.
    """

    submission: JobSubmission
    record: JobRecord | None
    stale: bool
    cancel: bool
    drills: tuple[Drill, ...]
    spent: Spent
    nodes: int
    after: tuple[tuple[str, JobState | None], ...]
    outlook: Outlook | None
    changeover: Changeover | None
    preempted_at: tuple[datetime, ...]
    measured: Measured | None
    speeds: Mapping[str, float]
    measured_speeds: frozenset[str]

    @property
    def team(self) -> str:
        """The team that its tags name; empty without."""
        return self.submission.spec.tags.get("Team", "")

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

    @property
    def shares(self) -> bool:
        """Whether it may run beside others."""
        return self.submission.spec.resources.shared

    def owned_by(self, assignment: Assignment) -> bool:
        """Whether the lease is exactly the one that this assignment speaks of.

        The lease of a gang names the first of its instances; of the others the epoch tells.
        """
        record = self.record
        return (
            record is not None
            and record.state.owned
            and (record.owner == assignment.instance_id or self.nodes > 1)
            and record.epoch == assignment.epoch
            and record.job_id == assignment.job_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance: what it says of itself, what it was told, and what the cloud says of it.

    - `record` is None until its agent has reported.
    - `stale`: its heartbeat has stood still for the length of a lease.
    - `gone`: the cloud, or the instance's own last word, says that it runs no more.
    - `ending`: the cloud is about to take it or is ending it, at `deadline` if that is known.
    - `rebalance`: the cloud recommends to leave it, which may come to nothing.
    - `launched_for`: the job for which a plan had it launched; None for an instance of the standing fleets.
    - `launched_at`: when it began to cost money, if that is known.
    - `idle_since`: since when it has had nothing to do, be it after its last job or since it reported; None if it has
      something to do, or if that is not known.
    - `pool`: the pool that it belongs to, for one that has not reported yet; None if that is not known.
    - `residents`: the jobs that run on it, where instances are shared; empty where they are not.
    """

    instance_id: str
    record: InstanceRecord | None
    assignment: Assignment | None
    stale: bool
    gone: bool
    ending: bool
    rebalance: bool
    deadline: datetime | None
    launched_for: str | None
    launched_at: datetime | None
    idle_since: datetime | None
    pool: "PoolKey | None"
    residents: tuple[str, ...]

    @property
    def launched(self) -> bool:
        """A plan had it launched, and it has not ended."""
        return self.launched_for is not None and not self.gone

    @property
    def idle(self) -> bool:
        """No job is assigned to it, and none is resident on it."""
        return not self.residents and (self.assignment is None or not self.assignment.jobs)

    @property
    def seated(self) -> bool:
        """Jobs share it, by its assignment."""
        return self.assignment is not None and bool(self.assignment.seats)

    def told(self, job_id: str) -> Assignment | None:
        """What its assignment says of a job, as if that had it alone; None if it does not name the job."""
        return self.assignment.of(job_id) if self.assignment is not None else None

    def stops(self, job_id: str) -> bool:
        """It has been told to give that job back, or all that it has."""
        given = self.told(job_id)
        return self.stopping or (given is not None and given.order is not Order.RUN)

    @property
    def notified(self) -> bool:
        """The instance itself has seen an interruption notice."""
        notice = self.record.notice if self.record else None
        return notice is not None and notice.kind is NoticeKind.INTERRUPTION

    @property
    def recommended_away(self) -> bool:
        """A rebalance recommendation stands against it."""
        notice = self.record.notice if self.record else None
        return self.rebalance or (notice is not None and notice.kind is NoticeKind.REBALANCE)

    @property
    def healthy(self) -> bool:
        """It can be given a job now: its agent lives, takes work, and nothing is known for which it would leave."""
        return (
            self.record is not None
            and self.record.role is Role.AGENT
            and self.record.state in (InstanceState.READY, InstanceState.BUSY)
            and not (self.stale or self.gone or self.ending or self.notified)
            and not (self.assignment is not None and self.assignment.cordoned)
            and not self.leaving
        )

    @property
    def stopping(self) -> bool:
        """It has been told to stop what it runs."""
        return self.assignment is not None and self.assignment.order is not Order.RUN

    @property
    def leaving(self) -> bool:
        """It has been told to power off once it has nothing to do."""
        return self.assignment is not None and self.assignment.order is Order.LEAVE

    @property
    def reports(self) -> bool:
        """Its agent has reported, and its heartbeat goes on."""
        return self.record is not None and not (self.stale or self.gone or self.record.state is InstanceState.GONE)


class PoolKey(NamedTuple):
    """The name of a pool of capacity: clouds sell, price and refuse capacity by these three."""

    instance_type: str
    zone: str
    market: Market


def pool_of(instance: InstanceView) -> PoolKey | None:
    """The pool of an instance, by its own record or, before it has reported, by what its driver knows."""
    record = instance.record
    if record is None:
        return instance.pool
    return PoolKey(record.instance_type, record.zone, record.market)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool of capacity: what it costs, what it would give now, and how it has behaved.

    - `available`: how many more instances it would give now; None: as many as are asked for, as far as is known.
    - `reserved`: the capacity is paid for whether it is used or not.
    - `placement_score`: the cloud's own score, 1 to 10; None if it was not asked.
    - `refused_at`: when it lately had no capacity, oldest first.
    - `noticed_at`: when it last gave notice to an instance, or took one; None: never, as far as is known.
    """

    instance_type: InstanceType
    zone: str
    market: Market
    usd_per_hour: float
    available: int | None
    reserved: bool
    behaviour: Behaviour
    placement_score: int | None
    refused_at: tuple[datetime, ...]
    noticed_at: datetime | None
    key: PoolKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", PoolKey(self.instance_type.name, self.zone, self.market))

    def gives(self, count: int) -> bool:
        """Whether it would give `count` instances now, as far as is known."""
        return self.available is None or self.available >= count


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """The most that may be launched at once, running and on its way, standing fleets apart.

    `usd_per_hour` None: what it costs has no cap of its own.
    """

    instances: int
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Everything that a plan may know.

    - `draining`: nothing is to be started, and what runs is to stop.
    - `types`: the instance types that this cluster can bring, those declared in place and those that were seen. The
      types of instances that are there need not be among them.
    - `limits`: the durations by which the machines of the cluster guard themselves.
    - `pools`: the pools of which something is known. `plan` launches instances of these and no others;
      `plan_standing` launches none, and learns from them how the pools of the standing fleets behave.
    - `unions`: how several pools have behaved together; they are up while any of them is. What is not named is not
      known; only `plan` asks.
    - `usage`: dollars that each team has used lately; older ones count less. `shares`: the weight of each team; 1 where
      it is not named.
    - `tick`: the plan is asked again after this time at the latest.
    - `shared`: an instance can hold several jobs.
    - `standing`: what the standing fleets are declared to hold; None if that is not known, or too new to act on.
    - `generation`: the declared one; empty where instances are not told apart by it. `rolling`: busy instances of other
      generations are to be replaced too.
    - `booting`: how many instances were launched and have not reported yet.
    - `faults`: the instances that were of no use.
    - `idle_limit`: a launched instance without work is let go after this; zero: at once.
    - `cap`: the most that may be launched at once; None: no cap.
    - `purses`: what is left of the budgets of teams and of the environment.
    """

    jobs: tuple[JobView, ...]
    instances: tuple[InstanceView, ...]
    draining: bool
    types: tuple[InstanceType, ...]
    limits: Limits
    pools: tuple[PoolView, ...]
    unions: Mapping[frozenset[PoolKey], Behaviour]
    usage: Mapping[str, float]
    shares: Mapping[str, float]
    tick: timedelta
    shared: bool
    standing: Standing | None
    generation: str
    rolling: bool
    booting: int
    faults: tuple[FaultRecord, ...]
    idle_limit: timedelta
    cap: Cap | None
    purses: tuple[Purse, ...]
