"""Free capacity, and the request of a job for it.

There are two kinds: in `exclusive` an instance holds one job, in `packing` it can hold several.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum
from math import inf
from typing import Protocol

from everspot_core.jobs.fit import Shape
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Reason,
    Resident,
)
from everspot_core.schedule.jobs import job_outlook
from everspot_core.schedule.market.ranking import just_noticed
from everspot_core.schedule.placement.gangs import instance_record
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, instance_pool

DEPTH = 64
"""The most waiting jobs that get a promised time in one plan. No job behind them gets what the next one could use."""

_UNFIT = (Reason.LOST, Reason.FENCED, Reason.NOTICE, Reason.SHUTDOWN)
_STEP_GIB = 0.125

Want = tuple[int, str | None, float, int, float, tuple[str, ...], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRequest:
    """A job's request for free capacity.

    Attributes:
        avoid: the instance that it was preempted from last, and the instances that it failed on. It prefers any other
            instance, but returns to one of them rather than wait.
        hours_by_type: its hours by type, once they are computed.
    """

    job: JobView
    critical: bool
    prefer: Market
    avoid: frozenset[str] = frozenset()
    hours_by_type: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.job.job_id

    @property
    def nodes(self) -> int:
        """The number of instances that the job needs at the same time."""
        return self.job.nodes

    @property
    def need(self) -> Resources:
        """The resources that the job needs on each instance."""
        return self.job.submission.spec.resources

    @property
    def want(self) -> Want:
        """The need as a key. Jobs with the same key fit the same instances."""
        need = self.need
        return need.gpus, need.gpu, need.gpu_memory_gib, need.vcpus, need.memory_gib, need.instance_types, need.shared

    def hours(self, instance_type: str) -> float:
        """Return the hours until the job is done at the latest if it begins now; inf if unknown."""
        if instance_type not in self.hours_by_type:
            self.hours_by_type[instance_type] = hours_left(self.job, instance_type)
        return self.hours_by_type[instance_type]

    @property
    def span(self) -> tuple[float, float]:
        """Its hours on the type that is known to be fastest for it, and on the slowest."""
        slowest_hours = self.hours("")
        speeds = (1.0, *self.job.speeds.values())
        return slowest_hours / max(speeds), slowest_hours / min(speeds)

    def preference_key(self, market: Market, again: bool) -> tuple[bool, bool]:
        """Return the sort key of an instance by its market and by whether the job was there before (`again`); the best
        instance has the least key.

        A critical job would rather return to an on-demand instance than go to spot. A normal job would rather take
        another instance than return.
        """
        other = market is not self.prefer
        return (other, again) if self.critical else (again, other)


class Capacity(Protocol):
    """Free instances. Instances that `seat` gives away are no longer free."""

    def seat(self, request: SeatRequest) -> list[InstanceView]:
        """Return the instances that the job gets, as many as it has nodes; empty if it has to wait."""

    def promise(self, request: SeatRequest) -> None:
        """The job waits: from now on no other job gets anything that would make this one wait longer."""

    def set_aside(self, request: SeatRequest) -> None:
        """Keep free on-demand instances for a critical job that cannot take them yet."""

    def is_aside(self, request: SeatRequest) -> bool:
        """Return whether the job could use the capacity that was set aside."""

    def promised(self, request: SeatRequest) -> str | None:
        """Return the job ahead that holds promises of free instances which this one could use; None without one."""


def is_free(instance: InstanceView, records: Mapping[str, JobRecord | None]) -> bool:
    """Return whether the instance is healthy, has nothing assigned, and is done with its last job.

    An agent's report is as old as its heartbeat. So a BUSY instance counts as free once the lease that it names has
    been given back, with two exceptions:

    - The lease was taken from the agent, which may not know that yet.
    - The agent gave the job back because its machine is going or unfit, which the next heartbeat will report.
    """
    record = instance.record
    if record is None or not instance.healthy or not instance.idle:
        return False
    if record.state is InstanceState.READY:
        return True
    if record.job_id is not None and record.epoch is None:
        return False
    return bool(record.runs) and not lingering(instance, records)


def lingering(instance: InstanceView, records: Mapping[str, JobRecord | None]) -> tuple[str, ...]:
    """Return the jobs that its agent reported as running and that, as far as is known, it may still be running."""
    record = instance.record
    return tuple(r.job_id for r in record.runs if not _is_back(r, instance, records)) if record is not None else ()


def _is_back(resident: Resident, instance: InstanceView, records: Mapping[str, JobRecord | None]) -> bool:
    record = records.get(resident.job_id)
    if record is None or record.epoch < resident.epoch:
        return False
    return record.owner != instance.instance_id and record.last_reason not in _UNFIT


def done_after(job: JobView | None, instance: InstanceView, tick: timedelta) -> float:
    """Return the hours until the instance is free of its job: inf if unknown, a tick if it no longer holds one."""
    assignment = instance.assignment
    if instance.seated:
        return inf
    if job is None or assignment is None or instance.stopping or not _runs_or_starts(job, assignment):
        return _hours(tick)
    return hours_left(job, instance_record(instance).instance_type)


def hours_left(job: JobView, instance_type: str) -> float:
    """Return hours until the job is done at the latest, if it runs on or, if it does not run, begins now; inf if
    unknown."""
    outlook = job_outlook(job)
    if outlook is None:
        return inf
    begins = outlook.changing if job.state.owned else outlook.changeover_upper
    return _hours(outlook.remaining_upper) / job.speeds.get(instance_type, 1.0) + _hours(begins)


def instance_kind(record: InstanceRecord) -> tuple[str, Shape]:
    """Return type and shape, memory in steps of 1/8 GiB: two machines of a type report some megabytes more or less."""
    shape = Shape.from_machine(record)
    return record.instance_type, replace(shape, memory_gib=shape.memory_gib // _STEP_GIB * _STEP_GIB)


class EvictionRisk(IntEnum):
    """The reason why an instance may go soon: the cloud has just taken another one of its pool, or recommends to leave
    this one.

    An instance that the cloud recommends to leave comes last of all. The instances of a pool that gave notice come last
    of their market only. Otherwise normal jobs would fill the on-demand instances, and a critical job would find none.
    """

    NO = 0
    POOL = 1
    ITSELF = 2


class PoolFlags:
    """The state of the pools, as far as it counts for or against an instance there."""

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self._noticed = {p.key for p in view.pools if just_noticed(p, now)}
        self._reserved = {p.key for p in view.pools if p.reserved}

    def unstable(self, instance: InstanceView) -> EvictionRisk:
        """Return whether it may go soon."""
        if instance.recommended_away:
            return EvictionRisk.ITSELF
        return EvictionRisk.POOL if self._noticed and instance_pool(instance) in self._noticed else EvictionRisk.NO

    def reserved(self, instance: InstanceView) -> bool:
        """Return whether it is paid for even if it is not used."""
        return bool(self._reserved) and instance_pool(instance) in self._reserved


def _runs_or_starts(job: JobView, assignment: Assignment) -> bool:
    """Return whether the job runs there or is about to."""
    return job.owned_by(assignment) or (job.state is JobState.PENDING and assignment.epoch == job.epoch + 1)


def _hours(span: timedelta) -> float:
    return span.total_seconds() / 3600
