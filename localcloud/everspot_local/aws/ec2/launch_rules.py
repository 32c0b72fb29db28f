"""Holds a launch to EC2's rules: the image exists and fits the type, the root fits the image, the groups the subnet.

They hold for RunInstances, for a fleet's and for a group's launches. A type that moto's table of instance types lacks
(one declared in a market script) is held to its architecture alone.
"""

from collections.abc import Mapping
from typing import Any

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.records import Market
from moto.ec2.exceptions import EC2ClientError, InvalidAMIIdError
from moto.ec2.models.instance_types import INSTANCE_TYPES

from everspot_local.aws.ec2 import volume_rules
from everspot_local.aws.ec2.exceptions import UnsupportedHere
from everspot_local.aws.ec2.images import LocalAmi

USER_DATA_BYTES = 16384


def find_image(backend: Any, image_id: str | None) -> LocalAmi:
    """Return the image, or raise EC2's error, which for one that was deregistered is another."""
    image: LocalAmi | None = backend.amis.get(image_id)
    if image_id in backend.deleted_amis:
        raise EC2ClientError("InvalidAMIID.Unavailable", f"The image ID '{image_id}' is no longer available")
    if image is None:
        raise InvalidAMIIdError(image_id or "")
    return image


def check_image(image: LocalAmi, kind: InstanceType) -> None:
    """Refuse an image that is not available, or whose architecture, boot mode or ENA support does not fit the type."""
    if image.state != "available":
        raise EC2ClientError("InvalidAMIID.Unavailable", f"AMI '{image.id}' is {image.state}, and cannot be run")
    type_info = INSTANCE_TYPES.get(kind.name)
    architectures = type_info["ProcessorInfo"]["SupportedArchitectures"] if type_info else [kind.arch]
    if image.architecture not in architectures:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"The architecture '{','.join(architectures)}' of the specified instance type does not match the "
            f"architecture '{image.architecture}' of the specified AMI. Specify an instance type and an AMI that have "
            "matching architectures, and try again.",
        )
    if type_info is None:
        return
    if image.boot_mode == "uefi" and "uefi" not in type_info.get("SupportedBootModes", []):
        raise EC2ClientError(
            "InvalidParameterValue",
            f"The {kind.name} instance type does not support an AMI with a boot mode of UEFI. Only instance types "
            "built on the Nitro System support UEFI. Specify an instance type that supports UEFI, and try again.",
        )
    if image.boot_mode == "legacy-bios" and "legacy-bios" not in type_info.get("SupportedBootModes", []):
        raise EC2ClientError(
            "InvalidParameterValue",
            f"The {kind.name} instance type does not support an AMI with a boot mode of Legacy BIOS.",
        )
    if type_info.get("NetworkInfo", {}).get("EnaSupport") == "required" and not image.ena_support:
        raise EC2ClientError(
            "InvalidParameterCombination",
            "Enhanced networking with the Elastic Network Adapter (ENA) is required for the "
            f"'{kind.name}' instance type. Ensure that you are using an AMI that is enabled for ENA.",
        )


def check_credits(kind: InstanceType, specification: Mapping[str, Any] | None) -> None:
    """Refuse CPU credits, also `standard` ones, for a type that is not burstable."""
    if specification and not kind.is_burstable:
        raise EC2ClientError(
            "InstanceCreditSpecification.NotSupported",
            f"The {kind.name} instance type does not support T2 Unlimited.",
        )


def check_devices(backend: Any, image: LocalAmi, devices: list[dict[str, Any]]) -> None:
    """Refuse a volume that is smaller than its snapshot; the root's snapshot is the image's."""
    for device in devices:
        if device.get("NoDevice") == "":
            continue
        ebs = device["Ebs"]
        snapshot = image.ebs_snapshot if device["DeviceName"] == image.root_device_name else None
        if ebs.get("SnapshotId"):
            snapshot = backend.get_snapshot(ebs["SnapshotId"])
        if snapshot is None and not ebs.get("VolumeSize"):
            raise EC2ClientError(
                "InvalidBlockDeviceMapping",
                f"Either snapshot ID or volume size must be provided for: {device['DeviceName']}",
            )
        least = int(snapshot.volume.size) if snapshot is not None else 0
        gib = int(ebs.get("VolumeSize") or least)
        if snapshot is not None:
            volume_rules.check_size(gib, snapshot.id, least)
        volume_rules.check_volume({**ebs, "VolumeSize": gib})


