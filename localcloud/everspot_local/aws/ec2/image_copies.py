"""Stands in for CreateImage, CopyImage and DeregisterImage: images of stopped instances, with their root trees.

It makes no image of a running instance, as it restarts none, and no second snapshot of other volumes than the root's.
"""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.utils import random_ami_id

from everspot_local.aws import account
from everspot_local.aws.ec2.exceptions import InvalidParameter, UnsupportedHere
from everspot_local.aws.ec2.images import LocalAmi, check_name
from everspot_local.aws.ec2.launch_rules import find_image
from everspot_local.aws.strict import strict

log = logging.getLogger(__name__)
_CREATE = {"InstanceId", "Name", "Description", "NoReboot", "TagSpecifications", "DryRun"}
_COPY = {
    "SourceImageId", "SourceRegion", "Name", "Description", "Encrypted", "KmsKeyId", "ClientToken", "TagSpecifications",
    "CopyImageTags", "DryRun",
}  # fmt: skip


def create(backend: Any, params: dict[str, Any]) -> LocalAmi:
    """Begin to make an image of an instance, as CreateImage does; the image is `pending` until its snapshot is there.

    Raises:
        EC2ClientError: if EC2 would refuse it, or for what the local cloud cannot do.
    """
    _check_parameters("CreateImage", params, _CREATE)
    instance = backend.get_instance(params.get("InstanceId"))
    if instance.state not in ("running", "stopping", "stopped"):
        raise InvalidParameter(
            f"Invalid value '{instance.id}' for instanceId. Instance is not in state 'running' or 'stopping' or "
            "'stopped'"
        )
    if strict():
        check_name(backend, params.get("Name"))
    if instance.state != "stopped":
        raise UnsupportedHere("images of running instances; stop them first")
    source = find_image(backend, instance.image_id)
    root = backend.volumes[instance.block_device_mapping[source.root_device_name].volume_id]
    image = _pending(backend, source, params, root_gib=root.size, encrypted=root.encrypted, kms_key=root.kms_key_id)
    image.instance_id = instance.id
    image.ebs_snapshot.description = f"Created by CreateImage({instance.id}) for {image.id}"
    trees = account.current().machines.trees

    def snapshot() -> None:
        if trees.has_disk(instance.id):
            image.ebs_snapshot.full_snapshot_size_in_bytes = trees.snapshot(instance.id, image.id)

    _complete(image, snapshot)
    return image


def copy(backend: Any, params: dict[str, Any]) -> LocalAmi:
    """Begin to copy an image within the region, as CopyImage does.

    Raises:
        EC2ClientError: if EC2 would refuse it, or for what the local cloud cannot do.
    """
    _check_parameters("CopyImage", params, _COPY)
    if params.get("SourceRegion") != backend.region_name:
        raise UnsupportedHere(f"images of {params.get('SourceRegion')}; its only region is {backend.region_name}")
    if strict():
        check_name(backend, params.get("Name"))
    source = find_image(backend, params.get("SourceImageId"))
    check_available(source, "used for this operation")
    key = params.get("KmsKeyId")
    if key and not params.get("Encrypted"):
        raise EC2ClientError("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted.")
    encrypted = bool(params.get("Encrypted")) or source.ebs_snapshot.encrypted
    if encrypted and not key:
        key = source.ebs_snapshot.kms_key_id or backend.default_kms_key_id or "alias/aws/ebs"
    image = _pending(backend, source, params, root_gib=source.root_gib, encrypted=encrypted, kms_key=key)
    if params.get("CopyImageTags"):
        image.add_tags({key: value for key, value in source.get_tags_dict().items() if not key.startswith("aws:")})
    image.ebs_snapshot.description = (
        f"Copied for DestinationAmi {image.id} from SourceAmi {source.id} for SourceSnapshot {source.ebs_snapshot.id}."
    )
    size = getattr(source.ebs_snapshot, "full_snapshot_size_in_bytes", None)
    if size is not None:
        image.ebs_snapshot.full_snapshot_size_in_bytes = size
    _complete(image, lambda: account.current().machines.trees.copy(source.id, image.id))
    return image


def deregister(backend: Any, params: dict[str, Any]) -> list[str]:
    """Deregister an image as DeregisterImage does; return the snapshots that were deleted with it.

    Instances that were launched from it go on (EC2 User Guide, "Deregister an Amazon EC2 AMI").

    Raises:
        EC2ClientError: for an image that does not exist any more, never did, or is another account's.
    """
    image_id = str(params.get("ImageId") or "")
    image = backend.amis.get(image_id)
    if image is not None and image.owner_id != backend.account_id:
        raise EC2ClientError("AuthFailure", f"Not authorized for image:{image_id}")
    backend.deregister_image(image_id)
    if not params.get("DeleteAssociatedSnapshots"):
        return []
    return [str(backend.delete_snapshot(image.ebs_snapshot.id).id)]


def check_available(image: LocalAmi, use: str) -> None:
    """Refuse an image that is not there yet, or could not be made."""
    if image.state != "available":
        raise EC2ClientError(
            "InvalidAMIID.Unavailable", f"The AMI ID '{image.id}' is currently {image.state} and may not be {use}"
        )


def _check_parameters(action: str, params: dict[str, Any], supported: set[str]) -> None:
    if unknown := sorted(set(params) - supported):
        raise UnsupportedHere(f"{', '.join(unknown)} of {action}")


def _pending(
    backend: Any, source: LocalAmi, params: dict[str, Any], *, root_gib: int, encrypted: bool, kms_key: str | None
) -> LocalAmi:
    """Return a new image of the account in the form of another one, and its snapshot."""
    image = LocalAmi(
        backend,
        random_ami_id(),
        name=params.get("Name"),
        description=params.get("Description") or "",
        state="pending",
        architecture=source.architecture,
        virtualization_type=source.virtualization_type,
        hypervisor=source.hypervisor,
        platform=source.platform,
        root_device_name=source.root_device_name,
        boot_mode=source.boot_mode,
        creation_date=account.current().market.clock.now(),
        root_gib=root_gib,
        ena=source.ena_support,
    )
    snapshot = image.ebs_snapshot
    snapshot.status, snapshot.encrypted, snapshot.kms_key_id = "pending", encrypted, kms_key
    snapshot.start_time = image.creation_date
    for specification in params.get("TagSpecifications") or []:
        tagged = {"image": image, "snapshot": snapshot}.get(specification.get("ResourceType"))
        if tagged is None:
            raise InvalidParameter(
                f"'{specification.get('ResourceType')}' is not a valid taggable resource type for this operation."
            )
        tagged.add_tags({tag["Key"]: tag["Value"] for tag in specification.get("Tags") or []})
    backend.amis[image.id] = image
    return image


def _complete(image: LocalAmi, work: Callable[[], None]) -> None:
    """Do the work of an image on a thread of its own, so that the market goes on; the image is `available` then."""
    timeline, delay = account.current().market.timeline, account.current().market.delays.operation

    def end(state: str, status: str) -> None:
        image.state, image.ebs_snapshot.status = state, status

    def run() -> None:
        try:
            work()
        except Exception:  # whatever it is, the image does not stay pending for ever
            log.exception("the image %s cannot be made", image.id)
            timeline.after(timedelta(), lambda: end("failed", "error"))
        else:
            timeline.after(delay, lambda: end("available", "completed"))

    threading.Thread(target=run, name=f"everspot-{image.id}", daemon=True).start()
