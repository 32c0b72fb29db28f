"""Translates a fleet's neutral shape into EC2's terms: strategies, quotas, and overrides of instance types by
subnets."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.fleet import CapacitySpec, TypeChoice, WeightBy, derived_weights
from everspot_core.documents import Frozen
from everspot_core.validation.problems import Problems

OVERRIDES_AT_MOST = 300
"""EC2's quota of pools (type and subnet) in one fleet of type maintain."""

TARGET_AT_MOST = 10_000
"""EC2's quota of the target capacity of one fleet."""


LEAST_UNIT_PRICE = 0.001
"""The lower bound, exclusive, of a MaxPrice in USD per unit hour (EC2 API reference,
FleetLaunchTemplateOverridesRequest)."""


class AwsSpotAllocation(StrEnum):
    """How EC2 picks Spot pools."""

    PRICE_CAPACITY_OPTIMIZED = "price-capacity-optimized"
    """The cheapest among the pools with the most spare capacity. AWS recommends it, and it is the default."""
    CAPACITY_OPTIMIZED = "capacity-optimized"
    """The pools with the most spare capacity, whatever they cost."""
    CAPACITY_OPTIMIZED_PRIORITIZED = "capacity-optimized-prioritized"
    """The pools with the most spare capacity, with the priorities of the types respected as far as possible."""
    DIVERSIFIED = "diversified"
    """Spread over all pools."""
    LOWEST_PRICE = "lowest-price"
    """The cheapest pools. AWS warns of high interruption rates."""


class AwsOnDemandAllocation(StrEnum):
    """How EC2 picks types for the on-demand part."""

    LOWEST_PRICE = "lowest-price"
    """The cheapest type by its public price."""
    PRIORITIZED = "prioritized"
    """The type with the best priority first."""


class Override(Frozen):
    """One pool of the grid. `subnet`: index of the subnet; `max_price`: USD per hour of an instance."""

    instance_type: str
    subnet: int
    weight: float
    priority: float | None
    max_price: float | None


STRATEGIES = {
    Prefer.PRICE: (AwsSpotAllocation.LOWEST_PRICE, AwsOnDemandAllocation.LOWEST_PRICE),
    Prefer.DEPTH: (AwsSpotAllocation.CAPACITY_OPTIMIZED, AwsOnDemandAllocation.LOWEST_PRICE),
    Prefer.BALANCE: (AwsSpotAllocation.PRICE_CAPACITY_OPTIMIZED, AwsOnDemandAllocation.LOWEST_PRICE),
    Prefer.ORDER: (AwsSpotAllocation.CAPACITY_OPTIMIZED_PRIORITIZED, AwsOnDemandAllocation.PRIORITIZED),
}
"""EC2's allocation strategies, for Spot and for on-demand, by what the fleet prefers."""

SPOT_PREFERS = {spot.value: prefer for prefer, (spot, _) in STRATEGIES.items()}
ON_DEMAND_PREFERS = {
    AwsOnDemandAllocation.LOWEST_PRICE.value: Prefer.PRICE,
    AwsOnDemandAllocation.PRIORITIZED.value: Prefer.ORDER,
}
"""The preference behind each of EC2's allocation strategies; `diversified` has no preference."""


class Ec2Capacity(CapacitySpec):
    """A fleet's shape with EC2's own strategies. A strategy of None follows from `prefer`."""

    spot_allocation: AwsSpotAllocation | None = None
    on_demand_allocation: AwsOnDemandAllocation | None = None

    @property
    def spot_strategy(self) -> AwsSpotAllocation:
        """EC2's strategy for choosing Spot pools."""
        return self.spot_allocation or STRATEGIES[self.prefer][0]

    @property
    def on_demand_strategy(self) -> AwsOnDemandAllocation:
        """EC2's strategy for choosing on-demand types."""
        return self.on_demand_allocation or STRATEGIES[self.prefer][1]

    @property
    def prioritized(self) -> bool:
        """Whether any strategy uses priorities."""
        return (
            self.spot_strategy is AwsSpotAllocation.CAPACITY_OPTIMIZED_PRIORITIZED
            or self.on_demand_strategy is AwsOnDemandAllocation.PRIORITIZED
        )


