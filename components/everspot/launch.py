"""The launch template that agents and the scheduler share: the same image, told apart by manifest, role and type."""

import base64
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_core.manifest import USER_DATA_LIMIT
from everspot_core.problems import Problems
from everspot_core.records import Role
from pulumi_aws import ec2

from everspot import asking, common


class MachineArgs(TypedDict):
    """What an instance is made of, apart from its type: the image, its disk and its place in the network."""

    image_id: NotRequired[pulumi.Input[str]]
    """Id of the machine image, ami-…. Either this or `image_parameter`."""
    image_parameter: NotRequired[str]
    """Name of the Systems Manager parameter that holds the image's id. It is read at every preview, so that a new
    image shows in the pull request."""
    security_group_ids: list[pulumi.Input[str]]
    """Security groups of the instances."""
    instance_profile_arn: pulumi.Input[str]
    """ARN of the instance profile."""
    volume_gib: NotRequired[int]
    """Size of the encrypted root volume, a gp3, in GiB: image, code and datasets have to fit. Default: 60."""


SHUTDOWN_BEHAVIOR = "terminate"
"""An instance that powers itself off is given back."""

METADATA_OPTIONS: ec2.LaunchTemplateMetadataOptionsArgsDict = {
    "http_endpoint": "enabled",
    "http_tokens": "required",
    "http_put_response_hop_limit": 1,
}
"""The metadata service answers tokens only, and no farther than the instance itself."""


def launched_with(machine: MachineArgs) -> dict[str, Any]:
    """What a launch template gives an instance apart from the manifest and from tags: what makes a generation."""
    return {"machine": dict(machine), "metadata": dict(METADATA_OPTIONS), "shutdown": SHUTDOWN_BEHAVIOR}


def check_machine(problems: Problems, machine: Mapping[str, Any]) -> None:
    """Add what is wrong with image and disk. `machine`: a `MachineArgs`, or other inputs that name these the same."""
    image_id, image_parameter = machine.get("image_id"), machine.get("image_parameter")
    volume_gib = int(machine.get("volume_gib", DEFAULT_VOLUME_GIB))
    if (image_id is None) == (image_parameter is None):
        problems.add("imageId", "exactly one of imageId and imageParameter has to be given")
    if isinstance(image_id, str):
        problems.need(image_id.startswith("ami-"), "imageId", f"{image_id!r} is not an image id (ami-…)")
    if image_parameter is not None:
        problems.need(image_parameter.startswith("/"), "imageParameter", f"{image_parameter!r} has to begin with /")
    problems.need(8 <= volume_gib <= 16384, "volumeGib", f"has to lie between 8 and 16384, not {volume_gib}")


def resolve_image(
    parent: pulumi.Resource, image_id: pulumi.Input[str] | None, image_parameter: str | None
) -> pulumi.Output[str]:
    """The image's id: as given, or what the parameter holds now."""
    if image_parameter is None:
        return pulumi.Output.from_input(image_id).apply(lambda given: given or "")
    found = asking.ask(
        parent,
        "ssm/getParameter:getParameter",
        {"name": image_parameter},
        failed=f"imageParameter: there is no image yet: the parameter {image_parameter} cannot be read in this region. "
        "Bake one, which writes it: packer build -var region=REGION -var wheel=WHEEL "
        f"-var image_parameter={image_parameter} training_image/bake/everspot.pkr.hcl",
    )
    # The provider marks every parameter's value as a secret. An image id is none, and a pull request has to show it.
    return pulumi.Output.unsecret(found).apply(lambda parameter: str(parameter["value"]))


def launch_template(
    parent: pulumi.Resource,
    name: str,
    *,
    role: Role,
    cluster: str,
    tags: dict[str, str],
    machine: MachineArgs,
    manifest: pulumi.Input[str],
    instance_type: str | None = None,
) -> ec2.LaunchTemplate:
    """The launch template of one role. `manifest` is the manifest's JSON."""
    image = resolve_image(parent, machine.get("image_id"), machine.get("image_parameter"))
    # The image knows what its root device is called. A wrong name would add a disk and leave the root unencrypted.
    facts = ec2.get_ami_output(
        filters=[ec2.GetAmiFilterArgs(name="image-id", values=[image])],  # type: ignore[list-item]  # takes Outputs too
        include_deprecated=True,
        opts=pulumi.InvokeOutputOptions(parent=parent),
    )
    own = common.cluster_tags(cluster, tags)
    launched = {**own, common.ROLE_TAG: role.value, "Name": f"{cluster}-{role.value}"}
    return ec2.LaunchTemplate(
        name,
        description=f"Everspot {role.value} of cluster {cluster}",
        image_id=image,
        instance_type=instance_type,
        update_default_version=True,
        iam_instance_profile={"arn": machine["instance_profile_arn"]},
        instance_initiated_shutdown_behavior=SHUTDOWN_BEHAVIOR,
        metadata_options=METADATA_OPTIONS,
        monitoring={"enabled": True},
        block_device_mappings=[
            {
                "device_name": facts.root_device_name,
                "ebs": {
                    "encrypted": "true",
                    "volume_type": "gp3",
                    "volume_size": int(machine.get("volume_gib", DEFAULT_VOLUME_GIB)),
                    "delete_on_termination": "true",
                },
            }
        ],
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
        tags=own,
        opts=pulumi.ResourceOptions(parent=parent),
    )


DEFAULT_VOLUME_GIB = 60
"""Size of the root volume when none is given."""


def manifest_problem(manifest: str) -> str | None:
    """What is wrong with a manifest as user data, or None."""
    size = len(manifest.encode())
    return f"the manifest has {size} bytes; user data holds {USER_DATA_LIMIT}" if size > USER_DATA_LIMIT else None


def _user_data(manifest: str) -> str:
    problems = Problems()
    reason = manifest_problem(manifest)
    problems.need(reason is None, "manifest", reason or "")
    common.raise_bad(problems, "The launch template")
    return base64.b64encode(manifest.encode()).decode()
