"""Prices of machine types as sums of SKUs: against sums that are known from elsewhere, and what is refused.

The SKUs have the form of services.skus.list (Cloud Billing Catalog API) and the rates of us-central1 as public readers
of the catalog have them (SkyPilot's catalog, gcosts; 2025 and 2026). The sums are Google's pages of prices.
"""

from typing import Any

import pytest
from everspot_clouds.gcp.sku_prices import MachineParts, SkuPrices, Unpriced

REGION = "us-central1"


def sku(
    description: str,
    usd: float,
    unit: str = "h",
    usage: str = "OnDemand",
    regions: tuple[str, ...] = (REGION,),
    **more: Any,
) -> dict[str, Any]:
    nanos = round(usd * 10**9)
    rate = {"currencyCode": "USD", "units": str(nanos // 10**9), "nanos": nanos % 10**9, **more}
    expression = {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": rate}]}
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "usageType": usage},
        "serviceRegions": list(regions),
        "pricingInfo": [{"pricingExpression": expression}],
    }


SKUS = [
    sku("G2 Instance Core running in Americas", 0.02498844),
    sku("G2 Instance Ram running in Americas", 0.00292737, "GiBy.h"),
    sku("Nvidia L4 GPU running in Americas", 0.560040239),
    sku("Spot Preemptible G2 Instance Core running in Americas", 0.00999537, usage="Preemptible"),
    sku("Spot Preemptible G2 Instance Ram running in Americas", 0.00117094, "GiBy.h", usage="Preemptible"),
    sku("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", 0.2231, usage="Preemptible"),
    sku("A2 Instance Core running in Americas", 0.031611),
    sku("A2 Instance Ram running in Americas", 0.004237, "GiBy.h"),
    sku("Nvidia Tesla A100 GPU running in Americas", 2.933908),
    sku("Nvidia Tesla A100 80GB GPU running in Americas", 3.92808),
    sku("SSD backed Local Storage", 0.08, "GiBy.mo"),
    sku("N1 Predefined Instance Core running in Americas", 0.031611),
    sku("N1 Predefined Instance Ram running in Americas", 0.004237, "GiBy.h"),
    sku("Nvidia Tesla T4 GPU running in Americas", 0.35),
    sku("E2 Instance Core running in Americas", 0.02181159),
    sku("E2 Instance Ram running in Americas", 0.00292353, "GiBy.h"),
    sku("A3 Instance Core running in Americas", 0.0293),
    sku("A3 Instance Ram running in Americas", 0.00255, "GiBy.h"),
    sku("Nvidia H100 80GB GPU running in Americas", 9.796550569),
    sku("A4 Nvidia B200 (1 gpu slice) running in Americas", 16.11),
    # SKUs with a similar name and another price, or none. Each caused a wrong price in a public catalog.
    sku("Nvidia Tesla A100 80GB GPU attached to DWS Defined Duration VMs running in Americas", 1.8462),
    sku("Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas", 4.20076),
    sku("Reserved Nvidia H100 80GB GPU in Americas", 0),
    sku("G2 Custom Instance Core running in Americas", 0.03),
    sku("G2 Instance Core running in Virginia", 0.03, regions=("us-east4",)),
    sku("Commitment v1: A2 Cpu in Americas for 1 Year", 0.0199),
    sku("A2 Instance Core running in Americas", 0.0199, usage="Commit1Yr"),
    sku("Sole Tenancy Instance Core running in Americas", 0.04),
    sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.9542),
    # A region with two prices of one thing, and one in another currency.
    sku("N2 Instance Core running in Americas", 0.031611),
    sku("N2 Instance Core running in Iowa", 0.04),
    sku("N2 Instance Ram running in Americas", 0.004237, "GiBy.h"),
    sku("C3 Instance Core running in Americas", 3.1, currencyCode="JPY"),
]  # fmt: skip


def machine(
    name: str, vcpus: int, memory_gib: float, accelerator: str = "", gpus: int = 0, ssd: int = 0
) -> MachineParts:
    return MachineParts(
        name=name, vcpus=vcpus, memory_gib=memory_gib, accelerator=accelerator, gpus=gpus, local_ssd_gib=ssd
    )


@pytest.mark.parametrize(
    ("parts", "usd"),
    [
        (machine("g2-standard-4", 4, 16, "nvidia-l4", 1), 0.70683),
        (machine("g2-standard-96", 96, 384, "nvidia-l4", 8), 8.00333),
        (machine("a2-highgpu-1g", 12, 85, "nvidia-tesla-a100", 1), 3.673385),
        (machine("a2-highgpu-8g", 96, 680, "nvidia-tesla-a100", 8), 29.38708),
        (machine("a2-ultragpu-1g", 12, 170, "nvidia-a100-80gb", 1, 375), 5.06879789),
        (machine("n1-standard-8", 8, 30), 0.379998),
        (machine("n1-standard-8", 8, 30, "nvidia-tesla-t4", 1), 0.729998),
        (machine("e2-small", 2, 2), 0.016752855),
        (machine("a4-highgpu-8g", 224, 3968, "nvidia-b200", 8, 12_000), 128.88),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_machine_type_costs_what_googles_page_says(parts: MachineParts, usd: float) -> None:
    assert SkuPrices(SKUS, REGION).on_demand(parts) == pytest.approx(usd, rel=2e-5)


def test_spot_has_skus_of_its_own_also_those_that_count_as_on_demand() -> None:
    prices = SkuPrices(SKUS, REGION)
    assert prices.spot(machine("g2-standard-4", 4, 16, "nvidia-l4", 1)) == pytest.approx(0.28184, rel=1e-4)
    assert prices.spot(machine("a4-highgpu-8g", 224, 3968, "nvidia-b200", 8)) == pytest.approx(8 * 4.9542)


def test_the_flexible_start_and_reservations_are_no_on_demand_prices() -> None:
    h100 = SkuPrices(SKUS, REGION).on_demand(machine("a3-highgpu-8g", 208, 1872, "nvidia-h100-80gb", 8, 6000))
    assert h100 == pytest.approx(208 * 0.0293 + 1872 * 0.00255 + 8 * 9.796550569 + 6000 * 0.08 / 730)
    assert h100 > 80


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (machine("n2-standard-8", 8, 32), "more than one price of 'N2 Instance Core'"),
        (machine("c3-highcpu-8", 8, 16), "no price of 'C3 Instance Core'"),
        (machine("a3-megagpu-8g", 208, 1872, "nvidia-h100-mega-80gb", 8), "no price of 'A3Plus Instance Core'"),
        (machine("a4x-highgpu-4g", 140, 884, "nvidia-gb200", 4), "the SKUs of A4X are not known"),
        (machine("g2-standard-4", 4, 16, "nvidia-l9", 1), "the SKU of nvidia-l9 is not known"),
        (machine("g4-standard-6", 6, 22, "nvidia-rtx-pro-6000", 1), "a part of a GPU"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_cannot_be_composed_has_no_price_and_a_reason(parts: MachineParts, reason: str) -> None:
    with pytest.raises(Unpriced, match=reason):
        SkuPrices(SKUS, REGION).on_demand(parts)


def test_a_region_without_skus_has_no_prices() -> None:
    with pytest.raises(Unpriced, match="no price of 'G2 Instance Ram'"):
        SkuPrices(SKUS, "us-east4").on_demand(machine("g2-standard-4", 4, 16, "nvidia-l4", 1))
