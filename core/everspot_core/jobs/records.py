"""The documents of a running cluster: job records with their lease, assignments, instances, events.

docs/internals/store.md lists their keys and writers.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AliasChoices, Field

from everspot_core.capacity.instances import InstanceRecord as InstanceRecord
from everspot_core.capacity.instances import InstanceState as InstanceState
from everspot_core.capacity.instances import Notice as Notice
from everspot_core.capacity.instances import NoticeKind as NoticeKind
from everspot_core.capacity.instances import Resident as Resident
from everspot_core.capacity.instances import Role as Role
from everspot_core.capacity.market import Market as Market
from everspot_core.documents import Document, Stored, Utc
from everspot_core.jobs.early_stop import EarlyStop
from everspot_core.jobs.events import Event as Event
from everspot_core.jobs.events import EventKind as EventKind
from everspot_core.jobs.reported_values import Gib, PerEpoch, Rate, Seconds, Share, Step, Steps
from everspot_core.jobs.shard_traffic import ShardTraffic
from everspot_core.jobs.utilization import Utilization
from everspot_core.jobs.visit_records import Away, Trip


class JobState(StrEnum):
    """The state of a job. PENDING: it waits for an instance. ASSIGNED: it has an instance that has not started it yet.
    AWAY: it is offered to another cluster, or runs there. SKIPPED: its `run_if`, or the `run_if` of a job in its
    `after`, did not hold. The last four are final."""

    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    RUNNING = "RUNNING"
    AWAY = "AWAY"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"

    @property
    def final(self) -> bool:
        """Whether the job will never run again."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.SKIPPED)

    @property
    def owned(self) -> bool:
        """Whether an instance holds the lease."""
        return self in (JobState.ASSIGNED, JobState.RUNNING)


class Reason(StrEnum):
    """The reason for an order to stop, or for the end of an attempt."""

    FINISHED = "finished"
    NOTICE = "notice"  # the cloud's interruption notice
    DRILL = "drill"  # `everspot cluster interrupt`
    DRAIN = "drain"  # `everspot cluster drain`
    CANCEL = "cancel"
    BUDGET = "budget"
    ERROR = "error"  # the user's program failed
    LOST = "lost"  # the owner vanished: lease expired, or its instance is gone
    FENCED = "fenced"  # the owner found that it had lost the lease
    MOVE = "move"  # the scheduler has a better instance for the job
    SHUTDOWN = "shutdown"  # the instance or its agent is being stopped for another reason
    ROLL = "roll"  # the instance is replaced by one of the current image and settings
    RELEASE = "release"  # the fleet is larger than its target: this instance leaves
    CORDON = "cordon"  # the machine is broken: its jobs move, and it leaves
    MACHINE = "machine"  # the machine failed the program: a full disk, a broken GPU
    DENIED = "denied"  # the store refused what the job needs: a permission is missing
    DAMAGED = "damaged"  # there are checkpoints, and none of them is whole
    AGENT = "agent"  # the instance's agent failed, or was restarted again and again, while it had the job
    MISSING = "missing"  # the submitted code of the job is missing
    CAP = "cap"  # a budget of its team or of the environment is used up: it waits until more may be spent
    AFTER = "after"  # a job of its `after` has not succeeded
    CONDITION = "condition"  # its `run_if` does not hold, or could not be judged
    REUSED = "reused"  # the same stage has succeeded before: it has that job's outputs, and was not run
    WINDOW = "window"  # the hours in which it may run are over: it waits for the next
    INFEASIBLE = "infeasible"  # no capacity could have met its deadline: it was not started
    RETURNED = "returned"  # a visit, by its host: the job goes on in another cluster
    NO_PROGRESS = "no-progress"  # its owner vanished too often in a row without progress of the job
    SUPERSEDED = "superseded"  # its checkpoints belong to a later epoch than its record, so no owner can write any
    UNDERUSED = "underused"  # its GPU utilization stayed below its `limits`, with `then: end`
    STALLED = "stalled"  # the program made no step for many times its usual step time, and `retries.stalled` is set

    @property
    def preemption(self) -> bool:
        """Whether the job lost its instance through no fault of its own."""
        if self.troubled:
            return True
        return self in (
            Reason.NOTICE,
            Reason.DRILL,
            Reason.DRAIN,
            Reason.LOST,
            Reason.FENCED,
            Reason.SHUTDOWN,
            Reason.ROLL,
            Reason.RELEASE,
            Reason.CORDON,
        )

    @property
    def troubled(self) -> bool:
        """Whether machine, agent or store broke the attempt. Another instance is tried after a growing back-off."""
        return self in (Reason.MACHINE, Reason.DENIED, Reason.DAMAGED, Reason.AGENT)

    @property
    def put_off(self) -> bool:
        """Whether the job waits for its hours or a budget, which counts neither as an interruption nor as an error."""
        return self in (Reason.CAP, Reason.WINDOW)

    @property
    def failure(self) -> bool:
        """Whether the reason counts towards the job's `retries.errors`."""
        return self in (Reason.ERROR, Reason.MISSING, Reason.STALLED)


