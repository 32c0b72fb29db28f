"""Translates a fleet's neutral shape into Compute Engine's terms: ranks and sizes in VMs, where EC2 has weights.

A managed instance group counts VMs, and looks at no price. What is preferred becomes a rank (the lowest first, equal
ones together), and a target in units becomes a number of VMs. Sources: Compute API, InstanceFlexibilityPolicy and
DistributionPolicy; Compute Engine documentation, "About instance flexibility in MIGs".
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

from everspot_core.catalogue import Catalogue, InstanceType
from everspot_core.fleet import CapacitySpec, Prefer, TypeChoice, WeightBy, derived_weights
from everspot_core.market import Market
from everspot_core.problems import Problems

from everspot_clouds.gcp.machines import machine_of

SELECTIONS_AT_MOST = 10
"""Most selections of one request of bulk creation, and most types in all of them."""
VMS_AT_MOST = 2_000
"""Most VMs of one regional group (Compute API, regionInstanceGroupManagers.insert)."""
NO_FLEXIBILITY = ("a3-ultragpu-", "a4-", "a4x-")
"""Types that no flexibility policy may name (release notes of 2026-02-12)."""


class GcpShape(StrEnum):
    """How a group is spread over zones. EVEN is left out: the API refuses it with a flexibility policy."""

    ANY = "ANY"
    """Wherever there is capacity."""
    BALANCED = "BALANCED"
    """As evenly as capacity allows."""
    ANY_SINGLE_ZONE = "ANY_SINGLE_ZONE"
    """All in one zone, whichever has the capacity."""


SHAPES = {
    Prefer.PRICE: GcpShape.ANY,
    Prefer.DEPTH: GcpShape.ANY,
    Prefer.BALANCE: GcpShape.ANY,
    Prefer.ORDER: GcpShape.ANY,
}
"""The target shape by what a fleet prefers. No preference is worth less capacity."""


def selections(ranks: Mapping[str, int]) -> dict[str, dict[str, object]]:
    """A flexibility policy's selections: one for each rank, with its types."""
    by_rank: dict[int, list[str]] = {}
    for name, rank in ranks.items():
        by_rank.setdefault(rank, []).append(machine_of(name).machine)
    return {f"rank-{rank}": {"rank": str(rank), "machineTypes": names} for rank, names in sorted(by_rank.items())}


def ranks(capacity: CapacitySpec, known: Catalogue, region: str, market: Market) -> dict[str, int]:
    """The rank of each type, from 1, by what the fleet prefers: its order, its price per unit, or neither.

    - `order`: priorities where they are given, else the order of the list.
    - `price`, `balance`: by price per unit; with `balance`, types that cost at most a tenth more than the one before
      share its rank, so that the cloud may take what is deepest among them.
    - `depth`: all equal, so that the cloud takes what is available, and on Spot what is preempted less.
    A type whose price is not known comes last.
    """
    names = [choice.name for choice in capacity.types]
    if capacity.prefer is Prefer.DEPTH:
        return dict.fromkeys(names, 1)
    if capacity.prefer is Prefer.ORDER:
        given = {c.name: c.priority for c in capacity.types if c.priority is not None}
        values = sorted({given.get(name, float(n)) for n, name in enumerate(names)})
        return {name: 1 + values.index(given.get(name, float(n))) for n, name in enumerate(names)}
    costs = {choice.name: _unit_price(choice, capacity, known, region, market) for choice in capacity.types}
    slack = 1.1 if capacity.prefer is Prefer.BALANCE else 1.0
    found, rank, first = dict[str, int](), 0, -math.inf
    for name in sorted(names, key=lambda n: (costs[n], names.index(n))):
        if costs[name] > first * slack or rank == 0:
            rank, first = rank + 1, costs[name]
        found[name] = rank
    return {name: found[name] for name in names}


