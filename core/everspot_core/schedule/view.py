"""What a plan may know of a cluster: plain values, read once, before anything is decided.

Whoever drives the plan (the scheduler's loop, a simulator) makes a view; the plan never asks for more. Times are
market time. Whether a lease stands still is a flag and not a time, because only the observer's own clock can tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from everspot_core.catalogue import InstanceType
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

_NOTHING: Mapping[str, float] = MappingProxyType({})


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
class Outlook:
    """How much a job still has to do, on an instance of speed 1, and what it costs to begin again elsewhere.

    `left` and `changeover` are what is expected; the deadline is kept even if both turn out to be their upper bounds.
    A changeover is launch, set-up and progress that is lost. `changing`: what remains of the one under way.
    """

    left: timedelta
    left_upper: timedelta
    changeover: timedelta
    changeover_upper: timedelta
    changing: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a job was seen to use at most. `mixed`: it trains in mixed precision."""

    vcpus: float
    memory_gib: float
    gpu_memory_gib: float = 0.0
    mixed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job: what was asked for, how it stands, and what is wanted of it.

    `stale`: the record has stood still for a lease's length by the observer's own clock. `nodes`: instances that it
    needs at once (a gang). `preempted_at`: when it lost spot instances of late, oldest first. `speeds`: by instance
    type, work per hour relative to the type that `outlook` speaks of; `measured_speeds` names those that were measured
    and not taken from the catalogue.
    """

    submission: JobSubmission
    record: JobRecord | None = None
    stale: bool = False
    cancel: bool = False
    drills: tuple[Drill, ...] = ()
    spent: Spent = field(default_factory=Spent)
    nodes: int = 1
    outlook: Outlook | None = None
    preempted_at: tuple[datetime, ...] = ()
    measured: Measured | None = None
    speeds: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    measured_speeds: frozenset[str] = frozenset()

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

    `stale`: its heartbeat has stood still for a lease's length. `gone`: the cloud, or its own last word, says that it
    runs no more. `ending`: the cloud will take it, at `deadline` if that is known. `shaky`: the cloud recommends to
    leave it, which may come to nothing. `launched_for`: the job for which a plan had it launched; None for an instance
    of the standing fleet. Until it has a record of its own, `pool` says what it is going to be. `residents`: jobs that
    share it, where instances are shared.
    """

    instance_id: str
    record: InstanceRecord | None = None
    assignment: Assignment | None = None
    stale: bool = False
    gone: bool = False
    ending: bool = False
    shaky: bool = False
    deadline: datetime | None = None
    launched_for: str | None = None
    launched_at: datetime | None = None
    pool: "PoolKey | None" = None
    residents: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Nothing is assigned to it, and no job is resident on it."""
        return not self.residents and (self.assignment is None or self.assignment.job_id is None)

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
            and not (self.stale or self.gone or self.ending or self.notified)
            and not (self.assignment is not None and self.assignment.doomed)
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
        """It is there, and its heartbeat goes on."""
        return self.record is not None and not (self.stale or self.gone or self.record.state is InstanceState.GONE)


class PoolKey(NamedTuple):
    """What capacity is asked for by."""

    instance_type: str
    zone: str
    market: Market


def pool_of(instance: InstanceView) -> PoolKey | None:
    """What kind of capacity an instance is, be it there already or only launched."""
    record = instance.record
    if record is None:
        return instance.pool
    return PoolKey(record.instance_type, record.zone, record.market)


_NO_UNIONS: Mapping[frozenset[PoolKey], Behaviour] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool of capacity (type, zone, market): what it costs, what it would give now, how it has behaved.

    `available`: how many more instances it would give now; None: as many as are asked for, as far as is known.
    `reserved`: capacity that is paid for whether it is used or not. `placement_score`: 1 to 10, of the cloud.
    `refused_at`: when it lately had no capacity, oldest first. `noticed_at`: when it last took an instance away.
    """

    instance_type: InstanceType
    zone: str
    market: Market
    usd_per_hour: float
    available: int | None = None
    reserved: bool = False
    behaviour: Behaviour = field(default_factory=Behaviour)
    placement_score: int | None = None
    refused_at: tuple[datetime, ...] = ()
    noticed_at: datetime | None = None
    key: PoolKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", PoolKey(self.instance_type.name, self.zone, self.market))

    def gives(self, count: int) -> bool:
        """Whether it would give so many instances now, as far as is known."""
        return self.available is None or self.available >= count


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Everything a plan may know. `types`: the instance types that this cluster is known to be able to bring.

    `types` holds what was declared in place and what has been seen; the types of present instances need not be in it.
    `pools`: where the plan may launch instances of its own; empty: there is only the standing fleet. `unions`: how
    several pools have behaved together, up while any of them is. `usage`: by team,
    what it has used of late (dollars, decayed); `shares`: by team, its weight, 1 where not named. `tick`: the plan is
    asked again after so long at the latest. `shared`: whether an instance can hold several jobs. `standing`: what the
    standing fleets are declared to hold, if that is known and has stood for a while. `generation`: of the declaration;
    empty where instances of different ones are not to be told apart. `rolling`: busy instances of others are to go too.
    `booting`: instances that were launched and have not reported yet. `faults`: instances that were of no use.
    """

    jobs: tuple[JobView, ...] = ()
    instances: tuple[InstanceView, ...] = ()
    draining: bool = False
    types: tuple[InstanceType, ...] = ()
    limits: Limits = field(default_factory=Limits)
    pools: tuple[PoolView, ...] = ()
    unions: Mapping[frozenset[PoolKey], Behaviour] = field(default_factory=lambda: _NO_UNIONS)
    usage: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    shares: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    tick: timedelta = timedelta(seconds=5)
    shared: bool = False
    standing: Standing | None = None
    generation: str = ""
    rolling: bool = False
    booting: int = 0
    faults: tuple[FaultRecord, ...] = ()
