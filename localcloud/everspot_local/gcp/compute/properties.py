"""Stands in for Compute Engine's rules of what an instance, or a template of instances, may be.

What is not named here is refused by its name: custom placement, confidential computing, existing disks, IPv6 and more.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid, missing, not_here, required
from everspot_local.gcp.compute import images
from everspot_local.gcp.compute.machine_types import catalogue_type, machine_type_name
from everspot_local.gcp.compute.names import NAME, check_labels
from everspot_local.gcp.compute.scheduling import completed
from everspot_local.gcp.compute.state import Compute

Document = dict[str, Any]
_KNOWN = {
    "machineType", "disks", "networkInterfaces", "scheduling", "serviceAccounts", "labels", "metadata", "tags",
    "guestAccelerators", "shieldedInstanceConfig", "description", "reservationAffinity", "canIpForward",
    "confidentialInstanceConfig", "keyRevocationActionType", "name", "deletionProtection", "zone", "params",
}  # fmt: skip
_VALUE_AT_MOST, _METADATA_AT_MOST = 256 * 1024, 512 * 1024
"""Discovery document, `Metadata`."""
_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PERSISTENT = {"pd-standard", "pd-balanced", "pd-ssd", "pd-extreme"}
_HYPER = {"hyperdisk-balanced", "hyperdisk-balanced-high-availability", "hyperdisk-extreme"}
_DISK_TYPES = {*_PERSISTENT, *_HYPER, "hyperdisk-ml", "hyperdisk-throughput"}
_BOOTED_FROM: Mapping[str, set[str]] = {
    **dict.fromkeys(("e2", "n1", "n2", "n2d", "c2", "c2d", "t2a", "t2d"), _PERSISTENT),
    "a2": _PERSISTENT - {"pd-extreme"},
    "g2": {"pd-balanced", "pd-ssd"},
    "a3": {"pd-balanced", "pd-ssd", *_HYPER},
    "c3": {"pd-balanced", "pd-ssd", *_HYPER},
    **dict.fromkeys(("a4", "c4", "c4a", "c4d", "g4", "n4", "n4a", "n4d"), _HYPER),
}
"""By series of machine types. Compute Engine, "Persistent Disk" and "Hyperdisk", machine series support."""


def checked(compute: Compute, body: Mapping[str, Any], field: str, zone: str = "") -> Document:
    """Return the properties of a template, or of an instance in a zone, as the API shows them.

    Args:
        compute: the project's.
        body: of the request.
        field: its path there: `resource` or `resource.properties`.
        zone: of the instance; empty for a template.

    Raises:
        ApiError: for what cannot be so, or is not known here.
    """
    _check_offered(body, field)
    catalogue = compute.project.market.pools.catalogue
    if not body.get("machineType"):
        raise required(f"{field}.machineType")
    kind = catalogue.types[
        catalogue_type(catalogue, body["machineType"], body.get("guestAccelerators", ()), zone, field)
    ]
    scheduling = completed(body.get("scheduling", {}), f"{field}.scheduling", gpus=bool(kind.gpus))
    check_labels(body.get("labels"), f"{field}.labels")
    check_metadata(body.get("metadata", {}), f"{field}.metadata")
    for tag in body.get("tags", {}).get("items", ()):
        if not re.fullmatch(NAME, tag):
            raise invalid(f"{field}.tags.items", tag, f"Must be a match of regex '{NAME}'")
    _check_accounts(compute, body.get("serviceAccounts", ()), field)
    disks = _disks(compute, body.get("disks", ()), machine_type_name(kind.name), kind.arch, f"{field}.disks")
    interfaces = _interfaces(compute, body.get("networkInterfaces", ()), f"{field}.networkInterfaces")
    # Packer's builder sends an empty account to ask for an instance without a service account.
    accounts = [account for account in body.get("serviceAccounts", ()) if account]
    return {
        **body, "scheduling": scheduling, "disks": disks, "networkInterfaces": interfaces, "serviceAccounts": accounts,
    }  # fmt: skip


def _check_offered(body: Mapping[str, Any], field: str) -> None:
    if unknown := sorted(set(body) - _KNOWN):
        raise not_here(f"{field}.{unknown[0]}")
    if body.get("canIpForward"):
        raise not_here(f"{field}.canIpForward")
    if any(body.get("confidentialInstanceConfig", {}).values()):
        raise not_here(f"{field}.confidentialInstanceConfig")
    if body.get("reservationAffinity", {}).get("consumeReservationType") == "SPECIFIC_RESERVATION":
        raise not_here("reservations")


def check_metadata(metadata: Mapping[str, Any], field: str) -> None:
    """Hold metadata to the rules: sizes, and keys that are there once.

    Raises:
        ApiError: for the first entry that breaks them.
    """
    keys: set[str] = set()
    for item in metadata.get("items", ()):
        key, value = str(item.get("key", "")), str(item.get("value", ""))
        if not _KEY.fullmatch(key):
            raise invalid(f"{field}.items.key", key, "Must be a match of regex '[a-zA-Z0-9-_]{1,128}'")
        if key in keys:
            raise invalid(field, key, f"Duplicate key '{key}'.")
        keys.add(key)
        if len(value.encode()) > _VALUE_AT_MOST:
            raise invalid(f"{field}.items.value", "", "Metadata value is too long: it can have 262144 bytes at most.")
    total = sum(len(f"{i.get('key', '')}{i.get('value', '')}".encode()) for i in metadata.get("items", ()))
    if total > _METADATA_AT_MOST:
        raise invalid(field, "", "The total size of all metadata can be 512 KB at most.")


def _check_accounts(compute: Compute, accounts: Sequence[Mapping[str, Any]], field: str) -> None:
    if len(accounts) > 1:
        # Discovery document, `Instance.serviceAccounts`: "Only one service account per VM instance is supported".
        raise invalid(f"{field}.serviceAccounts", "", "At most one service account can be specified.")
    for account in filter(None, accounts):
        email = account.get("email") or "default"
        if not compute.project.account_exists(email):
            raise missing(f"projects/{compute.name}/serviceAccounts/{email}")
        if not account.get("scopes"):
            raise required(f"{field}.serviceAccounts[0].scopes")


def _disks(
    compute: Compute, disks: Sequence[Mapping[str, Any]], machine_type: str, arch: str, field: str
) -> list[Document]:
    if not disks or not disks[0].get("boot"):
        raise invalid(field, "", "Boot disk must be the first disk attached to the instance.")
    checked_disks = []
    for index, disk in enumerate(disks):
        here = f"{field}[{index}]"
        initial = disk.get("initializeParams", {})
        if disk.get("source") or not initial:
            raise not_here(f"disks that exist already: give {here}.initializeParams")
        if index and disk.get("boot"):
            raise invalid(f"{here}.boot", True, "Only the first disk can be the boot disk.")
        kind = str(initial.get("diskType", "pd-standard")).rpartition("/")[2]
        if kind not in _DISK_TYPES:
            raise invalid(
                f"{here}.initializeParams.diskType", kind, "The referenced diskType resource cannot be found."
            )
        if disk.get("boot") and kind not in _BOOTED_FROM.get(machine_type.partition("-")[0], _DISK_TYPES):
            # As met: "[pd-standard] features and [instance-type c3-…] are not compatible for creating instance."
            message = f"[{kind}, {machine_type}] features are not compatible for creating instance."
            raise invalid(f"{here}.initializeParams.diskType", kind, message)
        if disk.get("boot"):
            _check_image(compute, initial, disk, arch, f"{here}.initializeParams")
        plain = {"index": index, "mode": "READ_WRITE", "type": "PERSISTENT", "kind": "compute#attachedDisk"}
        checked_disks.append({**plain, "interface": "SCSI", "autoDelete": False, "boot": False, **disk})
    return checked_disks


def _check_image(compute: Compute, initial: Mapping[str, Any], disk: Mapping[str, Any], arch: str, field: str) -> None:
    if not initial.get("sourceImage"):
        raise required(f"{field}.sourceImage")
    image = images.find(compute, initial["sourceImage"])
    images.check_usable(image, f"{field}.sourceImage")
    size_gib = initial.get("diskSizeGb") or disk.get("diskSizeGb")
    if size_gib is not None and int(size_gib) < int(image["diskSizeGb"]):
        message = f"Requested disk size cannot be smaller than the image size ({image['diskSizeGb']} GB)"
        raise invalid(f"{field}.diskSizeGb", size_gib, message)
    if image["architecture"] != arch.upper():
        message = f"The image's architecture {image['architecture']} does not fit the machine type's {arch.upper()}."
        raise invalid(f"{field}.sourceImage", initial["sourceImage"], message)


def _interfaces(compute: Compute, interfaces: Sequence[Mapping[str, Any]], field: str) -> list[Document]:
    if not interfaces:
        raise invalid(field, "", "At least one network interface is required.")
    if len(interfaces) > 1:
        raise not_here("more than one network interface")
    interface = interfaces[0]
    if wrong := sorted(
        set(interface) - {"network", "subnetwork", "accessConfigs", "nicType", "stackType", "name", "kind"}
    ):
        raise not_here(f"{field}[0].{wrong[0]}")
    if not interface.get("subnetwork"):
        compute.referred(interface.get("network") or "global/networks/default", "networks", f"{field}[0].network")
        # As met: https://github.com/hashicorp/terraform-provider-google/issues/5369
        raise ApiError(
            400, "invalid", f"Invalid value for field '{field}[0]': ''. Subnetwork should be specified for custom "
            "subnetmode network",
        )  # fmt: skip
    subnetwork = compute.referred(interface["subnetwork"], "subnetworks", f"{field}[0].subnetwork")
    network = compute.get(subnetwork)["network"]
    if interface.get("network") and compute.path(interface["network"]) != compute.path(network):
        message = "Specified subnetwork does not belong to the specified network."
        raise invalid(f"{field}[0].subnetwork", interface["subnetwork"], message)
    completed = {"name": "nic0", "stackType": "IPV4_ONLY", "kind": "compute#networkInterface", **interface}
    return [{**completed, "network": network, "subnetwork": compute.link(subnetwork)}]
