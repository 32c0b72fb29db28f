"""Google Cloud's discounts for a commitment: committed use discounts (CUDs).

Compute flexible CUDs have one published discount for the general-purpose and compute-optimised families, without GPUs
and shared cores. Resource-based ones differ by family and region. None of them applies to Spot VMs.
"""

from datetime import date

from everspot_core.governance.commitments import CommitmentPlan

_AS_OF = date(2026, 3, 1)
_FLEXIBLE = (
    "Google Cloud's blog, “Flexible Committed Use Discounts” (2022); still the same in March 2026 by Archera's "
    "Compute Engine commitment brief"
)
_RESOURCE = "Google Cloud, “Committed use discounts (CUDs) for Compute Engine”"
_RATES = "cloud.google.com/compute/vm-instance-pricing"
_FAMILIES = ("c2", "c2d", "c3", "c3d", "c4", "c4a", "c4d", "e2", "n1", "n2", "n2d", "n4")
_SHARED_CORES = ("e2-micro", "e2-small", "e2-medium")


def _flexible(kind: str, region: str) -> str | None:
    plain = "+" not in kind and kind not in _SHARED_CORES
    return "Compute Engine without GPUs" if plain and kind.partition("-")[0] in _FAMILIES else None


def _family(kind: str, region: str) -> str | None:
    """vCPUs and memory of a family are committed to in its region, and GPUs beside them by their model."""
    machine, _, gpu = kind.partition("+")
    if machine in _SHARED_CORES:
        return None
    family = machine.partition("-")[0]
    return f"{family} with {gpu} in {region}" if gpu else f"{family} in {region}"


PLANS = tuple(
    plan
    for years, discount in ((1, 0.28), (3, 0.46))
    for plan in (
        CommitmentPlan(
            key=f"flexible-{years}y", name="Compute flexible CUD", years=years, scope=_flexible, discount=discount,
            source=_FLEXIBLE, as_of=_AS_OF, rates_at=_RATES,
        ),
        CommitmentPlan(
            key=f"resource-{years}y", name="Resource-based CUD", years=years, scope=_family, source=_RESOURCE,
            as_of=_AS_OF, rates_at=_RATES,
        ),
    )
)  # fmt: skip
