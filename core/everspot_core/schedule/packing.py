"""Instances that hold several jobs: who gets room on which, and where room is promised to jobs that wait.

Room is counted in GPUs, GPU memory, vCPUs and memory. A job goes where the fewest GPUs stay free beside it, and then
where the least stays free of what it needs most of (its dominant resource): so what is begun is filled up, and what is
empty stays whole for large jobs. Backfill is as conservative as for whole instances, room for room.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from math import inf

from everspot_core.job import Resources
from everspot_core.records import Market
from everspot_core.schedule.capacity import DEPTH, Ask, Standing, Want, done_after, hours_left, is_free
from everspot_core.schedule.fit import Shape, fits
from everspot_core.schedule.gangs import pick, record_of
from everspot_core.schedule.view import ClusterView, InstanceView, JobView

Room = tuple[float, float, float, float]
_NONE: Room = (0.0, 0.0, 0.0, 0.0)
_CRUMB = 1e-6
"""Rounding errors of memory do not count as memory."""


def room_of(has: Shape | Resources) -> Room:
    """GPUs, GPU memory over all GPUs, vCPUs, memory."""
    return (has.gpus, has.gpus * has.gpu_memory_gib, has.vcpus, has.memory_gib)


def _less(room: Room, taken: Room) -> Room:
    a, b, c, d = room
    w, x, y, z = taken
    return (a - w, b - x, c - y, d - z)


def _more(room: Room, given: Room) -> Room:
    a, b, c, d = room
    w, x, y, z = given
    return (a + w, b + x, c + y, d + z)


def _holds(room: Room, wanted: Room) -> bool:
    a, b, c, d = room
    w, x, y, z = wanted
    return a + _CRUMB >= w and b + _CRUMB >= x and c + _CRUMB >= y and d + _CRUMB >= z


@dataclass(slots=True, eq=False)
class _Host:
    """An instance with what is free on it. `ends`: when which room comes back. `kept`: from, until, room, for whom."""

    instance: InstanceView
    shape: Shape
    shaky: bool
    reserved: bool
    room: Room
    ends: list[tuple[float, Room]] = field(default_factory=list)
    kept: list[tuple[float, float, Room, str]] = field(default_factory=list)
    closed: bool = False
    blind: bool = False

    @property
    def kind(self) -> "_Kind":
        """Hosts of the same kind are as good as one another; one with promises is like no other."""
        own = self.instance.instance_id if self.kept else ""
        record = record_of(self.instance)
        return _Kind(record.instance_type, self.shape, record.market, self.shaky, self.reserved, self.room, own)

    def room_at(self, time: float) -> Room:
        """What is free then, promises counted."""
        room = self.room
        for end, back in self.ends:
            if end <= time:
                room = _more(room, back)
        for start, until, taken, _ in self.kept:
            if start <= time < until:
                room = _less(room, taken)
        return room

    def lends(self, wanted: Room, hours: float, start: float = 0.0) -> bool:
        """Whether there is room from `start` on for so long, and no promise is put off by it."""
        if self.closed or (self.blind and hours == inf) or not _holds(self.room_at(start), wanted):
            return False
        later = (s for s, *_ in self.kept if start < s < start + hours)
        return all(_holds(self.room_at(s), wanted) for s in later)

    def earliest(self, wanted: Room, hours: float) -> float:
        """The first moment at which there is room for so long; inf: not as far as is known."""
        if self.kept:
            times = sorted({0.0, *(e for e, _ in self.ends), *(u for _, u, *_ in self.kept)})
            return next((t for t in times if t < inf and self.lends(wanted, hours, t)), inf)
        room, time = self.room, 0.0
        for end, back in sorted(self.ends):
            if _holds(room, wanted):
                return time
            room, time = _more(room, back), end
        return time if _holds(room, wanted) else inf


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    shape: Shape
    market: Market
    shaky: bool
    reserved: bool
    room: Room
    own: str


class Shared:
    """Instances with room, by kind, so that choosing costs by the number of kinds and not of instances."""

    def __init__(self, instances: Iterable[InstanceView], view: ClusterView, now: datetime) -> None:
        self._jobs = {j.job_id: j for j in view.jobs}
        self._view, self._standing = view, Standing(view, now)
        records = {j.job_id: j.record for j in view.jobs}
        self._hosts: dict[str, _Host] = {}
        self._kinds: dict[_Kind, list[str]] = {}
        self._full: dict[tuple[Want, int], str | None] = {}
        self._able: dict[Want, list[_Host]] = {}
        self._shut: set[Want] = set()
        self._aside: list[Shape] = []
        self._promises = 0
        for instance in sorted(instances, key=lambda i: i.instance_id):
            residents = _residents(instance)
            if instance.healthy and not instance.stopping and (residents or is_free(instance, records)):
                host = self._host(instance, residents)
                self._hosts[instance.instance_id] = host
                self._kinds.setdefault(host.kind, []).append(instance.instance_id)
        for names in self._kinds.values():
            heapify(names)

    def seat(self, ask: Ask) -> list[InstanceView]:
        """Room on one instance, or on as many of one type as the job has nodes."""
        key = ask.want, ask.nodes
        if key in self._full:  # room only grows less while a plan is made
            return []
        wanted = room_of(ask.need)
        roomy = [k for k in self._kinds if _holds(k.room, wanted) and fits(ask.need, k.shape)]
        if not roomy:
            self._full[key] = self._promiser(ask)
            return []
        hosts = self._one(ask, wanted, roomy) if ask.nodes == 1 else self._gang(ask, wanted, roomy)
        for host in hosts:
            hours = ask.hours(record_of(host.instance).instance_type)
            self._change(host, room=_less(host.room, wanted), end=(hours, wanted))
        return [h.instance for h in hosts]

    def promise(self, ask: Ask) -> None:
        """Room is kept for it where there will be enough first; where that is not known, where the least is lacking."""
        able = self._fits(ask)
        if ask.want in self._shut or len(able) < ask.nodes:
            return
        if self._promises >= DEPTH:
            self._shut.add(ask.want)
            for host in (h for h in able if not h.closed):
                host.closed = True
                host.kept.append((inf, inf, _NONE, ask.job_id))
            return
        self._promises += 1
        wanted = room_of(ask.need)
        for start, host in self._earliest(ask, wanted, [h for h in able if not h.closed]):
            hours = ask.hours(record_of(host.instance).instance_type)
            self._change(host, kept=(start, start + hours, wanted, ask.job_id), blind=start == inf)

    def set_aside(self, ask: Ask) -> None:
        """Room on the smallest that do."""
        wanted = room_of(ask.need)
        able = [h for h in self._fits(ask) if record_of(h.instance).market is Market.ON_DEMAND and h.lends(wanted, inf)]
        spare = sorted(able, key=lambda h: (h.shape, h.instance.instance_id))[: ask.nodes]
        if len(spare) == ask.nodes:
            for host in spare:
                self._change(host, room=_less(host.room, wanted), end=(inf, wanted))
            self._aside.append(spare[0].shape)

    def is_aside(self, ask: Ask) -> bool:
        """Whether it could use what was set aside."""
        return any(fits(ask.need, s) for s in self._aside)

    def promised(self, ask: Ask) -> str | None:
        """The job ahead to which room is promised that this one could use."""
        key = ask.want, ask.nodes
        return self._full[key] if key in self._full else self._promiser(ask)

    def _promiser(self, ask: Ask) -> str | None:
        wanted = room_of(ask.need)
        return next((h.kept[0][3] for h in self._fits(ask) if h.kept and _holds(h.room, wanted)), None)

    def _fits(self, ask: Ask) -> list[_Host]:
        """The hosts on which it would fit if they were empty."""
        want = ask.want
        if want not in self._able:
            self._able[want] = [h for h in self._hosts.values() if fits(ask.need, h.shape)]
        return self._able[want]

    def _host(self, instance: InstanceView, residents: tuple[str, ...]) -> _Host:
        shape = Shape.of(record_of(instance))
        host = _Host(instance, shape, self._standing.shaky(instance), self._standing.reserved(instance), room_of(shape))
        for name in residents:
            job = self._jobs.get(name)
            taken = room_of(job.submission.spec.resources) if job is not None else host.room
            host.room = _less(host.room, taken)
            host.ends.append((_done_after(job, instance, self._view), taken))
        return host

    def _one(self, ask: Ask, wanted: Room, roomy: list[_Kind]) -> list[_Host]:
        best: tuple[tuple[object, ...], _Host] | None = None
        for kind in roomy:
            for name in self._first_two(kind, ask.last):
                host = self._hosts[name]
                if kind.own and not host.lends(wanted, ask.hours(kind.name)):
                    continue
                merit = _merit(ask, wanted, kind, name)
                if best is None or merit < best[0]:
                    best = merit, host
        return [best[1]] if best is not None else []

    def _gang(self, ask: Ask, wanted: Room, roomy: list[_Kind]) -> list[_Host]:
        """Of the smallest type with room on enough instances."""
        by_type: dict[tuple[Shape, str], list[InstanceView]] = {}
        for kind in roomy:
            for name in self._members(kind):
                host = self._hosts[name]
                if host.lends(wanted, ask.hours(kind.name)):
                    by_type.setdefault((kind.shape, kind.name), []).append(host.instance)
        for key in sorted(by_type):
            members = sorted(by_type[key], key=lambda i: i.instance_id)
            shaky = frozenset(i.instance_id for i in members if self._hosts[i.instance_id].shaky)
            chosen = pick(members, ask.nodes, ask.prefer, shaky)
            if chosen:
                return [self._hosts[i.instance_id] for i in chosen]
        return []

    def _earliest(self, ask: Ask, wanted: Room, able: list[_Host]) -> list[tuple[float, _Host]]:
        """Where and when the job is promised room: on the instances, all of one type, that have it first."""
        by_type: dict[str, list[tuple[float, float, str, _Host]]] = {}
        for host in able:
            name = record_of(host.instance).instance_type
            start = host.earliest(wanted, ask.hours(name))
            lacks = sum(max(w - r, 0.0) / w for w, r in zip(wanted, host.room, strict=True) if w)
            by_type.setdefault(name, []).append((start, lacks, host.instance.instance_id, host))
        gangs = [sorted(hosts, key=lambda h: h[:3])[: ask.nodes] for hosts in by_type.values()]
        full = [g for g in gangs if len(g) == ask.nodes]
        if not full:
            return []
        gang = min(full, key=lambda g: (g[-1][0], g[-1][1], g[0][2]))
        return [(gang[-1][0], host) for *_, host in gang]

    def _change(
        self,
        host: _Host,
        *,
        room: Room | None = None,
        end: tuple[float, Room] | None = None,
        kept: tuple[float, float, Room, str] | None = None,
        blind: bool = False,
    ) -> None:
        """The host becomes one of another kind. Where it was, its name is stale and is passed over."""
        host.room = host.room if room is None else room
        host.ends += [end] if end is not None else []
        host.kept += [kept] if kept is not None else []
        host.blind = host.blind or blind
        heappush(self._kinds.setdefault(host.kind, []), host.instance.instance_id)

    def _members(self, kind: _Kind) -> list[str]:
        return sorted({n for n in self._kinds[kind] if self._hosts[n].kind == kind})

    def _first_two(self, kind: _Kind, last: str | None) -> list[str]:
        """The first of a kind, and the first that is not the last owner."""
        names, found = self._kinds[kind], list[str]()
        while names and (not found or found == [last]):
            name = heappop(names)
            if self._hosts[name].kind == kind and name not in found:
                found.append(name)
        for name in found:
            heappush(names, name)
        if not names:
            del self._kinds[kind]
        return found


def _merit(ask: Ask, wanted: Room, kind: _Kind, name: str) -> tuple[object, ...]:
    left = _less(kind.room, wanted)
    has = room_of(kind.shape)
    _, dominant = max((w / h, n) for n, (w, h) in enumerate(zip(wanted, has, strict=True)) if h)
    kept = kind.reserved is not ask.critical and kind.market is Market.ON_DEMAND
    suits = ask.suits(kind.market, name == ask.last)
    return (kind.shaky, *suits, kept, left[0], left[dominant] / has[dominant], kind.shape, kind.market, name)


def _residents(instance: InstanceView) -> tuple[str, ...]:
    given = instance.assignment
    held = (given.job_id,) if given is not None and given.job_id is not None else ()
    return tuple(sorted({*instance.residents, *held}))


def _done_after(job: JobView | None, instance: InstanceView, view: ClusterView) -> float:
    """A resident holds its room whatever the one assignment of the instance says."""
    if not instance.residents:
        return done_after(job, instance, view.tick)
    return inf if job is None else hours_left(job, record_of(instance).instance_type)