def override_grid(
    capacity: Ec2Capacity, catalogue: Mapping[str, InstanceType], subnets: int, zones: Sequence[str] = ()
) -> list[Override]:
    """Return every type in every subnet whose zone it is used in, in the author's order of types. `zones`: the zone of
    each subnet.

    If a strategy uses priorities and none are given, the order of the list gives them (EC2 prefers the lowest number).
    """
    weights = derived_weights(capacity, catalogue)
    prioritized = any(choice.priority is not None for choice in capacity.types)
    return [
        Override(
            instance_type=choice.name,
            subnet=subnet,
            weight=weights[choice.name],
            priority=choice.priority if prioritized or not capacity.prioritized else float(index),
            max_price=choice.max_price if choice.max_price is not None else capacity.max_price,
        )
        for index, choice in enumerate(capacity.types)
        for subnet in range(subnets)
        if not choice.zones or not zones or zones[subnet] in choice.zones
    ]


def max_unit_price(max_price: float, weight: float) -> str:
    """EC2's MaxPrice, a text in USD per unit hour, for a limit in USD per instance hour.

    By the API reference's FleetLaunchTemplateOverrides it is "per unit hour"; an instance of weight 4 that may cost
    $2 an hour may cost $0.50 a unit.
    """
    return f"{max_price / weight:.6f}".rstrip("0").rstrip(".")


def capacity_problems(
    problems: Problems, capacity: Ec2Capacity, catalogue: Mapping[str, InstanceType], subnets: int
) -> None:
    """Add a problem for each mistake in a fleet's shape, apart from unknown types, to `problems`, by the names that the
    settings have."""
    _target_problems(problems.at("standing"), capacity)
    _positive(problems, "maxPrice", capacity.max_price)
    names = [choice.name for choice in capacity.types]
    problems.need(bool(names), "instanceTypes", "at least one instance type is needed")
    weights = derived_weights(capacity, catalogue)
    for index, choice in enumerate(capacity.types):
        here = problems.at(f"instanceTypes[{index}]")
        here.need(names.index(choice.name) == index, "type", f"{choice.name} is given twice")
        _choice_problems(here, choice, capacity.max_price, weights.get(choice.name))
        if choice.name not in weights and choice.name in catalogue:
            missing = "throughput" if capacity.weight_by is WeightBy.THROUGHPUT else "weight"
            here.add(
                missing, f"needed for {choice.name}: weightBy is {capacity.weight_by.value}, and it has no such figure"
            )
    arches = {catalogue[name].arch for name in names if name in catalogue}
    problems.need(len(arches) <= 1, "instanceTypes", f"one image cannot run on {' and '.join(sorted(arches))}")
    priorities = [choice.priority is not None for choice in capacity.types]
    problems.need(
        all(priorities) or not any(priorities), "instanceTypes", "either every type has a priority, or none has"
    )
    pools = len(names) * subnets
    problems.need(
        pools <= OVERRIDES_AT_MOST,
        "instanceTypes",
        f"{len(names)} types in {subnets} subnets are {pools} pools; EC2 allows {OVERRIDES_AT_MOST} in a fleet",
    )


def _target_problems(problems: Problems, capacity: Ec2Capacity) -> None:
    problems.need(
        0 <= capacity.target <= TARGET_AT_MOST,
        "target",
        f"has to lie between 0 and {TARGET_AT_MOST}, not {capacity.target}",
    )
    problems.need(capacity.on_demand_base >= 0, "onDemandBase", f"cannot be negative: {capacity.on_demand_base}")
    problems.need(
        capacity.on_demand_base <= capacity.target,
        "onDemandBase",
        f"{capacity.on_demand_base} is above the target of {capacity.target}",
    )
    problems.need(
        0 <= capacity.on_demand_percentage <= 100,
        "onDemandPercentage",
        f"has to lie between 0 and 100, not {capacity.on_demand_percentage:g}",
    )


def _choice_problems(here: Problems, choice: TypeChoice, fleets: float | None, weight: float | None) -> None:
    _positive(here, "weight", choice.weight)
    _positive(here, "throughput", choice.throughput)
    _positive(here, "maxPrice", choice.max_price)
    # EC2 API reference, FleetLaunchTemplateOverridesRequest: "Valid values are whole numbers starting at 0."
    here.need(
        choice.priority is None or (choice.priority >= 0 and float(choice.priority).is_integer()),
        "priority",
        f"has to be a whole number, 0 or more, not {choice.priority}",
    )
    limit = choice.max_price if choice.max_price is not None else fleets
    if limit is not None and limit > 0 and weight is not None and weight > 0:
        here.need(
            limit / weight > LEAST_UNIT_PRICE,
            "maxPrice",
            f"{limit:g} for an instance of weight {weight:g} is {limit / weight:g} per unit hour; EC2 takes more than "
            f"{LEAST_UNIT_PRICE:g}",
        )


def _positive(problems: Problems, name: str, value: float | None) -> None:
    problems.need(value is None or value > 0, name, f"has to be greater than 0, not {value}")
