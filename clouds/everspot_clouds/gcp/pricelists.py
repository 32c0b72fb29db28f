"""Reads a region's prices from Google: on-demand composed of the Cloud Billing Catalog's SKUs, Spot from Compute Engine
and, where it states none, from the SKUs as well; and the resources of the types from Compute Engine."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.clock import Clock

from everspot_clouds.base import NotOffered, Trouble
from everspot_clouds.gcp import fixed_prices as fixed
from everspot_clouds.gcp.sku_prices import GLOBAL, HOURS_A_MONTH, SERVICE, MachineParts, SkuPrices, Unpriced
from everspot_clouds.gcp.sku_prices import SOURCE as ON_DEMAND_SOURCE

LISTED_AT_ONCE = 5000
"""SKUs on a page, at most (Cloud Billing Catalog API, services.skus.list, `pageSize`)."""
PAGE_TIME = timedelta(seconds=60)
"""Time for a page: one of 5,000 SKUs has some ten megabytes."""
NO_ON_DEMAND = "none: the Cloud Billing Catalog could not be read"


def read(
    region: str,
    types: Iterable[str],
    as_of: datetime,
    page: Callable[[], None],
    clock: Clock,
    *,
    gpu_types: bool = False,
) -> PriceTable:
    """Return the prices and resources of `types` in `region` now. Types without a price are left out; `unpriced` says
    why a type has no on-demand price. Without the Cloud Billing Catalog there are Spot prices alone.

    Raises:
        CloudError: if Compute Engine cannot be asked; `NotOffered` if there is no price of any type.
    """
    import requests
    from google.auth.exceptions import GoogleAuthError

    from everspot_clouds.gcp import machine_types, prices
    from everspot_clouds.gcp.errors import ApiError, to_cloud_error
    from everspot_clouds.gcp.http_api import open_api
    from everspot_clouds.gcp.zones import Zones

    api = open_api(clock, time=PAGE_TIME)
    try:
        zones = Zones(api).list_zones(region)
        described = machine_types.describe(api, zones)
        page()
        names = sorted({*types, *(machine_types.with_gpus(described) if gpu_types else ())})
        parts = {name: own for name in names if (own := machine_types.parts(name, described)) is not None}
        resources = [kind for name in names if (kind := machine_types.parse(name, described)) is not None]
        skus, refusal = _skus(api, region, page)
        on_demand, unpriced = _on_demand(skus, names, parts, region, refusal)
        spot = {name: usd for name, own in parts.items() if (usd := _spot(api, own, region, as_of, page, skus))}
    except (ApiError, requests.RequestException, GoogleAuthError) as error:
        raise to_cloud_error(error) from None
    finally:
        api.close()
    if not on_demand and not spot:
        raise NotOffered(f"Google states no prices of these types in {region}; those of the catalogue are used")
    table = _table(region, as_of, zones, resources, on_demand, spot, unpriced, prices.SOURCE, refused=bool(refusal))
    return table.model_copy(update={"other_usd": _others(skus)})


def _table(
    region: str,
    as_of: datetime,
    zones: Iterable[str],
    resources: Iterable[InstanceType],
    on_demand: Mapping[str, float],
    spot: Mapping[str, float],
    unpriced: Mapping[str, str],
    spot_source: str,
    *,
    refused: bool,
) -> PriceTable:
    priced = sorted({*on_demand, *spot})
    return PriceTable(
        cloud="gcp",
        region=region,
        as_of=as_of,
        on_demand_source=NO_ON_DEMAND if refused else ON_DEMAND_SOURCE,
        spot_source=spot_source,
        prices=[
            TypePrice(
                instance_type=name,
                on_demand_usd_per_hour=on_demand.get(name),
                spot_usd_per_hour=dict.fromkeys(zones, spot[name]) if name in spot else {},
            )
            for name in priced
        ],
        types=[kind for kind in resources if kind.name in on_demand or kind.name in spot],
        unpriced=dict(unpriced),
    )


def _skus(api: Any, region: str, page: Callable[[], None]) -> tuple[SkuPrices, str]:
    """Return the region's SKUs; none of them, and the reason, if the Cloud Billing Catalog refuses: its API may be
    switched off in the project."""
    from everspot_clouds.gcp.errors import ApiError, trouble

    skus: list[Mapping[str, Any]] = []
    try:
        pages = api.pages("cloudbilling", f"{SERVICE}/skus", pageSize=LISTED_AT_ONCE, currencyCode="USD")
        for answer in pages:
            # Of each page only what counts here is kept: the whole catalog has some forty thousand SKUs.
            listed = answer.get("skus") or ()
            skus += [s for s in listed if not {region, GLOBAL}.isdisjoint(s.get("serviceRegions") or ())]
            page()
    except ApiError as error:
        if trouble(error) in (Trouble.TRANSIENT, Trouble.THROTTLED):
            raise
        return SkuPrices((), region), f"the Cloud Billing Catalog cannot be read: {error}"
    return SkuPrices(skus, region), ""


_OTHERS = {
    fixed.DISK_GIB["pd-standard"]: "Storage PD Capacity",
    fixed.DISK_GIB["pd-balanced"]: "Balanced PD Capacity",
    fixed.DISK_GIB["pd-ssd"]: "SSD backed PD Capacity",
    fixed.ADDRESS: "External IP Charge on a Standard VM",
    fixed.SPOT_ADDRESS: "External IP Charge on a Spot Preemptible VM",
}
"""Prices of everything but machines, and the descriptions of their SKUs in Compute Engine's list. Those of Cloud NAT,
keys and alerts are in the lists of other services."""


def _others(skus: SkuPrices) -> dict[str, float]:
    """Return the prices of disks and addresses by their keys, as far as the list has exactly one."""
    hourly = {price: usd for price, text in _OTHERS.items() if (usd := skus.rate(text)) is not None}
    return {p.key: round(usd * (HOURS_A_MONTH if p.per == "month" else 1), 9) for p, usd in hourly.items()}


def _on_demand(
    skus: SkuPrices, names: Iterable[str], parts: Mapping[str, MachineParts], region: str, refusal: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the on-demand prices by type, and the reasons for missing prices by type."""
    listed, unpriced = dict[str, float](), dict[str, str]()
    for name in names:
        if refusal or name not in parts:
            unpriced[name] = refusal or f"Compute Engine does not offer it in {region}"
            continue
        try:
            listed[name] = skus.on_demand(parts[name])
        except Unpriced as reason:
            unpriced[name] = str(reason)
    return listed, unpriced


def _spot(
    api: Any, machine: MachineParts, region: str, as_of: datetime, page: Callable[[], None], skus: SkuPrices
) -> float | None:
    """Return a type's Spot price: what Compute Engine states, else the sum of its SKUs; None if there is neither."""
    from everspot_clouds.gcp import prices
    from everspot_clouds.gcp.errors import ApiError, trouble

    if not _attached(machine):  # for which Compute Engine states none
        try:
            steps = prices.in_force(prices.read(prices.request_history(api, machine.name, region)), as_of)
            page()
            if steps:
                return steps[0][1]
        except ApiError as error:
            if trouble(error) is not Trouble.REQUEST:
                raise
    try:
        return skus.spot(machine)
    except Unpriced:
        return None


def _attached(machine: MachineParts) -> bool:
    return machine.gpus > 0 and machine.name.startswith("n1-")
