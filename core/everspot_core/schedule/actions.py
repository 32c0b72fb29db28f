"""What a plan may ask for. Each action carries a code for its reason and the figures behind it; words are made later.

A plan holds at most one action per job and at most one per instance, `Hold` and `DropDrills` aside, which change
neither a lease nor an assignment. So the actions of one plan can be carried out in any order.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from everspot_core.records import JobState, Market, Reason

Figure = int | float | str
Figures = dict[str, Figure]


class Why(StrEnum):
    """Reason codes. The figures that come with each are named behind it."""

    PREFERRED_MARKET = "preferred-market"  # rank, market
    OTHER_MARKET = "other-market"  # rank, market: nothing of the preferred market was free
    HALF_DONE = "half-done"  # a scheduler died, or is still at work, between the two writes of an assignment
    UNWANTED = "unwanted"  # half done, and meanwhile the job or the instance is not to be used
    OWNER_LEFT = "owner-left"  # the assignment's lease is over
    UNKNOWN_JOB = "unknown-job"  # the assignment names a job that was never submitted
    LEASE_EXPIRED = "lease-expired"  # lease_ttl_seconds
    INSTANCE_GONE = "instance-gone"
    INTERRUPTION = "interruption"  # the cloud gave notice
    CANCEL = "cancel"
    DRAIN = "drain"
    DRILL = "drill"
    DOLLARS = "dollars"  # spent, budget
    GPU_HOURS = "gpu-hours"  # spent, budget
    WALL_CLOCK = "wall-clock"  # spent, budget (seconds)
    BACK_OFF = "back-off"  # seconds
    NO_FREE_INSTANCE = "no-free-instance"  # present: healthy instances that are large enough
    KEPT_FOR_CRITICAL = "kept-for-critical"
    NO_TYPE_FITS = "no-type-fits"  # lacks, types
    NOTHING_SEEN = "nothing-seen"  # no instance and no declared type yet
    ALREADY_STOPPING = "already-stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    why: Why
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(_Act):
    """Put the job on the instance: the instance's assignment first, the job's record second."""

    job_id: str
    instance_id: str
    epoch: int
    instance_type: str
    zone: str
    market: Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete(_Act):
    """Do the second half of an assignment whose first half stands."""

    job_id: str
    instance_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Void(_Act):
    """Give up an assignment whose first half stands, by raising the waiting job's epoch to `epoch`.

    Clearing the assignment alone would not do: a slower scheduler could still write the second half. With the epoch
    spent its write must fail, and the assignment can be cleared for good.
    """

    job_id: str
    instance_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear(_Act):
    """The instance has nothing to do any more."""

    instance_id: str
    job_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(_Act):
    """Tell the owner to checkpoint and give the lease back. `drills`: requests that are fulfilled by it."""

    job_id: str
    instance_id: str
    epoch: int
    reason: Reason
    deadline: datetime | None = None
    drills: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doom(_Act):
    """The cloud takes the instance: nothing new is put on it, and what runs there stops by `deadline`."""

    instance_id: str
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire(_Act):
    """Take the lease from an owner that is dead."""

    job_id: str
    instance_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(_Act):
    """End a job that nobody owns. `state` is CANCELLED or FAILED."""

    job_id: str
    epoch: int
    state: JobState
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDrills(_Act):
    """These drill requests need nothing more: fulfilled, or come too late."""

    job_id: str
    drills: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(_Act):
    """The job waits. Changes nothing; says why."""

    job_id: str


Action = Assign | Complete | Void | Clear | Stop | Doom | Expire | Finish | DropDrills | Hold
