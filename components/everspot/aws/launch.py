"""The launch template of agents and scheduler. Both use the same image, and differ in manifest, role and instance
type."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.fixed_prices import AS_OF
from everspot_clouds.aws.root_volume import Volume, initialization_usd, resolved_gib, volume_problems
from everspot_core.capacity.catalogue import is_burstable
from everspot_core.cluster.manifest import USER_DATA_LIMIT
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems
from pulumi_aws import ec2

from everspot import common
from everspot.aws import preview_queries, tagging


class AwsMachineArgs(TypedDict):
    """Image, disk, security groups and instance profile of an instance."""

    image_id: NotRequired[pulumi.Input[str]]
    """Id of the machine image, ami-…. Either this or `image_parameter`."""
    image_parameter: NotRequired[str]
    """Name of the Systems Manager parameter that holds the image's id. It is read at every preview, so that the preview
    of a pull request shows a new image."""
    security_group_ids: list[pulumi.Input[str]]
    """Security groups of the instances."""
    instance_profile_arn: pulumi.Input[str]
    """ARN of the instance profile."""
    volume_gib: NotRequired[int]
    """Size of the encrypted gp3 root volume in GiB. Image, code and datasets have to fit, and checkpoints too if the
    type has no NVMe disks of its own. Default: the image's own size; a smaller one is refused."""
    volume_iops: NotRequired[int]
    """IOPS of the root volume, 3000 to 80000, at most 500 per GiB. Default: 3000."""
    volume_throughput: NotRequired[int]
    """Throughput of the root volume in MiB/s, 125 to 2000, at most a quarter of the IOPS: a checkpoint is written to it
    before it is uploaded. Default: 125."""
    volume_initialization_rate: NotRequired[int]
    """MiB/s at which the root volume is read from the image's snapshot, 100 to 300. It costs money by the launch.
    Default: each block is read when it is first used."""


_IMAGE_ID = re.compile(r"ami-[0-9a-f]{1,17}")
SHUTDOWN_BEHAVIOR = "terminate"
"""An instance that powers itself off is terminated."""

METADATA_OPTIONS: ec2.LaunchTemplateMetadataOptionsArgsDict = {
    "http_endpoint": "enabled",
    "http_tokens": "required",
    "http_put_response_hop_limit": 1,
}
"""The metadata service requires session tokens (IMDSv2), and its answers do not leave the instance (hop limit 1)."""


def launched_with(machine: AwsMachineArgs) -> dict[str, Any]:
    """Return the content of a launch template apart from manifest and tags. A change of it makes a new generation."""
    return {"machine": dict(machine), "metadata": dict(METADATA_OPTIONS), "shutdown": SHUTDOWN_BEHAVIOR}


def check_machine(problems: Problems, machine: Mapping[str, Any]) -> None:
    """Add a problem for each mistake in image and disk. `machine`: `AwsMachineArgs`, or a mapping with the same
    keys."""
    image_id, image_parameter = machine.get("image_id"), machine.get("image_parameter")
    if (image_id is None) == (image_parameter is None):
        problems.add("imageId", "exactly one of imageId and imageParameter has to be given")
    if isinstance(image_id, str):
        right = _IMAGE_ID.fullmatch(image_id) is not None
        problems.need(right, "imageId", f"{image_id!r} is not an image id (ami- and hexadecimal digits)")
    if image_parameter is not None:
        problems.need(image_parameter.startswith("/"), "imageParameter", f"{image_parameter!r} has to begin with /")
    volume_problems(problems, _volume(machine))


def _volume(machine: Mapping[str, Any]) -> Volume:
    return Volume.model_construct(
        gib=machine.get("volume_gib"),
        iops=machine.get("volume_iops"),
        throughput=machine.get("volume_throughput"),
        initialization_rate=machine.get("volume_initialization_rate"),
    )


def _root_disk(parent: pulumi.Resource, machine: AwsMachineArgs, image: pulumi.Output[str]) -> pulumi.Output[Any]:
    """Return the mapping of the root volume.

    The image knows what its root device is called, and how large it is. A wrong name would add a disk and leave the
    root unencrypted; EC2 refuses a volume that is smaller than the image's snapshot.
    """
    facts = preview_queries.invoke(
        parent,
        "ec2/getAmi:getAmi",
        {"filters": [{"name": "image-id", "values": [image]}], "includeDeprecated": True},
        failed="imageId: the image cannot be described (ec2:DescribeImages): is it one of this region and account? "
        "`everspot cluster down` destroys a cluster whose image is gone.",
    )
    return facts.apply(lambda image_facts: _mapping(parent, _volume(machine), image_facts))


