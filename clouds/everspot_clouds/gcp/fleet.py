"""Translates a fleet's neutral shape into Compute Engine's terms: sizes in machines, ranks of machine types, shapes of
groups, and the scheduling of a market.

A managed instance group counts machines, without weights or prices. Its flexibility policy has ranks: lower ones are
tried first, and among machine types of one rank it takes what is available, on Spot what is preempted least (Compute
API, InstanceFlexibilityPolicy; Compute Engine documentation, "About instance flexibility in MIGs"). Spot and standard
machines cannot be in one group (the v1 API has no mix of provisioning models), so a fleet is two of them.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.fleet import CapacitySpec, TypeChoice
from everspot_core.capacity.market import Market
from everspot_core.validation.problems import Problems

from everspot_clouds.gcp.machines import attached_problem, parse_type

VMS_AT_MOST = 2_000
"""Most machines of one regional group (Compute API, regionInstanceGroupManagers.insert)."""

SELECTIONS_AT_MOST = 10
"""Most selections of one request of bulk creation, and most types in all of them (Compute Engine release notes of
2026-02-12)."""

NO_FLEXIBILITY = ("a3-ultragpu-", "a4-", "a4x-")
"""Types that no flexibility policy may name (the same release notes)."""

MAX_RUN = (timedelta(hours=1), timedelta(days=120))
"""Bounds of an elastic machine's life. 120 days is the most that `maxRunDuration` takes (Compute Engine documentation,
"Limit the run time of a VM")."""


class GcpShape(StrEnum):
    """How a group's machines are spread over the zones."""

    ANY = "ANY"
    """Wherever there is capacity. A group that runs dry in one zone moves to another by itself. The default."""
    BALANCED = "BALANCED"
    """As evenly as capacity allows."""
    ANY_SINGLE_ZONE = "ANY_SINGLE_ZONE"
    """All in one zone, whichever has the capacity. The group does not move when that one runs dry."""
    EVEN = "EVEN"
    """Exactly evenly; what a zone lacks is not made in another one. With one machine type only."""

    @property
    def moves(self) -> bool:
        """Whether a repaired machine may come up in another zone (Compute Engine release notes of 2026-07-21)."""
        return self in (GcpShape.ANY, GcpShape.BALANCED)


class GcpPrefer(StrEnum):
    """How the groups choose between types that would all do."""

    PRICE = "price"
    """The cheapest type first, by price per `throughput`."""
    BALANCE = "balance"
    """The cheapest types first; what costs at most a quarter more counts as equally cheap, and the group takes what is
    preempted least of these. The default."""
    DEPTH = "depth"
    """What is available and preempted least, whatever it costs."""
    ORDER = "order"
    """In the order of the list, or by `priority`."""


class GcpCapacity(CapacitySpec):
    """A fleet's shape with the additions of Compute Engine."""

    shape: GcpShape = GcpShape.ANY


def selections(ranks: Mapping[str, int]) -> dict[str, dict[str, object]]:
    """Return a flexibility policy's selections, in the API's words: one for each rank, with its types."""
    by_rank: dict[int, list[str]] = {}
    for name, rank in ranks.items():
        by_rank.setdefault(rank, []).append(parse_type(name).machine)
    return {f"rank-{rank}": {"rank": str(rank), "machineTypes": names} for rank, names in sorted(by_rank.items())}


def scheduling(
    market: Market, *, gpus: bool, notice: timedelta | None = None, max_run: timedelta | None = None
) -> dict[str, Any]:
    """Return the `scheduling` of a machine, in the API's words.

    A machine that failed is never started again as the same one: it is replaced by another, with another id. Spot
    needs `preemptible`, no restart and TERMINATE together (Compute API, Scheduling). Machines with GPUs cannot be moved
    to another host. `notice`: asked for on Spot; `max_run`: after so long the cloud ends the machine whatever it does.
    """
    spot = market is Market.SPOT
    settings: dict[str, Any] = {
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE" if spot or gpus else "MIGRATE",
        "provisioningModel": "SPOT" if spot else "STANDARD",
        "preemptible": spot,
    }
    if spot or max_run is not None:
        settings["instanceTerminationAction"] = "DELETE"
    if spot and notice:
        settings["preemptionNoticeDuration"] = {"seconds": int(notice.total_seconds())}
    if max_run is not None:
        settings["maxRunDuration"] = {"seconds": int(max_run.total_seconds())}
    return settings


def capacity_problems(problems: Problems, capacity: GcpCapacity, catalogue: Mapping[str, InstanceType]) -> None:
    """Add a problem for each mistake in a fleet's shape, apart from unknown types, to `problems`, by the names that the
    settings have."""
    standing = problems.at("standing")
    for key, value, top in (
        ("target", capacity.target, VMS_AT_MOST),
        ("onDemandBase", capacity.on_demand_base, capacity.target),
        ("onDemandPercentage", capacity.on_demand_percentage, 100),
    ):
        standing.need(0 <= value <= top, key, f"has to lie between 0 and {top:g}, not {value:g}")
    names = [choice.name for choice in capacity.types]
    problems.need(bool(names), "instanceTypes", "at least one instance type is needed")
    problems.need(
        len(names) <= SELECTIONS_AT_MOST,
        "instanceTypes",
        f"{len(names)} types; Compute Engine takes {SELECTIONS_AT_MOST} in one flexibility policy",
    )
    for index, choice in enumerate(capacity.types):
        here = problems.at(f"instanceTypes[{index}]")
        here.need(names.index(choice.name) == index, "type", f"{choice.name} is given twice")
        here.need(
            not choice.zones or capacity.target == 0,
            "zones",
            "is for elastic capacity alone: a standing group tries its types in all zones",
        )
        _alone_problems(here, choice, len(names))
    arches = {catalogue[name].arch for name in names if name in catalogue}
    problems.need(len(arches) <= 1, "instanceTypes", f"one image cannot run on {' and '.join(sorted(arches))}")
    _order_problems(problems, capacity)
    # The API refuses this, and neither the provider nor a preview checks it.
    standing.need(
        capacity.shape is not GcpShape.EVEN or len(names) < 2,
        "shape",
        f"EVEN goes with one instance type only, not with {len(names)}: a group that may choose between types is ANY, "
        "BALANCED or ANY_SINGLE_ZONE",
    )


def _alone_problems(here: Problems, choice: TypeChoice, types: int) -> None:
    """Add a type that no flexibility policy takes and that is not the only one, or that is no type's name."""
    try:
        machine = parse_type(choice.name)
    except ValueError as error:
        here.add("type", str(error))
        return
    reason = attached_problem(choice.name)
    here.need(reason is None, "type", f"{choice.name}: {reason}")
    alone = machine.attached or machine.machine.startswith(NO_FLEXIBILITY)
    cause = "its GPUs are attached by the template" if machine.attached else "no flexibility policy takes it"
    here.need(not alone or types == 1, "type", f"{choice.name} has to be the only type of its cluster: {cause}")


def _order_problems(problems: Problems, capacity: GcpCapacity) -> None:
    has_priority = [choice.priority is not None for choice in capacity.types]
    problems.need(
        all(has_priority) or not any(has_priority), "instanceTypes", "either every type has a priority, or none has"
    )
    for index, choice in enumerate(capacity.types):
        problems.need(
            choice.priority is None or choice.priority >= 0,
            f"instanceTypes[{index}].priority",
            f"has to be 0 or more, not {choice.priority}",
        )
    problems.need(
        not any(has_priority) or capacity.target == 0 or capacity.prefer is Prefer.ORDER,
        "standing.prefer",
        "has to be order where types have priorities",
    )
