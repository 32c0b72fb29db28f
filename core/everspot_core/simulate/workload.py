"""A workload: the jobs of many users over some days, and the fleet that they share, as a file describes them.

Hours count from the beginning of the workload. `parse` takes what YAML or JSON make of the file.
"""

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from everspot_core.catalogue import InstanceType
from everspot_core.documents import Frozen
from everspot_core.field_types import Name
from everspot_core.job import Priority, Resources
from everspot_core.records import Market
from everspot_core.schedule.view import Cap, PoolKey
from everspot_core.simulate.settings import Setting
from everspot_core.simulate.synthetic import GENERATORS
from everspot_core.simulate.trace import Trace

MOST = 100_000
"""Instances."""
ALWAYS = "always"
"""Availability of capacity that never runs dry."""
MADE = ("markov", "heavy-tailed", "steady", "diurnal", "droughts")
"""The generators that a file can name."""
_ANY = Setting(job_hours=1, deadline_hours=2, changeover_hours=0, price_ratio=3)


Hours = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class WorkloadJob(Frozen):
    """One job. `hours` of work are expected of it on an instance of speed 1, `hours_upper` at most."""

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

    @model_validator(mode="after")
    def _bounds(self) -> "WorkloadJob":
        if max(self.hours, self.actual) > self.upper:
            raise ValueError("hours and hours_actual must not be above hours_upper")
        return self

    @property
    def upper(self) -> float:
        """Hours of work at most."""
        return max(self.hours, self.actual) if self.hours_upper is None else self.hours_upper

    @property
    def actual(self) -> float:
        """Hours of work that it takes in truth."""
        return self.hours if self.hours_actual is None else self.hours_actual


class PoolOffer(Frozen):
    """A kind of capacity, what it costs, and when it is there: always, or as a trace of the file tells."""

    instance_type: str
    zone: str
    market: Market
    usd_per_hour: Positive
    availability: str = ALWAYS

    @property
    def key(self) -> PoolKey:
        """The pool that it comes from."""
        return PoolKey(self.instance_type, self.zone, self.market)


class StandingOffer(PoolOffer):
    """Instances that are there from the beginning. Those that are taken away come back as soon as there are any."""

    count: int = Field(ge=1, le=MOST)


class FleetTerms(Frozen):
    """What holds for the whole fleet. A changeover is launch and set-up; `tick_seconds`: the scheduler's, at most.

    `max_instances` and `max_usd_per_hour` cap what is launched at once, by default not at all. What was launched is
    kept for `idle_limit_seconds` without work. Spot gives notice `notice_seconds` before it is taken, and a job that is
    told saves, and is back after `save_seconds` or when the time is up. Spot that is taken sooner than
    `free_within_hours` after its launch costs nothing.
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
        """What happens on the way to an instance."""
        return self.launch_hours + self.setup_hours

    @property
    def notice(self) -> timedelta:
        """How long before it is taken spot says so."""
        return timedelta(seconds=self.notice_seconds)

    @property
    def save(self) -> timedelta:
        """From the notice until a job has given its lease back, if the notice is as long."""
        return timedelta(seconds=self.save_seconds)

    @property
    def idle_limit(self) -> timedelta:
        """For so long what was launched is kept without work."""
        return timedelta(seconds=self.idle_limit_seconds)

    @property
    def cap(self) -> Cap | None:
        """The most that may be launched at once; None: no cap."""
        if self.max_instances is None and self.max_usd_per_hour is None:
            return None
        return Cap(instances=self.max_instances or MOST, usd_per_hour=self.max_usd_per_hour)

    @property
    def expected_hours(self) -> float:
        """What a plan expects: a launch that begins with the notice goes on while the job saves."""
        return max(self.launch_hours, self.saving_hours) + self.setup_hours

    @property
    def upper_hours(self) -> float:
        """What a plan has to reckon with: the notice may be to no purpose."""
        upper = self.changeover_hours if self.changeover_upper_hours is None else self.changeover_upper_hours
        return upper + self.saving_hours

    @property
    def saving_hours(self) -> float:
        """For how long a job saves that is told that its instance is taken."""
        return min(self.notice, self.save) / timedelta(hours=1)


class Fleet(FleetTerms):
    """The capacity: what stands, and the pools from which the scheduler may launch instances of its own."""

    standing: tuple[StandingOffer, ...] = ()
    pools: tuple[PoolOffer, ...] = ()
    types: tuple[InstanceType, ...] = Field(default=(), description="Every type in use.")

    def offers(self) -> dict[PoolKey, PoolOffer]:
        """What each pool costs and when it is there."""
        return {o.key: o for o in (*self.standing, *self.pools)}


class TraceSource(Frozen):
    """Where a trace comes from: a file, or a generator with so many instances, which come and go four at a time."""

    file: str | None = None
    generator: str | None = None
    seed: int = Field(default=0, ge=0)
    instances: int = Field(default=1, ge=1, le=10_000)
    hours: Positive = 336

    @model_validator(mode="after")
    def _one_source(self) -> "TraceSource":
        if (self.file is None) == (self.generator is None):
            raise ValueError("exactly one of file and generator must be given")
        if self.generator is not None and self.generator not in MADE:
            raise ValueError(f"there is no generator {self.generator!r}; one of: {', '.join(MADE)}")
        return self


class Workload(Frozen):
    """Jobs, the fleet, the weights of teams (1 where not named), and the traces that the fleet speaks of by name.

    Past its end a trace begins anew. `horizon_hours`: what has not ended by then is left.
    """

    jobs: tuple[WorkloadJob, ...]
    fleet: Fleet
    teams: dict[str, Positive] = Field(default_factory=dict)
    traces: dict[str, TraceSource] = Field(default_factory=dict)
    horizon_hours: float


def traces_of(workload: Workload, load: Callable[[str], Trace]) -> dict[str, Trace]:
    """The traces by name. `load` brings the trace of a file; its errors pass."""
    return {
        name: _generate(name, source) if source.file is None else load(source.file)
        for name, source in workload.traces.items()
    }


def _generate(name: str, source: TraceSource) -> Trace:
    """The sum of independent groups: what is made by chance seldom comes or goes as one."""
    gap = timedelta(minutes=5)
    ticks = math.ceil(source.hours * 12)
    total = np.zeros(ticks, dtype=np.int64)
    for first in range(0, source.instances, 4):
        rng = np.random.default_rng([source.seed, first])
        trace = GENERATORS[source.generator or ""](rng, ticks, gap, _ANY)[0]
        total += trace.available * min(4, source.instances - first)
    return Trace(name=name, gap=gap, available=total)
