"""Emulates the Cloud Billing Catalog: the SKUs of Compute Engine, which add up to the catalogue's prices.

The catalogue has prices of whole machine types alone. Here each series gets one price of a core, of a GiB and of a GPU
in each region, so that the sums are the catalogue's, to a thousandth. It knows no other service, and beside these SKUs
lists the one of a commitment for each, whose price nobody may take for that of a core.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from everspot_core.capacity.catalogue import Catalogue, InstanceType

from everspot_local.gcp.answers import invalid
from everspot_local.gcp.compute.machine_types import accelerator_name
from everspot_local.gcp.refusals import absent
from everspot_local.gcp.router import Handler, Request

SERVICE = "services/6F81-5844-456A"
PAGE = 5000
GIB_OF_CORE = 0.134
"""The price of a GiB by that of a core, as with N1 in us-central1."""

# Not taken from the adapter that reads them: a wrong description there has to be found here.
_CORES = {
    "a2": "A2 Instance", "a3": "A3 Instance", "c3": "C3 Instance", "e2": "E2 Instance", "g2": "G2 Instance",
    "n1": "N1 Predefined Instance", "n2": "N2 Instance",
}  # fmt: skip
_GPUS = {
    "nvidia-l4": "Nvidia L4 GPU", "nvidia-tesla-a100": "Nvidia Tesla A100 GPU",
    "nvidia-a100-80gb": "Nvidia Tesla A100 80GB GPU", "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
    "nvidia-tesla-t4": "Nvidia Tesla T4 GPU", "nvidia-tesla-v100": "Nvidia Tesla V100 GPU",
}  # fmt: skip
# Beside the machines: disks, by month and the same in all regions here, and addresses, which have no region.
_DISKS = {"Storage PD Capacity": 0.04, "Balanced PD Capacity": 0.10, "SSD backed PD Capacity": 0.17}
_ADDRESSES = {"External IP Charge on a Standard VM": 0.005, "External IP Charge on a Spot Preemptible VM": 0.0025}
_CHARGED_CORES = {"e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0}


@dataclass(frozen=True)
class _Sku:
    description: str
    group: str
    region: str
    usage: str
    unit: str
    usd: float


def routes(catalogue: Callable[[], Catalogue]) -> dict[str, Handler]:
    """Return handlers by method id. `catalogue`: returns the current one."""

    def skus(request: Request) -> dict[str, Any]:
        if request.params["parent"] != SERVICE:
            raise absent(f"Service not found: {request.params['parent']}")
        size, token = int(request.params.get("pageSize") or PAGE), str(request.params.get("pageToken") or "0")
        if not 1 <= size <= PAGE or not token.isdigit():
            raise invalid("pageToken", token, "The page is none of this list.")
        documents = [_document(number, sku) for number, sku in enumerate(_skus(catalogue()))]
        first = int(token)
        more = str(first + size) if first + size < len(documents) else ""
        return {"skus": documents[first : first + size], "nextPageToken": more}

    return {"cloudbilling.services.skus.list": skus}


_Rows = list[tuple[InstanceType, float]]


def _skus(catalogue: Catalogue) -> Iterator[_Sku]:
    for region in catalogue.regions:
        on_demand: dict[str, _Rows] = defaultdict(list)
        spot: dict[str, _Rows] = defaultdict(list)
        for name in catalogue.offered(region):
            listed, lowest, series = (
                catalogue.on_demand(name, region),
                catalogue.spot_range(name, region),
                _series(name),
            )
            if series in _CORES and listed is not None:
                on_demand[series].append((catalogue.types[name], listed.usd_per_hour))
            if series in _CORES and lowest is not None:
                spot[series].append((catalogue.types[name], lowest[0].usd_per_hour))
        yield from _region_skus(region, on_demand, "OnDemand", "", "")
        yield from _region_skus(region, spot, "Preemptible", "Spot Preemptible ", " attached to Spot Preemptible VMs")
        if on_demand:  # else it is one of AWS's
            yield from _disk_skus(region)
    for text, usd in _ADDRESSES.items():
        yield _Sku(text, "IpAddress", "global", "OnDemand", "h", usd)


def _disk_skus(region: str) -> Iterator[_Sku]:
    for text, usd in _DISKS.items():
        place, group = f"in {region.title()}", "PDStandard" if text.startswith("Storage") else "SSD"
        yield _Sku(f"{text} {place}", group, region, "OnDemand", "GiBy.mo", usd)
        yield _Sku(f"Regional {text} {place}", group, region, "OnDemand", "GiBy.mo", 2 * usd)


def _region_skus(region: str, groups: Mapping[str, _Rows], usage: str, before: str, behind: str) -> Iterator[_Sku]:
    for series, rows in groups.items():
        core, gpus = _parts(rows, groups.get("n2", []) if series == "n1" else [])
        words, place = f"{before}{_CORES[series]}", f"running in {region.title()}"
        own_group = series == "n1"  # whose cores and memory are one group
        yield _Sku(f"{words} Core {place}", "N1Standard" if own_group else "CPU", region, usage, "h", core)
        memory = "N1Standard" if own_group else "RAM"
        yield _Sku(f"{words} Ram {place}", memory, region, usage, "GiBy.h", core * GIB_OF_CORE)
        committed = f"Commitment v1: {_CORES[series]} Core in {region.title()} for 1 Year"
        yield _Sku(committed, "CPU", region, "Commit1Yr", "h", core / 2)
        for name, usd in gpus.items():
            yield _Sku(f"{_GPUS[name]}{behind} {place}", "GPU", region, usage, "h", usd)


def _parts(rows: _Rows, like: _Rows) -> tuple[float, dict[str, float]]:
    """Return the price of a core, and of each GPU by its accelerator type. `like`: types without GPUs whose cores cost
    the same, for a series that the catalogue sells with GPUs alone."""
    core = _core([*like, *rows])
    gpus: dict[str, float] = {}
    for kind, usd in rows:
        if kind.gpus:
            gpus.setdefault(accelerator_name(kind), (usd - core * _units(kind)) / kind.gpus)
    return core, gpus


def _core(rows: _Rows) -> float:
    """Return the price of a core: what two types with the same GPUs differ by, or the price of a type without any.
    Where all types of a series are multiples of each other, any share of the price is right."""
    for kind, usd in rows:
        if not kind.gpus:
            return usd / _units(kind)
        for other, other_usd in rows:
            if (kind.gpus, kind.gpu) == (other.gpus, other.gpu) and _units(other) > _units(kind):
                return (other_usd - usd) / (_units(other) - _units(kind))
    kind, usd = rows[0]
    return 0.2 * usd / _units(kind)


def _series(name: str) -> str:
    return "" if "." in name else name.partition("-")[0]  # AWS's types have dots


def _units(kind: InstanceType) -> float:
    cores = _CHARGED_CORES.get(kind.name, float(kind.vcpus))
    return cores + GIB_OF_CORE * kind.memory_gib


def _document(number: int, sku: _Sku) -> dict[str, Any]:
    name = f"{number:04X}-0000-0000"
    nanos = round(sku.usd * 1e9)
    rate = {"currencyCode": "USD", "units": str(nanos // 10**9), "nanos": nanos % 10**9}
    return {
        "name": f"{SERVICE}/skus/{name}",
        "skuId": name,
        "description": sku.description,
        "category": {
            "serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "resourceGroup": sku.group,
            "usageType": sku.usage,
        },
        "serviceRegions": [sku.region],
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": sku.unit, "displayQuantity": 1,
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": rate}],
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-01-01T00:00:00Z",
            }
        ],
        "serviceProviderName": "Google",
    }  # fmt: skip