class Progress(Stored):
    """The last reported progress of the training process."""

    step: Step = 0
    total_steps: Steps = None
    steps_per_epoch: PerEpoch = Field(
        default=None, description="Steps that read its data once; None: not reported, or the data has no length."
    )
    durable_step: Steps = Field(
        default=None,
        description="Steps of its newest checkpoint, from which another instance would continue; None: not reported.",
    )
    steps_per_second: Rate = Field(default=None, description="Steps per real second, recent mean.")
    metrics: dict[str, float] = Field(default_factory=dict)
    stalled_seconds: Seconds = Field(
        default=None,
        description="Real time without a step, once it is many times the usual step time; None: not stalled.",
    )
    unkept_seconds: Seconds = Field(
        default=None,
        description="Real time without a complete checkpoint of a program that does not use the trainer library, once "
        "it is several checkpoint intervals; None: checkpoints are published.",
    )
    low_gpu_share: Share = Field(
        default=None,
        description="The share of the time in which its GPUs computed, once it is below the limit of its file; None: "
        "it has no limit, or is not below.",
    )
    early_stop: EarlyStop | None = Field(
        default=None, description="The end by its `stop`, from the deciding evaluation on; None: it continues."
    )
    new_checkpoints: int | None = Field(
        default=None,
        description="Checkpoints of its folder that this attempt has published; None: not reported, or no folder.",
    )
    preparing: bool = Field(default=False, description="Its data, packages or set-up are being prepared.")
    memory_gib: Gib = Field(default=None, description="The largest measured memory, GiB; None: not measured.")
    gpu_memory_gib: Gib = Field(
        default=None,
        description="The most memory that torch reserved on one GPU of its first worker, GiB; None: not reported.",
    )
    mixed: bool | None = Field(default=None, description="Whether it trains in mixed precision; None: not reported.")
    recent_use: Utilization | None = Field(
        default=None, description="The utilization of about the last minute; None: not measured."
    )
    attempt_use: Utilization | None = Field(
        default=None, description="The utilization of this attempt so far; None: not measured."
    )
    shard_traffic: ShardTraffic | None = Field(
        default=None, description="The bytes that it streamed in this attempt so far; None: it streams nothing."
    )


class JobRecord(Document):
    """The state of a job and its lease in one document, changed only by conditional writes.

    `epoch` counts ownerships: every assignment raises it by one. Each renewal raises `beat`, so that a record whose
    ETag does not change for a lease's length belongs to a dead owner. A job without a record is PENDING at epoch 0.
    """

    job_id: str
    state: JobState
    epoch: int = 0
    owner: str | None = Field(default=None, description="Instance id, while the state is ASSIGNED or RUNNING.")
    incarnation: int = Field(
        default=0,
        description="The number of agents that have run the job under this epoch: more than one if the agent was "
        "restarted. Processes of an earlier agent may no longer write.",
    )
    beat: int = 0
    progress: Progress = Progress()
    preemptions: int = 0
    errors: int = 0
    unstarted: list[str] = Field(
        default_factory=list,
        description="The last instances in a row that could not start its program, or failed it.",
    )
    incomplete_ends: int = Field(
        default=0, description="How often its program had finished and its outputs could not be uploaded."
    )
    from_zero: int = Field(default=0, description="How often it was started from zero for lack of a checkpoint.")
    fruitless: int = Field(default=0, description="How often in a row its owner vanished without progress of the job.")
    fruitless_ended: int = Field(
        default=0, description="How many of these losses came because the cloud had taken or ended the instance."
    )
    idle_attempts: int = Field(
        default=0, description="How many attempts in a row ended without progress, failures of its program left out."
    )
    assigned_step: Steps = Field(default=None, description="Its highest step when its owner got it.")
    assigned_durable_step: Steps = Field(
        default=None, description="The step of its newest checkpoint when its owner got it."
    )
    failed_on: list[str] = Field(
        default_factory=list, description="The instances on which it ended with an error, the newest last."
    )
    failed_step: int = Field(default=0, description="Its step at the last error.")
    not_before: Utc | None = Field(default=None, description="No assignment before this (back-off after an error).")
    last_owner: str | None = None
    last_reason: Reason | None = None
    detail: str = Field(
        default="", description="Text for users: the reason of the failure, the last lines of the error."
    )
    exit_code: int | None = None
    reused_from: str | None = Field(
        default=None, description="The job that computed its outputs, if it was not run because of `cache`."
    )
    changed_at: Utc
    assigned_at: Utc | None = Field(default=None, description="When its owner got it, while it has one.")
    held_seconds: Seconds = Field(
        default=None,
        description="Market time with an instance, over all ended attempts. None: an older release's record.",
    )

    away: Away | None = Field(default=None, description="While the state is AWAY.")
    waits_since: Utc | None = Field(
        default=None,
        description="The start of its wait, if it was away during the wait and got no instance there. None: the wait "
        "began when it last left an instance.",
    )
    trips: list[Trip] = Field(
        default_factory=list, description="Its visits to other clusters, and failed offers, newest last."
    )

    def held_time(self, until: datetime) -> timedelta | None:
        """Return the market time with an instance up to a moment; None if it has to be computed from the events."""
        if self.epoch == 0:
            return timedelta(0)
        if self.held_seconds is None:
            return None
        now = max(timedelta(0), until - self.assigned_at) if self.assigned_at is not None else timedelta(0)
        return timedelta(seconds=self.held_seconds) + now


