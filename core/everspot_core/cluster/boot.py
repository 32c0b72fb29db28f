"""How long an instance may take until its agent reports, by its type."""

from datetime import timedelta

from everspot_core.cluster.manifest import Limits

MANY_GPUS = 8
"""GPUs from which on a machine boots slowly: terabytes of memory are set up, then eight GPUs and, where these are
joined by NVSwitch, the fabric."""
MANY_GPUS_FACTOR = 2
METAL_FACTOR = 3
"""Bare metal goes through the firmware of a whole server, which alone may take a quarter of an hour."""


def boot_deadline(limits: Limits, instance_type: str, gpus: int) -> timedelta:
    """Return the time from the launch of an instance within which its agent has to report.

    Args:
        limits: Of the cluster; `boot_deadline` is that of usual types.
        instance_type: As the cloud names it.
        gpus: How many GPUs the type has; 0 for a type that is not known.
    """
    if "metal" in instance_type:
        return limits.boot_deadline * METAL_FACTOR
    return limits.boot_deadline * (MANY_GPUS_FACTOR if gpus >= MANY_GPUS else 1)
