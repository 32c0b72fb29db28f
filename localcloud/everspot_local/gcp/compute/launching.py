"""Stands in for the creation of an instance from properties: the permissions and parts that it needs, and the errors.

It looks at capacity when it is asked, and not again later; the action `fail_launches` lets an accepted launch run out
of capacity.
"""

import ipaddress
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

from everspot_core.jobs.records import Market

from everspot_local.gcp.compute import disks, images
from everspot_local.gcp.compute.machine_types import accelerator_name, catalogue_type, machine_type_name
from everspot_local.gcp.compute.names import check_name, tail
from everspot_local.gcp.compute.properties import checked
from everspot_local.gcp.compute.state import Compute, fingerprint
from everspot_local.gcp.compute.vms import Vm
from everspot_local.gcp.operations import Operation, OperationFailed
from everspot_local.market.pools import MarketPool

Document = dict[str, Any]
_NOT_KEPT = ("initializeParams",)
_RESERVED = 4
"""VPC, "Unusable addresses in IPv4 subnet ranges": the first two and the last two."""


def find_kind(compute: Compute, properties: Mapping[str, Any], zone: str) -> str:
    """Return the catalogue's type of the requested properties in a zone."""
    catalogue = compute.project.market.pools.catalogue
    attached = properties.get("guestAccelerators", ())
    return catalogue_type(catalogue, properties["machineType"], attached, zone, "resource")


def read_market(properties: Mapping[str, Any]) -> Market:
    """Return the market, Spot or on-demand, of the requested properties."""
    spot = properties.get("scheduling", {}).get("provisioningModel") == "SPOT"
    return Market.SPOT if spot else Market.ON_DEMAND


def lacking(compute: Compute, kind: str, zone: str, market: Market, count: int = 1) -> OperationFailed | None:
    """Return the error of an operation if so many machines are not available; None if they are."""
    for limit in compute.limits:
        if (forbidden := limit(kind, market, count)) is not None:
            return forbidden
    pool = compute.project.market.pools.get(kind, zone)
    if pool is None or pool.hourly_usd(market) is None:
        # As met where a zone lacks a type: the same words as for an instance that names it.
        name = machine_type_name(kind)
        message = f"Machine type with name '{name}' does not exist in zone '{zone}'."
        return OperationFailed("RESOURCE_NOT_FOUND", message, status=404)
    return None if pool.available(market) >= count else stockout(compute, kind, zone)


def stockout(compute: Compute, kind: str, zone: str) -> OperationFailed:
    """Return the error for a zone without capacity of a type. Words: Compute Engine, "Troubleshoot resource
    availability errors"."""
    name = machine_type_name(kind)
    where = f"projects/{compute.name}/zones/{zone}"
    short = f"The zone '{where}' does not have enough resources available to fulfill the request."
    message = f"{short}  '(resource type:compute)'."
    details: list[Document] = [
        {
            "errorInfo": {
                "reason": "resource_availability",
                "domain": "compute.googleapis.com",
                "metadatas": {"zone": zone, "vmType": name, "attachment": _attached(compute, kind)},
            }
        },
        {
            "localizedMessage": {
                "locale": "en-US",
                "message": f"A {name} VM instance is currently unavailable in {zone}.",
            }
        },
    ]
    return OperationFailed("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", message, status=503, details=details)


def _attached(compute: Compute, kind: str) -> str:
    instance_type = compute.project.market.pools.catalogue.types[kind]
    return f"{accelerator_name(instance_type)}:{instance_type.gpus}" if instance_type.gpus else ""


def launch(
    compute: Compute,
    zone: str,
    name: str,
    properties: Mapping[str, Any],
    user: str,
    *,
    fleet: str | None = None,
    group: str = "",
) -> tuple[Operation, Vm | None]:
    """Create an instance, or an operation that reports the failure.

    Args:
        compute: the project's.
        zone: where.
        name: of the instance.
        properties: of it, as a request or a template has them.
        user: who asked for it.
        fleet: path of the group that makes it.
        group: id of the operations that belong together.

    Raises:
        ApiError: for properties that cannot be; 409 for a name that is taken.
    """
    check_name(name)
    properties = checked(compute, properties, "resource", zone)
    scope = f"projects/{compute.name}/zones/{zone}"
    path = f"{scope}/instances/{name}"
    kind, market = find_kind(compute, properties, zone), read_market(properties)
    problem = lacking(compute, kind, zone, market) or _no_address(compute, properties)
    if path not in compute.resources and problem is not None:
        failed = compute.operations.begin("insert", scope, path, "0", user, work=_raiser(problem))
        failed.document.update({"operationGroupId": group} if group else {})
        return failed, None
    image = images.find(compute, properties["disks"][0]["initializeParams"]["sourceImage"])
    document = _instance(compute, path, zone, name, properties, kind, image)
    if path not in compute.resources:
        disks.check_free(compute, [compute.path(disk["source"]) for disk in document["disks"]])
    disks.make(compute, compute.add(path, "instance", document), properties, image)
    vm = Vm(compute, path, cast(MarketPool, compute.project.market.pools.get(kind, zone)), fleet)
    vm.late_stockout = stockout(compute, kind, zone)
    never = timedelta(seconds=-1)  # it is done when the instance runs
    vm.beginning = compute.operations.begin("insert", scope, path, vm.machine.id, user, duration=never)
    vm.beginning.document.update({"operationGroupId": group} if group else {})
    compute.project.machines.launch(vm.machine)
    return vm.beginning, vm


