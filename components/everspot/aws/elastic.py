"""Elastic capacity: the launch template and the scheduler's permissions to launch instances for jobs.

The instances have a launch template of their own. It differs from the standing fleets' in one point: an agent that has
had no job for the cluster's idle limit and its orphan limit together shuts its instance down. Usually the scheduler
terminates an idle instance much earlier; the agent's own limit is for the time when no scheduler runs.
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.gpus import FAMILIES
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems
from pulumi_aws import ec2, iam

from everspot import common
from everspot.aws import arns, launch_policy, tagging
from everspot.aws.capacity import NO_SUBNET, AwsCapacityArgs, AwsElasticArgs, check_capacity
from everspot.aws.launch import AwsMachineArgs, check_machine, launch_template
from everspot.aws.offers import sold_in
from everspot.capacity import check_gpus, check_zones, registered
from everspot.limits import IDLE_LIMIT
from everspot.manifest import with_idle_limit
from everspot.parts import outputs


class AwsElasticCapacityArgs(TypedDict):
    """Inputs of `AwsElasticCapacity`."""

    cluster: str
    """Name of the cluster. The scheduler finds instances by it as a tag."""
    tags: dict[str, str]
    """Tags of launch template, instances and volumes. Project, Team and Environment are mandatory."""
    capacity: AwsCapacityArgs
    """Instance types, and limits of what may be launched of them. `elastic` has to be given."""
    machine: AwsMachineArgs
    """Image, disk and place in the network of the instances: the same as the standing fleets'."""
    subnet_ids: list[pulumi.Input[str]]
    """Subnets, each in a zone of its own."""
    zones: NotRequired[list[pulumi.Input[str]]]
    """Zone of each subnet, by name, if it is known that the zones offer the types. Default: both are looked up."""
    gpu_arches: NotRequired[list[str]]
    """Architectures for which the image's torch has code, as `torch.cuda.get_arch_list()` returns them. Default: those
    of Everspot's image."""
    manifest: pulumi.Input[str]
    """The agents' manifest, JSON. The instances' user data is the same with an idle limit added."""
    scheduler_role_arn: pulumi.Input[str]
    """ARN of the scheduler's role, which gets the permission to launch and to terminate these instances."""
    agent_role_arn: pulumi.Input[str]
    """ARN of the agents' role, which the scheduler passes to the instances."""
    volume_key_arns: NotRequired[list[str]]
    """Customer-managed KMS keys that encrypt the instances' volumes. The scheduler's role gets the permission to use
    them for launches. Default: none."""


class AwsElasticCapacity(pulumi.ComponentResource):
    """A launch template from which the scheduler launches instances for jobs, and its permissions to do so."""

    launch_template_id: pulumi.Output[str]
    """Id of the launch template."""
    launch_template_version: pulumi.Output[int]
    """Version of the launch template that new instances get."""
    places: pulumi.Output[dict[str, str]]
    """Id of the subnet in each zone in which instances may be launched, by the zone's name."""

    def __init__(self, name: str, args: AwsElasticCapacityArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsElasticCapacity"), name, registered(args, leaving="standing"), opts)
        check_elastic(name, args)
        self._name, self._args = name, args
        elastic, subnets = args["capacity"]["elastic"], args["subnet_ids"]
        template = launch_template(
            self,
            f"{name}-template",
            role=Role.AGENT,
            cluster=args["cluster"],
            tags=args["tags"],
            machine=args["machine"],
            manifest=pulumi.Output.from_input(args["manifest"]).apply(
                lambda text: with_idle_limit(text, elastic.get("idle_limit", IDLE_LIMIT))
            ),
            types=[entry["type"] for entry in args["capacity"]["instance_types"]],
        )
        self._may_launch = self._permissions(template)
        zones = args.get("zones")
        subnet_zones = (
            sold_in(self, f"AwsElasticCapacity {name}", args["capacity"], subnets, None)
            if zones is None
            else pulumi.Output.all(*zones)
        )
        self.launch_template_id, self.launch_template_version = template.id, template.latest_version
        self.places = pulumi.Output.all(zones=subnet_zones, subnets=pulumi.Output.all(*subnets)).apply(
            lambda found: _places(elastic, found["zones"], found["subnets"])
        )
        self.register_outputs(outputs(self))

    def launching(self, profile_arn: pulumi.Output[str]) -> pulumi.Output[str]:
        """Return the scheduler's instance profile, known once its role may launch: a scheduler that boots before would
        be refused."""
        return pulumi.Output.all(profile_arn, self._may_launch.id).apply(lambda pair: str(pair[0]))

    def _permissions(self, template: ec2.LaunchTemplate) -> iam.RolePolicy:
        """Return the part of the scheduler's permissions that only a cluster with elastic capacity has."""
        args = self._args
        role = pulumi.Output.from_input(args["scheduler_role_arn"])
        document = pulumi.Output.json_dumps(
            pulumi.Output.all(
                template=template.arn,
                image=template.image_id,
                agents=args["agent_role_arn"],
                profile=args["machine"]["instance_profile_arn"],
                subnets=pulumi.Output.all(*args["subnet_ids"]),
                groups=pulumi.Output.all(*args["machine"]["security_group_ids"]),
            ).apply(
                lambda known: launch_policy.launch_policy(
                    cluster=args["cluster"],
                    template_arn=known["template"],
                    image_id=known["image"],
                    agent_role_arn=known["agents"],
                    agent_profile_arn=known["profile"],
                    subnet_ids=known["subnets"],
                    security_group_ids=known["groups"],
                    volume_key_arns=args.get("volume_key_arns", []),
                )
            )
        )
        return iam.RolePolicy(
            f"{self._name}-permissions",
            role=role.apply(lambda arn: arn.rpartition("/")[2]),
            policy=document,
            opts=pulumi.ResourceOptions(parent=self),
        )


def check_elastic(name: str, args: AwsElasticCapacityArgs) -> None:
    """Refuse inputs with all of their problems.

    Raises:
        pulumi.InputPropertiesError: if anything is wrong; it carries each problem with the input's path.
    """
    problems = Problems()
    tagging.check_common(problems, args["cluster"], args["tags"])
    check_capacity(problems.at("capacity"), args["capacity"], len(args["subnet_ids"]))
    problems.need("elastic" in args["capacity"], "capacity.elastic", "is missing")
    check_gpus(problems, args["capacity"], args.get("gpu_arches"), FAMILIES)
    problems.need(bool(args["subnet_ids"]), "subnetIds", "at least one subnet is needed")
    check_machine(problems.at("machine"), args["machine"])
    arns.check_arns(problems, "volumeKeyArns", args.get("volume_key_arns", []), "kms", "key/")
    common.raise_bad(problems, f"AwsElasticCapacity {name}")


def _places(args: AwsElasticArgs, zones: Sequence[str], subnets: Sequence[str]) -> dict[str, str]:
    """Return the subnet of each zone that the settings name."""
    problems = Problems()
    check_zones(problems.at("capacity.elastic"), args.get("zones", []), zones, NO_SUBNET)
    common.raise_bad(problems, "The elastic capacity")
    return {zone: subnet for zone, subnet in zip(zones, subnets, strict=True) if zone in args.get("zones", zones)}
