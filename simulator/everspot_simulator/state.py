"""The members of a simulated cluster: instances, submitted jobs, and the attempts that jobs made on instances."""

import math
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Reason,
    Role,
)
from everspot_core.schedule.view import InstanceView, JobView, Outlook, PoolKey, Spent

from everspot_simulator.workload import FleetTerms, WorkloadJob

NOTICES = 64
"""The number of latest preemptions of a job in the plan's view."""
_UNSPENT = Spent(dollars=0.0, gpu_hours=0.0)
"""Simulated jobs have no budget."""


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedInstance:
    """An instance from its launch to its end, paid all the while.

    Attributes:
        launched_for: the job that it was launched for, None for the standing fleet.
        idle_since: since when it has held no job; None while it boots or holds one.
        taken_at: when the market takes it, once notice is given.
    """

    instance_id: str
    pool: PoolKey
    instance_type: InstanceType
    usd_per_hour: float
    launched_at: datetime
    ready_at: datetime
    launched_for: str | None = None
    record: InstanceRecord | None = None
    assignment: Assignment | None = None
    residents: list[str] = field(default_factory=list)
    idle_since: datetime | None = None
    taken_at: datetime | None = None
    ended_at: datetime | None = None
    interrupted: bool = False

    @property
    def idle_from(self) -> datetime:
        """Since when it has had nothing to do: its launch, while it boots."""
        return self.idle_since or self.launched_at

    def boot(self, cluster: str) -> None:
        """Become ready, and write the record that an agent writes."""
        kind = self.instance_type
        self.idle_since = self.ready_at
        self.record = InstanceRecord(
            instance_id=self.instance_id,
            cluster=cluster,
            role=Role.AGENT,
            instance_type=kind.name,
            zone=self.pool.zone,
            market=self.pool.market,
            vcpus=kind.vcpus,
            memory_gib=kind.memory_gib,
            gpus=kind.gpus,
            gpu=kind.gpu,
            gpu_memory_gib=kind.gpu_memory_gib,
            state=InstanceState.READY,
            booted_at=self.ready_at,
            updated_at=self.ready_at,
        )

    def take(self, job_id: str, epoch: int) -> None:
        """Hold the job from now on."""
        self.residents.append(job_id)
        self.idle_since = None
        self._update_record(InstanceState.BUSY, job_id, epoch)

    def leave(self, job_id: str, now: datetime) -> None:
        """Hold the job no longer; without another one the instance is idle from now on."""
        self.residents.remove(job_id)
        if not self.residents:
            self.idle_since = now
            self._update_record(InstanceState.READY, None, None)

    def _update_record(self, state: InstanceState, job_id: str | None, epoch: int | None) -> None:
        assert self.record is not None  # noqa: S101 - nothing is put on an instance that boots
        self.record = self.record.model_copy(update={"state": state, "job_id": job_id, "epoch": epoch})

    def view(self, shared: bool) -> InstanceView:
        """Return the instance as a plan sees it."""
        return InstanceView(
            instance_id=self.instance_id,
            may_exist=True,
            record=self.record,
            assignment=self.assignment,
            stale=False,
            is_gone=False,
            ending=self.taken_at is not None,
            rebalance=False,
            deadline=self.taken_at,
            launched_for=self.launched_for,
            launched_at=self.launched_at,
            idle_since=self.idle_since,
            pool=self.pool,
            residents=tuple(self.residents) if shared else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAttempt:
    """A span in which a job held instances.

    Unless it ended during set-up, the job worked at `speed` from `works_from` to `worked_until`: to the end, or to the
    checkpoint after a notice. `reason`: why it ended; None if the simulation ended first.
    """

    job_id: str
    instances: tuple[str, ...]
    began_at: datetime
    works_from: datetime
    worked_until: datetime
    ended_at: datetime
    speed: float
    usd_per_hour: float
    reason: Reason | None

    @property
    def work(self) -> float:
        """Seconds of work on an instance of speed 1."""
        return max(0.0, (self.worked_until - self.works_from).total_seconds()) * self.speed


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """A submitted job.

    Attributes:
        done: seconds of work at speed 1 before its present attempt, which the fields from `instances` on describe.
        stopped_at: when it began its checkpoint after a notice; `done` includes all work from then on.
        back_at: when it will have released its lease.
    """

    job: WorkloadJob
    submission: JobSubmission
    record: JobRecord | None = None
    done: float = 0.0
    preempted_at: deque[datetime] = field(default_factory=lambda: deque(maxlen=NOTICES))
    preemptions: int = 0
    refused: bool = False
    finished_at: datetime | None = None
    instances: tuple[SimulatedInstance, ...] = ()
    began_at: datetime | None = None
    works_from: datetime | None = None
    stopped_at: datetime | None = None
    back_at: datetime | None = None
    speed: float = 1.0
    usd_per_hour: float = 0.0

    @classmethod
    def from_job(cls, job: WorkloadJob, begin: datetime, *, shared: bool = False) -> "Task":
        """Return the job at its submission. `shared`: it may run beside other jobs, as every job of a shared fleet
        may."""
        at = begin + hours(job.arrival_hours)
        spec = JobSpec(
            name=job.id,
            recipe="simulated",
            resources=job.resources.model_copy(update={"shared": True}) if shared else job.resources,
            priority=job.priority,
            deadline=None if job.deadline_hours is None else hours(job.deadline_hours),
            expected_duration=hours(job.upper),
            tags={"Team": job.team} if job.team else {},
        )
        deadline = None if job.deadline_hours is None else at + hours(job.deadline_hours)
        return cls(job=job, submission=JobSubmission(job_id=job.id, spec=spec, submitted_at=at, deadline_at=deadline))

    @property
    def state(self) -> JobState:
        """The state in its record; PENDING without one."""
        return JobState.PENDING if self.record is None else self.record.state

    @property
    def ends_at(self) -> datetime:
        """When it finishes if nothing interrupts it."""
        assert self.works_from is not None  # noqa: S101 - asked of jobs that hold instances
        seconds = (self.job.actual * 3600 - self.done) / self.speed
        # Rounded up to a microsecond, after a thousandth of one as tolerance.
        return self.works_from + timedelta(microseconds=max(0, math.ceil(seconds * 1e6 - 1e-3)))

    def done_by(self, now: datetime) -> float:
        """Return the seconds of work at speed 1 that it has done by then."""
        if self.works_from is None or self.stopped_at is not None:
            return self.done
        more = max(0.0, (now - self.works_from).total_seconds()) * self.speed
        return min(self.done + more, self.job.actual * 3600)

    def view(self, now: datetime, terms: FleetTerms, ready_at: datetime | None) -> JobView:
        """Return the job as a plan sees it. `ready_at`: when the last of the instances launched for it is ready."""
        done = self.done_by(now)
        upper = max(0.0, self.job.upper * 3600 - done)
        expected = self.job.hours * 3600 - done
        setup, changing = hours(terms.setup_hours), timedelta(0)
        if self.works_from is not None:
            changing = max(timedelta(0), self.works_from - now)
        elif ready_at is not None:
            changing = max(timedelta(0), ready_at - now) + setup
        return JobView(
            submission=self.submission,
            record=self.record,
            stale=False,
            cancel=False,
            drills=(),
            spent=_UNSPENT,
            after=(),
            condition_result=None,
            missing_metric=None,
            awaits=None,
            same_stage=(),
            nodes=self.job.nodes,
            outlook=Outlook(
                # Past the expected duration only the upper bound is known.
                remaining=timedelta(seconds=expected if expected > 0 else upper),
                remaining_upper=timedelta(seconds=upper),
                changeover=hours(terms.expected_hours),
                changeover_upper=hours(terms.upper_hours),
                changing=changing,
            ),
            head_epoch=None,
            changeover=None,
            preempted_at=tuple(self.preempted_at),
            measured=None,
            speeds=self.job.speeds,
            measured_speeds=frozenset(),
            withheld=timedelta(0),
            accepted_deadline_at=None,
        )


def hours(count: float) -> timedelta:
    """Return that many hours, to the microsecond."""
    return timedelta(microseconds=round(count * 3.6e9))
