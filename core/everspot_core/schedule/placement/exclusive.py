"""Decides which job gets which free instance, if an instance holds one job, and which are promised to waiting jobs.

Backfill is conservative. If a job has to wait although an instance that it fits is free, it is promised the first
moment at which it can start. A job behind it gets a free instance only if that delays no promise: because the job is
done in time by its upper bounds, or because there are enough others. A job whose end is unknown is never done in time.
"""

from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime
from math import inf

from everspot_core.fit import Shape, fits
from everspot_core.records import Market
from everspot_core.schedule.placement.capacity import (
    DEPTH,
    Ask,
    PoolMarks,
    Unstable,
    Want,
    done_after,
    is_free,
    kind_of,
)
from everspot_core.schedule.placement.gangs import pick, record_of
from everspot_core.schedule.view import ClusterView, InstanceView

_Bucket = tuple[Market, Unstable, bool]
_Merit = tuple[bool, bool, bool, bool, Unstable, Shape, Market, str]


class Timeline:
    """How many instances of a group are free, over time (hours from now; `inf` is never).

    The certain end of a running job adds one, and a promise takes some away. Instances of a group are interchangeable,
    so to count them is enough: jobs whose times were promised by the count can always be seated, one after the other.
    """

    def __init__(self, free: int, ends: Iterable[float]) -> None:
        known = sorted(e for e in ends if e < inf)
        self._times, self._counts = [0.0], [free]
        self._until: dict[int, float] = {}
        for end in known:
            if end > self._times[-1]:
                self._times.append(end)
                self._counts.append(self._counts[-1])
            self._counts[-1] += 1

    def enough_until(self, count: int) -> float:
        """The moment until which `count` are free without a break from now on."""
        if count not in self._until:
            steps = zip(self._times, self._counts, strict=True)
            self._until[count] = next((t for t, c in steps if c < count), inf)
        return self._until[count]

    def earliest(self, count: int, hours: float) -> float:
        """The first moment from which `count` are free for so long without a break; never: inf."""
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
        """The position at which `time` begins a step of its own."""
        if time == inf:
            return len(self._times)
        n = bisect_left(self._times, time)
        if n == len(self._times) or self._times[n] != time:
            self._times.insert(n, time)
            self._counts.insert(n, self._counts[n - 1])
        return n


class _Group:
    """The instances of one type. A job can run on each of them alike, and for as long.

    `free`: by market, whether they are unstable, and whether they are reserved. `promised`: the first job to which some
    of them are promised. `closed`: nothing more is given away. `blind`: promised for an unknown moment.
    """

    def __init__(self, name: str, shape: Shape) -> None:
        self.name, self.shape = name, shape
        self.free: dict[_Bucket, dict[str, InstanceView]] = {}
        self.count = 0
        self.ends: list[float] = []
        self.timeline: Timeline | None = None
        self.promised = ""
        self.closed = self.blind = False

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

    def lends(self, count: int, hours: float) -> bool:
        """Whether `count` are free, and no promise is delayed if they are in use for `hours`."""
        if self.closed or self.count < count or (self.blind and hours == inf):
            return False
        return self.timeline is None or self.timeline.enough_until(count) >= hours

    def use(self, instances: list[InstanceView], hours: float) -> None:
        self.remove(instances)
        self.ends += [hours] * len(instances)
        if self.timeline is not None:
            self.timeline.take(len(instances), 0.0, hours)


