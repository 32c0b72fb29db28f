"""The instance templates of agents and scheduler. All use the same image, and differ in manifest, service account,
scheduling and machine type."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.disks import BOOT_DISKS, boot_disk, boot_disks
from everspot_clouds.gcp.fleet import scheduling
from everspot_clouds.gcp.machines import description, parse_type
from everspot_clouds.gcp.names import LONGEST, RESOURCE
from everspot_clouds.gcp.network import resource_problem
from everspot_clouds.gcp.rules import DOOR_TAG, MANIFEST_KEY, SCOPE
from everspot_core.capacity.market import Market
from everspot_core.jobs.records import Role
from everspot_core.validation.problems import Problems, shown
from pulumi_gcp import compute

from everspot import common
from everspot.gcp import preview_queries, tagging
from everspot.gcp.case_conversion import snake
from everspot.gcp.store import KEY_FORM

METADATA_LIMIT = 256 * 1024
"""Bytes of one metadata value (Compute API, Metadata)."""

METADATA = {
    # Accounts and keys come from IAM, and a project's own SSH keys open nothing.
    "enable-oslogin": "TRUE",
    "block-project-ssh-keys": "TRUE",
    # Interactive access to the serial console; its output can be read all the same.
    "serial-port-enable": "FALSE",
}
"""The metadata of every instance, besides the manifest."""

SIZES = (10, 65_536)
"""Least and largest size of a boot disk in GiB."""

IMAGE_FORM, FAMILY_FORM = "projects/PROJECT/global/images/NAME", "projects/PROJECT/global/images/family/NAME"


class GcpMachineArgs(TypedDict):
    """Image, disk, subnetwork and service account of an instance."""

    image_id: NotRequired[pulumi.Input[str]]
    """The machine image, projects/PROJECT/global/images/NAME. Either this or `image_family`."""
    image_family: NotRequired[str]
    """A family of images: its name, or projects/PROJECT/global/images/family/NAME. Its newest image is looked up at
    every preview, so that the preview of a pull request shows a new image."""
    subnetwork: pulumi.Input[str]
    """The subnetwork of the instances, as a link."""
    service_account: pulumi.Input[str]
    """Email of the instances' service account."""
    volume_gib: NotRequired[int]
    """Size of the boot disk in GiB. Image, code and datasets have to fit, and checkpoints too if the type has no disks
    of its own. Default: the image's own size; a smaller one is refused."""
    volume_type: NotRequired[str]
    """Type of the boot disk: pd-balanced, pd-ssd or hyperdisk-balanced. Every type of the capacity has to take it; the
    scheduler's machine gets it if it does. Default: pd-balanced."""
    volume_kms_key: NotRequired[str]
    """A customer-managed key for the boot disks, projects/…/cryptoKeys/NAME; Compute Engine's service agent needs the
    permission to use it. Default: keys managed by Google."""
    secure_boot: NotRequired[bool]
    """Whether instances boot only signed software. An image with unsigned kernel modules needs false.
    Default: true."""
    iap_ssh: NotRequired[bool]
    """Whether people may open a shell through Identity-Aware Proxy. Default: false."""


def launched_with(machine: GcpMachineArgs) -> dict[str, Any]:
    """Return the content of a template apart from manifest and labels. A change of it makes a new generation."""
    return {"machine": dict(machine), "metadata": dict(METADATA)}


def check_machine(problems: Problems, machine: Mapping[str, Any], types: Iterable[str] = ()) -> None:
    """Add a problem for each mistake in image and disk. `machine`: `GcpMachineArgs`, or a mapping with the same keys;
    `types`: the instance types that get the disk as it is."""
    image_id, family = machine.get("image_id"), machine.get("image_family")
    if (image_id is None) == (family is None):
        problems.add("imageId", "exactly one of imageId and imageFamily has to be given")
    if isinstance(image_id, str):
        reason = resource_problem(image_id, IMAGE_FORM)
        problems.need(reason is None, "imageId", reason or "")
    if family is not None and not (len(family) <= LONGEST and RESOURCE.match(family)):
        reason = resource_problem(family, FAMILY_FORM)
        problems.need(reason is None, "imageFamily", f"{reason}, and not the name of one" if reason else "")
    if "volume_gib" in machine:
        problems.number(machine["volume_gib"], "volumeGib", *SIZES, whole=True)
    kind = machine.get("volume_type", BOOT_DISKS[0])
    problems.need(kind in BOOT_DISKS, "volumeType", f"{shown(kind)} is none of {', '.join(BOOT_DISKS)}")
    for name in dict.fromkeys(types) if kind in BOOT_DISKS else ():
        supported = boot_disks(name)
        problems.need(kind in supported, "volumeType", f"{name} takes {' or '.join(supported)}, and not {kind}")
    if "volume_kms_key" in machine:
        reason = resource_problem(machine["volume_kms_key"], KEY_FORM)
        problems.need(reason is None, "volumeKmsKey", reason or "")


_IMAGE_GONE = "`everspot cluster down` destroys a cluster whose image is gone."


