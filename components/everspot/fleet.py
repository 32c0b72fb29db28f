"""The standing fleet: Spot and on-demand capacity that EC2 keeps at its target."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_core.fleet import Capacity, OnDemandAllocation, SpotAllocation, override_grid
from everspot_core.problems import Problems
from everspot_core.records import Role
from pulumi_aws import ec2

from everspot import common
from everspot.capacity import CapacityArgs, capacity_of, check_capacity, known_types
from everspot.launch import MachineArgs, check_machine, launch_template

# The provider spells this one value otherwise than the API does.
_PROVIDER_WORDS = {"lowest-price": "lowestPrice"}


class TrainingFleetArgs(TypedDict):
    """Inputs of `TrainingFleet`."""

    cluster: str
    """Name of the cluster: by this tag the scheduler finds the instances."""
    tags: dict[str, str]
    """Tags of fleet, launch template, instances and volumes; Project, Team and Environment are mandatory."""
    capacity: CapacityArgs
    """What the fleet holds, of what, and how EC2 chooses."""
    machine: MachineArgs
    """What the instances are made of."""
    subnet_ids: list[pulumi.Input[str]]
    """Subnets, each in a zone of its own."""
    manifest: pulumi.Input[str]
    """The agents' manifest, JSON, at most 16 KB: it becomes the user data."""
    protect: NotRequired[bool]
    """Whether Pulumi refuses to delete or replace the fleet. Default: false."""


class TrainingFleet(pulumi.ComponentResource):
    """A launch template and an EC2 Fleet of type maintain over instance types and subnets.

    EC2 heals it without the scheduler, and only Pulumi changes it. A new launch template reaches instances as they are
    replaced; nothing that is running is ended by a change, also not by a lower target.
    """

    fleet_id: pulumi.Output[str]
    """Id of the EC2 Fleet."""
    launch_template_id: pulumi.Output[str]
    """Id of the launch template."""
    launch_template_version: pulumi.Output[int]
    """Version of the launch template that the fleet uses."""
    image_id: pulumi.Output[str]
    """Id of the image in use."""

    def __init__(self, name: str, args: TrainingFleetArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("TrainingFleet"), name, {}, opts)
        problems = Problems()
        machine, subnets = args["machine"], args["subnet_ids"]
        common.check_common(problems, args["cluster"], args["tags"])
        check_capacity(problems.at("capacity"), args["capacity"], len(subnets))
        problems.need(bool(subnets), "subnetIds", "at least one subnet is needed")
        check_machine(problems.at("machine"), machine)
        common.raise_bad(problems, f"TrainingFleet {name}")
        template = launch_template(
            self,
            f"{name}-template",
            role=Role.AGENT,
            cluster=args["cluster"],
            tags=args["tags"],
            machine=machine,
            manifest=args["manifest"],
        )
        fleet = self._fleet(f"{name}-fleet", args, template)
        self.fleet_id, self.launch_template_id = fleet.id, template.id
        self.launch_template_version = template.latest_version
        self.image_id = template.image_id.apply(lambda image: image or "")
        self.register_outputs(
            {
                "fleetId": self.fleet_id,
                "launchTemplateId": self.launch_template_id,
                "launchTemplateVersion": self.launch_template_version,
                "imageId": self.image_id,
            }
        )

    def _fleet(self, name: str, args: TrainingFleetArgs, template: ec2.LaunchTemplate) -> ec2.Fleet:
        capacity = capacity_of(args["capacity"])
        return ec2.Fleet(
            name,
            type="maintain",
            launch_template_configs=[
                {
                    "launch_template_specification": {
                        "launch_template_id": template.id,
                        # The number and not $Latest, so that a pull request shows which instances come out of it.
                        "version": template.latest_version.apply(str),
                    },
                    "overrides": _overrides(args, capacity),
                }
            ],
            target_capacity_specification={
                "default_target_capacity_type": "spot",
                "total_target_capacity": capacity.target,
                # The Spot part is left to EC2: what is stated here cannot change without a new fleet.
                "on_demand_target_capacity": capacity.on_demand_target,
            },
            spot_options=_spot_options(args["capacity"], capacity),
            on_demand_options=_on_demand_options(capacity),
            # A lower target ends no instance: the scheduler drains, and lets go.
            excess_capacity_termination_policy="no-termination",
            terminate_instances=True,
            tags=common.cluster_tags(args["cluster"], args["tags"]),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=args.get("protect", False) or None,
                ignore_changes=ignored_changes(capacity.spot_allocation),
            ),
        )


def ignored_changes(allocation: SpotAllocation) -> list[str]:
    """What upstream would take for a change at every second `up`, and replace the fleet for.

    The Spot part is the rest of the target; EC2 answers it though it was left unsaid. instancePoolsToUseCount is
    defaulted to 1 by upstream, and EC2 answers it for lowest-price only.
    """
    rest = ["targetCapacitySpecification.spotTargetCapacity"]
    return rest if allocation is SpotAllocation.LOWEST_PRICE else [*rest, "spotOptions.instancePoolsToUseCount"]


def _overrides(args: TrainingFleetArgs, capacity: Capacity) -> list[ec2.FleetLaunchTemplateConfigOverrideArgsDict]:
    grid = override_grid(capacity, known_types(args["capacity"]), len(args["subnet_ids"]))
    overrides: list[ec2.FleetLaunchTemplateConfigOverrideArgsDict] = []
    for pool in grid:
        override: ec2.FleetLaunchTemplateConfigOverrideArgsDict = {
            "instance_type": pool.instance_type,
            "subnet_id": args["subnet_ids"][pool.subnet],
            "weighted_capacity": pool.weight,
        }
        if pool.priority is not None:
            override["priority"] = pool.priority
        if pool.max_price is not None:
            override["max_price"] = f"{pool.max_price:g}"
        overrides.append(override)
    return overrides


def _spot_options(args: CapacityArgs, capacity: Capacity) -> ec2.FleetSpotOptionsArgsDict:
    options: ec2.FleetSpotOptionsArgsDict = {
        "allocation_strategy": _PROVIDER_WORDS.get(capacity.spot_allocation.value, capacity.spot_allocation.value),
        "instance_interruption_behavior": "terminate",
    }
    pools = args.get("lowest_price_pools")
    if pools is not None:
        options["instance_pools_to_use_count"] = int(pools)
    rebalance = args.get("capacity_rebalance")
    if rebalance is not None:
        # The other strategy, launch, never ends the old instance: both would be paid.
        options["maintenance_strategies"] = {
            "capacity_rebalance": {
                "replacement_strategy": "launch-before-terminate",
                "termination_delay": int(rebalance["termination_delay"]),
            }
        }
    return options


def _on_demand_options(capacity: Capacity) -> ec2.FleetOnDemandOptionsArgsDict | None:
    # EC2's default is left unsaid: the provider and the API spell it differently, which would read as a change.
    if capacity.on_demand_allocation is OnDemandAllocation.LOWEST_PRICE:
        return None
    return {"allocation_strategy": capacity.on_demand_allocation.value}
