"""The wanted capacity of a standing fleet in cloud-neutral terms: on-demand base and share, instance types and
weights."""

import math
from collections.abc import Mapping
from enum import StrEnum

from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.documents import Frozen


class WeightBy(StrEnum):
    """The meaning of one unit of the fleet's target if no weights are given."""

    INSTANCE = "instance"
    """Every instance counts one, whatever its type."""
    VCPU = "vcpu"
    """In proportion to vCPUs: the type with the fewest counts one."""
    GPU = "gpu"
    """In proportion to GPUs: the type with the fewest counts one."""
    THROUGHPUT = "throughput"
    """In proportion to the throughput stated for each type: the slowest counts one."""


class TypeChoice(Frozen):
    """An instance type that the fleet may use, as its author wrote it. Prices are in USD per instance hour. `zones`:
    names of the zones in which it is used; empty means all."""

    name: str
    weight: float | None = None
    priority: float | None = None
    max_price: float | None = None
    throughput: float | None = None
    zones: tuple[str, ...] = ()


class CapacitySpec(Frozen):
    """The wanted capacity of a fleet, in units; see `WeightBy`. `types`: the preferred ones first."""

    target: int
    on_demand_base: int = 0
    on_demand_percentage: float = 0
    weight_by: WeightBy = WeightBy.INSTANCE
    prefer: Prefer = Prefer.BALANCE
    max_price: float | None = None
    types: tuple[TypeChoice, ...]

    @property
    def on_demand_target(self) -> int:
        """The on-demand base plus the on-demand share of the rest, rounded up to whole units."""
        above = max(0, self.target - self.on_demand_base)
        # Nine digits are kept before rounding up, so that 10 % of 30 is 3 and not 4.
        return self.on_demand_base + math.ceil(round(above * self.on_demand_percentage / 100, 9))

    @property
    def spot_target(self) -> int:
        """The units that are not on-demand."""
        return self.target - self.on_demand_target


def derived_weights(capacity: CapacitySpec, catalogue_types: Mapping[str, InstanceType]) -> dict[str, float]:
    """Return the weight of each type: the given one, otherwise its measure by `weight_by` divided by the smallest
    measure in the list.

    Rounded to three digits. Types that lack the measure are left out: `capacity_problems` names them.
    """
    measures = {
        choice.name: _measure(choice, catalogue_types.get(choice.name), capacity.weight_by) for choice in capacity.types
    }
    smallest = min((m for m in measures.values() if m > 0), default=1.0)
    weights = {}
    for choice in capacity.types:
        if choice.weight is not None:
            weights[choice.name] = choice.weight
        elif measures[choice.name] > 0:
            weights[choice.name] = round(measures[choice.name] / smallest, 3)
    return weights


EQUALLY_GOOD = 1.25
"""By `Prefer.BALANCE`, types share a rank whose work costs at most this many times that of the cheapest among them."""


def ranks(capacity: CapacitySpec, usd_per_hour: Mapping[str, float]) -> dict[str, int]:
    """Return the rank of each type, from 0, for a cloud that knows neither weights nor prices. The cloud tries lower
    ranks first; among equal ranks it takes the type with the most capacity.

    By price and balance the rank follows the price of a unit of throughput; without throughputs, the price of an
    instance. `usd_per_hour`: of an instance, by type; types without a price come last.
    """
    names = [choice.name for choice in capacity.types]
    if capacity.prefer is Prefer.DEPTH:
        return dict.fromkeys(names, 0)
    if capacity.prefer is Prefer.ORDER:
        places = [float(n) if choice.priority is None else choice.priority for n, choice in enumerate(capacity.types)]
        order = sorted(set(places))
        return {name: order.index(place) for name, place in zip(names, places, strict=True)}
    factor = EQUALLY_GOOD if capacity.prefer is Prefer.BALANCE else 1.0
    costs = {choice.name: _usd_per_work(choice, usd_per_hour) for choice in capacity.types}
    rank_by_type: dict[str, int] = {}
    rank, cheapest = -1, -math.inf
    for name in sorted(names, key=lambda name: costs[name]):
        if costs[name] > cheapest * factor or rank < 0:
            rank, cheapest = rank + 1, costs[name]
        rank_by_type[name] = rank
    return rank_by_type


def _usd_per_work(choice: TypeChoice, usd_per_hour: Mapping[str, float]) -> float:
    # Nine digits: the same ratio is not twice the same float.
    return round(usd_per_hour.get(choice.name, math.inf) / (choice.throughput or 1.0), 9)


def _measure(choice: TypeChoice, facts: InstanceType | None, by: WeightBy) -> float:
    if by is WeightBy.INSTANCE:
        return 1.0
    if by is WeightBy.THROUGHPUT:
        return choice.throughput or 0.0
    if facts is None:
        return 0.0
    return float(facts.vcpus if by is WeightBy.VCPU else facts.gpus)
