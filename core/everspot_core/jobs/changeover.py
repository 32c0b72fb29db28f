"""Measures the parts of changeovers, and estimates the length of the next changeover.

A changeover is the time from the need for an instance until the job works on it:

- `launch`: from the request until the instance costs money, by its launch intent and the cloud;
- `boot`: until its agent runs;
- `agent`: until its agent has reported and got the job that it was launched for;
- `data`: until the job's own program starts, with its code, data and packages;
- `restore`: until the first step can begin, after imports and the checkpoint;
- `first-step`: the extra length of a process's first step over the next one, because kernels are chosen and compiled
  and readers start;
- `save`: from the notice of the previous instance until the job has given that instance back.

Durations are market time.

Each estimate begins with a prior that weighs as much as PRIOR measurements. A pool's prior is the estimate of its type,
and a type's prior is the estimate of all types. So one slow boot hardly changes the expected value, and twenty
determine it. A pool without measurements is judged by similar pools.

There are two bounds. The *upper bound* is the longest time that the next changeover is expected to take. One slow start
raises it immediately, and the plan then goes on-demand sooner. The *lasting bound* is the usual longest time. The plan
refuses deadlines by the lasting bound. The longest quarter of the measurements does not affect it, so that one slow
start, or one slow hour, never makes the plan refuse a job that it would otherwise accept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import ceil
from statistics import median
from typing import NamedTuple

from pydantic import Field

from everspot_core.capacity.market import Market
from everspot_core.documents import Document, Stored, Utc

KEPT = 32
"""The most measurements of a part that are kept for each pool."""
PRIOR = 4
"""The weight of the prior, in measurements."""
RARE = 0.05
"""The fraction of measurements that may be longer than the upper bound."""
MARGIN = 1.25
"""The factor of the upper bound on the longest measurement that counts."""
OUTLIERS = 0.25
"""The fraction of measurements, the longest ones, that the lasting bound ignores; at least one."""
LONGEST = timedelta(hours=6)
"""Longer parts are no changeovers: somebody stopped the instance, or a clock was wrong."""


class ChangeoverPart(StrEnum):
    """A part of a changeover."""

    LAUNCH = "launch"
    BOOT = "boot"
    AGENT = "agent"
    DATA = "data"
    RESTORE = "restore"
    FIRST_STEP = "first-step"
    SAVE = "save"


class Changeover(NamedTuple):
    """The expected length and the upper bound of a changeover or of one of its parts."""

    expected: timedelta
    upper: timedelta


INITIAL_PRIOR: Mapping[ChangeoverPart, Changeover] = {
    ChangeoverPart.LAUNCH: Changeover(timedelta(seconds=20), timedelta(seconds=60)),
    ChangeoverPart.BOOT: Changeover(timedelta(seconds=100), timedelta(minutes=4)),
    ChangeoverPart.AGENT: Changeover(timedelta(seconds=30), timedelta(seconds=60)),
    ChangeoverPart.DATA: Changeover(timedelta(seconds=60), timedelta(minutes=3)),
    ChangeoverPart.RESTORE: Changeover(timedelta(seconds=140), timedelta(seconds=210)),
    ChangeoverPart.FIRST_STEP: Changeover(timedelta(seconds=10), timedelta(seconds=30)),
    ChangeoverPart.SAVE: Changeover(timedelta(seconds=30), timedelta(minutes=2)),
}
"""The prior without any measurements. A notice is two minutes at most, so no `save` is longer."""
OWN = (ChangeoverPart.DATA, ChangeoverPart.RESTORE, ChangeoverPart.FIRST_STEP, ChangeoverPart.SAVE)
"""Parts that depend on the job at least as much as on the machine."""
PAID = (ChangeoverPart.DATA, ChangeoverPart.RESTORE, ChangeoverPart.FIRST_STEP)
"""Parts that are in the job's own cost: from its assignment until it trains."""


class PartTimes(Stored):
    """The measured lengths of one part in one pool, in seconds of market time, the newest last."""

    part: str
    instance_type: str
    zone: str
    market: Market
    seconds: list[float] = Field(default_factory=list)


