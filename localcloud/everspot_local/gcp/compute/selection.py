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
class RankedTypes:
    """Machine types by rank, the lowest first; those of one rank are equal."""

    ranks: tuple[tuple[str, ...], ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Return all types."""
        return tuple(kind for rank in self.ranks for kind in rank)


def read_ranked_types(policy: Mapping[str, Mapping[str, Any]], field: str) -> RankedTypes:
    """Return the machine types of a policy's `instanceSelections`.

    Raises:
        ApiError: for a policy that Compute Engine does not take.
    """
    by_rank: dict[int, list[str]] = {}
    selected: set[str] = set()
    for name, selection in policy.items():
        here = f"{field}.instanceSelections[{name}]"
        types = selection.get("machineTypes") or []
        rank = int(selection.get("rank", "0"))
        if not types:
            raise invalid(f"{here}.machineTypes", "", "At least one machine type must be specified.")
        if rank < 0:
            raise invalid(f"{here}.rank", rank, "The rank must not be negative.")
        for kind in types:
            if kind in selected:
                raise invalid(f"{here}.machineTypes", kind, "A machine type can be in one instance selection only.")
            if "/" in kind:
                raise invalid(f"{here}.machineTypes", kind, "Machine types are given by name.")
            if kind.startswith(_NO_FLEXIBILITY):
                raise ApiError(400, "unsupportedOperation", f"Machine type {kind} is not supported by flexibility.")
            selected.add(kind)
        by_rank.setdefault(rank, []).extend(types)
    if not policy or max(len(policy), len(selected)) > SELECTIONS_AT_MOST:
        message = f"There can be 1 to {SELECTIONS_AT_MOST} instance selections, with as many machine types in all."
        raise invalid(f"{field}.instanceSelections", "", message)
    return RankedTypes(tuple(tuple(by_rank[rank]) for rank in sorted(by_rank)))


def choose(
    shape: str,
    count: int,
    ranked_types: RankedTypes,
    zones: Sequence[str],
    available: Available,
    present: Mapping[str, int],
) -> list[tuple[str, str]]:
    """Return a zone and a machine type for each of so many instances, or of as many as can be had.

    Args:
        shape: ANY, BALANCED, ANY_SINGLE_ZONE or EVEN.
        count: how many more.
        ranked_types: machine types by rank.
        zones: that are allowed.
        available: what a zone would give of a type.
        present: how many there are already, by zone; counted if the request spreads instances over the zones.
    """
    if shape == "ANY_SINGLE_ZONE":
        occupied = [zone for zone in zones if present.get(zone)]
        fills = [_fill(count, ranked_types, (zone,), available) for zone in occupied or zones]
        # Most instances first; of equals those of better ranks.
        return max(fills, key=lambda fill: (len(fill), -sum(_rank(ranked_types, kind) for _, kind in fill)), default=[])
    if shape in ("BALANCED", "EVEN"):
        return _spread(count, ranked_types, zones, available, present)
    return _fill(count, ranked_types, zones, available)


def _fill(count: int, ranked_types: RankedTypes, zones: Sequence[str], available: Available) -> list[tuple[str, str]]:
    """Choose by rank; within one rank, the pool with most capacity first."""
    placements: list[tuple[str, str]] = []
    for rank in ranked_types.ranks:
        pools = sorted(((available(kind, zone), zone, kind) for kind in rank for zone in zones), key=lambda p: -p[0])
        for capacity, zone, kind in pools:
            placements += [(zone, kind)] * min(capacity, count - len(placements))
    return placements


def _spread(
    count: int, ranked_types: RankedTypes, zones: Sequence[str], available: Available, present: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Choose one after the other, each in the zone that has fewest and has capacity."""
    counts = {zone: present.get(zone, 0) for zone in zones}
    used: dict[tuple[str, str], int] = {}
    placements: list[tuple[str, str]] = []

    def remaining(kind: str, zone: str) -> int:
        return available(kind, zone) - used.get((zone, kind), 0)

    for _ in range(count):
        for zone in sorted(zones, key=lambda z: counts[z]):
            if placement := _fill(1, ranked_types, (zone,), remaining):
                placements += placement
                counts[zone] += 1
                used[placement[0]] = used.get(placement[0], 0) + 1
                break
    return placements


def _rank(ranked_types: RankedTypes, kind: str) -> int:
    return next(n for n, rank in enumerate(ranked_types.ranks) if kind in rank)
