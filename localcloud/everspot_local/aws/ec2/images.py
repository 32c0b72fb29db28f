"""Stands in for machine images as far as EC2 checks them at a launch: snapshot, architecture, boot mode, network.

What moto's images lack is here: how large the root's snapshot is, whether the image knows ENA, how it boots. One image
is the account's own: it has the shape of the one that the bake makes, and nothing inside. RegisterImage makes more, and
`image_copies` those of instances.
"""

import copy
import re
from collections.abc import Callable
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.amis import Ami
from moto.ec2.utils import random_ami_id

from everspot_local.aws.ec2 import volume_rules
from everspot_local.aws.strict import strict

BAKED_IMAGE = "ami-0e5e590700c10ed01"
"""As training_image/bake makes one: 75 GiB on /dev/sda1, x86_64, ENA, UEFI where the type has it."""

BAKED_GIB, USUAL_GIB = 75, 15
_NAME = re.compile(r"[A-Za-z0-9()\[\] ./'@_-]{3,128}")
"""EC2 API Reference, CreateImage, `Name`."""


class LocalAmi(Ami):
    """An image.

    moto calls every image UEFI-only, which no old type could boot. Here an image without a boot mode boots either way,
    except on arm64, which has only UEFI (EC2 User Guide, "Amazon EC2 instance types that support UEFI").

    Attributes:
        root_gib: size of the snapshot of its root device.
        ena: whether it has the ENA driver.
    """

    def __init__(
        self,
        ec2_backend: Any,
        ami_id: str,
        *args: Any,
        root_gib: int = USUAL_GIB,
        ena: bool | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("boot_mode", "uefi" if kwargs.get("architecture") == "arm64" else None)
        super().__init__(ec2_backend, ami_id, *args, **kwargs)
        self.root_gib = root_gib
        self.ena_support = self.virtualization_type != "paravirtual" if ena is None else ena
        self.root_device_type = "ebs"
        self.ebs_snapshot.volume.size = root_gib

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        """Return the root device as DescribeImages shows it."""
        ebs = {
            "SnapshotId": self.ebs_snapshot.id,
            "VolumeSize": self.root_gib,
            "DeleteOnTermination": True,
            "VolumeType": "gp3",
            "Encrypted": self.ebs_snapshot.encrypted,
            **({"KmsKeyId": self.ebs_snapshot.kms_key_id} if self.ebs_snapshot.kms_key_id else {}),
        }
        return [{"DeviceName": self.root_device_name, "Ebs": ebs}]

    def get_tags_dict(self) -> dict[str, str]:
        """Return its tags by key."""
        return dict(self.ec2_backend.tags.get(self.id, {}))

    def get_filter_value(self, filter_name: str, method_name: str | None = None) -> Any:
        """Return what a filter of DescribeImages compares; moto does not know the kind of the root device."""
        if filter_name == "root-device-type":
            return self.root_device_type
        return super().get_filter_value(filter_name, method_name)


_PUBLIC: dict[str, list[LocalAmi]] = {}
"""AWS's images by region, as this process has read them first."""


def load(backend: Any, make: Callable[[], None]) -> None:
    """Give a new EC2 AWS's own images.

    There are 1,300 in a region, each with a snapshot, and moto makes them for every EC2; here `make` is called for the
    first of a region, and the next ones get copies.
    """
    public_images = _PUBLIC.get(backend.region_name)
    if public_images is None:
        make()
        _PUBLIC[backend.region_name] = [_copied(image, None) for image in backend.amis.values()]
        return
    for image in public_images:
        duplicate = _copied(image, backend)
        backend.amis[duplicate.id] = duplicate
        backend.snapshots[duplicate.ebs_snapshot.id] = duplicate.ebs_snapshot


def _copied(image: LocalAmi, backend: Any) -> LocalAmi:
    """Copy an image and its snapshot to another EC2 backend, or to none yet.

    The volume that the snapshot was made from is not copied: moto deletes it immediately, and only its size is read.
    """
    duplicate, snapshot = copy.copy(image), copy.copy(image.ebs_snapshot)
    duplicate.ebs_snapshot = snapshot
    duplicate.ec2_backend = snapshot.ec2_backend = backend
    duplicate.launch_permissions = [dict(permission) for permission in image.launch_permissions]
    duplicate.product_codes = set(image.product_codes)
    snapshot.create_volume_permission_groups = set(snapshot.create_volume_permission_groups)
    snapshot.create_volume_permission_userids = set(snapshot.create_volume_permission_userids)
    return duplicate


def baked(backend: Any) -> LocalAmi:
    """Return the account's own image."""
    return LocalAmi(
        backend,
        BAKED_IMAGE,
        name="everspot-1764547200",
        description="The shape of a baked image; nothing is inside.",
        owner_id=backend.account_id,
        architecture="x86_64",
        virtualization_type="hvm",
        hypervisor="xen",
        root_device_name="/dev/sda1",
        boot_mode="uefi-preferred",
        root_gib=BAKED_GIB,
        tags={"Name": "everspot"},
    )


def register(backend: Any, params: dict[str, Any]) -> LocalAmi:
    """Register an image as RegisterImage does, with EC2's defaults (a paravirtual i386 without ENA).

    Raises:
        EC2ClientError: for a name that cannot be, or a root that does not fit its snapshot.
    """
    if strict():
        check_name(backend, params.get("Name"))
    root = params.get("RootDeviceName") or "/dev/sda1"
    ebs = next((m.get("Ebs") or {} for m in params.get("BlockDeviceMappings") or [] if m.get("DeviceName") == root), {})
    snapshot_id = ebs.get("SnapshotId")
    if snapshot_id and snapshot_id not in backend.snapshots:
        raise EC2ClientError("InvalidSnapshot.NotFound", f"The snapshot '{snapshot_id}' does not exist.")
    snapshot = backend.snapshots[snapshot_id] if snapshot_id else None
    least = int(snapshot.volume.size) if snapshot is not None else USUAL_GIB
    gib = int(ebs.get("VolumeSize") or least)
    if snapshot is not None and strict():
        volume_rules.check_size(gib, snapshot.id, least)
    image = LocalAmi(
        backend,
        random_ami_id(),
        name=params.get("Name"),
        description=params.get("Description") or "",
        architecture=params.get("Architecture") or "i386",
        virtualization_type=params.get("VirtualizationType") or "paravirtual",
        root_device_name=root,
        boot_mode=params.get("BootMode"),
        root_gib=gib,
        ena=bool(params.get("EnaSupport")),
    )
    backend.amis[image.id] = image
    return image


def check_name(backend: Any, name: str | None) -> None:
    """Refuse a name that EC2 does not allow, or that another image of the account has.

    Raises:
        EC2ClientError: by EC2's own code.
    """
    if not _NAME.fullmatch(name or ""):
        raise EC2ClientError(
            "InvalidAMIName.Malformed",
            "AMI names must be between 3 and 128 characters long, and may contain letters, numbers, '(', ')', '.', "
            "'-', '/' and '_'",
        )
    for image in backend.amis.values():
        if image.name == name and image.owner_id == backend.account_id:
            raise EC2ClientError("InvalidAMIName.Duplicate", f"AMI name {name} is already in use by AMI {image.id}")
