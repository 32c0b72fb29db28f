"""Decides which job gets room on which instance, if an instance holds several jobs, and where room is promised.

Room is counted in GPUs, GPU memory, vCPUs and memory. A job that does not share needs all of an instance. A job goes
where the fewest GPUs stay free beside it, and then where the least stays free of what it needs most of (its dominant
resource). So instances in use fill up, and empty instances stay whole for large jobs. Backfill is as conservative as
for whole instances.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import nsmallest
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
    hours_left,
    is_free,
    lingering,
)
from everspot_core.schedule.placement.gangs import pick, record_of
from everspot_core.schedule.placement.hosts import Bin, Host, Kind, Kinds, Room, holds, less, room_of
from everspot_core.schedule.view import ClusterView, InstanceView, JobView


class Shared:
    """Instances with room, by kind. So the cost of a choice grows with the kinds, not the instances."""

    def __init__(self, instances: Iterable[InstanceView], view: ClusterView, now: datetime) -> None:
        self._jobs = {j.job_id: j for j in view.jobs}
        self._view, self._marks = view, PoolMarks(view, now)
        records = {j.job_id: j.record for j in view.jobs}
        self._hosts: dict[str, Host] = {}
        self._kinds = Kinds()
        self._refused: dict[tuple[Want, int], tuple[float, str | None]] = {}
        self._promised: list[Host] = []
        self._closed: dict[tuple[Room, Shape], str] = {}
        self._open: dict[Shape, list[Host]] = {}
        self._shapes: dict[Shape, Shape] = {}
        self._able_shapes: dict[Want, frozenset[int]] = {}
        self._aside: list[Shape] = []
        self._promises = 0
        for instance in sorted(instances, key=lambda i: i.instance_id):
            residents = tuple(sorted({*_residents(instance), *lingering(instance, records)}))
            if instance.healthy and not instance.stopping and (residents or is_free(instance, records)):
                host = self._host(instance, residents)
                self._hosts[instance.instance_id] = host
                self._open.setdefault(host.shape, []).append(host)
                self._kinds.put(instance.instance_id, host.kind())

    def seat(self, ask: Ask) -> list[InstanceView]:
        """Room on one instance, or on as many of one type as the job has nodes."""
        key, (fastest, slowest) = (ask.want, ask.nodes), ask.span
        if key in self._refused and self._refused[key][0] <= fastest:  # room only grows less while a plan is made
            return []
        hosts = self._one(ask) if ask.nodes == 1 else self._gang(ask)
        if not hosts:
            roomy = any(self._roomy(ask, b) for b in self._kinds.bins)
            self._refused[key] = slowest if roomy else 0.0, self._promiser(ask)
        for host in hosts:
            hours, wanted = ask.hours(record_of(host.instance).instance_type), _wanted(ask, host.shape)
            self._change(host, room=less(host.room, wanted), end=(hours, wanted))
        return [h.instance for h in hosts]

    def promise(self, ask: Ask) -> None:
        """Keep room for the job where there will be enough first; if that is not known, where the least is lacking."""
        able = [hosts for shape, hosts in self._open.items() if id(shape) in self._shapes_for(ask)]
        if sum(map(len, able)) < ask.nodes:
            return
        if self._promises >= DEPTH:
            for hosts in able:
                self._close(hosts, ask.job_id)
            return
        self._promises += 1
        for start, host in self._earliest(ask, [h for hosts in able for h in hosts]):
            hours, wanted = ask.hours(record_of(host.instance).instance_type), _wanted(ask, host.shape)
            self._promised.append(host)
            self._change(host, kept=(start, start + hours, wanted, ask.job_id), blind=start == inf)

    def _close(self, hosts: list[Host], ahead: str) -> None:
        """Give away nothing more on these hosts, which all have one shape."""
        del self._open[hosts[0].shape]
        for host in hosts:
            host.closed = True
            self._closed.setdefault((host.room, host.shape), ahead)
            self._kinds.drop(host.instance.instance_id)

    def set_aside(self, ask: Ask) -> None:
        """Keep room on the smallest instances that are large enough."""
        standing = [h for h in self._hosts.values() if record_of(h.instance).market is Market.ON_DEMAND]
        able = [h for h in standing if fits(ask.need, h.shape) and h.lends(_wanted(ask, h.shape), inf)]
        spare = sorted(able, key=lambda h: (h.shape, h.instance.instance_id))[: ask.nodes]
        if len(spare) == ask.nodes:
            for host in spare:
                wanted = _wanted(ask, host.shape)
                self._change(host, room=less(host.room, wanted), end=(inf, wanted))
            self._aside.append(spare[0].shape)

    def is_aside(self, ask: Ask) -> bool:
        """Whether it could use what was set aside."""
        return any(fits(ask.need, s) for s in self._aside)

    def promised(self, ask: Ask) -> str | None:
        """The job ahead to which room is promised that this one could use."""
        return self._refused[ask.want, ask.nodes][1]

    def _promiser(self, ask: Ask) -> str | None:
        able = self._shapes_for(ask)
        kept = (h for h in self._promised if id(h.shape) in able and holds(h.room, _wanted(ask, h.shape)))
        closed = (n for (r, shape), n in self._closed.items() if id(shape) in able and holds(r, _wanted(ask, shape)))
        return next((h.kept[0][3] for h in kept), None) or next(closed, None)

    def _shapes_for(self, ask: Ask) -> frozenset[int]:
        """The shapes that the job fits, each once."""
        want = ask.want
        if want not in self._able_shapes:
            self._able_shapes[want] = frozenset(id(s) for s in self._shapes.values() if fits(ask.need, s))
        return self._able_shapes[want]

    def _host(self, instance: InstanceView, residents: tuple[str, ...]) -> Host:
        shape = Shape.of(record_of(instance))
        shape = self._shapes.setdefault(shape, shape)
        host = Host(instance, shape, self._marks.unstable(instance), self._marks.reserved(instance), room_of(shape))
        for name in residents:
            job = self._jobs.get(name)
            taken = room_of(job.submission.spec.resources) if job is not None and job.shares else host.room
            host.room = less(host.room, taken)
            host.ends.append((_done_after(job, instance, self._view), taken))
        return host

    def _one(self, ask: Ask) -> list[Host]:
        """The best of the best bin that lends; an instance that the job avoids only if that is better still."""
        places = [(_rough(ask, b, again=False), "", b) for b in self._kinds.bins if b.gpus >= ask.need.gpus]
        for name in ask.avoid:
            host = self._hosts.get(name)
            if host is not None and not host.closed and fits(ask.need, host.shape):
                places.append((_rough(ask, host.kind().bin, again=True), name, host.kind().bin))
        for _, name, where in sorted(places):
            for host in [self._hosts[name]] if name else self._others(ask, where):
                if host.lends(_wanted(ask, host.shape), ask.hours(record_of(host.instance).instance_type)):
                    return [host]
        return []

    def _others(self, ask: Ask, where: Bin) -> Iterator[Host]:
        """One host of each kind, the best fit first, without hosts that the job avoids."""
        for kind in _by_fit(ask, self._roomy(ask, where)):
            name = self._kinds.first(kind, ask.avoid)
            if name is not None:
                yield self._hosts[name]

    def _roomy(self, ask: Ask, where: Bin) -> list[Kind]:
        able = self._shapes_for(ask)
        if ask.need.shared:
            wanted = room_of(ask.need)
            return [k for k in self._kinds.bins[where] if id(k.shape) in able and holds(k.room, wanted)]
        return [k for k in self._kinds.bins[where] if id(k.shape) in able and holds(k.room, room_of(k.shape))]

    def _gang(self, ask: Ask) -> list[Host]:
        """Hosts of the smallest type that has room on enough instances."""
        by_type: dict[tuple[Shape, str], list[Kind]] = {}
        for kind in (k for b in self._kinds.bins for k in self._roomy(ask, b)):
            by_type.setdefault((kind.shape, kind.name), []).append(kind)
        for key in sorted(by_type):
            named = (n for kind in by_type[key] for n in self._kinds.members(kind))
            wanted, hours = _wanted(ask, key[0]), ask.hours(key[1])
            hosts = [self._hosts[n] for n in sorted(named) if self._hosts[n].lends(wanted, hours)]
            unstable = frozenset(h.instance.instance_id for h in hosts if h.unstable)
            chosen = pick([h.instance for h in hosts], ask.nodes, ask.prefer, unstable)
            if chosen:
                return [self._hosts[i.instance_id] for i in chosen]
        return []

    def _earliest(self, ask: Ask, able: list[Host]) -> list[tuple[float, Host]]:
        """Where and when the job is promised room: on the instances, all of one type, that have it first.

        If none is known to have it, those count where the least is lacking.
        """
        by_type: dict[str, list[Host]] = {}
        for host in able:
            by_type.setdefault(record_of(host.instance).instance_type, []).append(host)
        enough = {name: hosts for name, hosts in by_type.items() if len(hosts) >= ask.nodes}
        starts = {
            name: nsmallest(
                ask.nodes,
                [(h.earliest(_wanted(ask, h.shape), ask.hours(name)), h.instance.instance_id) for h in hosts],
            )
            for name, hosts in enough.items()
        }
        known = [gang for gang in starts.values() if gang[-1][0] < inf]
        if not known:
            known = [
                nsmallest(ask.nodes, [(h.lacks(_wanted(ask, h.shape)), h.instance.instance_id) for h in g])
                for g in enough.values()
            ]
            known = [[(inf, name) for _, name in gang] for gang in sorted(known, key=lambda g: (g[-1], g[0]))[:1]]
        gang = min(known, key=lambda g: (g[-1], g[0]), default=[])
        return [(gang[-1][0], self._hosts[name]) for _, name in gang]

    def _change(
        self,
        host: Host,
        *,
        room: Room | None = None,
        end: tuple[float, Room] | None = None,
        kept: tuple[float, float, Room, str] | None = None,
        blind: bool = False,
    ) -> None:
        """Move the host to the kind that it is of now."""
        host.room = host.room if room is None else room
        host.ends += [end] if end is not None else []
        host.kept += [kept] if kept is not None else []
        host.blind = host.blind or blind
        self._kinds.put(host.instance.instance_id, host.kind())


def _rough(ask: Ask, where: Bin, *, again: bool) -> tuple[bool, bool, bool, bool, Unstable, float]:
    kept = where.reserved is not ask.critical and where.market is Market.ON_DEMAND
    leave = where.unstable is Unstable.ITSELF
    return (leave, *ask.suits(where.market, again), kept, where.unstable, where.gpus)


def _wanted(ask: Ask, shape: Shape) -> Room:
    """The room that the job takes on an instance of this shape."""
    return room_of(ask.need if ask.need.shared else shape)


def _by_fit(ask: Ask, kinds: list[Kind]) -> list[Kind]:
    """A sort key, best fit first: the fraction of the job's dominant resource that stays free."""
    dominant = {id(k.shape): _dominant(room_of(ask.need), k.shape) for k in kinds}

    def merit(kind: Kind) -> tuple[float, Shape, Market, str, str]:
        n, there = dominant[id(kind.shape)]
        return (kind.room[n] - _wanted(ask, kind.shape)[n]) / there, kind.shape, kind.market, kind.name, kind.own

    return sorted(kinds, key=merit)


def _dominant(wanted: Room, shape: Shape) -> tuple[int, float]:
    """The resource of which the job needs the largest fraction, and how much of it there is."""
    has = room_of(shape)
    _, n = max((w / h, n) for n, (w, h) in enumerate(zip(wanted, has, strict=True)) if h)
    return n, has[n]


def _residents(instance: InstanceView) -> tuple[str, ...]:
    given = instance.assignment
    return tuple(sorted({*instance.residents, *(given.jobs if given is not None else ())}))


def _done_after(job: JobView | None, instance: InstanceView, view: ClusterView) -> float:
    """Hours until a resident gives its room back, whatever the instance's assignment says."""
    if not instance.residents:
        return done_after(job, instance, view.tick)
    return inf if job is None else hours_left(job, record_of(instance).instance_type)
