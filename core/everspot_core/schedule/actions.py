"""The actions of a plan. Each has a code for its reason and the figures behind it; `messages` makes sentences of them.

There are two unions. A driver of standing fleets has to handle `StandingAction`. `Action` adds the actions for a driver
that launches its own capacity.

A plan has at most one action per job and at most one per instance. (`Hold` and `DropDrills` do not count, because they
change neither a lease nor an assignment.) So the actions of one plan can be carried out in any order. An instance that
jobs share may have one action for each of these jobs, and one for the whole instance; they do not conflict.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs.records import JobState, Market, Reason
from everspot_core.schedule.view import PoolKey

ReasonFigure = int | float | str
ReasonFigures = dict[str, ReasonFigure]


class Why(StrEnum):
    """Reason codes. The comment after each names its figures."""

    PREFERRED_MARKET = "preferred-market"  # rank, market
    OTHER_MARKET = "other-market"  # rank, market: nothing of the preferred market was free
    HALF_DONE = "half-done"  # a scheduler died, or is still at work, between the two writes of an assignment
    UNWANTED = "unwanted"  # half written when the job was cancelled or the instance cordoned
    OWNER_LEFT = "owner-left"  # the assignment's lease is over
    TAKEN_BACK = "taken-back"  # the instance holds the job's lease, but its assignment lacks the job
    UNKNOWN_JOB = "unknown-job"  # the assignment names a job that was never submitted
    LEASE_EXPIRED = "lease-expired"  # lease_ttl_seconds
    INSTANCE_GONE = "instance-gone"
    INTERRUPTION = "interruption"  # the cloud takes the instance, or is ending it
    CANCEL = "cancel"
    DRAIN = "drain"
    DRILL = "drill"
    DOLLARS = "dollars"  # spent, budget
    GPU_HOURS = "gpu-hours"  # spent, budget
    WALL_CLOCK = "wall-clock"  # spent, budget (seconds)
    UNDERUSED = "underused"  # share: of the time in which its GPUs computed, percent; limit (percent), span
    AFTER = "after"  # jobs: that have to succeed first
    AFTER_SKIPPED = "after-skipped"  # job: the predecessor that was skipped
    CONDITION = "condition"  # words: the comparison that does not hold, with its figures
    METRIC_MISSING = "metric-missing"  # words: which metric of `run_if` no job has reported
    SAME_NAME = "same-name"  # job: another job of its name, which its run_if will compare with
    SAME_STAGE = "same-stage"  # job: another job of the same cached stage, which is under way
    REUSED = "reused"  # job: the one that has computed the same stage
    AFTER_FAILED = "after-failed"  # job, state: the predecessor, and how it ended
    LOST_OFTEN = "lost-often"  # times: its owner vanished so often in a row, and it came no further;
    # ended: how many of them because the cloud had taken or ended its instance
    IDLE_ATTEMPTS = "idle-attempts"  # times: attempts in a row without progress; reason: the last one's end
    HEAD_AHEAD = "head-ahead"  # head, epoch: its checkpoints belong to a later epoch than its record
    NOT_YET = "not-yet"  # start: it does not begin before
    OUTSIDE_WINDOW = "outside-window"  # window, opens
    TEAM_BUDGET = "team-budget"  # team, spent, committed, asked, cap, unit, period, until
    ENVIRONMENT_BUDGET = "environment-budget"  # spent, committed, asked, cap, unit, period, until
    BACK_OFF = "back-off"  # seconds
    DENIED = "denied"  # times: the store refused what it needs so often in a row; until, detail
    NO_FREE_INSTANCE = "no-free-instance"  # present: healthy instances that are large enough
    KEPT_FOR_CRITICAL = "kept-for-critical"
    NO_TYPE_FITS = "no-type-fits"  # lacks, types
    NOTHING_SEEN = "nothing-seen"  # no instance and no declared type yet
    ALREADY_STOPPING = "already-stopping"
    # Reasons for jobs that instances are launched for. Their figures are hours and dollars.
    SPOT_AVAILABLE = "spot-available"
    SHORT_SPELLS = "short-spells"  # up_hours, needed_hours: the last spells of spot were over before a changeover was
    NO_SPOT_YET = "no-spot-yet"  # hours, limit_hours: waited without any spot, and for how long at most
    WAITED_LONG = "waited-long"  # hours: without any spot
    WAIT_FOR_SPOT = "wait-for-spot"  # slack_hours: may still be waited
    LAST_SAFE_MOMENT = "last-safe-moment"  # left_hours, time_hours, changeover_hours
    ON_DEMAND_PAYS = "on-demand-pays"  # slack_hours, down_hours: waiting would cost more than it may save
    STAY_ON_DEMAND = "stay-on-demand"  # up_hours, needed_hours: spot has not been back for long enough to move
    BACK_TO_SPOT = "back-to-spot"  # up_hours, needed_hours
    RUNS_WELL = "runs-well"  # market
    NO_SPOT = "no-spot"  # no spot pool can hold it
    UNKNOWN_LENGTH = "unknown-length"  # a deadline, and nobody has said how long it runs
    NO_CAPACITY = "no-capacity"  # tried
    TYPE_SUSPENDED = "type-suspended"  # instance_type, faults, words, detail, until
    AT_CAP = "at-cap"  # nodes, needed_usd: what it needs; instances, usd: what runs or comes; most, most_usd; reserved
    AT_RISK = "at-risk"  # left_hours, time_hours: on-demand has no capacity either
    CRITICAL = "critical"  # market: reserved or on-demand, immediately
    FAILED_OVER = "failed-over"  # preemptions, window_hours
    SMALLER_TYPE = "smaller-type"  # preemptions
    SMALLER_MIXED = "smaller-mixed"  # preemptions: it fits the smaller type in mixed precision only
    INFEASIBLE = "infeasible"  # earliest, usd
    ON_ITS_WAY = "on-its-way"  # instances: what it will move to is being launched
    FREE_SOON = "free-soon"  # minutes: until an instance is free for it, as soon as a launch would provide one
    MOVE = "move"  # market: what it moves to is ready
    NEEDED_NO_MORE = "needed-no-more"
    IDLE = "idle"  # minutes, limit_minutes: it has had nothing to do for the limit, and no work is foreseen for it
    KEPT_FOR_GANG = "kept-for-gang"  # ahead: the job that it would delay
    UNFIT = "unfit"  # detail: the instance's own words
    JOBS_FAILED = "jobs-failed"  # jobs: that failed there and did well elsewhere
    EXCESS = "excess"  # units, target: what the market holds, and is declared to
    OLD_GENERATION = "old-generation"  # was, now
    ROLL = "roll"  # was, now: and a user wants it immediately
    TO_PEER = "to-peer"  # cluster: that it is offered to next
    RECALLED = "recalled"  # home, because: the job is a visit and goes back home; why home wants it
    TOO_FEW_FREE = (
        "too-few-free"  # nodes, present: instances that it needs together, healthy ones that are large enough
    )


WITHHELD = frozenset(
    {Why.AFTER, Why.NOT_YET, Why.OUTSIDE_WINDOW, Why.SAME_NAME, Why.SAME_STAGE, Why.TEAM_BUDGET, Why.ENVIRONMENT_BUDGET}
)
"""Reasons for which a job must not run now, even if an instance is free. Nothing is launched or kept for it."""

NO_WAIT = (WITHHELD | {Why.DRAIN}) - {Why.NOT_YET, Why.OUTSIDE_WINDOW}
"""Reasons whose time does not count as waiting. A wait begins at `start_at` in any case. It goes on outside a window:
otherwise a job with a short window would never have waited long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    cause: Why
    figures: ReasonFigures = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(_Act):
    """Put the job on the instance: the instance's assignment first, the job's record second.

    Attributes:
        gang: the other instances of a job that needs several, all or none.
        shares: the job gets the part of the instance that it asks for, and others may have the rest.
    """

    job_id: str
    instance_id: str
    epoch: int
    instance_type: str
    zone: str
    market: Market
    gang: tuple[str, ...] = ()
    shares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteAssignment(_Act):
    """Do the second half of an assignment whose first half is written."""

    job_id: str
    instance_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidAssignment(_Act):
    """Give up an assignment whose first half is written, by raising the waiting job's epoch to `epoch`.

    To clear the assignment alone is not enough, because a slower scheduler could still write the second half. After the
    epoch is raised that write fails, and the assignment can be cleared safely.
    """

    job_id: str
    instance_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearAssignment(_Act):
    """Remove the job from the instance's assignment: its lease there has ended."""

    instance_id: str
    job_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreAssignment(_Act):
    """Name the job in its owner's assignment again.

    An owner that was presumed dead, and whose assignment was cleared, may have taken its lease back. Without an
    assignment it would get no orders for the job, and would not find the job again after a restart. `shares`: as in
    `Assign`.
    """

    job_id: str
    instance_id: str
    epoch: int
    shares: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(_Act):
    """Tell the owner to checkpoint and give the lease back. `drills`: the requests that this stop fulfils."""

    job_id: str
    instance_id: str
    epoch: int
    reason: Reason
    deadline: datetime | None = None
    drills: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon(_Act):
    """The cloud takes the instance: nothing new is put on it, and the jobs on it stop by `deadline`."""

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
    """End a job that nobody owns. `state` is CANCELLED, FAILED or SKIPPED; or SUCCEEDED, of a cached stage that is not
    run because the job in the figures has computed the same."""

    job_id: str
    epoch: int
    state: JobState
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDrills(_Act):
    """Delete these drill requests, which are fulfilled or came too late."""

    job_id: str
    drills: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(_Act):
    """The job waits. This changes nothing, and gives the reason.

    Attributes:
        waits_for: the pool that would suit it best, or from which an instance is on its way; None if it waits for no
            pool.
        on_demand_at: when on-demand is launched for it at the latest, if nothing else comes before. It is None if
            on-demand is being asked for now, if none may be launched, or if the job waits for something else.
    """

    job_id: str
    waits_for: PoolKey | None = None
    on_demand_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(_Act):
    """Launch instances of a pool for this job. The job gets them once they are ready; if it still runs, it moves there.

    Attributes:
        ranked: the suitable pools of the market, best first, beginning with the one that the fields name.
        ordered: their order counts; otherwise the cloud may choose by price and capacity.
    """

    job_id: str
    instance_type: str
    zone: str
    market: Market
    ranked: tuple[PoolKey, ...]
    ordered: bool
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(_Act):
    """End an instance that was launched for a job, and that nobody needs."""

    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(_Act):
    """Tell an instance of the standing fleets to give back its jobs (`job_id`, under `epoch`) and to power off.

    `fault`: the kind of the fault record to write about it; None: no fault.
    """

    instance_id: str
    reason: Reason
    job_id: str | None = None
    epoch: int = 0
    fault: FaultKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay(_Act):
    """The job stays where it is. This changes nothing, and says why."""

    job_id: str
    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse(_Act):
    """End a job that has not begun and cannot keep its deadline. `earliest`: the earliest end, for `usd` dollars."""

    job_id: str
    epoch: int
    earliest: datetime | None
    usd: float | None


StandingAction = (
    Assign
    | CompleteAssignment
    | VoidAssignment
    | ClearAssignment
    | RestoreAssignment
    | Stop
    | Cordon
    | Expire
    | Finish
    | DropDrills
    | Hold
    | Leave
)
"""The actions of `plan_standing`."""

Action = StandingAction | Launch | Release | Stay | Refuse
"""The actions of `plan`."""
