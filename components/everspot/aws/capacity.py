"""The settings of a fleet as its author writes them, and their check against the catalogue."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict, cast

from everspot_clouds.aws.fleet import (
    OVERRIDES_AT_MOST,
    AwsOnDemandAllocation,
    AwsSpotAllocation,
    Ec2Capacity,
    capacity_problems,
)
from everspot_clouds.aws.offers import Offered, zone_problems
from everspot_core.capacity.fleet import WeightBy
from everspot_core.validation.bounds import sound_numbers
from everspot_core.validation.problems import Problems

from everspot.capacity import check_elastic, check_prices, check_some, check_types, parse_choice


class AwsInstanceTypeArgs(TypedDict):
    """An instance type that the fleet may use. A type that the catalogue lacks is declared by vcpus and memory_gib."""

    type: str
    """The type's name, for example g5.xlarge."""
    weight: NotRequired[float]
    """How many units of the target one instance counts for. Default: derived, see `weight_by`."""
    priority: NotRequired[float]
    """Priority for allocation strategies that use priorities; a lower number is preferred. Default: the order of the
    list."""
    max_price: NotRequired[float]
    """Highest price of a Spot instance of this type in USD per hour, whatever its weight. Default: the fleet's
    `max_price`."""
    throughput: NotRequired[float]
    """Training speed relative to the other types, for weights by throughput."""
    zones: NotRequired[list[str]]
    """Names of the zones in which the type is used, if EC2 does not offer it in all of the fleet's zones. Default: all
    zones of the fleet."""
    vcpus: NotRequired[int]
    """vCPUs, for a type declared in place."""
    memory_gib: NotRequired[float]
    """Memory in GiB, for a type declared in place."""
    gpus: NotRequired[int]
    """Number of GPUs, for a type declared in place. Default: 0."""
    gpu: NotRequired[str]
    """GPU model, for a type declared in place."""
    gpu_memory_gib: NotRequired[float]
    """Memory of each GPU in GiB, for a type declared in place."""
    arch: NotRequired[str]
    """x86_64 or arm64, for a type declared in place. Default: x86_64."""
    local_nvme_gb: NotRequired[float]
    """Size of the machine's own NVMe disks in GB, for a type declared in place. Default: 0."""
    on_demand_usd_per_hour: NotRequired[float]
    """On-demand price in USD per hour, for a type declared in place or without a known price in the region."""
    override: NotRequired[bool]
    """Whether figures given here may contradict the catalogue, for a type that it has. Default: false."""


class AwsCapacityRebalanceArgs(TypedDict):
    """How the fleet replaces instances that EC2 expects to interrupt. The fleet may grow to twice its target
    meanwhile."""

    termination_delay: int
    """Seconds between the launch of the replacement and the end of the old instance, 120 to 7200."""


class AwsStandingArgs(TypedDict):
    """Capacity that is always there: the size of the two standing fleets, and how EC2 chooses instances for them."""

    target: int
    """Capacity of both fleets, on-demand and Spot together, in units; see `weight_by`. May be 0. Changes in place."""
    on_demand_base: NotRequired[int]
    """Units that are always on-demand. Changes in place. Default: 0."""
    on_demand_percentage: NotRequired[float]
    """On-demand share of the capacity above `on_demand_base`, in percent, rounded up to whole units. Changes in place.
    Default: 0."""
    weight_by: NotRequired[WeightBy]
    """How weights are derived for types without one: each instance counts one unit, or in proportion to vCPUs, GPUs or
    throughput, where the smallest type counts one unit. Default: instance."""
    spot_allocation: NotRequired[AwsSpotAllocation]
    """How EC2 picks Spot pools. A change replaces the Spot fleet. Default: price-capacity-optimized."""
    on_demand_allocation: NotRequired[AwsOnDemandAllocation]
    """How EC2 picks on-demand types. A change replaces the on-demand fleet. Default: lowest-price."""
    lowest_price_pools: NotRequired[int]
    """Number of pools to spread over. Allowed only with spot_allocation lowest-price."""
    capacity_rebalance: NotRequired[AwsCapacityRebalanceArgs]
    """Whether and how EC2 launches a replacement when it recommends a rebalance. A change replaces the Spot fleet.
    Default: off. Agents checkpoint on the recommendation in any case."""


_NOTHING: AwsStandingArgs = {"target": 0}

NO_SUBNET = "has no subnet"
"""AWS's words for a cluster that is not in a zone."""


