"""Prices of machine types, composed of the SKUs of the Cloud Billing Catalog.

The catalog prices cores, memory, GPUs and local SSD apart, and names them in prose only: "G2 Instance Core running in
Iowa". Their regions are in `serviceRegions`; what stands behind "running in" is not read. Each part has to have exactly
one price in a region: reservations, commitments, sole tenants and the flexible start have SKUs of similar names, and a
type with a part that has none, or several, has no price here.

Checked against the sums of Google's own pages: a2-highgpu-1g, a2-ultragpu-1g (whose local SSD is a part of it),
g2-standard-4, n1-standard-8 and e2-small of us-central1 (tests/clouds/test_clouds_gcp_sku_prices.py).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

SERVICE = "services/6F81-5844-456A"
"""Compute Engine's name in the Cloud Billing Catalog (cloud.google.com/skus)."""

SOURCE = "cloudbilling:services.skus"
HOURS_A_MONTH = 730
"""Hours of a month in Google's prices of a GiB of local SSD (Compute Engine documentation, "Disk pricing")."""

GLOBAL = "global"
"""The region of SKUs whose price is the same in all regions, such as that of an external address."""

_GIB_OF_GB = Decimal(2**30) / Decimal(10**9)

CORES = {
    "a2": "A2 Instance", "a3": "A3 Instance", "c2": "Compute optimized", "c2d": "C2D AMD Instance",
    "c3": "C3 Instance", "c3d": "C3D Instance", "c4": "C4 Instance", "c4a": "C4A Arm Instance", "c4d": "C4D Instance",
    "e2": "E2 Instance", "g2": "G2 Instance", "g4": "G4 Instance", "n1": "N1 Predefined Instance", "n2": "N2 Instance",
    "n2d": "N2D AMD Instance", "n4": "N4 Instance", "t2a": "T2A Arm Instance", "t2d": "T2D AMD Instance",
}  # fmt: skip
"""By series, the beginning of the descriptions of its cores and memory; " Core" and " Ram" follow."""

_OWN_CORES = {"a3-megagpu-": "A3Plus Instance", "a3-ultragpu-": "A3Ultra Instance"}
"""Machine types of a series whose cores have SKUs of their own."""

WHOLE = {"a4-highgpu-": "A4 Nvidia B200 (1 gpu slice)"}
"""Machine types whose GPUs' SKU covers everything: Google lists no cores and no memory of A4."""

GPUS = {
    "nvidia-l4": ("Nvidia L4 GPU",),
    "nvidia-rtx-pro-6000": ("RTX 6000 96GB",),
    "nvidia-tesla-a100": ("Nvidia Tesla A100 GPU",),
    "nvidia-a100-80gb": ("Nvidia Tesla A100 80GB GPU",),
    "nvidia-h100-80gb": ("Nvidia H100 80GB GPU",),
    "nvidia-h100-mega-80gb": (
        "Nvidia H100 80GB Mega GPU", "Nvidia H100 Mega 80GB GPU", "Nvidia H100 80GB Plus GPU",
    ),
    "nvidia-h200-141gb": ("H200 141GB GPU",),
    "nvidia-tesla-t4": ("Nvidia Tesla T4 GPU",),
    "nvidia-tesla-v100": ("Nvidia Tesla V100 GPU",),
    "nvidia-tesla-p100": ("Nvidia Tesla P100 GPU",),
    "nvidia-tesla-p4": ("Nvidia Tesla P4 GPU",),
}  # fmt: skip
"""By accelerator type, the descriptions of its GPUs. That of H100 Mega differs from region to region."""

_SHARED_CORES = {"e2-micro": Decimal("0.25"), "e2-small": Decimal("0.5"), "e2-medium": Decimal(1)}
"""vCPUs that are charged for shared-core machine types (Compute Engine documentation, "VM instance pricing", E2)."""

_PARTS_OF_GPUS = re.compile(r"g4-standard-(6|12|24)\Z")
"""Machine types with a part of a GPU, which have SKUs of their own (Compute Engine documentation, "G4")."""

