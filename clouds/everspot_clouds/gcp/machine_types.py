"""Machine types as Compute Engine describes them: machineTypes of a region's zones, with their accelerators."""

from collections.abc import Iterable, Mapping
from typing import Any

from everspot_core.capacity.catalogue import InstanceType

from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.machines import ATTACHED, parse_type
from everspot_clouds.gcp.sku_prices import MachineParts

GPUS = {
    "nvidia-l4": ("L4", 24), "nvidia-rtx-pro-6000": ("RTX PRO 6000", 96),
    "nvidia-tesla-a100": ("A100", 40), "nvidia-a100-80gb": ("A100-80GB", 80),
    "nvidia-h100-80gb": ("H100", 80), "nvidia-h100-mega-80gb": ("H100", 80), "nvidia-h200-141gb": ("H200", 141),
    "nvidia-b200": ("B200", 180), "nvidia-gb200": ("GB200", 186),
    "nvidia-tesla-t4": ("T4", 16), "nvidia-tesla-v100": ("V100", 16), "nvidia-tesla-p100": ("P100", 16),
    "nvidia-tesla-p4": ("P4", 8),
}  # fmt: skip
"""By accelerator type: the catalogue's name of the GPU, and its memory in GB (Compute Engine documentation, "GPU
machine types"). The API tells neither."""

LOCAL_SSD_GIB = 375
"""A partition of local SSD (Compute Engine documentation, "Local SSD disks"). Bare metal has larger ones."""

_NVSWITCH = ("a3-highgpu-8g", "a3-megagpu-8g", "a3-edgegpu-8g", "a3-ultragpu-8g", "a4-highgpu-8g", "a4x-highgpu-4g")
"""Machine types whose GPUs are joined by NVSwitch, as Google's page of GPU machine types has them."""

_TPU = ("ct", "tpu")
_PAGE = 500


def describe(api: Api, zones: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return the machine types of some zones by name. Raises the errors of `Api`."""
    types: dict[str, Mapping[str, Any]] = {}
    for zone in zones:
        path = f"projects/{api.project}/zones/{zone}/machineTypes"
        for page in api.pages("compute", path, maxResults=_PAGE):
            types |= {raw["name"]: raw for raw in page.get("items") or ()}
    return types


def with_gpus(described: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of the machine types that have NVIDIA GPUs built in."""
    return sorted(name for name, raw in described.items() if raw.get("accelerators") and not name.startswith(_TPU))


def parts(name: str, described: Mapping[str, Mapping[str, Any]]) -> MachineParts | None:
    """Return what a type consists of; None if no zone has its machine type. `name`: with attached GPUs, if any."""
    machine = parse_type(name)
    raw = described.get(machine.machine)
    if raw is None:
        return None
    built_in: Mapping[str, Any] = next(iter(raw.get("accelerators") or ()), {})
    return MachineParts(
        name=machine.machine,
        vcpus=int(raw["guestCpus"]),
        memory_gib=int(raw["memoryMb"]) / 1024,
        accelerator=machine.accelerator or str(built_in.get("guestAcceleratorType", "")),
        gpus=machine.count or int(built_in.get("guestAcceleratorCount", 0)),
        local_ssd_gib=LOCAL_SSD_GIB * int((raw.get("bundledLocalSsds") or {}).get("partitionCount") or 0),
    )


def parse(name: str, described: Mapping[str, Mapping[str, Any]]) -> InstanceType | None:
    """Return a type's resources; None if no zone has it, or if its GPU is newer than this list."""
    own = parts(name, described)
    if own is None or (own.gpus and own.accelerator not in GPUS):
        return None
    model, memory_gb = GPUS[own.accelerator] if own.gpus else (None, 0)
    return InstanceType(
        name=name,
        arch="arm64" if described[own.name].get("architecture") == "ARM64" else "x86_64",
        vcpus=own.vcpus,
        memory_gib=own.memory_gib,
        gpus=own.gpus,
        gpu=model,
        gpu_memory_gib=memory_gb,
        local_nvme_gb=round(own.local_ssd_gib * 2**30 / 10**9),
        nvswitch=has_nvswitch(own),
    )


def has_nvswitch(machine: MachineParts) -> bool | None:
    """Return whether an NVSwitch joins a machine's GPUs; None if Google does not say."""
    if machine.name in _NVSWITCH:
        return True
    attached = machine.accelerator in ATTACHED.values()
    return False if machine.gpus <= 1 or attached or machine.name.startswith(("g2-", "g4-")) else None
