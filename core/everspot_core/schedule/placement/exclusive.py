"""Decides which job gets which free instance, if an instance holds one job, and which are promised to waiting jobs.

Backfill is conservative. If a job has to wait although an instance that it fits is free, it is promised the first
moment at which it can start. A job behind it gets a free instance only if that delays no promise: because the job is
done in time by its upper bounds, or because there are enough others. A job whose end is unknown is never done in time.
"""

from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime
from math import inf

from everspot_core.jobs.fit import Shape, Size, fits
from everspot_core.jobs.records import Market
from everspot_core.schedule.placement.capacity import (
    DEPTH,
    EvictionRisk,
    PoolFlags,
    SeatRequest,
    Want,
    done_after,
    instance_kind,
    is_free,
)
from everspot_core.schedule.placement.gangs import instance_record, pick
from everspot_core.schedule.view import ClusterView, InstanceView

_Bucket = tuple[Market, EvictionRisk, bool]
_Merit = tuple[bool, bool, bool, bool, EvictionRisk, Size, Market, str]


class Timeline:
    """How many instances of a group are free, over time (hours from now; `inf` is never).

    The certain end of a running job adds one, and a promise takes some away. Instances of a group are interchangeable,
    so to count them is enough: jobs whose times were promised by the count can always be seated, one after the other.
    """

    def __init__(self, free: int, ends: Iterable[float]) -> None:
        known_ends = sorted(e for e in ends if e < inf)
        self._times, self._counts = [0.0], [free]
        self._until: dict[int, float] = {}
        for end in known_ends:
            if end > self._times[-1]:
                self._times.append(end)
                self._counts.append(self._counts[-1])
            self._counts[-1] += 1

    def enough_until(self, count: int) -> float:
        """Return the moment until which `count` are free without a break from now on."""
        if count not in self._until:
            steps = zip(self._times, self._counts, strict=True)
            self._until[count] = next((t for t, c in steps if c < count), inf)
        return self._until[count]

    def earliest(self, count: int, hours: float) -> float:
        """Return the first moment from which `count` are free for so long without a break; never: inf."""
        start: float | None = None
        for time, free in zip(self._times, self._counts, strict=True):
            if start is not None and time >= start + hours:
                return start
            if free < count:
                start = None
            elif start is None:
                start = time
        return inf if start is None else start

    def take(self, count: int, start: float, hours: float) -> None:
        """Take `count` from `start` on for `hours`."""
        self._until.clear()
        first, last = self._at(start), self._at(start + hours)
        for n in range(first, last):
            self._counts[n] -= count

    def _at(self, time: float) -> int:
        """Return the position of the step that begins at `time`. A missing step is added."""
        if time == inf:
            return len(self._times)
        n = bisect_left(self._times, time)
        if n == len(self._times) or self._times[n] != time:
            self._times.insert(n, time)
            self._counts.insert(n, self._counts[n - 1])
        return n


class _Group:
    """The instances of one type. A job can run on each of them alike, and for as long.

    Attributes:
        free: by market, whether they are unstable, and whether they are reserved.
        promised: the first job to which some of them are promised.
        closed: nothing more is given away.
        promised_without_time: some are promised, for a time that is not known.
    """

    def __init__(self, name: str, shape: Shape) -> None:
        self.name, self.shape = name, shape
        self.free: dict[_Bucket, dict[str, InstanceView]] = {}
        self.count = 0
        self.ends: list[float] = []
        self.timeline: Timeline | None = None
        self.promised = ""
        self.closed = self.promised_without_time = False

    def add(self, instance: InstanceView, bucket: _Bucket) -> None:
        self.free.setdefault(bucket, {})[instance.instance_id] = instance
        self.count += 1

    def remove(self, instances: Iterable[InstanceView]) -> None:
        for instance in instances:
            for bucket, members in self.free.items():
                if members.pop(instance.instance_id, None) is not None:
                    self.count -= 1
                    if not members:
                        del self.free[bucket]
                    break

    def can_backfill(self, count: int, hours: float) -> bool:
        """Return whether `count` are free, and no promise is delayed if they are in use for `hours`."""
        if self.closed or self.count < count or (self.promised_without_time and hours == inf):
            return False
        return self.timeline is None or self.timeline.enough_until(count) >= hours

    def use(self, instances: list[InstanceView], hours: float) -> None:
        self.remove(instances)
        self.ends += [hours] * len(instances)
        if self.timeline is not None:
            self.timeline.take(len(instances), 0.0, hours)


