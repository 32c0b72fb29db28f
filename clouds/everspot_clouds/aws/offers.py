"""Checks of a fleet's instance types: known prices, offered zones, and GPUs that the image's torch runs on."""

from collections.abc import Collection, Mapping, Sequence

from everspot_core.catalogue import Catalogue, InstanceType
from everspot_core.fleet import TypeChoice
from everspot_core.gpus import unfit
from everspot_core.problems import Problems

from everspot_clouds.aws.gpus import FAMILIES

Offered = Collection[tuple[str, str]]
"""Pairs of instance type and zone that EC2 offers."""


def price_problems(problems: Problems, types: Sequence[TypeChoice], region: str, catalogue: Catalogue) -> None:
    """Add every type whose on-demand price in the region is unknown: budgets and the bill would count it as $0."""
    for index, choice in enumerate(types):
        if choice.name in catalogue.types and catalogue.on_demand(choice.name, region) is None:
            problems.add(
                f"instanceTypes[{index}].onDemandUsdPerHour",
                f"no price of {choice.name} in {region} is known; give its on-demand price in USD per hour, or its "
                "budgets, deadlines and bill would reckon with $0",
            )


def zone_problems(
    problems: Problems, types: Sequence[TypeChoice], zones: Sequence[str], offered: Offered | None
) -> None:
    """Add every zone that does not offer a type that the fleet uses there. `offered` None: EC2 could not be asked."""
    for index, choice in enumerate(types):
        here = problems.at(f"instanceTypes[{index}]")
        strange = [zone for zone in choice.zones if zone not in zones]
        here.need(not strange, "zones", f"{', '.join(strange)}: the fleet has no subnet there, but in {_list(zones)}")
        if offered is None:
            continue
        wanted = [zone for zone in zones if not choice.zones or zone in choice.zones]
        lacking = [zone for zone in wanted if (choice.name, zone) not in offered]
        having = [zone for zone in wanted if zone not in lacking]
        if lacking and having:
            here.add(
                "zones",
                f"EC2 does not offer {choice.name} in {_list(lacking)}; say where it is to be used, "
                f"zones: [{', '.join(having)}], or leave the zone or the type out",
            )
        elif lacking:
            here.add("type", f"EC2 offers {choice.name} in none of the zones {_list(lacking)}")


def gpu_problems(
    problems: Problems, types: Sequence[TypeChoice], known: Mapping[str, InstanceType], arches: Sequence[str]
) -> None:
    """Add every type with GPUs on which a build of torch for these architectures does not run."""
    for index, choice in enumerate(types):
        reason = unfit(known[choice.name], arches, FAMILIES) if choice.name in known else None
        if reason is not None:
            problems.add(
                f"instanceTypes[{index}].type",
                f"{reason}. For an image with another build, gpuArches says what it has code for",
            )


def _list(words: Sequence[str]) -> str:
    return ", ".join(words)