def sizes(capacity: CapacitySpec, known: Mapping[str, InstanceType]) -> tuple[int, int]:
    """VMs of the standard and of the Spot group. A unit is what the smallest type counts for, so that a target in units
    of larger types needs fewer VMs: as many as reach it with the preferred type."""
    weights = derived_weights(capacity, known)
    each = weights.get(capacity.types[0].name, 1.0) if capacity.types else 1.0
    return math.ceil(capacity.on_demand_target / each), math.ceil(capacity.spot_target / each)


def capacity_problems(problems: Problems, capacity: CapacitySpec, known: Mapping[str, InstanceType]) -> None:
    """Add everything in a fleet's shape that Compute Engine cannot do, by the names that the settings have."""
    standing = problems.at("standing")
    standing.need(
        0 <= capacity.target <= VMS_AT_MOST, "target", f"has to lie between 0 and {VMS_AT_MOST}, not {capacity.target}"
    )
    standing.need(capacity.on_demand_base >= 0, "onDemandBase", f"cannot be negative: {capacity.on_demand_base}")
    standing.need(
        capacity.on_demand_base <= capacity.target,
        "onDemandBase",
        f"{capacity.on_demand_base} is above the target of {capacity.target}",
    )
    standing.need(
        0 <= capacity.on_demand_percentage <= 100,
        "onDemandPercentage",
        f"has to lie between 0 and 100, not {capacity.on_demand_percentage:g}",
    )
    names = [choice.name for choice in capacity.types]
    problems.need(bool(names), "instanceTypes", "at least one instance type is needed")
    problems.need(
        len(names) <= SELECTIONS_AT_MOST,
        "instanceTypes",
        f"{len(names)} types; Compute Engine takes {SELECTIONS_AT_MOST} in one flexibility policy",
    )
    problems.need(
        capacity.max_price is None,
        "maxPrice",
        "Compute Engine knows no highest price of Spot: its prices change once a day at most, so choose the types",
    )
    weights = derived_weights(capacity, known)
    for index, choice in enumerate(capacity.types):
        here = problems.at(f"instanceTypes[{index}]")
        here.need(names.index(choice.name) == index, "type", f"{choice.name} is given twice")
        _choice_problems(here, choice, names)
        if choice.name not in weights and choice.name in known:
            missing = "throughput" if capacity.weight_by is WeightBy.THROUGHPUT else "weight"
            here.add(
                missing, f"needed for {choice.name}: weightBy is {capacity.weight_by.value}, and it has no such figure"
            )
    arches = {known[name].arch for name in names if name in known}
    problems.need(len(arches) <= 1, "instanceTypes", f"one image cannot run on {' and '.join(sorted(arches))}")
    given = [choice.priority is not None for choice in capacity.types]
    problems.need(all(given) or not any(given), "instanceTypes", "either every type has a priority, or none has")


def _choice_problems(here: Problems, choice: TypeChoice, names: Sequence[str]) -> None:
    try:
        machine = machine_of(choice.name)
    except ValueError as error:
        here.add("type", str(error))
        return
    alone = machine.attached or machine.machine.startswith(NO_FLEXIBILITY)
    why = "its GPUs are attached by the template" if machine.attached else "no flexibility policy takes it"
    here.need(not alone or len(names) == 1, "type", f"{choice.name} has to be the only type of its fleet: {why}")
    here.need(
        choice.max_price is None,
        "maxPrice",
        "Compute Engine knows no highest price of Spot; leave the type out instead",
    )
    for name, value in (("weight", choice.weight), ("throughput", choice.throughput)):
        here.need(value is None or value > 0, name, f"has to be greater than 0, not {value}")
    here.need(
        choice.priority is None or (choice.priority >= 0 and float(choice.priority).is_integer()),
        "priority",
        f"has to be a whole number, 0 or more, not {choice.priority}",
    )


def _unit_price(choice: TypeChoice, capacity: CapacitySpec, known: Catalogue, region: str, market: Market) -> float:
    spot = known.spot_range(choice.name, region) if market is Market.SPOT else None
    price = spot[0] if spot is not None else known.on_demand(choice.name, region)
    weight = derived_weights(capacity, known.types).get(choice.name, 1.0)
    return price.usd_per_hour / weight if price is not None else math.inf
