"""Rules about purchases: the market, the price and the number of instances."""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from everspot_core.capacity.catalogue import builtin
from everspot_core.validation.problems import Problem

from everspot_policy.aws.kinds import FLEET, GROUP, SPOT_FLEET
from everspot_policy.reading import hidden, mapping, number, objects, text
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

FEWEST_POOLS = 6
LOWEST = ("lowestprice", "lowest-price")


@rule(
    "aws-spot-pools",
    Level.ADVISORY,
    Severity.MEDIUM,
    title=f"Spot is bought from {FEWEST_POOLS} pools or more, since fewer are interrupted together",
    remedy="Name more instance types and more zones: each pair of them is a pool.",
    types=(FLEET, GROUP),
)
def spot_pools(subject: Subject) -> Iterator[Problem]:
    """Find fleets and groups that buy Spot from few pools. Types chosen by attributes are many."""
    on_demand, total = count_units(subject)
    if total <= on_demand:
        return
    if subject.type == FLEET:
        pools = _fleet_pools(subject.inputs)
        name = "launchTemplateConfigs"
    else:
        pools = _group_pools(subject.inputs)
        name = "mixedInstancesPolicy.launchTemplate.overrides"
    if pools is not None and pools < FEWEST_POOLS:
        yield Problem(name, f"has {pools} pools of type and zone; Spot needs {FEWEST_POOLS} or more")


def _fleet_pools(inputs: Mapping[str, Any]) -> int | None:
    """Return pools of a fleet; None if they cannot be counted."""
    pools = set()
    if hidden(inputs.get("launchTemplateConfigs")):
        return None
    for place, config in objects(inputs, "launchTemplateConfigs"):
        for path, each in objects(config, "overrides"):
            if each.get("instanceRequirements") is not None or hidden(each.get("instanceType")):
                return None
            where = each.get("subnetId") or each.get("availabilityZone")
            # Subnets that are made in the same run have no ids yet: each counts as another.
            pools.add((text(each.get("instanceType")), f"{place}{path}" if hidden(where) else text(where)))
    return len(pools)


def _group_pools(inputs: Mapping[str, Any]) -> int | None:
    """Return pools of an Auto Scaling group; None if they cannot be counted."""
    template = mapping(mapping(inputs.get("mixedInstancesPolicy")).get("launchTemplate"))
    zones = inputs.get("vpcZoneIdentifiers") or inputs.get("availabilityZones")
    if hidden(zones) or not isinstance(zones, list) or hidden(template.get("overrides")):
        return None
    types = set()
    for _, each in objects(template, "overrides"):
        if each.get("instanceRequirements") is not None or hidden(each.get("instanceType")):
            return None
        types.add(text(each.get("instanceType")))
    return max(1, len(types)) * max(1, len(zones))


@rule(
    "aws-spot-allocation",
    Level.ADVISORY,
    Severity.MEDIUM,
    title="Spot is not allocated by price alone",
    remedy="Use price-capacity-optimized (priceCapacityOptimized for a Spot Fleet). The cheapest pool is interrupted "
    "first.",
    types=(FLEET, GROUP, SPOT_FLEET),
)
def spot_allocation(subject: Subject) -> Iterator[Problem]:
    """Find strategies that look at the price alone, which is also the default."""
    if subject.type == SPOT_FLEET:
        path, strategy = "allocationStrategy", subject.inputs.get("allocationStrategy")
    else:
        on_demand, total = count_units(subject)
        if total <= on_demand:
            return
        outer, name = (
            ("spotOptions", "allocationStrategy")
            if subject.type == FLEET
            else ("mixedInstancesPolicy.instancesDistribution", "spotAllocationStrategy")
        )
        section: Any = subject.inputs
        for step in outer.split("."):
            if hidden(mapping(section).get(step)):
                return
            section = mapping(section).get(step)
        path, strategy = f"{outer}.{name}", mapping(section).get(name)
    if strategy is None or text(strategy).lower() in LOWEST:
        yield Problem(
            path, "is the lowest price" if strategy is not None else "is not given, and is the lowest price then"
        )


@rule(
    "aws-max-price",
    Level.ADVISORY,
    Severity.MEDIUM,
    title="A maximum Spot price is not below every known Spot price",
    remedy="Raise maxPrice, or leave it out. The limit is then the on-demand price.",
    types=(FLEET,),
)
def max_price(subject: Subject) -> Iterator[Problem]:
    """Find limits below the lowest known Spot price of the type, for a unit: in the region if it is given, else
    anywhere."""
    region = text(subject.inputs.get("region"))
    for outer, config in objects(subject.inputs, "launchTemplateConfigs"):
        for path, each in objects(config, "overrides"):
            limit = number(each.get("maxPrice"))
            lowest = _lowest(text(each.get("instanceType")), region)
            weight = number(each.get("weightedCapacity")) or 1
            if limit is not None and lowest is not None and limit * weight < lowest:
                price = f"{limit:g} for each of {weight:g} units" if weight != 1 else f"{limit:g}"
                yield Problem(f"{outer}.{path}.maxPrice", f"{price} is below {lowest:g}, the lowest known price")


@cache
def _lowest(name: str, region: str) -> float | None:
    """Return the lowest known Spot price of a type in USD per hour; None if no price is known."""
    catalog = builtin()
    ranges = [catalog.spot_range(name, each) for each in ([region] if region else catalog.regions)]
    return min((float(price_range[0].usd_per_hour) for price_range in ranges if price_range is not None), default=None)


def count_units(subject: Subject) -> tuple[Fraction, Fraction]:
    """Return how many units a fleet or a mixed group keeps: the on-demand ones, and all. Unknown values, and groups of
    one market, count as nothing."""
    if subject.type == FLEET:
        capacity = mapping(subject.inputs.get("targetCapacitySpecification"))
        total = _units(capacity.get("totalTargetCapacity"))
        rest_on_demand = text(capacity.get("defaultTargetCapacityType")) == "on-demand"
        spot, on_demand = _units(capacity.get("spotTargetCapacity")), _units(capacity.get("onDemandTargetCapacity"))
        return (max(on_demand, total - spot) if rest_on_demand else min(on_demand, total)), total
    mixed = mapping(subject.inputs.get("mixedInstancesPolicy"))
    if subject.type != GROUP or not mixed:
        return Fraction(0), Fraction(0)
    spread = mapping(mixed.get("instancesDistribution"))
    total = max(_units(subject.inputs.get("desiredCapacity")), _units(subject.inputs.get("minSize")))
    base = min(total, _units(spread.get("onDemandBaseCapacity")))
    percent = number(spread.get("onDemandPercentageAboveBaseCapacity"))
    share = Fraction(100 if percent is None else max(0, min(100, round(percent))), 100)
    return base + (total - base) * share, total


def standing(subjects: Iterable[Subject]) -> tuple[Fraction, Fraction]:
    """Return the same of a whole stack: units that have to be on-demand, and all."""
    units = [count_units(subject) for subject in subjects]
    return sum((f[0] for f in units), Fraction(0)), sum((f[1] for f in units), Fraction(0))


def _units(value: Any) -> Fraction:
    count = number(value)
    return Fraction(count) if count is not None and count > 0 else Fraction(0)


RULES: tuple[Rule, ...] = (spot_pools, spot_allocation, max_price)