def resolve_image(parent: pulumi.Resource, machine: GcpMachineArgs) -> pulumi.Output[dict[str, Any]]:
    """Return the image now: `link`, projects/PROJECT/global/images/NAME, and the size of its disk, `gib`.

    Raises, when the answer is there:
        pulumi.InputPropertiesError: if the settings' disk is smaller than the image's.
    """
    family = machine.get("image_family")
    if family is not None:
        query = pulumi.Output.from_input(_parts(family, "family"))
        message = (
            f"imageFamily: there is no image yet: the family {family} cannot be read (compute.images.getFromFamily). "
            "Bake one: packer build -var project=PROJECT -var zone=ZONE -var wheel=WHEEL "
            f"-var family={family.rpartition('/')[2]} training_image/bake/everspot-gcp.pkr.hcl. {_IMAGE_GONE}"
        )
    else:
        query = pulumi.Output.from_input(machine["image_id"]).apply(lambda given: _parts(given, "name"))
        message = (
            "imageId: the image cannot be read (compute.images.get): is it one of this project, or shared with it? "
            f"{_IMAGE_GONE}"
        )
    answer: pulumi.Output[Any] = query.apply(
        lambda inputs: preview_queries.invoke(parent, "compute/getImage:getImage", inputs, failed=message)
    )
    return answer.apply(lambda image: _image(machine, image))


def _parts(image: str, key: str) -> dict[str, str]:
    """Return the inputs of getImage. A name without a project means the provider's project."""
    words = image.split("/")
    project = {"project": words[words.index("projects") + 1]} if "projects" in words else {}
    return {key: words[-1], **project}


def _image(machine: GcpMachineArgs, image: Mapping[str, Any]) -> dict[str, Any]:
    problems, own = Problems(), int(image["diskSizeGb"])
    gib = int(machine.get("volume_gib", own))
    problems.need(
        gib >= own,
        "volumeGib",
        f"{gib} GiB is less than the image's own disk of {own} GiB; leave it out for the image's own size",
    )
    common.raise_bad(problems, "The instance template")
    # Without the host, so that it is the same wherever the API is reached.
    return {"link": f"projects/{str(image['selfLink']).partition('/projects/')[2]}", "gib": gib}


def instance_template(
    parent: pulumi.Resource,
    name: str,
    *,
    role: Role,
    cluster: str,
    tags: dict[str, str],
    region: pulumi.Input[str],
    machine: GcpMachineArgs,
    image: pulumi.Output[dict[str, Any]],
    manifest: pulumi.Input[str],
    instance_type: str,
    gpus: bool,
    market: Market = Market.ON_DEMAND,
    notice: timedelta | None = None,
    max_run: timedelta | None = None,
) -> "compute.RegionInstanceTemplate":
    """Return the template of one role in one market. `image`: of `resolve_image`; `instance_type`: if a group's policy
    does not choose it; `gpus`: whether any of the machine types has GPUs."""
    kind = parse_type(instance_type)
    labels = image.apply(lambda found: tagging.instance_labels(cluster, tags, role.value, found["link"]))
    key = machine.get("volume_kms_key")
    accelerators = [{"type": kind.accelerator, "count": kind.count}] if kind.attached else None
    return compute.RegionInstanceTemplate(
        name,
        region=region,
        description=f"Everspot {role.value} of cluster {cluster}, {market.value}",
        machine_type=kind.machine,
        # By it an instance with attached GPUs knows what it is.
        instance_description=description(instance_type) if kind.attached else None,
        guest_accelerators=accelerators,
        can_ip_forward=False,
        disks=[
            {
                "boot": True,
                "auto_delete": True,
                "source_image": image.apply(lambda found: found["link"]),
                "disk_size_gb": image.apply(lambda found: found["gib"]),
                # The agents' types have been checked; the scheduler's follows them where it can.
                "disk_type": boot_disk(kind.machine, machine.get("volume_type", BOOT_DISKS[0])),
                "disk_encryption_key": None if key is None else {"kms_key_self_link": key},
                "labels": labels,
            }
        ],
        # Without an access configuration there is no external address.
        network_interfaces=[{"subnetwork": machine["subnetwork"]}],
        metadata=pulumi.Output.from_input(manifest).apply(lambda text: {**METADATA, MANIFEST_KEY: _checked(text)}),
        labels=labels,
        tags=[DOOR_TAG] if machine.get("iap_ssh", False) else None,
        scheduling=snake(scheduling(market, gpus=gpus, notice=notice, max_run=max_run)),
        service_account={"email": machine["service_account"], "scopes": [SCOPE]},
        shielded_instance_config={
            "enable_secure_boot": machine.get("secure_boot", True),
            "enable_vtpm": True,
            "enable_integrity_monitoring": True,
        },
        # Replaced by every new manifest or image: the new one is made first, then the group is changed, and the old one
        # deleted last, as the provider's documentation has it ("Using with Instance Group Manager").
        opts=pulumi.ResourceOptions(parent=parent),
    )


def manifest_problem(manifest: str) -> str | None:
    """Return the reason why a manifest cannot be a metadata value, or None."""
    size = len(manifest.encode())
    return f"the manifest has {size} bytes; metadata holds {METADATA_LIMIT}" if size > METADATA_LIMIT else None


def _checked(manifest: str) -> str:
    problems = Problems()
    reason = manifest_problem(manifest)
    problems.need(reason is None, "manifest", reason or "")
    common.raise_bad(problems, "The instance template")
    return manifest