_LOCAL_SSD = "SSD backed Local Storage"
_SPOT, _SPOT_GPU = "Spot Preemptible ", " attached to Spot Preemptible VMs"
_PLACE = re.compile(r" (?:running )?in [A-Z][^:]*\Z")
_USAGE = ("OnDemand", "Preemptible")
"""Not by commitment. Some SKUs of Spot count as on-demand, so that the descriptions tell them apart."""
_UNITS = {"h": Decimal(1), "GiBy.h": Decimal(1), "GBy.h": _GIB_OF_GB, "GiBy.mo": Decimal(1) / HOURS_A_MONTH}
"""How many of a SKU's units an hour of a core, a GPU or a GiB is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineParts:
    """The charged parts of a machine type.

    Attributes:
        name: of the machine type, without attached GPUs.
        accelerator: accelerator type of its GPUs; empty for none.
        local_ssd_gib: local SSD that is bundled with it.
    """

    name: str
    vcpus: int
    memory_gib: float
    accelerator: str = ""
    gpus: int = 0
    local_ssd_gib: int = 0


class Unpriced(ValueError):
    """A machine type that has no price here. Its message is the reason."""


class SkuPrices:
    """The prices of one region's SKUs, in dollars for an hour of a core, a GPU or a GiB, by description."""

    def __init__(self, skus: Iterable[Mapping[str, Any]], region: str) -> None:
        """`skus`: as services.skus.list answers them. SKUs of other regions, and of other units, are left out."""
        prices: dict[str, set[Decimal]] = defaultdict(set)
        for sku in skus:
            usage = (sku.get("category") or {}).get("usageType")
            here = usage in _USAGE and not {region, GLOBAL}.isdisjoint(sku.get("serviceRegions") or ())
            if here and (usd := _usd(sku)) is not None:
                prices[_PLACE.sub("", str(sku.get("description", "")))].add(usd)
        self._prices, self._region = prices, region

    def on_demand(self, machine: MachineParts) -> float:
        """Return dollars for an hour of a machine type.

        Raises:
            Unpriced: if it cannot be composed.
        """
        return self._sum(machine, "", "")

    def spot(self, machine: MachineParts) -> float:
        """Return dollars for an hour of it on Spot.

        Raises:
            Unpriced: if it cannot be composed.
        """
        return self._sum(machine, _SPOT, _SPOT_GPU)

    def rate(self, *descriptions: str) -> float | None:
        """Return the price of the SKUs with any of these descriptions, in dollars an hour; None unless exactly one
        price is found."""
        try:
            return float(self._rate(list(descriptions)))
        except Unpriced:
            return None

    def _sum(self, machine: MachineParts, before: str, behind: str) -> float:
        if _PARTS_OF_GPUS.match(machine.name):
            raise Unpriced("a part of a GPU has SKUs of its own, which are not read")
        if whole := next((words for start, words in WHOLE.items() if machine.name.startswith(start)), ""):
            return float(machine.gpus * self._rate([f"{before}{whole}"]))
        series = machine.name.partition("-")[0]
        own = next((words for start, words in _OWN_CORES.items() if machine.name.startswith(start)), None)
        cores = own or CORES.get(series)
        if cores is None:
            raise Unpriced(f"the SKUs of {series.upper()} are not known")
        usd = _SHARED_CORES.get(machine.name, Decimal(machine.vcpus)) * self._rate([f"{before}{cores} Core"])
        usd += Decimal(str(machine.memory_gib)) * self._rate([f"{before}{cores} Ram"])
        if machine.gpus:
            if machine.accelerator not in GPUS:
                raise Unpriced(f"the SKU of {machine.accelerator or 'its GPU'} is not known")
            names = GPUS[machine.accelerator]
            usd += machine.gpus * self._rate([f"{name}{behind}" for name in names])
        if machine.local_ssd_gib:
            usd += machine.local_ssd_gib * self._rate([f"{_LOCAL_SSD}{behind}"])
        return float(round(usd, 9))

    def _rate(self, descriptions: list[str]) -> Decimal:
        """Return the one price of SKUs with any of these descriptions."""
        rates = set().union(*(self._prices.get(text, set()) for text in descriptions))
        if len(rates) != 1:
            number = "no" if not rates else "more than one"
            raise Unpriced(f"the price list of {self._region} has {number} price of {descriptions[0]!r}")
        return next(iter(rates))


def _usd(sku: Mapping[str, Any]) -> Decimal | None:
    """Return a SKU's price for an hour; None if it is no price by the hour in dollars, or is 0, as of SKUs that are not
    sold apart."""
    infos = sku.get("pricingInfo") or ()
    expression = infos[-1].get("pricingExpression") or {} if infos else {}
    factor, rates = _UNITS.get(str(expression.get("usageUnit"))), expression.get("tieredRates") or ()
    if factor is None or not rates:
        return None
    price = rates[-1].get("unitPrice") or {}
    if price.get("currencyCode", "USD") != "USD":
        return None
    usd = (Decimal(str(price.get("units") or 0)) + Decimal(str(price.get("nanos") or 0)) / 10**9) * factor
    return usd if usd > 0 else None
