"""Prints at preview the cost of a cluster, the types that the catalogue does not know in its zones, and the quotas that
it needs."""

import pulumi
from everspot_clouds.gcp.hourly import Upkeep, hourly_cost
from everspot_core.capacity.catalogue import builtin

from everspot.capacity import build_cap, build_catalogue
from everspot.gcp import preview_queries
from everspot.gcp.capacity import GcpCapacityArgs, parse_capacity
from everspot.pricing import tell_of_asking, with_missing


def print_hourly_cost(parent: pulumi.Resource, capacity: GcpCapacityArgs, always: Upkeep) -> None:
    """Print in previews the cost of an hour of the cluster, and the quotas that it needs. The provider cannot read
    Compute Engine's quotas; `everspot doctor` compares them."""
    if pulumi.runtime.is_dry_run():
        preview_queries.read_place(parent).apply(lambda place: _print(parent, capacity, always, place["region"]))


def _print(parent: pulumi.Resource, capacity: GcpCapacityArgs, always: Upkeep, region: str) -> None:
    catalogue = with_missing(build_catalogue(capacity, region), region, [always.scheduler_type])
    pulumi.log.info(hourly_cost(region, catalogue, parse_capacity(capacity), always, build_cap(capacity)), parent)
    tell_of_asking(parent, region, [entry["type"] for entry in capacity["instance_types"]])


def warn_of_zones(parent: pulumi.Resource, capacity: GcpCapacityArgs, zones: list[str]) -> None:
    """At preview, warn of each type that the dated catalogue does not have in a zone. It refuses nothing: new zones are
    added all the time, and both groups and bulk requests skip types that a zone does not have."""
    if not pulumi.runtime.is_dry_run():
        return

    def warn(region: str) -> None:
        for entry in capacity["instance_types"]:
            offered = builtin().zones(entry["type"], region)
            lacking = [zone for zone in entry.get("zones", zones) if offered and zone not in offered]
            if lacking:
                pulumi.log.warn(
                    f"{entry['type']} is not in {', '.join(lacking)} by the catalogue, but in {', '.join(offered)}: "
                    "elsewhere it adds no capacity",
                    parent,
                )

    preview_queries.read_place(parent).apply(lambda place: warn(place["region"]))
