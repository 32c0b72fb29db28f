"""The room on instances that hold several jobs, now and as jobs end, and which of these instances are alike."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from everspot_core.jobs.fit import Shape
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import Market
from everspot_core.schedule.placement.capacity import EvictionRisk
from everspot_core.schedule.placement.gangs import instance_record
from everspot_core.schedule.view import InstanceView

Room = tuple[float, float, float, float]
_CRUMB = 1e-6
"""Rounding errors of memory do not count as memory."""


def total_room(has: Shape | Resources) -> Room:
    """Return GPUs, GPU memory over all GPUs, vCPUs, memory."""
    return (has.gpus, has.gpus * has.gpu_memory_gib, has.vcpus, has.memory_gib)


def less(room: Room, used: Room) -> Room:
    """Return the room that is left."""
    a, b, c, d = room
    w, x, y, z = used
    return (a - w, b - x, c - y, d - z)


def more(room: Room, added: Room) -> Room:
    """Return the sum of both."""
    a, b, c, d = room
    w, x, y, z = added
    return (a + w, b + x, c + y, d + z)


def is_enough(room: Room, needed: Room) -> bool:
    """Return whether the room is enough in everything."""
    a, b, c, d = room
    w, x, y, z = needed
    return a + _CRUMB >= w and b + _CRUMB >= x and c + _CRUMB >= y and d + _CRUMB >= z


@dataclass(slots=True, eq=False)
class SharedInstance:
    """An instance and the room that is free on it.

    Attributes:
        ends: moments, and the room that comes back then.
        promises: each with start, end, room and job.
    """

    instance: InstanceView
    shape: Shape
    unstable: EvictionRisk
    reserved: bool
    room: Room
    ends: list[tuple[float, Room]] = field(default_factory=list)
    promises: list[tuple[float, float, Room, str]] = field(default_factory=list)
    closed: bool = False
    promised_without_time: bool = False

    def kind(self) -> "Kind":
        """Return the host's present kind. A host with promises has its own kind."""
        own = self.instance.instance_id if self.promises else ""
        record = instance_record(self.instance)
        return Kind(self.room, self.shape, record.market, self.unstable, self.reserved, record.instance_type, own)

    def room_at(self, time: float) -> Room:
        """Return the free room at that time, less the promises."""
        room = self.room
        for end, back in self.ends:
            if end <= time:
                room = more(room, back)
        for start, until, promised, _ in self.promises:
            if start <= time < until:
                room = less(room, promised)
        return room

    def can_backfill(self, needed: Room, hours: float, start: float = 0.0) -> bool:
        """Return whether there is room from `start` on for `hours`, and no promise is delayed by it."""
        if self.closed or (self.promised_without_time and hours == inf) or not is_enough(self.room_at(start), needed):
            return False
        later = (s for s, *_ in self.promises if start < s < start + hours)
        return all(is_enough(self.room_at(s), needed) for s in later)

    def lacks(self, needed: Room) -> float:
        """Return how much is lacking: the sum, over the resources, of the missing fraction of the need."""
        return sum(max(w - r, 0.0) / w for w, r in zip(needed, self.room, strict=True) if w)

    def earliest(self, needed: Room, hours: float) -> float:
        """Return the first moment at which there is room for `hours`; inf if none is known."""
        if self.promises:
            times = sorted({0.0, *(e for e, _ in self.ends), *(u for _, u, *_ in self.promises)})
            return next((t for t in times if t < inf and self.can_backfill(needed, hours, t)), inf)
        room, time = self.room, 0.0
        for end, back in sorted(self.ends):
            if is_enough(room, needed):
                return time
            room, time = more(room, back), end
        return time if is_enough(room, needed) else inf


class Kind(NamedTuple):
    """The common properties of interchangeable hosts. `own`: the host's name, if it is like no other."""

    room: Room
    shape: Shape
    market: Market
    unstable: EvictionRisk
    reserved: bool
    name: str
    own: str

    @property
    def bin(self) -> "PlacementClass":
        """The bin that holds this kind."""
        return PlacementClass(self.unstable, self.market, self.reserved, self.room[0])


class PlacementClass(NamedTuple):
    """A set of kinds among which the fit alone decides. `gpus`: the number that is free."""

    unstable: EvictionRisk
    market: Market
    reserved: bool
    gpus: float


class Kinds:
    """The hosts by kind, and the kinds by bin."""

    def __init__(self) -> None:
        self._kind: dict[str, Kind] = {}
        self._names: dict[Kind, list[str]] = {}
        self._counts: dict[Kind, int] = {}
        self.bins: dict[PlacementClass, dict[Kind, None]] = {}

    def put(self, name: str, kind: Kind) -> None:
        """Note that the host is of this kind from now on."""
        self.drop(name)
        self._kind[name] = kind
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self.bins.setdefault(kind.bin, {})[kind] = None
        heappush(self._names.setdefault(kind, []), name)

    def drop(self, name: str) -> None:
        """Remove the host."""
        kind = self._kind.pop(name, None)
        if kind is not None:
            self._counts[kind] -= 1
            if not self._counts[kind]:
                del self._counts[kind], self._names[kind], self.bins[kind.bin][kind]
                if not self.bins[kind.bin]:
                    del self.bins[kind.bin]

    def members(self, kind: Kind) -> list[str]:
        """Return the names of all hosts of a kind."""
        return sorted({n for n in self._names[kind] if self._kind.get(n) == kind})

    def first(self, kind: Kind, but: frozenset[str]) -> str | None:
        """Return the first host of a kind that is not in `but`, or None."""
        names = self._names[kind]
        while names and self._kind.get(names[0]) != kind:
            heappop(names)
        if names and names[0] not in but:
            return names[0]
        return next((n for n in self.members(kind) if n not in but), None)
