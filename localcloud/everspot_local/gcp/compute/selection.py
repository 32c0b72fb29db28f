"""Stands in for how Compute Engine chooses zones and machine types: by target shape, rank and capacity.

Google does not say how it weighs equals; here the pool that could give most comes first, as it is the least likely to
be taken back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid

SELECTIONS_AT_MOST = 10
"""Compute Engine, "About instance flexibility for VMs": ten selections, and ten machine types in all."""
_NO_FLEXIBILITY = ("a3-ultragpu", "a4", "custom")

Available = Callable[[str, str], int]
"""The number of machines of a type that a zone would give now."""


@dataclass(frozen=True)
class Wanted:
    """Machine types by rank, the lowest first; those of one rank are equal."""

    ranks: tuple[tuple[str, ...], ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Return all types."""
        return tuple(kind for rank in self.ranks for kind in rank)


def wanted(policy: Mapping[str, Mapping[str, Any]], field: str) -> Wanted:
    """Return the machine types of a policy's `instanceSelections`.

    Raises:
        ApiError: for a policy that Compute Engine does not take.
    """
    by_rank: dict[int, list[str]] = {}
    seen: set[str] = set()
    for name, selection in policy.items():
        here = f"{field}.instanceSelections[{name}]"
        types = selection.get("machineTypes") or []
        rank = int(selection.get("rank", "0"))
        if not types:
            raise invalid(f"{here}.machineTypes", "", "At least one machine type must be specified.")
        if rank < 0:
            raise invalid(f"{here}.rank", rank, "The rank must not be negative.")
        for kind in types:
            if kind in seen:
                raise invalid(f"{here}.machineTypes", kind, "A machine type can be in one instance selection only.")
            if "/" in kind:
                raise invalid(f"{here}.machineTypes", kind, "Machine types are given by name.")
            if kind.startswith(_NO_FLEXIBILITY):
                raise ApiError(400, "unsupportedOperation", f"Machine type {kind} is not supported by flexibility.")
            seen.add(kind)
        by_rank.setdefault(rank, []).extend(types)
    if not policy or max(len(policy), len(seen)) > SELECTIONS_AT_MOST:
        why = f"There can be 1 to {SELECTIONS_AT_MOST} instance selections, with as many machine types in all."
        raise invalid(f"{field}.instanceSelections", "", why)
    return Wanted(tuple(tuple(by_rank[rank]) for rank in sorted(by_rank)))


def choose(
    shape: str, count: int, asked: Wanted, zones: Sequence[str], available: Available, present: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return a zone and a machine type for each of so many instances, or of as many as can be had.

    Args:
        shape: ANY, BALANCED, ANY_SINGLE_ZONE or EVEN.
        count: how many more.
        asked: machine types by rank.
        zones: that are allowed.
        available: what a zone would give of a type.
        present: how many there are already, by zone; counted where they are to be spread.
    """
    if shape == "ANY_SINGLE_ZONE":
        held = [zone for zone in zones if present.get(zone)]
        fills = [_fill(count, asked, (zone,), available) for zone in held or zones]
        # Most instances first; of equals those of better ranks.
        return max(fills, key=lambda fill: (len(fill), -sum(_rank(asked, kind) for _, kind in fill)), default=[])
    if shape in ("BALANCED", "EVEN"):
        return _spread(count, asked, zones, available, present)
    return _fill(count, asked, zones, available)


def _fill(count: int, asked: Wanted, zones: Sequence[str], available: Available) -> list[tuple[str, str]]:
    """Choose by rank; within one rank, the pool with most capacity first."""
    found: list[tuple[str, str]] = []
    for rank in asked.ranks:
        pools = sorted(((available(kind, zone), zone, kind) for kind in rank for zone in zones), key=lambda p: -p[0])
        for there, zone, kind in pools:
            found += [(zone, kind)] * min(there, count - len(found))
    return found


def _spread(
    count: int, asked: Wanted, zones: Sequence[str], available: Available, present: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Choose one after the other, each in the zone that has fewest and has capacity."""
    held = {zone: present.get(zone, 0) for zone in zones}
    taken: dict[tuple[str, str], int] = {}
    found: list[tuple[str, str]] = []

    def left(kind: str, zone: str) -> int:
        return available(kind, zone) - taken.get((zone, kind), 0)

    for _ in range(count):
        for zone in sorted(zones, key=lambda z: held[z]):
            if one := _fill(1, asked, (zone,), left):
                found += one
                held[zone] += 1
                taken[one[0]] = taken.get(one[0], 0) + 1
                break
    return found


def _rank(asked: Wanted, kind: str) -> int:
    return next(n for n, rank in enumerate(asked.ranks) if kind in rank)
