"""Instance types as EC2 describes them: DescribeInstanceTypes, of the region in use."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from everspot_core.capacity.catalogue import InstanceType

GPU_PATTERNS = ("g*", "p*")
"""Names of the families that have NVIDIA GPUs. EC2's filter by instance type takes wildcards (EC2 API Reference,
DescribeInstanceTypes, `instance-type`)."""

VALUES = 200
"""Values that EC2 takes in one filter."""

_MIB = 1024
_ARCHITECTURES = ("x86_64", "arm64")
_OTHER_ACCELERATORS = ("InferenceAcceleratorInfo", "NeuronInfo", "FpgaInfo", "MediaAcceleratorInfo")
_MODELS = {
    "T4g": "T4G",
    "RTX PRO Server 6000": "RTX PRO 6000",
}
"""The catalogue's names of GPUs that EC2 names otherwise."""

_LARGER = {"A100": (80 * _MIB, "A100-80GB"), "V100": (32 * _MIB, "V100-32GB")}
"""GPUs that exist with two sizes of memory, which EC2 gives one name: from so many MiB on, the second name."""

NVSWITCH_SERIES = ("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300")
"""Series whose types with several GPUs join them by NVSwitch (EC2 User Guide, "Linux accelerated computing instances").
EC2's API does not tell."""

_NO_NVSWITCH = re.compile(r"g[a-z]*\d|p2|p3")
"""How series begin that have none."""


def describe(ec2: Any, names: Iterable[str], page: Callable[[], None]) -> list[InstanceType]:
    """Return the types that the region has of some names, which may have wildcards. Names that it lacks are left out.

    Args:
        ec2: a boto3 client.
        page: called after each page of an answer.

    Raises:
        botocore's errors; ValueError if an answer is not what the API's documentation says.
    """
    values, types = sorted(set(names)), dict[str, InstanceType]()
    for first in range(0, len(values), VALUES):
        chosen = [{"Name": "instance-type", "Values": values[first : first + VALUES]}]
        for answer in ec2.get_paginator("describe_instance_types").paginate(Filters=chosen):
            types |= {kind.name: kind for kind in _parsed(answer["InstanceTypes"])}
            page()
    return [types[name] for name in sorted(types)]


def _parsed(raw_types: Iterable[Mapping[str, Any]]) -> Iterator[InstanceType]:
    for raw in raw_types:
        kind = parse(raw)
        if kind is not None:
            yield kind


def parse(raw: Mapping[str, Any]) -> InstanceType | None:
    """Return a type from its description. None for types that cannot train: of another architecture, or with
    accelerators that are no NVIDIA GPUs.

    Raises:
        ValueError: if the description is not what the API's documentation says.
    """
    try:
        arch = next((name for name in raw["ProcessorInfo"]["SupportedArchitectures"] if name in _ARCHITECTURES), "")
        gpus = raw.get("GpuInfo", {}).get("Gpus", [])
        others = any(key in raw for key in _OTHER_ACCELERATORS)
        if not arch or others or any(gpu.get("Manufacturer") != "NVIDIA" for gpu in gpus) or len(gpus) > 1:
            return None
        count, model, gpu_mib = _gpu(gpus[0]) if gpus else (0, None, 0)
        return InstanceType(
            name=raw["InstanceType"],
            arch=arch,
            vcpus=raw["VCpuInfo"]["DefaultVCpus"],
            memory_gib=raw["MemoryInfo"]["SizeInMiB"] / _MIB,
            gpus=count,
            gpu=model,
            gpu_memory_gib=round(gpu_mib / _MIB, 2),
            local_nvme_gb=_nvme_gb(raw.get("InstanceStorageInfo", {})),
            network_gbps=_baseline_gbps(raw["NetworkInfo"]),
            efa_interfaces=raw["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
            nvswitch=has_nvswitch(raw["InstanceType"], count),
        )
    except (KeyError, TypeError, IndexError) as error:
        message = f"ec2:DescribeInstanceTypes answered a type that cannot be read: {error!r} is missing"
        raise ValueError(message) from error


def _gpu(gpu: Mapping[str, Any]) -> tuple[int, str, int]:
    """Return count, model and MiB of each GPU. Of a type with a part of a GPU (G6f) EC2 says a count of 0 and a logical
    count of 1; its memory is that of the part."""
    mib = int(gpu["MemoryInfo"]["SizeInMiB"])
    name = _MODELS.get(gpu["Name"], gpu["Name"])
    least, larger = _LARGER.get(name, (mib + 1, ""))
    return int(gpu.get("Count") or gpu.get("LogicalGpuCount") or 0), larger if mib >= least else name, mib


def _nvme_gb(storage: Mapping[str, Any]) -> float:
    return 0.0 if storage.get("NvmeSupport") == "unsupported" else float(storage.get("TotalSizeInGB", 0))


def _baseline_gbps(network: Mapping[str, Any]) -> float | None:
    """Return what the default network card carries at any time; None where EC2 does not say."""
    default = network.get("DefaultNetworkCardIndex", 0)
    cards = {card["NetworkCardIndex"]: card for card in network.get("NetworkCards", [])}
    gbps = cards.get(default, {}).get("BaselineBandwidthInGbps")
    return None if gbps is None else float(gbps)


def has_nvswitch(instance_type: str, gpus: int) -> bool | None:
    """Return whether an NVSwitch joins the GPUs of a type; None for series that are newer than this list."""
    series = instance_type.partition(".")[0]
    if gpus <= 1:
        return False
    if series in NVSWITCH_SERIES:
        return True
    return False if _NO_NVSWITCH.match(series) else None