class ExclusiveCapacity:
    """Free instances for one job each, by group. So the cost of a choice grows with the groups, not the instances."""

    def __init__(self, instances: Iterable[InstanceView], view: ClusterView, now: datetime) -> None:
        self._view, self._records = view, {j.job_id: j.record for j in view.jobs}
        self._marks = PoolFlags(view, now)
        self._groups: dict[tuple[str, Shape], _Group] = {}
        self._fitting: dict[Want, list[_Group]] = {}
        self._set_aside_shapes: list[Shape] = []
        self._promises = 0
        self._ends_known = False
        for instance in view.instances:
            if instance.healthy:
                self._group(instance)
        self._free: set[str] = set()
        for instance in sorted(instances, key=lambda i: i.instance_id):
            if is_free(instance, self._records):
                self._free.add(instance.instance_id)
                market = instance_record(instance).market
                standing = self._marks.unstable(instance), self._marks.reserved(instance)
                self._group(instance).add(instance, (market, *standing))

    def seat(self, request: SeatRequest) -> list[InstanceView]:
        """Return one instance, or a gang of one type; empty if the job has to wait."""
        able = [g for g in self._fits(request) if g.can_backfill(request.nodes, request.hours(g.name))]
        group, chosen = self._choose_one(request, able) if request.nodes == 1 else self._gang(request, able)
        if group is not None:
            group.use(chosen, request.hours(group.name))
        return chosen

    def promise(self, request: SeatRequest) -> None:
        """Promise the job the first moment at which it can start.

        If nothing is free, or if the job could not start even if all were free, there is nothing to promise.
        """
        groups = [g for g in self._fits(request) if not g.closed]
        if not any(g.count for g in groups) or self._promises >= DEPTH:
            for group in groups:
                group.closed, group.promised = True, group.promised or request.job_id
            return
        self._learn_ends()
        able = [g for g in groups if g.count + len(g.ends) >= request.nodes]
        if not able:
            return
        self._promises += 1
        start, group = self._earliest(request, able)
        if start < inf:
            assert group.timeline is not None  # noqa: S101 - made when it was asked
            group.timeline.take(request.nodes, start, request.hours(group.name))
        else:
            group = min(able, key=lambda g: (not g.count, request.nodes - g.count, g.shape.size, g.name))
            group.promised_without_time = True
        group.promised = group.promised or request.job_id

    def set_aside(self, request: SeatRequest) -> None:
        """Keep the smallest instances that are large enough."""
        for group in self._fits(request):
            spare = [i for b in sorted(group.free) if b[0] is Market.ON_DEMAND for i in group.free[b].values()]
            if len(spare) >= request.nodes and group.can_backfill(request.nodes, inf):
                group.use(spare[: request.nodes], inf)
                self._set_aside_shapes.append(group.shape)
                return

    def is_aside(self, request: SeatRequest) -> bool:
        """Return whether the job could use the capacity that was set aside."""
        return any(fits(request.need, s) for s in self._set_aside_shapes)

    def promised(self, request: SeatRequest) -> str | None:
        """Return the job ahead to which free instances are promised that this one could use."""
        return next((g.promised for g in self._fits(request) if g.promised and g.count >= request.nodes), None)

    def _group(self, instance: InstanceView) -> _Group:
        """Return the instance's group. Its shape is that of its smallest member."""
        shape = Shape.from_machine(instance_record(instance))
        key = instance_kind(instance_record(instance))
        group = self._groups.setdefault(key, _Group(key[0], shape))
        group.shape = min(group.shape, shape)
        return group

    def _fits(self, request: SeatRequest) -> list[_Group]:
        """Return the groups that can hold the job, the smallest first."""
        want = request.want
        if want not in self._fitting:
            able = (g for g in self._groups.values() if fits(request.need, g.shape))
            self._fitting[want] = sorted(able, key=lambda g: (g.shape.size, g.name))
        return self._fitting[want]

    def _choose_one(self, request: SeatRequest, able: list[_Group]) -> tuple[_Group | None, list[InstanceView]]:
        best: tuple[_Merit, _Group, InstanceView] | None = None
        for group in able:
            for (market, unstable, reserved), members in group.free.items():
                for instance in _first_two(members, request.avoid):
                    again = instance.instance_id in request.avoid
                    is_reserved = reserved is not request.critical and market is Market.ON_DEMAND
                    suits = request.preference_key(market, again)
                    merit = (
                        unstable is EvictionRisk.ITSELF,
                        *suits,
                        is_reserved,
                        unstable,
                        group.shape.size,
                        market,
                        instance.instance_id,
                    )
                    if best is None or merit < best[0]:
                        best = merit, group, instance
        return (None, []) if best is None else (best[1], [best[2]])

    def _gang(self, request: SeatRequest, able: list[_Group]) -> tuple[_Group | None, list[InstanceView]]:
        """Return instances of the first group that has enough, so that the gang starts where it was promised to."""
        for group in able:
            members = [i for bucket in group.free.values() for i in bucket.values()]
            unstable = frozenset(n for (_, unstable, _), bucket in group.free.items() if unstable for n in bucket)
            return group, pick(members, request.nodes, request.prefer, unstable)
        return None, []

    def _earliest(self, request: SeatRequest, able: list[_Group]) -> tuple[float, _Group]:
        starts = []
        for group in able:
            if group.timeline is None:
                group.timeline = Timeline(group.count, group.ends)
            starts.append(group.timeline.earliest(request.nodes, request.hours(group.name)))
        first = min(range(len(able)), key=lambda n: starts[n])
        return starts[first], able[first]

    def _learn_ends(self) -> None:
        """Find out when busy instances will be free. This is done only when a promise needs it."""
        if self._ends_known:
            return
        self._ends_known = True
        jobs = {j.job_id: j for j in self._view.jobs}
        for instance in self._view.instances:
            # An instance that was launched for one job is released after it.
            if instance.healthy and instance.instance_id not in self._free and instance.launched_for is None:
                assignment = instance.assignment
                holder = jobs.get(assignment.job_id or "") if assignment is not None else None
                self._group(instance).ends.append(done_after(holder, instance, self._view.tick))


def _first_two(members: dict[str, InstanceView], avoid: frozenset[str]) -> Iterable[InstanceView]:
    """Yield the first instance that the job avoids, and the first one that it does not."""
    avoided = False
    for instance in members.values():
        if instance.instance_id not in avoid:
            yield instance
            return
        if not avoided:
            avoided = True
            yield instance
