"""The standing groups: on-demand and Spot capacity that Compute Engine keeps at its size, each in a group of its own.

Both groups always exist, even without standing capacity: an empty group costs nothing, and standing capacity can be
added in place. A group that loses an instance makes another one, in another zone if its own has no capacity. Only
Pulumi changes its size. A group whose size is lowered immediately ends instances of its own choice, even busy ones
(Compute Engine documentation, "Manually change the size of a MIG"). So a hook refuses that while jobs run.
"""

from datetime import timedelta
from typing import Any, NotRequired, TypedDict, cast

import pulumi
from everspot_clouds.gcp.fleet import selections
from everspot_clouds.gcp.gpus import FAMILIES
from everspot_clouds.gcp.names import standing
from everspot_clouds.gcp.rules import HEALTH_PORT
from everspot_core.capacity.fleet import ranks
from everspot_core.documents import parse_duration
from everspot_core.jobs.records import Market, Role
from everspot_core.validation.problems import Problems
from pulumi_gcp import compute

from everspot import common
from everspot.capacity import check_gpus, check_prices, registered
from everspot.gcp import preview_queries, tagging
from everspot.gcp.capacity import (
    GcpCapacityArgs,
    check_capacity,
    has_gpus,
    parse_capacity,
    parse_notice,
    type_names,
    usd_per_hour,
)
from everspot.gcp.launch import GcpMachineArgs, check_machine, instance_template, resolve_image
from everspot.gcp.network import check_resource_name
from everspot.guard import fleet_guard
from everspot.parts import after, outputs

HEAL_AFTER = "10m"
"""Default time that an instance has to come up before its health is checked."""
_HEAL_AT_MOST = timedelta(hours=1)  # Compute API, InstanceGroupManagerAutoHealingPolicy, initialDelaySec

HEALTH: dict[str, int] = {
    "check_interval_sec": 30,
    "timeout_sec": 10,
    "healthy_threshold": 1,
    "unhealthy_threshold": 10,
}
"""The instance of an agent that has not answered for five minutes is replaced. Its job has gone on elsewhere much
earlier."""

DELETION_EFFECT = (
    "Their instances are shut down without a notice: agents get SIGTERM and checkpoint within 20 s on Spot and 80 s "
    "on-demand, a time that Compute Engine does not promise; the jobs go on elsewhere, from there or from their last "
    "checkpoint"
)


class GcpTrainingFleetArgs(TypedDict):
    """Inputs of `GcpTrainingFleet`."""

    cluster: str
    """Name of the cluster. The scheduler finds the instances by a label with this name."""
    tags: dict[str, str]
    """Tags of instances and disks, as labels; Project, Team and Environment are mandatory."""
    capacity: GcpCapacityArgs
    """Instance types, and what the groups hold of them. The groups ignore `elastic`."""
    machine: GcpMachineArgs
    """Image, disk and network of the instances."""
    zones: list[str]
    """Zones of the groups, by name, all of one region. A change replaces both groups."""
    gpu_arches: NotRequired[list[str]]
    """Answer of `torch.cuda.get_arch_list()` on an image with its own torch, such as sm_80. Types with other GPUs are
    refused. Default: the list of Everspot's own image."""
    manifest: pulumi.Input[str]
    """The agents' manifest as JSON, at most 256 KiB. It becomes instance metadata."""
    heal_after: NotRequired[str]
    """How long an instance has to come up before its health is checked, at most 1h. Default: 10m."""
    protect: NotRequired[bool]
    """Whether Pulumi refuses to delete or replace the groups. Default: false."""
    guard_jobs: NotRequired[bool]
    """Whether the replacement, the deletion and a smaller size of a group are refused while jobs run on it. `pulumi
    destroy` then needs --run-program. Default: true."""


