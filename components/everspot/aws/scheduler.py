"""The scheduler's machine: one small on-demand instance that is replaced when it fails."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.settings_estimate import SCHEDULER_TYPE
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems
from pulumi_aws import autoscaling

from everspot import common
from everspot.aws import tagging
from everspot.aws.launch import AwsMachineArgs, check_machine, launch_template
from everspot.custom_types import check_type
from everspot.parts import after, outputs

DEFAULT_TYPE = SCHEDULER_TYPE
"""Type of the scheduler's instance when none is given."""


REFRESH: autoscaling.GroupInstanceRefreshArgsDict = {
    "strategy": "Rolling",
    "preferences": {
        # The new scheduler comes up beside the old one. For a while there are two, which does no harm: every decision
        # is a conditional write.
        "min_healthy_percentage": 100,
        "max_healthy_percentage": 200,
        "instance_warmup": "120",
        "skip_matching": True,
    },
}
"""How a new version of the launch template reaches the group. Changes of image, limits and types make a new version;
the provider then starts an instance refresh and does not wait for it."""


class AwsSchedulerServiceArgs(TypedDict):
    """Inputs of `AwsSchedulerService`."""

    cluster: str
    """Name of the cluster that it schedules."""
    tags: dict[str, str]
    """Tags of group, launch template, instance and volume; Project, Team and Environment are mandatory."""
    machine: AwsMachineArgs
    """Image, disk, security groups and instance profile. The image is the agents' image."""
    subnet_ids: list[pulumi.Input[str]]
    """Subnets in which the instance may be launched."""
    manifest: pulumi.Input[str]
    """The scheduler's manifest as JSON, at most 16 KB. It becomes the user data."""
    instance_type: NotRequired[str]
    """Instance type; it has to fit the image's architecture. Default: t3.small."""


class AwsSchedulerService(pulumi.ComponentResource):
    """A self-healing group of one on-demand instance of the baked image, in the role of the scheduler.

    The scheduler keeps no state on its machine. When it fails, running jobs run on, and the next scheduler continues
    from the store.
    """

    group_name: pulumi.Output[str]
    """Name of the Auto Scaling group."""
    launch_template_id: pulumi.Output[str]
    """Id of the launch template."""

    def __init__(self, name: str, args: AwsSchedulerServiceArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsSchedulerService"), name, {}, opts)
        problems = Problems()
        machine = args["machine"]
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_type(problems, "instanceType", args.get("instance_type", DEFAULT_TYPE))
        problems.need(bool(args["subnet_ids"]), "subnetIds", "at least one subnet is needed")
        check_machine(problems.at("machine"), machine)
        common.raise_bad(problems, f"AwsSchedulerService {name}")
        template = launch_template(
            self,
            f"{name}-template",
            role=Role.SCHEDULER,
            cluster=args["cluster"],
            tags=args["tags"],
            machine=machine,
            manifest=args["manifest"],
            types=[args.get("instance_type", DEFAULT_TYPE)],
            has_type=True,
        )
        group = autoscaling.Group(
            f"{name}-group",
            min_size=1,
            max_size=1,
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            vpc_zone_identifiers=args["subnet_ids"],
            health_check_type="EC2",
            instance_refresh=REFRESH,
            # The instance's own tags come from the launch template; these are the group's.
            tags=[
                {"key": key, "value": value, "propagate_at_launch": False}
                for key, value in sorted(tagging.cluster_tags(args["cluster"], args["tags"]).items())
            ],
            opts=pulumi.ResourceOptions.merge(pulumi.ResourceOptions(parent=self), after(opts)),
        )
        self.group_name, self.launch_template_id = group.name, template.id
        self.register_outputs(outputs(self))