def _mapping(parent: pulumi.Resource, volume: Volume, image: Mapping[str, Any]) -> dict[str, Any]:
    root = image["rootDeviceName"]
    sizes = [m["ebs"].get("volume_size") for m in image.get("blockDeviceMappings") or [] if m["deviceName"] == root]
    problems = Problems()
    gib = resolved_gib(problems, volume, next((int(size) for size in sizes if size), None))
    common.raise_bad(problems, "The launch template")
    ebs: dict[str, Any] = {"encrypted": "true", "volume_type": "gp3", "delete_on_termination": "true"}
    settings = (
        ("volume_size", gib),
        ("iops", volume.iops),
        ("throughput", volume.throughput),
        ("volume_initialization_rate", volume.initialization_rate),
    )
    if volume.initialization_rate is not None and gib is not None and pulumi.runtime.is_dry_run():
        pulumi.log.info(
            f"volumeInitializationRate costs at most ${initialization_usd(gib):.2f} for each instance that is launched "
            f"({gib} GiB, us-east-1's list price of {AS_OF}).",
            parent,
        )
    return {"device_name": root, "ebs": {**ebs, **{name: int(value) for name, value in settings if value is not None}}}


def resolve_image(
    parent: pulumi.Resource, image_id: pulumi.Input[str] | None, image_parameter: str | None
) -> pulumi.Output[str]:
    """Return the image's id: as given, or the present value of the parameter."""
    if image_parameter is None:
        return pulumi.Output.from_input(image_id).apply(lambda given: given or "")
    answer = preview_queries.invoke(
        parent,
        "ssm/getParameter:getParameter",
        {"name": image_parameter},
        failed=f"imageParameter: there is no image yet: the parameter {image_parameter} cannot be read in this region. "
        "Bake one, which writes it: packer build -var region=REGION -var wheel=WHEEL "
        f"-var image_parameter={image_parameter} training_image/bake/everspot.pkr.hcl",
    )
    # The provider marks every parameter's value as a secret. An image id is no secret, and a pull request shows it.
    return pulumi.Output.unsecret(answer).apply(lambda parameter: str(parameter["value"]))


def launch_template(
    parent: pulumi.Resource,
    name: str,
    *,
    role: Role,
    cluster: str,
    tags: dict[str, str],
    machine: AwsMachineArgs,
    manifest: pulumi.Input[str],
    types: Sequence[str],
    has_type: bool = False,
) -> ec2.LaunchTemplate:
    """Return the launch template of one role.

    Args:
        manifest: the manifest's JSON.
        types: all instance types that are launched from it.
        has_type: whether launches take the template's type, the first one, and do not override it.
    """
    burstable = all(map(is_burstable, types))
    image = resolve_image(parent, machine.get("image_id"), machine.get("image_parameter"))
    launched = tagging.instance_tags(cluster, tags, role.value)
    return ec2.LaunchTemplate(
        name,
        description=f"Everspot {role.value} of cluster {cluster}",
        image_id=image,
        # Without a type the provider leaves the credits out (terraform-provider-aws, ec2_launch_template.go).
        instance_type=types[0] if has_type or burstable else None,
        # A scheduler of T3 or T4g is launched as unlimited otherwise, and credits beyond the price are billed (EC2 User
        # Guide, "Unlimited mode for burstable performance instances"). EC2 launches no other type with this setting.
        credit_specification={"cpu_credits": "standard"} if burstable else None,
        update_default_version=True,
        iam_instance_profile={"arn": machine["instance_profile_arn"]},
        instance_initiated_shutdown_behavior=SHUTDOWN_BEHAVIOR,
        metadata_options=METADATA_OPTIONS,
        block_device_mappings=[_root_disk(parent, machine, image)],
        network_interfaces=[
            {
                "device_index": 0,
                "associate_public_ip_address": "false",
                "delete_on_termination": "true",
                "security_groups": machine["security_group_ids"],
            }
        ],
        # EC2 Fleet tags neither the volumes nor, through its own tags, the instances of its Spot capacity.
        tag_specifications=[
            {"resource_type": "instance", "tags": launched},
            {"resource_type": "volume", "tags": launched},
        ],
        user_data=pulumi.Output.from_input(manifest).apply(_user_data),
        tags=tagging.cluster_tags(cluster, tags),
        opts=pulumi.ResourceOptions(parent=parent),
    )


def manifest_problem(manifest: str) -> str | None:
    """Return the reason why a manifest cannot be user data, or None."""
    size = len(manifest.encode())
    return f"the manifest has {size} bytes; user data holds {USER_DATA_LIMIT}" if size > USER_DATA_LIMIT else None


def _user_data(manifest: str) -> str:
    problems = Problems()
    reason = manifest_problem(manifest)
    problems.need(reason is None, "manifest", reason or "")
    common.raise_bad(problems, "The launch template")
    return base64.b64encode(manifest.encode()).decode()