class AwsElasticArgs(TypedDict):
    """Capacity that follows the work: what the scheduler may launch while jobs wait. All settings change in place."""

    max_instances: int
    """Largest number of launched instances at a time, on-demand and Spot together."""
    max_usd_per_hour: NotRequired[float]
    """Highest cost of all launched instances together, in USD per hour. A launch that would exceed it waits. Default:
    no limit besides `max_instances`."""
    markets: NotRequired[list[str]]
    """How launched instances may be paid: spot, on-demand or both. Default: both."""
    zones: NotRequired[list[str]]
    """Zones in which instances may be launched, by name. Default: the zones of all subnets."""
    idle_limit: NotRequired[str]
    """A launched instance without a job is terminated after this long, unless the scheduler expects a job for it
    sooner. Default: 5m."""


class AwsCapacityArgs(TypedDict):
    """Instance types of a cluster, and how many instances it has: always (`standing`) and while jobs wait (`elastic`).

    At least one of the two has to be given."""

    instance_types: list[AwsInstanceTypeArgs]
    """Instance types that EC2 may choose from. More types mean fewer interruptions: AWS advises ten or more over all
    zones. Changes in place."""
    max_price: NotRequired[float]
    """Highest price of a Spot instance in USD per hour, whatever its weight. EC2 gets it as a price per unit. Default:
    the type's on-demand price."""
    standing: NotRequired[AwsStandingArgs]
    """Capacity that is always there. Default: none."""
    elastic: NotRequired[AwsElasticArgs]
    """Capacity that the scheduler launches for jobs and terminates after them. Default: none."""


def parse_capacity(args: AwsCapacityArgs) -> Ec2Capacity:
    """Return the shape of the standing fleets.

    Raises:
        ValueError: if a value is of the wrong kind; `check_capacity` says which.
    """
    standing = args.get("standing", _NOTHING)
    spot, on_demand = standing.get("spot_allocation"), standing.get("on_demand_allocation")
    return Ec2Capacity(
        target=int(standing["target"]),
        on_demand_base=int(standing.get("on_demand_base", 0)),
        on_demand_percentage=standing.get("on_demand_percentage", 0),
        weight_by=WeightBy(standing.get("weight_by", WeightBy.INSTANCE)),
        spot_allocation=None if spot is None else AwsSpotAllocation(spot),
        on_demand_allocation=None if on_demand is None else AwsOnDemandAllocation(on_demand),
        max_price=args.get("max_price"),
        types=tuple(parse_choice(entry) for entry in args["instance_types"]),
    )


def check_offers(
    problems: Problems, args: AwsCapacityArgs, *, region: str, zones: Sequence[str] = (), offered: Offered | None = None
) -> None:
    """Add every type that the region does not offer, or whose price there is unknown. `zones`: of each subnet, if
    they are known. `offered`: EC2's answer; None: it was not asked."""
    capacity = parse_capacity(args)
    check_prices(problems, args, capacity, region)
    if zones:
        zone_problems(problems, capacity.types, zones, offered)


def check_capacity(problems: Problems, args: AwsCapacityArgs, subnets: int, zones: Sequence[str] = ()) -> None:
    """Add a problem for each mistake in the settings of a cluster's instances. `zones`: of its subnets, if known."""
    check_some(problems, args)
    if "elastic" in args:
        check_elastic(problems.at("elastic"), args["elastic"], zones, all_zones="those of all subnets", lacks=NO_SUBNET)
    args = cast(AwsCapacityArgs, sound_numbers(problems, args))
    types = check_types(problems, args["instance_types"])
    sound = {**args, "standing": _checked_options(problems.at("standing"), args.get("standing", _NOTHING))}
    capacity_problems(problems, parse_capacity(cast(AwsCapacityArgs, sound)), types, subnets)


def _checked_options(problems: Problems, args: AwsStandingArgs) -> AwsStandingArgs:
    """Return the standing fleets' settings. Adds a problem for each unknown word, and uses the default in its place."""
    kinds = (
        ("weightBy", WeightBy, args.get("weight_by")),
        ("spotAllocation", AwsSpotAllocation, args.get("spot_allocation")),
        ("onDemandAllocation", AwsOnDemandAllocation, args.get("on_demand_allocation")),
    )
    chosen = [problems.choice(kind, option, name) for name, kind, option in kinds if option is not None]
    rebalance = args.get("capacity_rebalance")
    if rebalance is not None:
        delay = rebalance["termination_delay"]
        problems.number(delay, "capacityRebalance.terminationDelay", 120, 7200, whole=True)
    pools = args.get("lowest_price_pools")
    if pools is not None:
        lowest = args.get("spot_allocation") == AwsSpotAllocation.LOWEST_PRICE
        problems.need(lowest, "lowestPricePools", "goes with spotAllocation lowest-price only")
        problems.number(pools, "lowestPricePools", 1, OVERRIDES_AT_MOST, whole=True)
    sound = args.copy()
    if None in chosen:
        sound.pop("weight_by", None)
        sound.pop("spot_allocation", None)
        sound.pop("on_demand_allocation", None)
    return sound
