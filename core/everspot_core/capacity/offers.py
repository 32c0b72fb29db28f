"""Checks of a fleet's instance types that every cloud needs: known prices, and GPUs that the image's torch runs on."""

from collections.abc import Mapping, Sequence

from everspot_core.capacity.catalogue import Catalogue, InstanceType
from everspot_core.capacity.fleet import TypeChoice
from everspot_core.capacity.gpus import Families, unfit
from everspot_core.validation.problems import Problems


def price_problems(
    problems: Problems, types: Sequence[TypeChoice], region: str, catalogue: Catalogue, refusal: str = ""
) -> None:
    """Add every type whose on-demand price in the region is unknown: budgets and the bill would count it as $0.
    `refusal`: why the price lists could not be asked, if they were."""
    failure = f", and the price lists cannot be asked ({refusal})" if refusal else ""
    for index, choice in enumerate(types):
        if choice.name in catalogue.types and catalogue.on_demand(choice.name, region) is None:
            problems.add(
                f"instanceTypes[{index}].onDemandUsdPerHour",
                f"no price of {choice.name} in {region} is known{failure}: run `everspot cost prices refresh --region "
                f"{region}`, or give its on-demand price in USD per hour here",
            )


def gpu_problems(
    problems: Problems,
    types: Sequence[TypeChoice],
    catalogue_types: Mapping[str, InstanceType],
    arches: Sequence[str],
    families: Families,
) -> None:
    """Add a problem for every type whose GPUs cannot run a build of torch for these architectures."""
    for index, choice in enumerate(types):
        reason = unfit(catalogue_types[choice.name], arches, families) if choice.name in catalogue_types else None
        if reason is not None:
            problems.add(
                f"instanceTypes[{index}].type",
                f"{reason}. For an image with another build, gpuArches says what it has code for",
            )