def _raiser(problem: OperationFailed) -> Callable[[], None]:
    def work() -> None:
        raise problem

    return work


def _instance(
    compute: Compute, path: str, zone: str, name: str, properties: Mapping[str, Any], kind: str, image: Document
) -> Document:
    """Return the document of a new instance. `image`: of its boot disk."""
    here = f"projects/{compute.name}/zones/{zone}"
    instance_type = compute.project.market.pools.catalogue.types[kind]
    accelerators = [
        {
            "acceleratorType": compute.link(f"{here}/acceleratorTypes/{accelerator_name(instance_type)}"),
            "acceleratorCount": instance_type.gpus,
        }
    ]
    retained = {key: value for key, value in properties.items() if key not in ("name", "params", "zone")}
    metadata = properties.get("metadata", {})
    return {
        "cpuPlatform": "Unknown CPU Platform",
        "startRestricted": False,
        "deletionProtection": False,
        "canIpForward": False,
        **retained,
        "machineType": compute.link(f"{here}/machineTypes/{machine_type_name(kind)}"),
        "guestAccelerators": accelerators if instance_type.gpus else None,
        "disks": [_disk(compute, here, name, disk, image) for disk in properties["disks"]],
        "networkInterfaces": [
            {**interface, "networkIP": _address(compute, interface["subnetwork"])}
            for interface in properties["networkInterfaces"]
        ],
        "metadata": {"kind": "compute#metadata", **metadata, "fingerprint": fingerprint(metadata)},
        "tags": {**properties.get("tags", {}), "fingerprint": fingerprint(properties.get("tags"))},
        "fingerprint": fingerprint((path, properties)),
    }


def _disk(compute: Compute, here: str, name: str, disk: Mapping[str, Any], image: Document) -> Document:
    """Return an attached disk; what it was created from is no longer shown. A boot disk is by default as large as its
    image."""
    initial = disk.get("initializeParams", {})
    label = name if disk["boot"] else f"{name}-{disk['index']}"
    size = initial.get("diskSizeGb") or disk.get("diskSizeGb") or (image["diskSizeGb"] if disk["boot"] else "10")
    created = {"source": compute.link(f"{here}/disks/{initial.get('diskName', label)}"), "diskSizeGb": size}
    retained = {key: value for key, value in disk.items() if key not in _NOT_KEPT}
    return {"deviceName": f"persistent-disk-{disk['index']}", **retained, **created}


def _used_addresses(compute: Compute, subnetwork: str) -> set[str]:
    return {
        interface["networkIP"]
        for _, instance in compute.of_kind("instances")
        for interface in instance["networkInterfaces"]
        if interface["subnetwork"] == subnetwork
    }


def _address(compute: Compute, subnetwork: str) -> str:
    """Return the first free address of a subnetwork."""
    block = ipaddress.IPv4Network(compute.get(compute.path(subnetwork))["ipCidrRange"])
    used_addresses = _used_addresses(compute, subnetwork)
    return next(str(block[n]) for n in range(2, block.num_addresses - 2) if str(block[n]) not in used_addresses)


def _no_address(compute: Compute, properties: Mapping[str, Any]) -> OperationFailed | None:
    """Return the error for a subnetwork without a free address. Compute Engine, "Troubleshoot VM creation"."""
    subnetwork = properties["networkInterfaces"][0]["subnetwork"]
    block = ipaddress.IPv4Network(compute.get(compute.path(subnetwork))["ipCidrRange"])
    if len(_used_addresses(compute, subnetwork)) < block.num_addresses - _RESERVED:
        return None
    path = compute.path(subnetwork)
    return OperationFailed("IP_SPACE_EXHAUSTED", f"IP space of '{path}' is exhausted. ({tail(path)})", status=400)
