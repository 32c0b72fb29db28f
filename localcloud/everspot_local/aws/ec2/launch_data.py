"""Completes moto's launches: values of the launch template and of the image that moto ignores."""

from typing import Any

from everspot_local.aws.ec2 import images


def merge_template(kwargs: dict[str, Any], template: dict[str, Any], image: images.LocalAmi | None) -> None:
    """Add to a launch's arguments what its template says and moto ignores. The request's own values take precedence."""
    interfaces = template.get("NetworkInterfaces") or []
    if interfaces and not kwargs.get("nics"):
        first = interfaces[0]
        kwargs.setdefault("security_group_ids", [])
        kwargs["security_group_ids"] = kwargs["security_group_ids"] or list(first.get("Groups") or [])
        kwargs["subnet_id"] = kwargs.get("subnet_id") or first.get("SubnetId")
        if kwargs.get("associate_public_ip") is None:
            kwargs["associate_public_ip"] = first.get("AssociatePublicIpAddress")
    if not kwargs.get("metadata_options"):
        kwargs["metadata_options"] = template.get("MetadataOptions") or {}
    if not kwargs.get("instance_initiated_shutdown_behavior"):
        kwargs["instance_initiated_shutdown_behavior"] = template.get("InstanceInitiatedShutdownBehavior")
    if template.get("EbsOptimized") and not kwargs.get("ebs_optimized"):
        kwargs["ebs_optimized"] = True
    if (template.get("Monitoring") or {}).get("Enabled"):
        kwargs["monitoring_state"] = "enabled"
    kwargs["block_device_mappings"] = _devices(
        kwargs.get("block_device_mappings") or template.get("BlockDeviceMappings") or [], image
    )


def _devices(requested: list[dict[str, Any]], image: images.LocalAmi | None) -> list[dict[str, Any]]:
    """Combine the requested block devices with the image's. moto would attach a second root volume beside the
    template's, and never delete either."""
    root, gib = (image.root_device_name, image.root_gib) if image else ("/dev/sda1", images.USUAL_GIB)
    devices = {}
    for mapping in [{"DeviceName": root}, *requested]:
        if mapping.get("VirtualName"):  # instance store, which is no volume
            continue
        name = mapping.get("DeviceName") or root
        default = {"VolumeSize": gib} if name == root else {}
        ebs_options = {k: v for k, v in (mapping.get("Ebs") or {}).items() if v is not None}
        devices[name] = {**mapping, "DeviceName": name, "Ebs": {"DeleteOnTermination": True, **default, **ebs_options}}
    return list(devices.values())


def provision(instance: Any, devices: list[dict[str, Any]]) -> None:
    """Set IOPS and throughput of the instance's volumes, which moto's launches ignore."""
    for device in devices:
        attached = instance.block_device_mapping.get(device["DeviceName"])
        if attached is not None:
            volume = instance.ec2_backend.volumes[attached.volume_id]
            volume.iops = device["Ebs"].get("Iops") or volume.iops
            volume.throughput = device["Ebs"].get("Throughput") or volume.throughput


def template_profile(kwargs: dict[str, Any], template: dict[str, Any]) -> dict[str, str]:
    """Return the template's instance profile, unless the request names one, which moto's response class associates."""
    if kwargs.get("iam_instance_profile_name") or kwargs.get("iam_instance_profile_arn"):
        return {}
    profile = template.get("IamInstanceProfile") or {}
    if profile.get("Arn"):
        return {"iam_instance_profile_arn": profile["Arn"]}
    return {"iam_instance_profile_name": profile["Name"]} if profile.get("Name") else {}
