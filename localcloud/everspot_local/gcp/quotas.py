"""Stands in for a project's quotas of Compute Engine: vCPUs and GPUs by family, for Spot apart, and networks.

Names are those of `Quota.metric` in the discovery document; beside them stand the requests a minute of `rates.py`. The
values are what a team is given that asked; a script, an option or an action of the market sets another figure. A quota
for Spot of 0 counts as not granted.
"""

from everspot_clouds.gcp.quotas import ALL_REGIONS, find_quota
from everspot_core.jobs.records import Market

from everspot_local.gcp import rates
from everspot_local.market.quotas import Quota, Quotas

_GPUS = ("NVIDIA_T4_GPUS", "NVIDIA_V100_GPUS", "NVIDIA_L4_GPUS", "NVIDIA_A100_GPUS", "NVIDIA_A100_80GB_GPUS",
         "NVIDIA_H100_GPUS")  # fmt: skip
_CPUS = ("CPUS", "N2_CPUS", "C3_CPUS", "A2_CPUS", "PREEMPTIBLE_CPUS")
SERVICE = "compute"
DEFAULTS = (
    *(Quota(name, SERVICE, name, 128) for name in _GPUS),
    *(Quota(f"PREEMPTIBLE_{name}", SERVICE, f"PREEMPTIBLE_{name}", 128) for name in _GPUS),
    *(Quota(name, SERVICE, name, 2400) for name in _CPUS),
    Quota(ALL_REGIONS, SERVICE, ALL_REGIONS, 256),
    Quota("NETWORKS", SERVICE, "NETWORKS", 15),
    *rates.DEFAULTS,
)


def account_quotas(values: dict[str, float] | None = None) -> Quotas:
    """Return a project's quotas. `values`: by metric, where they differ from the defaults.

    Raises:
        ValueError: for a metric that is unknown or a value below 0.
    """
    return Quotas(DEFAULTS, _quota_code, values)


def _quota_code(instance_type: str, market: Market) -> str | None:
    """Return the quota that an instance counts towards first; None for a family without any, such as one declared in a
    script."""
    code = find_quota(instance_type, market)
    return code if code in {quota.code for quota in DEFAULTS} else None
