"""A workload: the jobs of many users over some days, and the fleet that they share.

Hours count from the beginning of the workload. `workload_file.parse` reads a workload from YAML or JSON.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Protocol

import numpy as np
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.documents import Frozen
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import Priority, Resources
from everspot_core.jobs.records import Market
from everspot_core.schedule.view import Cap, PoolKey
from everspot_core.validation.field_types import Name
from pydantic import Field, model_validator

from everspot_simulator.settings import Setting
from everspot_simulator.synthetic import GENERATORS
from everspot_simulator.trace import Trace

MOST = 100_000
"""The most instances that a workload can name or cap."""
ALWAYS = "always"
"""The `availability` of capacity that never runs out."""
FULL = "full"
"""The generator of a trace in which everything is there all the time."""
MADE = ("markov", "heavy-tailed", "steady", "diurnal", "droughts", FULL)
"""The generators that a file can name."""
_ANY = Setting(job_hours=1, deadline_hours=2, changeover_hours=0, price_ratio=3)


Hours = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class WorkloadJob(Frozen):
    """One job. It is expected to take `hours` of work on an instance of speed 1, and `hours_upper` at most."""

    id: Name
    team: str = ""
    arrival_hours: Hours
    priority: Priority = Priority.NORMAL
    hours: Positive
    hours_upper: Positive | None = Field(default=None, description="By default `hours`.")
    hours_actual: Positive | None = Field(default=None, description="What it turns out to need; by default `hours`.")
    deadline_hours: Positive | None = Field(default=None, description="After arrival.")
    resources: Resources = Field(default=Resources(), description="Of each of its instances.")
    nodes: int = Field(default=1, ge=1, le=10_000, description="Instances that it needs at once, a gang.")
    speeds: dict[str, Positive] = Field(default_factory=dict, description="By instance type; 1 where not named.")
    cluster: str = Field(default="", description="Its home, where there are several clusters.")
    checkpoint_gb: Hours = Field(default=1.0, description="What is copied when it moves to another cluster.")

    @model_validator(mode="after")
    def _bounds(self) -> "WorkloadJob":
        if max(self.hours, self.actual) > self.upper:
            raise ValueError("hours and hours_actual must not be above hours_upper")
        return self

    @property
    def upper(self) -> float:
        """The most hours of work that it may take."""
        return max(self.hours, self.actual) if self.hours_upper is None else self.hours_upper

    @property
    def actual(self) -> float:
        """The hours of work that it really takes."""
        return self.hours if self.hours_actual is None else self.hours_actual


class PoolOffer(Frozen):
    """A pool with its price. `availability`: `always`, or the name of a trace of the file."""

    instance_type: str
    zone: str
    market: Market
    usd_per_hour: Positive
    availability: str = ALWAYS
    launch_hours: Hours | None = Field(default=None, description="By default as of the whole fleet.")

    @property
    def key(self) -> PoolKey:
        """The key of the pool."""
        return PoolKey(self.instance_type, self.zone, self.market)


class StandingOffer(PoolOffer):
    """Instances that run from the beginning. An interrupted one is replaced as soon as its pool has capacity."""

    count: int = Field(ge=1, le=MOST)


class FleetTerms(Frozen):
    """The terms of the whole fleet. A changeover is launch and set-up. `tick_seconds`: the scheduler's longest tick.

    `max_instances` and `max_usd_per_hour` cap the launched instances; there is no cap by default. A launched instance
    without work is kept for `idle_limit_seconds`. A spot instance has notice `notice_seconds` before it is taken. Its
    job then checkpoints, and waits again after `save_seconds` or, if that is sooner, when the instance is taken. A spot
    instance that is taken within `free_within_hours` of its launch costs nothing.
    """

    launch_hours: Hours = 0.05
    setup_hours: Hours = 0.05
    changeover_upper_hours: Hours | None = None
    tick_seconds: Positive = 300
    shared: bool = Field(default=False, description="Whether an instance can hold several jobs.")
    max_instances: int | None = Field(default=None, ge=1, le=MOST, description="Launched ones, running and coming.")
    max_usd_per_hour: Positive | None = Field(default=None, description="Of launched ones, running and coming.")

    notice_seconds: float = Field(default=0, ge=0, le=3600, allow_inf_nan=False)
    save_seconds: float = Field(default=30, ge=0, le=3600, allow_inf_nan=False)
    free_within_hours: Hours = 0
    idle_limit_seconds: float = Field(default=0, ge=0, le=1e6, allow_inf_nan=False)

    @model_validator(mode="after")
    def _bounds(self) -> "FleetTerms":
        if self.changeover_upper_hours is not None and self.changeover_upper_hours < self.changeover_hours:
            raise ValueError("changeover_upper_hours must not be below launch_hours + setup_hours")
        return self

    @property
    def changeover_hours(self) -> float:
        """Hours from the decision to launch an instance to the first work on it."""
        return self.launch_hours + self.setup_hours

    @property
    def notice(self) -> timedelta:
        """How long before it is taken a spot instance has notice."""
        return timedelta(seconds=self.notice_seconds)

    @property
    def save(self) -> timedelta:
        """The time from the notice until a job has released its lease, if the notice is that long."""
        return timedelta(seconds=self.save_seconds)

    @property
    def idle_limit(self) -> timedelta:
        """How long a launched instance is kept without work."""
        return timedelta(seconds=self.idle_limit_seconds)

    @property
    def cap(self) -> Cap | None:
        """The cap on launched instances, or None."""
        if self.max_instances is None and self.max_usd_per_hour is None:
            return None
        return Cap(instances=self.max_instances or MOST, usd_per_hour=self.max_usd_per_hour)

    @property
    def expected_hours(self) -> float:
        """The changeover that a plan expects: a launch begins with the notice and goes on while the job checkpoints."""
        return max(self.launch_hours, self.saving_hours) + self.setup_hours

    @property
    def upper_hours(self) -> float:
        """The longest changeover that a plan allows for: the launch may begin only after the checkpoint."""
        upper = self.changeover_hours if self.changeover_upper_hours is None else self.changeover_upper_hours
        return upper + self.saving_hours

    @property
    def saving_hours(self) -> float:
        """How long a job checkpoints after a notice."""
        return min(self.notice, self.save) / timedelta(hours=1)


class Fleet(FleetTerms):
    """The capacity: the standing instances, and the pools from which the scheduler may launch more."""

    standing: tuple[StandingOffer, ...] = ()
    pools: tuple[PoolOffer, ...] = ()
    types: tuple[InstanceType, ...] = Field(default=(), description="Every type in use.")

    def offers(self) -> dict[PoolKey, PoolOffer]:
        """Return the price and the availability of each pool."""
        return {o.key: o for o in (*self.standing, *self.pools)}

    def pool_launch_hours(self, offer: PoolOffer) -> float:
        """Return hours from a launch in this pool until the instance can be given a job."""
        return self.launch_hours if offer.launch_hours is None else offer.launch_hours

    def changeover_to(self, offer: PoolOffer) -> Changeover | None:
        """Return the changeover to this pool as a plan knows it; None if all pools take as long."""
        if all(o.launch_hours is None for o in self.pools):
            return None
        launch = self.pool_launch_hours(offer)
        expected = max(launch, self.saving_hours) + self.setup_hours
        upper = max(expected, self.upper_hours + launch - self.launch_hours)
        return Changeover(timedelta(hours=expected), timedelta(hours=upper))


class TraceSource(Frozen):
    """The source of a trace: a file, or a generator of `instances` instances, which come and go in groups of four.

    Attributes:
        times: each instance of a file counts for so many.
        dry_hours: from the first to the second hour of the trace there is nothing.
    """

    file: str | None = None
    generator: str | None = None
    seed: int = Field(default=0, ge=0)
    instances: int = Field(default=1, ge=1, le=10_000)
    hours: Positive = 336
    times: int = Field(default=1, ge=1, le=10_000)
    dry_hours: tuple[Hours, Hours] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "TraceSource":
        if (self.file is None) == (self.generator is None):
            raise ValueError("exactly one of file and generator must be given")
        if self.generator is not None and self.generator not in MADE:
            raise ValueError(f"there is no generator {self.generator!r}; one of: {', '.join(MADE)}")
        if self.dry_hours is not None and self.dry_hours[0] >= self.dry_hours[1]:
            raise ValueError("dry_hours must be two hours, the later one last")
        return self


class Workload(Frozen):
    """Jobs, the fleet, the weights of teams (1 where not named), and the traces that the fleet's pools name.

    A trace that has ended begins again. `horizon_hours`: the simulation ends then, whatever still runs.
    """

    jobs: tuple[WorkloadJob, ...]
    fleet: Fleet
    teams: dict[str, Positive] = Field(default_factory=dict)
    traces: dict[str, TraceSource] = Field(default_factory=dict)
    horizon_hours: float


class TraceOwner(Protocol):
    """The owner of named traces: a workload, on one fleet or on several."""

    @property
    def traces(self) -> Mapping[str, TraceSource]:
        """The sources of traces by name."""
        ...


def load_traces(workload: TraceOwner, load: Callable[[str], Trace]) -> dict[str, Trace]:
    """Return the traces by name. `load` reads the trace of a file; its errors are passed on."""
    return {
        name: _dried(_generate(name, source) if source.file is None else _read(load(source.file), source.times), source)
        for name, source in workload.traces.items()
    }


def _read(trace: Trace, times: int) -> Trace:
    return trace if times == 1 else replace(trace, available=trace.available * times)


def _dried(trace: Trace, source: TraceSource) -> Trace:
    if source.dry_hours is None:
        return trace
    first, last = (math.ceil(hours * 3600 / trace.gap.total_seconds()) for hours in source.dry_hours)
    available = trace.available.copy()
    available[first:last] = 0
    return replace(trace, available=available)


def _generate(name: str, source: TraceSource) -> Trace:
    """Return the sum of independent groups, so that random capacity seldom comes or goes together."""
    gap = timedelta(minutes=5)
    ticks = math.ceil(source.hours * 12)
    if source.generator == FULL:
        return Trace(name=name, gap=gap, available=np.full(ticks, source.instances, dtype=np.int64))
    total = np.zeros(ticks, dtype=np.int64)
    for first in range(0, source.instances, 4):
        rng = np.random.default_rng([source.seed, first])
        trace = GENERATORS[source.generator or ""](rng, ticks, gap, _ANY)[0]
        total += trace.available * min(4, source.instances - first)
    return Trace(name=name, gap=gap, available=total)
