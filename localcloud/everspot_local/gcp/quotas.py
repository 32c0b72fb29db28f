"""Stands in for a project's quotas of Compute Engine: vCPUs and GPUs by family, for Spot apart, and networks.

The names and what counts towards them are Google's, and not the product's: the list of `Quota.metric` in the discovery
document of Compute, v1, and "Allocation quotas" in the Compute Engine documentation. Newer GPUs count towards
GPUS_PER_GPU_FAMILY, on Spot towards PREEMPTIBLE_GPUS_PER_GPU_FAMILY, with a limit for each `gpu_family`; newer CPUs
towards CPUS_PER_VM_FAMILY. A region does not state those. Beside them stand the requests a minute of `rates.py`.

The values are what a team is given that asked; a script, an option or an action of the market sets another figure. A
quota for Spot of 0 counts as not granted. Here GPU machines count by their GPUs alone.
"""

import re

from everspot_core.jobs.records import Market

from everspot_local.gcp import rates
from everspot_local.market.quotas import Quota, Quotas

SERVICE = "compute"
FAMILY_SERVICE = "compute-families"
"""Quotas with a limit for each family: METRIC/FAMILY."""
ALL_REGIONS = "GPUS_ALL_REGIONS"
_GPUS = ("NVIDIA_T4_GPUS", "NVIDIA_V100_GPUS", "NVIDIA_L4_GPUS", "NVIDIA_A100_GPUS", "NVIDIA_A100_80GB_GPUS")
_SPOT_GPUS = (*(f"PREEMPTIBLE_{name}" for name in _GPUS), "PREEMPTIBLE_NVIDIA_H100_GPUS")
_CPUS = ("CPUS", "N2_CPUS", "C3_CPUS", "A2_CPUS", "PREEMPTIBLE_CPUS")
_GPU_FAMILIES = (
    "NVIDIA_H100", "NVIDIA_H100_MEGA", "NVIDIA_H200", "NVIDIA_B200", "NVIDIA_GB200", "NVIDIA_RTX_PRO_6000",
)  # fmt: skip
_PER_FAMILY, _SPOT_PER_FAMILY = "GPUS_PER_GPU_FAMILY", "PREEMPTIBLE_GPUS_PER_GPU_FAMILY"
_FAMILIES = tuple(f"{metric}/{family}" for metric in (_PER_FAMILY, _SPOT_PER_FAMILY) for family in _GPU_FAMILIES)
DEFAULTS = (
    *(Quota(name, SERVICE, name, 128) for name in (*_GPUS, *_SPOT_GPUS)),
    *(Quota(name, SERVICE, name, 2400) for name in _CPUS),
    Quota(ALL_REGIONS, SERVICE, ALL_REGIONS, 256),
    Quota("NETWORKS", SERVICE, "NETWORKS", 15),
    *(Quota(name, FAMILY_SERVICE, name, 128) for name in _FAMILIES),
    *rates.DEFAULTS,
)

_MACHINES: tuple[tuple[str, str], ...] = (
    (r".+\+t4", "NVIDIA_T4_GPUS"),
    (r".+\+v100", "NVIDIA_V100_GPUS"),
    (r"g2-", "NVIDIA_L4_GPUS"),
    (r"a2-(high|mega)gpu-", "NVIDIA_A100_GPUS"),
    (r"a2-ultragpu-", "NVIDIA_A100_80GB_GPUS"),
    (r"a3-(high|edge)gpu-", f"{_PER_FAMILY}/NVIDIA_H100"),
    (r"a3-megagpu-", f"{_PER_FAMILY}/NVIDIA_H100_MEGA"),
    (r"a3-ultragpu-", f"{_PER_FAMILY}/NVIDIA_H200"),
    (r"a4-", f"{_PER_FAMILY}/NVIDIA_B200"),
    (r"a4x-", f"{_PER_FAMILY}/NVIDIA_GB200"),
    (r"g4-", f"{_PER_FAMILY}/NVIDIA_RTX_PRO_6000"),
    (r"n2-", "N2_CPUS"),
    (r"c3-", "C3_CPUS"),
    (r"(n1|e2|f1|g1)-", "CPUS"),
)
"""The quota of an on-demand machine, by the beginning of its type. N1, E2 and machines with shared cores share one."""


def account_quotas(values: dict[str, float] | None = None) -> Quotas:
    """Return a project's quotas. `values`: by metric, where they differ from the defaults.

    Raises:
        ValueError: for a metric that is unknown or a value below 0.
    """
    return Quotas(DEFAULTS, _first_code, values)


def quota_codes(instance_type: str, market: Market) -> tuple[str, ...]:
    """Return the quotas that a machine counts towards: on Spot the Spot quota, then the standard one. None for a family
    without any here, such as one declared in a script."""
    standard = next((code for form, code in _MACHINES if re.match(form, instance_type)), "")
    if not standard or market is Market.ON_DEMAND:
        return (standard,) if standard else ()
    if standard.endswith("/NVIDIA_H100"):
        return ("PREEMPTIBLE_NVIDIA_H100_GPUS", standard)
    return ("PREEMPTIBLE_CPUS" if standard.endswith("CPUS") else f"PREEMPTIBLE_{standard}", standard)


def _first_code(instance_type: str, market: Market) -> str | None:
    return next(iter(quota_codes(instance_type, market)), None)
