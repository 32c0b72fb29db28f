"""The standing fleets: on-demand and Spot capacity that EC2 keeps at its target, each in a fleet of its own.

The provider can change only the total of a mixed fleet. A change of its on-demand or Spot part would replace the fleet
and end everything that runs in it (terraform-provider-aws, `internal/service/ec2/ec2_fleet.go`:
`on_demand_target_capacity` and `spot_target_capacity` force a new one, and an update sends `TotalTargetCapacity`
alone). A fleet of one market has no parts: its total is its size, which changes in place. The size may be 0 (EC2 API,
TargetCapacitySpecificationRequest: "If the request type is maintain, you can specify a target capacity of 0 and add
capacity later"), so that both fleets always exist, even without standing capacity. A fleet of size 0 costs nothing. If
standing capacity is taken out of the settings, the scheduler releases its instances as their jobs end, instead of EC2
ending them with their fleet. If it is added later, two numbers change in place.
"""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.fleet import (
    AwsOnDemandAllocation,
    AwsSpotAllocation,
    Ec2Capacity,
    max_unit_price,
    override_grid,
)
from everspot_clouds.aws.gpus import FAMILIES
from everspot_core.jobs.records import Market, Role
from everspot_core.validation.problems import Problems
from pulumi_aws import ec2

from everspot import common
from everspot.aws import tagging
from everspot.aws.capacity import AwsCapacityArgs, check_capacity, parse_capacity
from everspot.aws.launch import AwsMachineArgs, check_machine, launch_template
from everspot.aws.offers import sold_in
from everspot.aws.volume_key import warn_of_customer_key
from everspot.capacity import check_gpus, registered
from everspot.custom_types import resolve_types
from everspot.guard import fleet_guard
from everspot.parts import after, outputs

# The provider spells this one value otherwise than the API does.
_PROVIDER_WORDS = {"lowest-price": "lowestPrice"}


class AwsTrainingFleetArgs(TypedDict):
    """Inputs of `AwsTrainingFleet`."""

    cluster: str
    """Name of the cluster. The scheduler finds the instances by a tag with this name."""
    tags: dict[str, str]
    """Tags of fleet, launch template, instances and volumes; Project, Team and Environment are mandatory."""
    capacity: AwsCapacityArgs
    """Instance types, and what the fleets hold of them. The fleets ignore `elastic`."""
    machine: AwsMachineArgs
    """Image, disk and network of the instances."""
    subnet_ids: list[pulumi.Input[str]]
    """Subnets, each in a zone of its own."""
    zones: NotRequired[list[pulumi.Input[str]]]
    """Zone of each subnet, by name. Default: looked up."""
    gpu_arches: NotRequired[list[str]]
    """Answer of `torch.cuda.get_arch_list()` on an image with its own torch, such as sm_80. Types with other GPUs are
    refused. Default: the list of Everspot's own image."""
    manifest: pulumi.Input[str]
    """The agents' manifest as JSON, at most 16 KB. It becomes the user data."""
    protect: NotRequired[bool]
    """Whether Pulumi refuses to delete or replace the fleet. Default: false."""
    guard_jobs: NotRequired[bool]
    """Whether the replacement and deletion of a fleet are refused while jobs run on it. `pulumi destroy` then needs
    --run-program. Default: true."""