class Exclusive:
    """Free instances for one job each, by group. So the cost of a choice grows with the groups, not the instances."""

    def __init__(self, instances: Iterable[InstanceView], view: ClusterView, now: datetime) -> None:
        self._view, self._records = view, {j.job_id: j.record for j in view.jobs}
        self._marks = PoolMarks(view, now)
        self._groups: dict[tuple[str, Shape], _Group] = {}
        self._fitting: dict[Want, list[_Group]] = {}
        self._aside: list[Shape] = []
        self._promises = 0
        self._ends_known = False
        for instance in view.instances:
            if instance.healthy:
                self._group(instance)
        self._free: set[str] = set()
        for instance in sorted(instances, key=lambda i: i.instance_id):
            if is_free(instance, self._records):
                self._free.add(instance.instance_id)
                market = record_of(instance).market
                standing = self._marks.unstable(instance), self._marks.reserved(instance)
                self._group(instance).add(instance, (market, *standing))

    def seat(self, ask: Ask) -> list[InstanceView]:
        """One instance, or a gang of one type; empty if the job has to wait."""
        able = [g for g in self._fits(ask) if g.lends(ask.nodes, ask.hours(g.name))]
        group, chosen = self._one(ask, able) if ask.nodes == 1 else self._gang(ask, able)
        if group is not None:
            group.use(chosen, ask.hours(group.name))
        return chosen

    def promise(self, ask: Ask) -> None:
        """Promise the job the first moment at which it can start.

        If nothing is free, or if the job could not start even if all were free, there is nothing to promise.
        """
        groups = [g for g in self._fits(ask) if not g.closed]
        if not any(g.count for g in groups) or self._promises >= DEPTH:
            for group in groups:
                group.closed, group.promised = True, group.promised or ask.job_id
            return
        self._learn_ends()
        able = [g for g in groups if g.count + len(g.ends) >= ask.nodes]
        if not able:
            return
        self._promises += 1
        start, group = self._earliest(ask, able)
        if start < inf:
            assert group.timeline is not None  # noqa: S101 - made when it was asked
            group.timeline.take(ask.nodes, start, ask.hours(group.name))
        else:
            group = min(able, key=lambda g: (not g.count, ask.nodes - g.count, g.shape, g.name))
            group.blind = True
        group.promised = group.promised or ask.job_id

    def set_aside(self, ask: Ask) -> None:
        """Keep the smallest instances that are large enough."""
        for group in self._fits(ask):
            spare = [i for b in sorted(group.free) if b[0] is Market.ON_DEMAND for i in group.free[b].values()]
            if len(spare) >= ask.nodes and group.lends(ask.nodes, inf):
                group.use(spare[: ask.nodes], inf)
                self._aside.append(group.shape)
                return

    def is_aside(self, ask: Ask) -> bool:
        """Whether it could use what was set aside."""
        return any(fits(ask.need, s) for s in self._aside)

    def promised(self, ask: Ask) -> str | None:
        """The job ahead to which free instances are promised that this one could use."""
        return next((g.promised for g in self._fits(ask) if g.promised and g.count >= ask.nodes), None)

    def _group(self, instance: InstanceView) -> _Group:
        """The instance's group. Its shape is that of its smallest member."""
        shape = Shape.of(record_of(instance))
        key = kind_of(record_of(instance))
        group = self._groups.setdefault(key, _Group(key[0], shape))
        group.shape = min(group.shape, shape)
        return group

    def _fits(self, ask: Ask) -> list[_Group]:
        """The groups that can hold the job, the smallest first."""
        want = ask.want
        if want not in self._fitting:
            able = (g for g in self._groups.values() if fits(ask.need, g.shape))
            self._fitting[want] = sorted(able, key=lambda g: (g.shape, g.name))
        return self._fitting[want]

    def _one(self, ask: Ask, able: list[_Group]) -> tuple[_Group | None, list[InstanceView]]:
        best: tuple[_Merit, _Group, InstanceView] | None = None
        for group in able:
            for (market, unstable, reserved), members in group.free.items():
                for instance in _first_two(members, ask.avoid):
                    again = instance.instance_id in ask.avoid
                    kept = reserved is not ask.critical and market is Market.ON_DEMAND
                    suits = ask.suits(market, again)
                    merit = (
                        unstable is Unstable.ITSELF,
                        *suits,
                        kept,
                        unstable,
                        group.shape,
                        market,
                        instance.instance_id,
                    )
                    if best is None or merit < best[0]:
                        best = merit, group, instance
        return (None, []) if best is None else (best[1], [best[2]])

    def _gang(self, ask: Ask, able: list[_Group]) -> tuple[_Group | None, list[InstanceView]]:
        """Instances of the first group that has enough, so that the gang starts where it was promised to."""
        for group in able:
            members = [i for held in group.free.values() for i in held.values()]
            unstable = frozenset(n for (_, unstable, _), held in group.free.items() if unstable for n in held)
            return group, pick(members, ask.nodes, ask.prefer, unstable)
        return None, []

    def _earliest(self, ask: Ask, able: list[_Group]) -> tuple[float, _Group]:
        starts = []
        for group in able:
            if group.timeline is None:
                group.timeline = Timeline(group.count, group.ends)
            starts.append(group.timeline.earliest(ask.nodes, ask.hours(group.name)))
        first = min(range(len(able)), key=lambda n: starts[n])
        return starts[first], able[first]

    def _learn_ends(self) -> None:
        """Find out when busy instances will be free. This is done only when a promise needs it."""
        if self._ends_known:
            return
        self._ends_known = True
        jobs = {j.job_id: j for j in self._view.jobs}
        for instance in self._view.instances:
            # What was launched for one job is released after it.
            if instance.healthy and instance.instance_id not in self._free and instance.launched_for is None:
                given = instance.assignment
                holder = jobs.get(given.job_id or "") if given is not None else None
                self._group(instance).ends.append(done_after(holder, instance, self._view.tick))


def _first_two(members: dict[str, InstanceView], avoid: frozenset[str]) -> Iterable[InstanceView]:
    """The first instance that the job avoids, and the first one that it does not."""
    avoided = False
    for instance in members.values():
        if instance.instance_id not in avoid:
            yield instance
            return
        if not avoided:
            avoided = True
            yield instance
