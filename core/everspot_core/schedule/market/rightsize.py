"""Finds the type that does a job for the least money (rate times runtime), holds it, and keeps its deadline."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from math import inf

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.fit import Shape, lacking
from everspot_core.jobs.job import Resources
from everspot_core.schedule.view import Outlook

SPEED_UNKNOWN, TOO_LATE = "speed", "deadline"
"""Names of what excludes a type, beside the resources that it lacks."""
NO_LATER = Changeover(timedelta(0), timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedType:
    """A type with its price and its speed.

    Attributes:
        speed: work per hour, relative to the speed in the job's outlook; None: unknown.
        measured: whether the speed was measured with this job; otherwise it is the catalogue's.
        later: by how much a changeover to it is longer than to the quickest.
    """

    instance_type: InstanceType
    usd_per_hour: float
    speed: float | None
    measured: bool
    later: Changeover = NO_LATER


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedType:
    """A priced type with the job's figures there, changeover included.

    Attributes:
        hours: the expected hours.
        hours_upper: the upper bound of the hours.
        usd: the expected cost over all nodes.
        excluded: the reasons that exclude the type: names of resources that it lacks, `speed` if that is unknown (the
            figures are then inf), `deadline`. If it is empty, the type can be used.
    """

    priced: PricedType
    hours: float
    hours_upper: float
    usd: float
    excluded: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Whether the figures rest on a measured speed."""
        return self.priced.measured


def rightsize(
    types: Iterable[PricedType], *, need: Resources, work: Outlook, time: timedelta | None, nodes: int = 1
) -> list[SizedType]:
    """Return all types, best first: by cost, then by hours, then measured speeds first, then by name.

    `time`: until the deadline; None without one. Excluded types come last, in the same order.
    """
    sized = (_size(c, need, work, time, nodes) for c in types)
    return sorted(sized, key=lambda s: (bool(s.excluded), s.usd, s.hours, not s.measured, s.priced.instance_type.name))


def _size(priced: PricedType, need: Resources, work: Outlook, time: timedelta | None, nodes: int) -> SizedType:
    hours = _runtime(priced, work.remaining, work.changeover + priced.later.expected)
    upper = _runtime(priced, work.remaining_upper, work.changeover_upper + priced.later.upper)
    excluded = list(lacking(need, Shape.from_machine(priced.instance_type)))
    if hours == inf:
        excluded.append(SPEED_UNKNOWN)
    elif time is not None and timedelta(hours=upper) > time:
        excluded.append(TOO_LATE)
    usd = priced.usd_per_hour * hours * nodes
    return SizedType(
        priced=priced,
        hours=round(hours, 9),
        hours_upper=round(upper, 9),
        usd=round(usd, 9),
        excluded=tuple(excluded),
    )


def _runtime(priced: PricedType, work: timedelta, changeover: timedelta) -> float:
    if not priced.speed:
        return inf
    return work.total_seconds() / 3600 / priced.speed + changeover.total_seconds() / 3600