class AwsTrainingFleet(pulumi.ComponentResource):
    """One launch template and two EC2 Fleets of type maintain, on-demand and Spot, over instance types and subnets.

    EC2 replaces lost instances without the scheduler, and only Pulumi changes the fleets. A change of target, on-demand
    base or share changes their sizes in place. A new launch template reaches instances as they are replaced. No change
    ends a running instance, not even a lower target. There is one exception: a change of an allocation strategy or of
    capacity rebalancing replaces the fleet, and the preview says what that does to running jobs.
    """

    on_demand_fleet_id: pulumi.Output[str]
    """Id of the on-demand EC2 Fleet."""
    spot_fleet_id: pulumi.Output[str]
    """Id of the Spot EC2 Fleet."""
    launch_template_id: pulumi.Output[str]
    """Id of the launch template."""
    launch_template_version: pulumi.Output[int]
    """Version of the launch template that the fleets use."""
    image_id: pulumi.Output[str]
    """Id of the image in use."""
    zones: pulumi.Output[list[str]]
    """Zone of each subnet, by name, once it is known that EC2 offers the types there."""

    def __init__(self, name: str, args: AwsTrainingFleetArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsTrainingFleet"), name, registered(args, leaving="elastic"), opts)
        problems = Problems()
        machine, subnets = args["machine"], args["subnet_ids"]
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_capacity(problems.at("capacity"), args["capacity"], len(subnets))
        check_gpus(problems, args["capacity"], args.get("gpu_arches"), FAMILIES)
        problems.need(bool(subnets), "subnetIds", "at least one subnet is needed")
        check_machine(problems.at("machine"), machine)
        common.raise_bad(problems, f"AwsTrainingFleet {name}")
        warn_of_customer_key(self)
        self._args, self._capacity, self._after = args, parse_capacity(args["capacity"]), after(opts)
        self.zones = sold_in(self, f"AwsTrainingFleet {name}", args["capacity"], args["subnet_ids"], args.get("zones"))
        template = launch_template(
            self,
            f"{name}-template",
            role=Role.AGENT,
            cluster=args["cluster"],
            tags=args["tags"],
            machine=machine,
            manifest=args["manifest"],
            types=[entry["type"] for entry in args["capacity"]["instance_types"]],
        )
        self.on_demand_fleet_id = self._fleet(f"{name}-on-demand", Market.ON_DEMAND, template).id
        self.spot_fleet_id = self._fleet(f"{name}-spot", Market.SPOT, template, formerly=f"{name}-fleet").id
        self.launch_template_id = template.id
        self.launch_template_version = template.latest_version
        self.image_id = template.image_id.apply(lambda image: image or "")
        self.register_outputs(outputs(self))

    def _fleet(self, name: str, market: Market, template: ec2.LaunchTemplate, formerly: str | None = None) -> ec2.Fleet:
        """Return the fleet of one market. `formerly`: its name in an earlier version."""
        args, capacity = self._args, self._capacity
        spot = market is Market.SPOT
        return ec2.Fleet(
            name,
            type="maintain",
            launch_template_configs=[
                {
                    "launch_template_specification": {
                        "launch_template_id": template.id,
                        # The number and not $Latest, so that a pull request shows which instances it launches.
                        "version": template.latest_version.apply(str),
                    },
                    "overrides": self.zones.apply(lambda zones: _overrides(args, capacity, market, zones)),
                }
            ],
            # The total and the market it is filled in, and no part of it: see the module.
            target_capacity_specification={
                "default_target_capacity_type": market.value,
                "total_target_capacity": capacity.spot_target if spot else capacity.on_demand_target,
            },
            spot_options=_spot_options(args["capacity"], capacity) if spot else None,
            on_demand_options=None if spot else _on_demand_options(capacity),
            # A lower target ends no instance: the scheduler drains, and lets go.
            excess_capacity_termination_policy="no-termination",
            terminate_instances=True,
            tags=tagging.cluster_tags(args["cluster"], args["tags"]),
            opts=pulumi.ResourceOptions.merge(
                pulumi.ResourceOptions(
                    parent=self,
                    protect=args.get("protect", False) or None,
                    ignore_changes=ignored_changes(market, capacity.spot_strategy),
                    aliases=[pulumi.Alias(name=formerly)] if formerly else None,
                ),
                pulumi.ResourceOptions.merge(
                    fleet_guard(self, name, market, args["manifest"], on=args.get("guard_jobs", True)), self._after
                ),
            ),
        )


def ignored_changes(market: Market, allocation: AwsSpotAllocation) -> list[str]:
    """Return the properties that the provider would take for changed at every second `up`, and would replace the fleet
    for.

    EC2 returns the target of a fleet's only market, although it was not set. The provider sets instancePoolsToUseCount
    to 1 by default, and EC2 returns it only for lowest-price.
    """
    if market is Market.ON_DEMAND:
        return ["targetCapacitySpecification.onDemandTargetCapacity"]
    ignored = ["targetCapacitySpecification.spotTargetCapacity"]
    return (
        ignored if allocation is AwsSpotAllocation.LOWEST_PRICE else [*ignored, "spotOptions.instancePoolsToUseCount"]
    )


def _overrides(
    args: AwsTrainingFleetArgs, capacity: Ec2Capacity, market: Market, zones: list[str]
) -> list[ec2.FleetLaunchTemplateConfigOverrideArgsDict]:
    grid = override_grid(capacity, resolve_types(args["capacity"]["instance_types"]), len(args["subnet_ids"]), zones)
    overrides: list[ec2.FleetLaunchTemplateConfigOverrideArgsDict] = []
    for pool in grid:
        override: ec2.FleetLaunchTemplateConfigOverrideArgsDict = {
            "instance_type": pool.instance_type,
            "subnet_id": args["subnet_ids"][pool.subnet],
            "weighted_capacity": pool.weight,
        }
        if pool.priority is not None:
            override["priority"] = pool.priority
        if pool.max_price is not None and market is Market.SPOT:
            override["max_price"] = max_unit_price(pool.max_price, pool.weight)
        overrides.append(override)
    return overrides


def _spot_options(args: AwsCapacityArgs, capacity: Ec2Capacity) -> ec2.FleetSpotOptionsArgsDict:
    standing = args.get("standing", {})
    options: ec2.FleetSpotOptionsArgsDict = {
        "allocation_strategy": _PROVIDER_WORDS.get(capacity.spot_strategy.value, capacity.spot_strategy.value),
        "instance_interruption_behavior": "terminate",
    }
    pools = standing.get("lowest_price_pools")
    if pools is not None:
        options["instance_pools_to_use_count"] = int(pools)
    rebalance = standing.get("capacity_rebalance")
    if rebalance is not None:
        # The other strategy, launch, never ends the old instance: both would be paid.
        options["maintenance_strategies"] = {
            "capacity_rebalance": {
                "replacement_strategy": "launch-before-terminate",
                "termination_delay": int(rebalance["termination_delay"]),
            }
        }
    return options


def _on_demand_options(capacity: Ec2Capacity) -> ec2.FleetOnDemandOptionsArgsDict | None:
    # EC2's default is left unsaid: the provider and the API spell it differently, which would read as a change.
    if capacity.on_demand_strategy is AwsOnDemandAllocation.LOWEST_PRICE:
        return None
    return {"allocation_strategy": capacity.on_demand_strategy.value}