class Changeovers(Document):
    """The measurements of schedulers. `counted`: the last epoch measured of each job that may have more."""

    updated_at: Utc
    counted: dict[str, int] = Field(default_factory=dict)
    times: list[PartTimes] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One part of one changeover."""

    part: ChangeoverPart
    instance_type: str
    zone: str
    market: Market
    length: timedelta


def estimate(lengths: Sequence[timedelta], prior: Changeover) -> Changeover:
    """Return the estimate after these measurements.

    The expected value is their median, drawn towards the prior's. The upper bound is the longest one, without the
    fraction RARE of them, times MARGIN. The upper bound is drawn towards the prior's as well, but only upwards, and it
    is never below the expected value.
    """
    if not lengths:
        return prior
    order, weight = sorted(lengths), PRIOR / (PRIOR + len(lengths))
    seconds = [x.total_seconds() for x in order]
    middle = timedelta(seconds=median(seconds))
    most = MARGIN * order[ceil((1 - RARE) * len(order)) - 1]
    expected = middle + (prior.expected - middle) * weight
    upper = most + max(timedelta(0), prior.upper - most) * weight
    return Changeover(expected, max(expected, upper))


def robust_upper_bound(lengths: Sequence[timedelta], prior: timedelta) -> timedelta:
    """Return an upper bound that single slow measurements do not change: MARGIN times the longest that counts, drawn
    towards the prior.

    The longest fraction OUTLIERS of the measurements, at least one, is ignored: the bound never exceeds both the prior
    and MARGIN times the longest of the others. It is drawn down as well as up, so that two or three measurements do not
    determine it.
    """
    count = len(lengths) - max(1, int(OUTLIERS * len(lengths)))
    if count <= 0:
        return prior
    most, weight = MARGIN * sorted(lengths)[count - 1], PRIOR / (PRIOR + len(lengths))
    return most + (prior - most) * weight


class Experience:
    """The estimates by part, type and pool."""

    def __init__(self, times: Iterable[PartTimes]) -> None:
        self._all: dict[ChangeoverPart, list[timedelta]] = {}
        self._types: dict[tuple[ChangeoverPart, str], list[timedelta]] = {}
        self._pools: dict[tuple[ChangeoverPart, str, str, Market], list[timedelta]] = {}
        for part_times in times:
            if part_times.part not in set(ChangeoverPart):
                continue  # written by a newer release
            part = ChangeoverPart(part_times.part)
            lengths = [timedelta(seconds=s) for s in part_times.seconds if 0 <= s <= LONGEST.total_seconds()]
            self._all.setdefault(part, []).extend(lengths)
            self._types.setdefault((part, part_times.instance_type), []).extend(lengths)
            key = part, part_times.instance_type, part_times.zone, part_times.market
            self._pools.setdefault(key, []).extend(lengths)

    def measured(self, part: ChangeoverPart, instance_type: str | None = None) -> int:
        """Return the number of measurements of a part, on one type or on all types."""
        lengths = self._all.get(part, []) if instance_type is None else self._types.get((part, instance_type), [])
        return len(lengths)

    def part(
        self,
        part: ChangeoverPart,
        instance_type: str | None = None,
        zone: str | None = None,
        market: Market | None = None,
        own: Iterable[Measurement] = (),
    ) -> Changeover:
        """Return the estimate of one part on any type, on one type, or in one pool. `own`: measurements of the same
        job."""
        current = estimate(self._all.get(part, []), INITIAL_PRIOR[part])
        if instance_type is not None:
            current = estimate(self._types.get((part, instance_type), []), current)
            if zone is not None and market is not None:
                current = estimate(self._pools.get((part, instance_type, zone, market), []), current)
        return estimate([m.length for m in own if m.part is part and part in OWN], current)

    def whole(
        self,
        instance_type: str | None = None,
        zone: str | None = None,
        market: Market | None = None,
        own: Iterable[Measurement] = (),
    ) -> Changeover:
        """Return the estimate of a changeover to an instance that has to be launched.

        The launch begins while the job checkpoints, so `save` counts in the upper bound alone.
        """
        own_measurements = list(own)
        parts = {part: self.part(part, instance_type, zone, market, own_measurements) for part in ChangeoverPart}
        expected = sum((c.expected for part, c in parts.items() if part is not ChangeoverPart.SAVE), timedelta(0))
        return Changeover(expected, sum((c.upper for c in parts.values()), timedelta(0)))

    def start(self) -> Changeover:
        """Return the estimate of the part of a start that is in the job's own cost, on any type."""
        parts = [self.part(part) for part in PAID]
        expected = sum((part.expected for part in parts), timedelta(0))
        return Changeover(expected, sum((part.upper for part in parts), timedelta(0)))

    def lasting_bound(self) -> timedelta:
        """Return the lasting bound of a changeover, on any type: the sum over its parts."""
        upper = {part: self.part(part).upper for part in ChangeoverPart}
        bounds = (
            min(robust_upper_bound(self._all.get(part, []), INITIAL_PRIOR[part].upper), most)
            for part, most in upper.items()
        )
        return sum(bounds, timedelta(0))


def added(times: Iterable[PartTimes], new: Iterable[Measurement]) -> list[PartTimes]:
    """Return the times with these measurements added, at most KEPT for each part and pool."""
    seconds_by_key = {(t.part, t.instance_type, t.zone, t.market): list(t.seconds) for t in times}
    for measurement in new:
        key = measurement.part.value, measurement.instance_type, measurement.zone, measurement.market
        seconds_by_key.setdefault(key, []).append(round(measurement.length.total_seconds(), 3))
    return [
        PartTimes(part=part, instance_type=kind, zone=zone, market=market, seconds=seconds[-KEPT:])
        for (part, kind, zone, market), seconds in sorted(seconds_by_key.items())
    ]
