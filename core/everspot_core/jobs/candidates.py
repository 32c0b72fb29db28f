"""The instance types that a job could run on and what they would cost, from the catalogue alone. `everspot submit
--dry-run` shows them."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from everspot_core.capacity.catalogue import Catalogue, InstanceType, Price
from everspot_core.jobs.fit import Shape, lacking
from everspot_core.jobs.job import Resources


@dataclass(frozen=True)
class Candidate:
    """An instance type in a region that fits a job. Costs are for the expected running time without interruptions; None
    if unknown."""

    instance_type: InstanceType
    region: str
    zones: tuple[str, ...]
    spot: tuple[Price, Price] | None
    on_demand: Price | None
    spot_cost: tuple[float, float] | None
    on_demand_cost: float | None


def misfits(kind: InstanceType, needed: Resources) -> list[str]:
    """Return a phrase for each resource of a type that is too small for a job; empty if the job fits."""
    words = {
        "vcpus": f"vCPUs {kind.vcpus:g} of {needed.vcpus:g}",
        "memory_gib": f"GiB of memory {kind.memory_gib:g} of {needed.memory_gib:g}",
        "gpus": f"GPUs {kind.gpus:g} of {needed.gpus:g}",
        "gpu_memory_gib": f"GiB of GPU memory {kind.gpu_memory_gib:g} of {needed.gpu_memory_gib:g}",
        "gpu": f"GPU {kind.gpu or 'none'} instead of {needed.gpu}",
        "instance_types": f"another name than {', '.join(needed.instance_types)}",
    }
    lacks = lacking(needed, Shape.from_machine(kind))
    return [words[resource] for resource in words if resource in lacks]


def candidates(
    needed: Resources,
    catalogue: Catalogue,
    regions: Iterable[str] | None = None,
    expected: timedelta | None = None,
    only: Collection[str] | None = None,
) -> list[Candidate]:
    """Return every offer that fits, cheapest spot price first. Types without any price are left out, unless they are in
    `only`.

    Args:
        needed: What the job needs on one instance.
        catalogue: Types and prices.
        regions: Only these; None for all that the catalogue knows.
        expected: Upper bound of the uninterrupted running time, for the costs.
        only: Only these types, with or without a known price; None for all.
    """
    hours = expected.total_seconds() / 3600 if expected is not None else None
    offers = []
    for region in catalogue.regions if regions is None else regions:
        names = (*catalogue.offered(region), *_declared(catalogue, region)) if only is None else sorted(only)
        for name in (name for name in names if name in catalogue.types):
            kind = catalogue.get(name)
            spot, on_demand = catalogue.spot_range(name, region), catalogue.on_demand(name, region)
            if misfits(kind, needed) or (only is None and spot is None and on_demand is None):
                continue
            offers.append(
                Candidate(
                    instance_type=kind,
                    region=region,
                    zones=catalogue.zones(name, region),
                    spot=spot,
                    on_demand=on_demand,
                    spot_cost=(spot[0].usd_per_hour * hours, spot[1].usd_per_hour * hours) if spot and hours else None,
                    on_demand_cost=on_demand.usd_per_hour * hours if on_demand and hours else None,
                )
            )
    return sorted(offers, key=_cheapest)


def on_demand_only(offers: Iterable[Candidate]) -> list[Candidate]:
    """Return offers without their spot prices, cheapest on-demand price first."""
    return sorted((replace(offer, spot=None, spot_cost=None) for offer in offers), key=_cheapest)


def _declared(catalogue: Catalogue, region: str) -> list[str]:
    """Return types declared in place with a price, which may run in any region."""
    listed = set(catalogue.offered(region))
    return [n for n, kind in catalogue.types.items() if kind.on_demand_usd_per_hour is not None and n not in listed]


def _cheapest(candidate: Candidate) -> tuple[float, str, str]:
    prices = [p.usd_per_hour for p in (*(candidate.spot or ()), candidate.on_demand) if p is not None]
    return min(prices, default=math.inf), candidate.instance_type.name, candidate.region


def nearest(needed: Resources, catalogue: Catalogue) -> list[tuple[InstanceType, list[str]]]:
    """Return the three types that lack the fewest resources for a job that fits no type, each with the missing
    resources."""
    lacks = [(kind, misfits(kind, needed)) for kind in catalogue.types.values()]
    return sorted(lacks, key=lambda pair: (len(pair[1]), -pair[0].gpus, -pair[0].vcpus))[:3]
