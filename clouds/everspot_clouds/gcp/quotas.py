"""A project's quotas of Compute Engine: which of them an instance counts towards, and whether they suffice.

Metrics: Compute API, Quota.metric, which a region states with their limit and usage. Spot has quotas of its own,
`PREEMPTIBLE_…`: "Spot VMs", "Quota": once one is granted in a region, Spot can use it only; without it Spot uses the
standard one. A new project has almost no quota for GPUs, and GPUS_ALL_REGIONS limits all regions together.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.market import Market

from everspot_clouds.gcp.machines import parse_type

CONSOLE = "https://console.cloud.google.com/iam-admin/quotas?metric={metric}"
"""The page for requesting more of a quota."""
ALL_REGIONS = "GPUS_ALL_REGIONS"
"""The project's quota of GPUs in all regions together."""
PER_FAMILY = "GPUS_PER_GPU_FAMILY and CPUS_PER_VM_FAMILY"
"""Quotas of newer machine types, with a limit for each family."""
_PREEMPTIBLE = "PREEMPTIBLE_"
_BUILT_IN = {
    "g2-": "NVIDIA_L4_GPUS",
    "a2-highgpu-": "NVIDIA_A100_GPUS",
    "a2-megagpu-": "NVIDIA_A100_GPUS",
    "a2-ultragpu-": "NVIDIA_A100_80GB_GPUS",
}
"""Metrics of the GPUs that machine types have built in (Compute Engine documentation, "GPU quota")."""
_GPU_FAMILIES = {
    "a3-highgpu-": "NVIDIA_H100", "a3-edgegpu-": "NVIDIA_H100", "a3-megagpu-": "NVIDIA_H100_MEGA",
    "a3-ultragpu-": "NVIDIA_H200", "a4-": "NVIDIA_B200", "a4x-": "NVIDIA_GB200", "g4-": "NVIDIA_RTX_PRO_6000",
}  # fmt: skip
"""GPUs of newer machine types, as the dimension `gpu_family` has them. They count towards GPUS_PER_GPU_FAMILY, which a
region does not state, so that only a refusal tells its limit; a project may have older metrics of them beside it."""
_LISTED = ("PREEMPTIBLE_NVIDIA_H100_GPUS",)
"""Metrics of these GPUs that the API's list of metrics has."""
_CPU_FAMILIES = ("n2", "n2d", "c2", "c2d", "c3", "m1", "m2", "m3", "t2d", "t2a", "a2")
"""Families whose vCPUs have a metric of their own."""
_SHARED_CPUS = ("n1", "e2", "f1", "g1")
"""Families whose vCPUs count towards CPUS. Newer families count towards CPUS_PER_VM_FAMILY, which a region does
not state."""


@dataclass(frozen=True)
class QuotaReach:
    """How far a quota reaches for a number of instances. `limit`: its value, None if the region does not state it;
    `least`: the use of the instances with the type that uses the least."""

    metric: str
    types: tuple[str, ...]
    limit: float | None
    least: float

    @property
    def enough(self) -> bool:
        """Whether it suffices. A quota that is not stated is taken to be enough."""
        return self.limit is None or self.limit >= self.least


def list_metrics(instance_type: str, market: Market, stated: Collection[str] = ()) -> tuple[str, ...]:
    """Return the metrics that an instance counts towards, the scarcest first; on Spot the Spot quota, then the standard
    one. None for a type whose GPUs or vCPUs have no known metric and whose metric is not in the region's answer
    (`stated`)."""
    try:
        machine = parse_type(instance_type)
    except ValueError:
        return ()
    newer = gpu_family(instance_type)
    if newer:
        form = re.compile(rf"({_PREEMPTIBLE})?{newer}(_\d+GB)?_GPUS")
        # Spot's own quota comes first, as below.
        metrics = sorted((name for name in {*stated, *_LISTED} if form.fullmatch(name)), reverse=True)
        return tuple(name for name in metrics if market is Market.SPOT or not name.startswith(_PREEMPTIBLE))
    gpu = next((metric for family, metric in _BUILT_IN.items() if machine.machine.startswith(family)), "")
    if machine.attached:
        gpu = f"{machine.accelerator.replace('nvidia-tesla-', 'NVIDIA_').upper()}_GPUS"
    family = machine.machine.partition("-")[0]
    cpus = f"{family.upper()}_CPUS" if family in _CPU_FAMILIES else "CPUS" if family in _SHARED_CPUS else ""
    own = (gpu or cpus,) if gpu or cpus else ()
    spot = f"{_PREEMPTIBLE}{gpu}" if gpu else f"{_PREEMPTIBLE}CPUS"
    return (spot, *own) if market is Market.SPOT else own


def gpu_family(instance_type: str) -> str:
    """Return the `gpu_family` of a machine type that counts by it, such as NVIDIA_H200; "" for the others."""
    return next((gpu for prefix, gpu in _GPU_FAMILIES.items() if instance_type.startswith(prefix)), "")


def find_quota(instance_type: str, market: Market) -> str:
    """Return the quota that an instance counts towards first; its family for a type that no metric names."""
    metrics = list_metrics(instance_type, market)
    return metrics[0] if metrics else instance_type.partition("-")[0]


def reaches(
    count: int, types: Sequence[str], catalogue: Mapping[str, InstanceType], market: Market, limits: Mapping[str, float]
) -> list[QuotaReach]:
    """Return the reach of each quota that `count` instances of any of these types may count towards. `limits`: by
    metric."""
    groups: dict[str, list[str]] = {}
    for name in types:
        if name not in catalogue:
            continue
        metrics = list_metrics(name, market, limits)
        # Without a Spot quota of its own in the region, Spot eats the standard one.
        stated = next((metric for metric in metrics if limits.get(metric)), metrics[0] if metrics else "")
        if stated:
            groups.setdefault(stated, []).append(name)
    return [
        QuotaReach(
            metric, tuple(names), limits.get(metric), min(count * count_units(catalogue[name]) for name in names)
        )
        for metric, names in groups.items()
    ]


def count_units(kind: InstanceType) -> float:
    """Return the use of an instance of its quota: its GPUs, or its vCPUs if it has none."""
    return float(kind.gpus or math.ceil(kind.vcpus))
