"""Stands in for a project's regional quotas of Compute Engine: CPUs and GPUs, for Spot apart once any is granted.

Names are those of `Quota.metric` in the discovery document. The values are what a team is given that asked; a script,
an option or an action of the market sets another figure.
"""

from everspot_core.records import Market

from everspot_local.market.quotas import Quota, Quotas

_GPUS = {"T4": "NVIDIA_T4_GPUS", "V100": "NVIDIA_V100_GPUS", "L4": "NVIDIA_L4_GPUS", "A100": "NVIDIA_A100_GPUS",
         "H100": "NVIDIA_H100_GPUS"}  # fmt: skip
SERVICE = "compute"
DEFAULTS = (
    *(Quota(name, SERVICE, name, 128) for name in _GPUS.values()),
    *(Quota(f"PREEMPTIBLE_{name}", SERVICE, f"PREEMPTIBLE_{name}", 128) for name in _GPUS.values()),
    *(Quota(name, SERVICE, name, 2400) for name in ("CPUS", "PREEMPTIBLE_CPUS")),
    Quota("GPUS_ALL_REGIONS", SERVICE, "GPUS_ALL_REGIONS", 256),
    Quota("NETWORKS", SERVICE, "NETWORKS", 15),
)


def account_quotas(values: dict[str, float] | None = None) -> Quotas:
    """Return a project's quotas. `values`: by metric, where they differ from the defaults.

    Raises:
        ValueError: for a metric that is unknown or a value below 0.
    """
    return Quotas(DEFAULTS, _code_of, values)


def _code_of(_instance_type: str, market: Market) -> str | None:
    """The quota of CPUs. A machine with GPUs counts towards that of its GPUs besides."""
    return "PREEMPTIBLE_CPUS" if market is Market.SPOT else "CPUS"