def check_groups(template: dict[str, Any], kwargs: dict[str, Any]) -> None:
    """Refuse security groups both of the instance and of its interfaces. EC2 finds that at a launch (as met:
    https://github.com/ansible-collections/amazon.aws/issues/157). `kwargs`: what the request itself says."""
    interfaces = kwargs.get("nics") or template.get("NetworkInterfaces")
    groups = kwargs.get("security_group_ids") or template.get("SecurityGroupIds") or template.get("SecurityGroups")
    if interfaces and groups:
        raise EC2ClientError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same request",
        )


def check_market_options(options: dict[str, Any] | None, source: str = "RunInstances") -> None:
    """Refuse options other than a one-time Spot instance, at any price up to on-demand, that is terminated when
    interrupted. A template may not have any, since its launches here would be on-demand."""
    kind, spot = (options or {}).get("MarketType"), dict((options or {}).get("SpotOptions") or {})
    usual = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    other = sorted(name for name, value in spot.items() if value != usual.get(name))
    if kind not in (None, "on-demand") and (kind != "spot" or source != "RunInstances"):
        other.append(f"MarketType {kind}")
    if other:
        raise UnsupportedHere(f"{', '.join(other)} in InstanceMarketOptions of {source}; a fleet has a MaxPrice")


def check_spot_tags(template: dict[str, Any], market: Market) -> None:
    """Refuse an on-demand launch from a template that tags Spot requests: as met, and confirmed by the EC2 team
    (https://github.com/aws/karpenter-provider-aws/issues/5850)."""
    kinds = {s.get("ResourceType") for s in template.get("TagSpecifications") or []}
    if market is Market.ON_DEMAND and "spot-instances-request" in kinds:
        raise EC2ClientError(
            "InvalidParameterValue",
            "You cannot specify tags for Spot instances requests if there are no Spot instances requests being created "
            "by the request.",
        )


def check_user_data(encoded: Any) -> None:
    """Refuse user data that are too large once decoded. RunInstances has its own error code for it, and so have launch
    templates."""
    if encoded is not None and decoded_size(str(encoded)) > USER_DATA_BYTES:
        raise EC2ClientError("InvalidParameterValue", f"User data is limited to {USER_DATA_BYTES} bytes")


def decoded_size(encoded: str) -> int:
    """Return the number of bytes that a base64 text encodes."""
    text = encoded.strip()
    return len(text) * 3 // 4 - text[-2:].count("=")


def check_networks(backend: Any, subnet_id: str | None, groups: list[str], count: int) -> None:
    """Refuse security groups that belong to another VPC than the subnet, and a subnet without enough free addresses."""
    if not subnet_id:
        return
    check_addresses(backend, subnet_id, count)
    vpc = backend.get_subnet(subnet_id).vpc_id
    for group_id in groups:
        group = backend.get_security_group_from_id(group_id)
        if group is not None and group.vpc_id != vpc:
            raise EC2ClientError(
                "InvalidParameter",
                f"Security group {group_id} and subnet {subnet_id} belong to different networks.",
            )


def check_addresses(backend: Any, subnet_id: str, count: int) -> None:
    """Refuse more instances than a subnet has free addresses (VPC User Guide, "Subnet CIDR blocks": AWS reserves five).

    The words as met: https://github.com/aws/karpenter-provider-aws/issues/3380.
    """
    if backend.get_subnet(subnet_id).available_ip_address_count < count:
        raise EC2ClientError(
            "InsufficientFreeAddressesInSubnet",
            f"There are not enough free addresses in subnet '{subnet_id}' to satisfy the requested number of "
            "instances.",
        )