class GcpTrainingFleet(pulumi.ComponentResource):
    """Two instance templates and two regional managed instance groups, on-demand and Spot, over types and zones.

    The groups replace lost and silent instances without the scheduler, and only Pulumi changes their sizes. A new
    template reaches instances as they are replaced. Only two changes end running instances: a smaller size, and a
    change of the zones, which replaces the groups. The preview says what that does to running jobs.
    """

    on_demand_group: pulumi.Output[str]
    """Name of the on-demand group."""
    spot_group: pulumi.Output[str]
    """Name of the Spot group."""
    on_demand_template: pulumi.Output[str]
    """The on-demand group's instance template, projects/PROJECT/regions/REGION/instanceTemplates/NAME."""
    spot_template: pulumi.Output[str]
    """The Spot group's instance template."""
    image_id: pulumi.Output[str]
    """The image in use, projects/PROJECT/global/images/NAME."""

    def __init__(self, name: str, args: GcpTrainingFleetArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpTrainingFleet"), name, registered(args, leaving="elastic"), opts)
        check_fleet(name, args)
        self._name, self._args, self._capacity = name, args, parse_capacity(args["capacity"])
        self._after = after(opts)
        self._region = preview_queries.read_place(self).apply(lambda place: _region(name, args, place["region"]))
        self._image = resolve_image(self, args["machine"])
        self._health = compute.HealthCheck(
            f"{name}-health",
            description=f"Agents of Everspot cluster {args['cluster']}",
            http_health_check={"port": HEALTH_PORT, "request_path": "/healthz"},
            opts=pulumi.ResourceOptions(parent=self),
            **HEALTH,
        )
        on_demand, self.on_demand_template = self._group(Market.ON_DEMAND)
        spot, self.spot_template = self._group(Market.SPOT)
        self.on_demand_group, self.spot_group = on_demand.name, spot.name
        self.image_id = self._image.apply(lambda image: str(image["link"]))
        self.register_outputs(outputs(self))

    def _template(self, market: Market) -> "compute.RegionInstanceTemplate":
        args = self._args
        types = args["capacity"]["instance_types"]
        return instance_template(
            self,
            f"{self._name}-{market.value}-agent",
            role=Role.AGENT,
            cluster=args["cluster"],
            tags=args["tags"],
            region=self._region,
            machine=args["machine"],
            image=self._image,
            manifest=args["manifest"],
            instance_type=types[0]["type"],
            gpus=has_gpus(args["capacity"]),
            market=market,
            notice=parse_notice(args["capacity"]),
        )

    def _group(self, market: Market) -> "tuple[compute.RegionInstanceGroupManager, pulumi.Output[str]]":
        """Return the group of one market, and its template's link."""
        name, args, capacity = f"{self._name}-{market.value}", self._args, self._capacity
        template, zones = self._template(market), args["zones"]
        group = compute.RegionInstanceGroupManager(
            name,
            region=self._region,
            base_instance_name=standing(args["cluster"], market),
            description=f"Everspot agents of cluster {args['cluster']}, {market.value}",
            versions=[{"instance_template": template.id}],
            target_size=capacity.spot_target if market is Market.SPOT else capacity.on_demand_target,
            distribution_policy_zones=zones,
            distribution_policy_target_shape=capacity.shape.value,
            instance_flexibility_policy=self._flexibility(market),
            update_policy={
                # A new template waits for instances to be replaced anyway. Nothing is moved to even out the zones.
                "type": "OPPORTUNISTIC",
                "minimal_action": "REPLACE",
                "instance_redistribution_type": "NONE",
                # Of a regional group 0, or at least the number of its zones; with this type nothing comes of them.
                "max_surge_fixed": len(zones),
                "max_unavailable_fixed": len(zones),
            },
            instance_lifecycle_policy={
                "default_action_on_failure": "REPAIR",
                # With the newest template, and where its zone has no capacity left in another one.
                "force_update_on_repair": "YES",
                "on_repair": {"allow_changing_zone": "YES" if capacity.shape.moves else "NO"},
            },
            auto_healing_policies={
                "health_check": self._health.id,
                "initial_delay_sec": int(_heal_after(args).total_seconds()),
            },
            wait_for_instances=False,
            opts=self._options(name, market),
        )
        return group, template.id

    def _options(self, name: str, market: Market) -> pulumi.ResourceOptions:
        args = self._args
        guarded = fleet_guard(
            self,
            name,
            market,
            args["manifest"],
            on=args.get("guard_jobs", True),
            effect=DELETION_EFFECT,
            size="targetSize",
        )
        own = pulumi.ResourceOptions(parent=self, protect=args.get("protect", False) or None)
        return pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions.merge(guarded, self._after))

    def _flexibility(self, market: Market) -> Any:
        """Return the group's choice between types, None for one type. Ranks follow the region's prices."""
        capacity, settings = self._capacity, self._args["capacity"]
        if len(capacity.types) < 2:
            return None

        def policy(region: str) -> list[dict[str, Any]]:
            chosen = selections(ranks(capacity, usd_per_hour(settings, region, market)))
            return [
                {"name": name, "rank": int(str(selection["rank"])), "machine_types": selection["machineTypes"]}
                for name, selection in chosen.items()
            ]

        return {"instance_selections": self._region.apply(policy)}


def check_fleet(name: str, args: GcpTrainingFleetArgs) -> None:
    """Refuse inputs with all of their problems.

    Raises:
        pulumi.InputPropertiesError: if anything is wrong; it carries each problem with the input's path.
    """
    problems = Problems()
    tagging.check_common(problems, args["cluster"], args["tags"])
    check_resource_name(problems, name, f"-{Market.ON_DEMAND.value}-agent", "instance templates")
    check_capacity(problems.at("capacity"), args["capacity"], args["zones"])
    check_gpus(problems, args["capacity"], args.get("gpu_arches"), FAMILIES)
    problems.need(bool(args["zones"]), "zones", "at least one zone is needed")
    check_machine(problems.at("machine"), args["machine"], type_names(args["capacity"]))
    common.raise_bad(problems, f"GcpTrainingFleet {name}")


def _region(name: str, args: GcpTrainingFleetArgs, region: str) -> str:
    """Return the region, once it is known that every type has a price there."""
    problems = Problems()
    check_prices(problems.at("capacity"), args["capacity"], parse_capacity(args["capacity"]), region)
    common.raise_bad(problems, f"GcpTrainingFleet {name}")
    return region


def _heal_after(args: GcpTrainingFleetArgs) -> timedelta:
    return min(cast(timedelta, parse_duration(args.get("heal_after", HEAL_AFTER))), _HEAL_AT_MOST)
