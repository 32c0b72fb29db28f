"""A job in the plan's input."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Assignment, JobRecord, JobState
from everspot_core.jobs.run_condition import ConditionResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The use of a job so far over all its attempts, open ones included."""

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

    Work is in hours on an instance of speed 1. A changeover consists of launch, set-up and the progress that is lost.
    `remaining` and `changeover` are expected values; the plan keeps the deadline even if both turn out to be their
    upper bounds. `changing` is the rest of the present changeover, zero without one.
    """

    remaining: timedelta
    remaining_upper: timedelta
    changeover: timedelta
    changeover_upper: timedelta
    changing: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUse:
    """The most resources that a job was seen to use. None: not measured, so the author's request counts.

    `mixed`: whether it trains in mixed precision.
    """

    vcpus: float | None
    memory_gib: float | None
    gpu_memory_gib: float | None
    mixed: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """Another job of the same cached stage.

    Attributes:
        state: of the job; None: it is not known.
        producer: the job that computed its outputs, once it has succeeded: itself, unless it was not run either.
        may_begin: whether its own start and hours allow it to run now. The plan adds whether the jobs that it comes
            after, its back-off and the budgets allow it.
    """

    job_id: str
    state: JobState | None
    producer: str
    may_begin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job: its author's request, its state, and the present wishes of its author or the cluster.

    - `record` is None until something has been decided about the job.
    - `stale`: the record has not changed for the length of a lease, by the observer's own clock.
    - `nodes`: how many instances it needs at the same time; more than one make a gang.
    - `after`: the jobs that have to succeed before it begins, each with its state; None: the job is unknown.
    - `condition_result`: what its `run_if` amounts to; None without one, or while it cannot be judged yet.
    - `missing_metric`: the metric that no job has reported, for which `run_if` cannot be judged; None: there is none.
    - `awaits`: the job of its own name that has to end first, because its `run_if` compares with that; None without.
    - `same_stage`: the jobs of the same cached stage that were submitted before it, in their order.
    - `outlook`: the driver's measurement or knowledge; None: the plan uses the author's expectation.
    - `head_epoch`: the epoch in the head of its checkpoints; None: it has no checkpoints, or the head was not read.
    - `changeover`: the estimate from measured changeovers, for when `outlook` is None; None: none was measured.
    - `preempted_at`: when it lost spot instances lately, oldest first.
    - `measured`: None if its use was never measured.
    - `speeds`: work per hour by instance type, relative to the speed that `outlook`, or else the author's expected
      duration, assumes. Types that are not named count as 1. `measured_speeds`: the types whose speed was measured with
      this job; the others are the catalogue's.
    - `withheld`: the part of its present wait in which it might not run: before its turn, or held by a cap or a drain.
      Hours outside its window do not count.
    - `accepted_deadline_at`: its deadline less the closed hours of its window and the changeovers by the bound with
      which it was accepted. The plan computes it; drivers give None.
    """

    submission: JobSubmission
    record: JobRecord | None
    stale: bool
    cancel: bool
    drills: tuple[Drill, ...]
    spent: Spent
    nodes: int
    after: tuple[tuple[str, JobState | None], ...]
    condition_result: ConditionResult | None
    missing_metric: str | None
    awaits: str | None
    same_stage: tuple[StageRun, ...]
    outlook: Outlook | None
    head_epoch: int | None
    changeover: Changeover | None
    preempted_at: tuple[datetime, ...]
    measured: MeasuredUse | None
    speeds: Mapping[str, float]
    measured_speeds: frozenset[str]
    withheld: timedelta
    accepted_deadline_at: datetime | None

    @property
    def team(self) -> str:
        """The team that pays for it; empty without."""
        return self.submission.team

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
    def may_need_instance(self) -> bool:
        """Whether it may run here. A job that is away may come back, and gets another instance then."""
        return not (self.state.final or self.state is JobState.AWAY or self.cancel)

    @property
    def shares(self) -> bool:
        """Whether it may run beside others."""
        return self.submission.spec.resources.shared

    def owned_by(self, assignment: Assignment) -> bool:
        """Return whether the lease is exactly the one that this assignment names.

        The lease of a gang names the first of its instances. The others are recognised by the epoch.
        """
        record = self.record
        return (
            record is not None
            and record.state.owned
            and (record.owner == assignment.instance_id or self.nodes > 1)
            and record.epoch == assignment.epoch
            and record.job_id == assignment.job_id
        )
