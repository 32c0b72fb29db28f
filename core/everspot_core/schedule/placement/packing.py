"""Places jobs on shared instances, and decides where room is reserved for waiting jobs.

Room is counted in GPUs, GPU memory, vCPUs and memory. A job that does not share needs all of an instance. A job goes
where the fewest GPUs stay free beside it, and then where the least stays free of what it needs most of (its dominant
resource). So instances in use fill up, and empty instances stay whole for large jobs. Backfill is as conservative as
for whole instances.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import nsmallest
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
    hours_left,
    is_free,
    lingering,
)
from everspot_core.schedule.placement.gangs import instance_record, pick
from everspot_core.schedule.placement.hosts import (
    Kind,
    Kinds,
    PlacementClass,
    Room,
    SharedInstance,
    is_enough,
    less,
    total_room,
)
from everspot_core.schedule.view import ClusterView, InstanceView, JobView


class SharedCapacity:
    """Instances with room, by kind. So the cost of a choice grows with the kinds, not the instances."""

    def __init__(self, instances: Iterable[InstanceView], view: ClusterView, now: datetime) -> None:
        self._jobs = {j.job_id: j for j in view.jobs}
        self._view, self._marks = view, PoolFlags(view, now)
        records = {j.job_id: j.record for j in view.jobs}
        self._hosts: dict[str, SharedInstance] = {}
        self._kinds = Kinds()
        self._refused: dict[tuple[Want, int], tuple[float, str | None]] = {}
        self._promised: list[SharedInstance] = []
        self._closed: dict[tuple[Room, Shape], str] = {}
        self._open: dict[Shape, list[SharedInstance]] = {}
        self._shapes: dict[Shape, Shape] = {}
        self._able_shapes: dict[Want, frozenset[int]] = {}
        self._set_aside_shapes: list[Shape] = []
        self._promises = 0
        for instance in sorted(instances, key=lambda i: i.instance_id):
            residents = tuple(sorted({*_residents(instance), *lingering(instance, records)}))
            if instance.healthy and not instance.stopping and (residents or is_free(instance, records)):
                host = self._host(instance, residents)
                self._hosts[instance.instance_id] = host
                self._open.setdefault(host.shape, []).append(host)
                self._kinds.put(instance.instance_id, host.kind())

    def seat(self, request: SeatRequest) -> list[InstanceView]:
        """Return room on one instance, or on as many of one type as the job has nodes."""
        key, (fastest, slowest) = (request.want, request.nodes), request.span
        if key in self._refused and self._refused[key][0] <= fastest:  # room only grows less while a plan is made
            return []
        hosts = self._choose_one(request) if request.nodes == 1 else self._gang(request)
        if not hosts:
            roomy = any(self._roomy(request, b) for b in self._kinds.bins)
            self._refused[key] = slowest if roomy else 0.0, self._promiser(request)
        for host in hosts:
            hours, needed = (
                request.hours(instance_record(host.instance).instance_type),
                _needed_room(request, host.shape),
            )
            self._change(host, room=less(host.room, needed), end=(hours, needed))
        return [h.instance for h in hosts]

    def promise(self, request: SeatRequest) -> None:
        """Keep room for the job where there will be enough first; if that is not known, where the least is lacking."""
        able = [hosts for shape, hosts in self._open.items() if id(shape) in self._shapes_for(request)]
        if sum(map(len, able)) < request.nodes:
            return
        if self._promises >= DEPTH:
            for hosts in able:
                self._close(hosts, request.job_id)
            return
        self._promises += 1
        for start, host in self._earliest(request, [h for hosts in able for h in hosts]):
            hours, needed = (
                request.hours(instance_record(host.instance).instance_type),
                _needed_room(request, host.shape),
            )
            self._promised.append(host)
            self._change(
                host, promise=(start, start + hours, needed, request.job_id), promised_without_time=start == inf
            )

    def _close(self, hosts: list[SharedInstance], ahead: str) -> None:
        """Give away nothing more on these hosts, which all have one shape."""
        del self._open[hosts[0].shape]
        for host in hosts:
            host.closed = True
            self._closed.setdefault((host.room, host.shape), ahead)
            self._kinds.drop(host.instance.instance_id)

    def set_aside(self, request: SeatRequest) -> None:
        """Keep room on the smallest instances that are large enough."""
        standing = [h for h in self._hosts.values() if instance_record(h.instance).market is Market.ON_DEMAND]
        able = [
            h for h in standing if fits(request.need, h.shape) and h.can_backfill(_needed_room(request, h.shape), inf)
        ]
        spare = sorted(able, key=lambda h: (h.shape, h.instance.instance_id))[: request.nodes]
        if len(spare) == request.nodes:
            for host in spare:
                needed = _needed_room(request, host.shape)
                self._change(host, room=less(host.room, needed), end=(inf, needed))
            self._set_aside_shapes.append(spare[0].shape)

    def is_aside(self, request: SeatRequest) -> bool:
        """Return whether the job could use the room that was set aside."""
        return any(fits(request.need, s) for s in self._set_aside_shapes)

    def promised(self, request: SeatRequest) -> str | None:
        """Return the job ahead to which room is promised that this one could use."""
        return self._refused[request.want, request.nodes][1]

    def _promiser(self, request: SeatRequest) -> str | None:
        able = self._shapes_for(request)
        promised_hosts = (
            h for h in self._promised if id(h.shape) in able and is_enough(h.room, _needed_room(request, h.shape))
        )
        closed = (
            n
            for (r, shape), n in self._closed.items()
            if id(shape) in able and is_enough(r, _needed_room(request, shape))
        )
        return next((h.promises[0][3] for h in promised_hosts), None) or next(closed, None)

    def _shapes_for(self, request: SeatRequest) -> frozenset[int]:
        """Return the shapes that the job fits, each once."""
        want = request.want
        if want not in self._able_shapes:
            self._able_shapes[want] = frozenset(id(s) for s in self._shapes.values() if fits(request.need, s))
        return self._able_shapes[want]

    def _host(self, instance: InstanceView, residents: tuple[str, ...]) -> SharedInstance:
        shape = Shape.from_machine(instance_record(instance))
        shape = self._shapes.setdefault(shape, shape)
        host = SharedInstance(
            instance, shape, self._marks.unstable(instance), self._marks.reserved(instance), total_room(shape)
        )
        for name in residents:
            job = self._jobs.get(name)
            used = total_room(job.submission.spec.resources) if job is not None and job.shares else host.room
            host.room = less(host.room, used)
            host.ends.append((_done_after(job, instance, self._view), used))
        return host

    def _choose_one(self, request: SeatRequest) -> list[SharedInstance]:
        """Return the best of the best bin that lends; an instance that the job avoids only if that is better still."""
        places = [(_rough(request, b, again=False), "", b) for b in self._kinds.bins if b.gpus >= request.need.gpus]
        for name in request.avoid:
            host = self._hosts.get(name)
            if host is not None and not host.closed and fits(request.need, host.shape):
                places.append((_rough(request, host.kind().bin, again=True), name, host.kind().bin))
        for _, name, where in sorted(places):
            for host in [self._hosts[name]] if name else self._others(request, where):
                if host.can_backfill(
                    _needed_room(request, host.shape), request.hours(instance_record(host.instance).instance_type)
                ):
                    return [host]
        return []

    def _others(self, request: SeatRequest, where: PlacementClass) -> Iterator[SharedInstance]:
        """Yield one host of each kind, the best fit first, without hosts that the job avoids."""
        for kind in _by_fit(request, self._roomy(request, where)):
            name = self._kinds.first(kind, request.avoid)
            if name is not None:
                yield self._hosts[name]

    def _roomy(self, request: SeatRequest, where: PlacementClass) -> list[Kind]:
        able = self._shapes_for(request)
        if request.need.shared:
            needed = total_room(request.need)
            return [k for k in self._kinds.bins[where] if id(k.shape) in able and is_enough(k.room, needed)]
        return [k for k in self._kinds.bins[where] if id(k.shape) in able and is_enough(k.room, total_room(k.shape))]

    def _gang(self, request: SeatRequest) -> list[SharedInstance]:
        """Return hosts of the smallest type that has room on enough instances."""
        by_type: dict[tuple[Shape, str], list[Kind]] = {}
        for kind in (k for b in self._kinds.bins for k in self._roomy(request, b)):
            by_type.setdefault((kind.shape, kind.name), []).append(kind)
        for key in sorted(by_type):
            names = (n for kind in by_type[key] for n in self._kinds.members(kind))
            needed, hours = _needed_room(request, key[0]), request.hours(key[1])
            hosts = [self._hosts[n] for n in sorted(names) if self._hosts[n].can_backfill(needed, hours)]
            unstable = frozenset(h.instance.instance_id for h in hosts if h.unstable)
            chosen = pick([h.instance for h in hosts], request.nodes, request.prefer, unstable)
            if chosen:
                return [self._hosts[i.instance_id] for i in chosen]
        return []

    def _earliest(self, request: SeatRequest, able: list[SharedInstance]) -> list[tuple[float, SharedInstance]]:
        """Return where and when the job is promised room: on the instances, all of one type, that have it first.

        If none is known to have it, those count where the least is lacking.
        """
        by_type: dict[str, list[SharedInstance]] = {}
        for host in able:
            by_type.setdefault(instance_record(host.instance).instance_type, []).append(host)
        enough = {name: hosts for name, hosts in by_type.items() if len(hosts) >= request.nodes}
        starts = {
            name: nsmallest(
                request.nodes,
                [
                    (h.earliest(_needed_room(request, h.shape), request.hours(name)), h.instance.instance_id)
                    for h in hosts
                ],
            )
            for name, hosts in enough.items()
        }
        gangs = [gang for gang in starts.values() if gang[-1][0] < inf]
        if not gangs:
            gangs = [
                nsmallest(request.nodes, [(h.lacks(_needed_room(request, h.shape)), h.instance.instance_id) for h in g])
                for g in enough.values()
            ]
            gangs = [[(inf, name) for _, name in gang] for gang in sorted(gangs, key=lambda g: (g[-1], g[0]))[:1]]
        gang = min(gangs, key=lambda g: (g[-1], g[0]), default=[])
        return [(gang[-1][0], self._hosts[name]) for _, name in gang]

    def _change(
        self,
        host: SharedInstance,
        *,
        room: Room | None = None,
        end: tuple[float, Room] | None = None,
        promise: tuple[float, float, Room, str] | None = None,
        promised_without_time: bool = False,
    ) -> None:
        """Move the host to the kind that it is of now."""
        host.room = host.room if room is None else room
        host.ends += [end] if end is not None else []
        host.promises += [promise] if promise is not None else []
        host.promised_without_time = host.promised_without_time or promised_without_time
        self._kinds.put(host.instance.instance_id, host.kind())


def _rough(
    request: SeatRequest, where: PlacementClass, *, again: bool
) -> tuple[bool, bool, bool, bool, EvictionRisk, float]:
    is_reserved = where.reserved is not request.critical and where.market is Market.ON_DEMAND
    leave = where.unstable is EvictionRisk.ITSELF
    return (leave, *request.preference_key(where.market, again), is_reserved, where.unstable, where.gpus)


def _needed_room(request: SeatRequest, shape: Shape) -> Room:
    """Return the room that the job takes on an instance of this shape."""
    return total_room(request.need if request.need.shared else shape)


def _by_fit(request: SeatRequest, kinds: list[Kind]) -> list[Kind]:
    """Return a sort key, best fit first: the fraction of the job's dominant resource that stays free."""
    dominant = {id(k.shape): _dominant(total_room(request.need), k.shape) for k in kinds}

    def merit(kind: Kind) -> tuple[float, Size, Market, str, str]:
        n, capacity = dominant[id(kind.shape)]
        return (
            (kind.room[n] - _needed_room(request, kind.shape)[n]) / capacity,
            kind.shape.size,
            kind.market,
            kind.name,
            kind.own,
        )

    return sorted(kinds, key=merit)


def _dominant(needed: Room, shape: Shape) -> tuple[int, float]:
    """Return the resource that the job needs the largest fraction of, and its total."""
    has = total_room(shape)
    _, n = max((w / h, n) for n, (w, h) in enumerate(zip(needed, has, strict=True)) if h)
    return n, has[n]


def _residents(instance: InstanceView) -> tuple[str, ...]:
    assignment = instance.assignment
    return tuple(sorted({*instance.residents, *(assignment.jobs if assignment is not None else ())}))


def _done_after(job: JobView | None, instance: InstanceView, view: ClusterView) -> float:
    """Return hours until a resident gives its room back, whatever the instance's assignment says."""
    if not instance.residents:
        return done_after(job, instance, view.tick)
    return inf if job is None else hours_left(job, instance_record(instance).instance_type)
