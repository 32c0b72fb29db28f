"""What is free, and what a job asks of it.

There are two kinds of capacity: in `exclusive` an instance holds one job, in `packing` it can hold several.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum
from math import inf
from typing import Protocol

from everspot_core.fit import Shape
from everspot_core.job import Resources
from everspot_core.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Reason,
    Resident,
)
from everspot_core.schedule.jobs import outlook_of
from everspot_core.schedule.market.ranking import just_noticed
from everspot_core.schedule.placement.gangs import record_of
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, pool_of

DEPTH = 64
"""So many waiting jobs are promised a time in one plan. What the next one could use is not lent to any behind it."""

_UNFIT = (Reason.LOST, Reason.FENCED, Reason.NOTICE, Reason.SHUTDOWN)
_STEP_GIB = 0.125

Want = tuple[int, str | None, float, int, float, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a job asks of free capacity.

    `avoid` names the instance from which it was preempted last and those on which it failed: any other one is taken
    first, but rather than wait it returns to one of them. `known` keeps its hours by type once they are worked out.
    """

    job: JobView
    critical: bool
    prefer: Market
    avoid: frozenset[str] = frozenset()
    known: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.job.job_id

    @property
    def nodes(self) -> int:
        """How many instances at once."""
        return self.job.nodes

    @property
    def need(self) -> Resources:
        """What it needs of each of them."""
        return self.job.submission.spec.resources

    @property
    def want(self) -> Want:
        """The need as a key: jobs with the same one fit the same instances."""
        need = self.need
        return need.gpus, need.gpu, need.gpu_memory_gib, need.vcpus, need.memory_gib, need.shared

    def hours(self, instance_type: str) -> float:
        """When it is done at the latest if it begins now; inf where that is not known."""
        if instance_type not in self.known:
            self.known[instance_type] = hours_left(self.job, instance_type)
        return self.known[instance_type]

    @property
    def span(self) -> tuple[float, float]:
        """The hours on the type that is fastest for it, as far as is known, and on the slowest."""
        left = self.hours("")
        speeds = (1.0, *self.job.speeds.values())
        return left / max(speeds), left / min(speeds)

    def suits(self, market: Market, again: bool) -> tuple[bool, bool]:
        """A critical job would rather return to on-demand than stray to spot; a normal one rather moves on."""
        other = market is not self.prefer
        return (other, again) if self.critical else (again, other)


class Capacity(Protocol):
    """Free instances. What `seat` gives is free no more."""

    def seat(self, ask: Ask) -> list[InstanceView]:
        """The instances that the job gets, as many as it has nodes; empty if it has to wait."""

    def promise(self, ask: Ask) -> None:
        """The job waits: from now on nothing is given away that would make it wait longer."""

    def set_aside(self, ask: Ask) -> None:
        """Keep free on-demand instances for a critical job that cannot take them yet."""

    def is_aside(self, ask: Ask) -> bool:
        """Whether it could use what was set aside."""

    def promised(self, ask: Ask) -> str | None:
        """The job ahead to which free instances are promised that this one could use."""


def is_free(instance: InstanceView, records: Mapping[str, JobRecord | None]) -> bool:
    """Healthy, nothing assigned, and done with what it had.

    An agent's own word is as old as its heartbeat, so BUSY counts as free once the lease that it names has been given
    back; not if it was taken from the agent, which then may not know yet, nor if the agent gave it back because its
    machine is going or ailing, which the next heartbeat will tell.
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
    """The jobs that its agent said it was running and that, by what is known, it may still be running."""
    record = instance.record
    return tuple(r.job_id for r in record.runs if not _is_back(r, instance, records)) if record is not None else ()


def _is_back(resident: Resident, instance: InstanceView, records: Mapping[str, JobRecord | None]) -> bool:
    held = records.get(resident.job_id)
    if held is None or held.epoch < resident.epoch:
        return False
    return held.owner != instance.instance_id and held.last_reason not in _UNFIT


def done_after(job: JobView | None, instance: InstanceView, tick: timedelta) -> float:
    """Hours until the instance is rid of what it was given: inf if unknown, a tick if it holds nothing any more."""
    given = instance.assignment
    if instance.seated:
        return inf
    if job is None or given is None or instance.stopping or not _holds(job, given):
        return _hours(tick)
    return hours_left(job, record_of(instance).instance_type)


def hours_left(job: JobView, instance_type: str) -> float:
    """When it is done at the latest, if it goes on where it is or, not running, begins now; inf if unknown."""
    outlook = outlook_of(job)
    if outlook is None:
        return inf
    begins = outlook.changing if job.state.owned else outlook.changeover_upper
    return _hours(outlook.left_upper) / job.speeds.get(instance_type, 1.0) + _hours(begins)


def kind_of(record: InstanceRecord) -> tuple[str, Shape]:
    """Type and shape, memory in steps of 1/8 GiB: two machines of a type report some megabytes more or less."""
    shape = Shape.of(record)
    return record.instance_type, replace(shape, memory_gib=shape.memory_gib // _STEP_GIB * _STEP_GIB)


class Unstable(IntEnum):
    """Why an instance may go soon: the cloud has just taken another one of its pool, or recommends to leave this one.

    What the cloud recommends to leave comes last of all. A pool's instances come last of their market only: normal
    jobs that fled from every one of them would sit on the on-demand instances when a critical job comes.
    """

    NO = 0
    POOL = 1
    ITSELF = 2


class PoolMarks:
    """What is known of the pools of instances that speaks for or against an instance, beside its shape."""

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self._noticed = {p.key for p in view.pools if just_noticed(p, now)}
        self._reserved = {p.key for p in view.pools if p.reserved}

    def unstable(self, instance: InstanceView) -> Unstable:
        """Whether it may go soon."""
        if instance.recommended_away:
            return Unstable.ITSELF
        return Unstable.POOL if self._noticed and pool_of(instance) in self._noticed else Unstable.NO

    def reserved(self, instance: InstanceView) -> bool:
        """Whether it is paid for even if it is not used."""
        return bool(self._reserved) and pool_of(instance) in self._reserved


def _holds(job: JobView, given: Assignment) -> bool:
    """Whether the job runs there or is about to."""
    return job.owned_by(given) or (job.state is JobState.PENDING and given.epoch == job.epoch + 1)


def _hours(span: timedelta) -> float:
    return span.total_seconds() / 3600