class Order(StrEnum):
    """The order of a scheduler to an instance."""

    RUN = "run"
    STOP = "stop"
    LEAVE = "leave"  # as STOP; then, without a job, the instance powers off


class Seat(Stored):
    """A job's part of a shared instance: the resources that it may use, and the scheduler's order.

    `order`, `reason` and `deadline` are as in `Assignment`, for this job alone.
    """

    job_id: str
    epoch: int
    vcpus: int
    memory_gib: float
    gpus: tuple[int, ...] = Field(default=(), description="Which of the instance's GPUs, counted from 0.")
    share: float = Field(
        description="Its part of the instance's cost, from 0 to 1; the shares of all seats add up to 1 at most."
    )
    order: Order = Order.RUN
    reason: Reason | None = None
    deadline: Utc | None = None
    changed_at: Utc


class Assignment(Document):
    """The scheduler's orders to one instance. Schedulers write it conditionally, and the instance's agent polls it.

    `job_id` names the job that has the instance alone, `seats` the jobs that share it. At most one of the two is set.
    With `order` STOP the agent checkpoints and gives the lease back, by `deadline` if there is one. The stored document
    calls `cordoned` `doomed`, as the first release did.
    """

    instance_id: str
    job_id: str | None = None
    epoch: int = 0
    order: Order = Order.RUN
    reason: Reason | None = None
    deadline: Utc | None = None
    cordoned: bool = Field(
        default=False,
        validation_alias=AliasChoices("cordoned", "doomed"),
        serialization_alias="doomed",
        description="The instance will be interrupted: it gets no further jobs.",
    )
    seats: tuple[Seat, ...] = ()
    hours_between_interruptions: float | None = Field(
        default=None,
        gt=0,
        description="Mean time between two interruptions of an instance of its pool, by the cluster's history. It "
        "determines the interval between checkpoints. None: unknown.",
    )
    changed_at: Utc

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs of the assignment."""
        return (self.job_id,) if self.job_id is not None else tuple(s.job_id for s in self.seats)

    @property
    def seat_assignments(self) -> tuple["Assignment", ...]:
        """The orders for each of its jobs, as if that job had the instance alone."""
        return (self,) if self.job_id is not None else tuple(map(self._alone, self.seats))

    def share(self, job_id: str) -> float:
        """Return the fraction of the instance's cost that is the job's: 1, or the share of its seat."""
        return next((s.share for s in self.seats if s.job_id == job_id), 1.0)

    def for_job(self, job_id: str) -> "Assignment | None":
        """Return the orders for one job, as if it had the instance alone; None if the assignment does not name it."""
        return next((h for h in self.seat_assignments if h.job_id == job_id), None) if job_id in self.jobs else None

    def _alone(self, seat: Seat) -> "Assignment":
        is_leaving = self.order is Order.LEAVE
        return Assignment(
            instance_id=self.instance_id,
            job_id=seat.job_id,
            epoch=seat.epoch,
            order=self.order if is_leaving else seat.order,
            reason=self.reason if is_leaving else seat.reason,
            deadline=seat.deadline,
            cordoned=self.cordoned,
            hours_between_interruptions=self.hours_between_interruptions,
            changed_at=seat.changed_at,
        )


class Request(Document):
    """A request of a user about a job or the cluster: cancel, drill, drain. Written once."""

    at: Utc
    by: str = ""
    note: str = ""


class RollRequest(Request):
    """The request to replace instances of other generations, including busy ones, in batches."""

    generation: str
