"""The scheduler's machine: one small on-demand instance that is replaced when it fails."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.fleet import GcpShape
from everspot_clouds.gcp.names import scheduler
from everspot_clouds.gcp.settings_estimate import SCHEDULER_TYPE
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems
from pulumi_gcp import compute

from everspot import common
from everspot.custom_types import check_type
from everspot.gcp import preview_queries, tagging
from everspot.gcp.launch import GcpMachineArgs, check_machine, instance_template, resolve_image
from everspot.gcp.network import check_resource_name
from everspot.parts import after, outputs

DEFAULT_TYPE = SCHEDULER_TYPE
"""Type of the scheduler's instance when none is given."""


class GcpSchedulerServiceArgs(TypedDict):
    """Inputs of `GcpSchedulerService`."""

    cluster: str
    """Name of the cluster that it schedules."""
    tags: dict[str, str]
    """Tags of instance and disk, as labels; Project, Team and Environment are mandatory."""
    machine: GcpMachineArgs
    """Image, disk, subnetwork and service account. The image is the agents' image."""
    zones: list[str]
    """Zones in which the instance may be, by name, all of one region. A change replaces the group."""
    manifest: pulumi.Input[str]
    """The scheduler's manifest as JSON, at most 256 KiB. It becomes instance metadata."""
    instance_type: NotRequired[str]
    """Machine type; it has to fit the image's architecture. Default: e2-small."""


class GcpSchedulerService(pulumi.ComponentResource):
    """A managed instance group of one on-demand instance of the baked image, in the role of the scheduler.

    The scheduler keeps no state on its machine. When it fails, running jobs run on, and the next scheduler continues
    from the store. If its zone has no capacity, it starts in another one.
    """

    group_name: pulumi.Output[str]
    """Name of the managed instance group."""
    template: pulumi.Output[str]
    """The instance template, projects/PROJECT/regions/REGION/instanceTemplates/NAME."""

    def __init__(self, name: str, args: GcpSchedulerServiceArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpSchedulerService"), name, {}, opts)
        problems = Problems()
        machine, kind = args["machine"], args.get("instance_type", DEFAULT_TYPE)
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_resource_name(problems, name, "-template", "instance template")
        check_type(problems, "instanceType", kind)
        problems.need(bool(args["zones"]), "zones", "at least one zone is needed")
        check_machine(problems.at("machine"), machine)
        common.raise_bad(problems, f"GcpSchedulerService {name}")
        region = preview_queries.read_place(self).apply(lambda place: place["region"])
        template = instance_template(
            self,
            f"{name}-template",
            role=Role.SCHEDULER,
            cluster=args["cluster"],
            tags=args["tags"],
            region=region,
            machine=machine,
            image=resolve_image(self, machine),
            manifest=args["manifest"],
            instance_type=kind,
            gpus=False,
        )
        group = compute.RegionInstanceGroupManager(
            f"{name}-group",
            region=region,
            base_instance_name=scheduler(args["cluster"]),
            description=f"Everspot scheduler of cluster {args['cluster']}",
            versions=[{"instance_template": template.id}],
            target_size=1,
            distribution_policy_zones=args["zones"],
            distribution_policy_target_shape=GcpShape.ANY.value,
            update_policy={
                # The new scheduler comes up beside the old one. For a while there are two, which does no harm: every
                # decision is a conditional write. Nobody waits for it.
                "type": "PROACTIVE",
                "minimal_action": "REPLACE",
                "instance_redistribution_type": "NONE",
                "max_surge_fixed": len(args["zones"]),
                "max_unavailable_fixed": 0,
            },
            instance_lifecycle_policy={
                "default_action_on_failure": "REPAIR",
                "force_update_on_repair": "YES",
                "on_repair": {"allow_changing_zone": "YES"},
            },
            wait_for_instances=False,
            opts=pulumi.ResourceOptions.merge(pulumi.ResourceOptions(parent=self), after(opts)),
        )
        self.group_name, self.template = group.name, template.id
        self.register_outputs(outputs(self))
