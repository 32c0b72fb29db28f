"""Reads a region's Spot prices from Compute Engine, for the dated table that replaces the catalogue's.

On-demand prices stay those of the catalogue, because the Cloud Billing Catalog API has no prices of machine types. It
has only those of vCPUs, memory and GPUs, each under a name in prose ("G2 Instance Core running in Netherlands"), and a
price composed by such names would be a guess.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.clock import Clock

from everspot_clouds.base import NotOffered, Trouble
from everspot_clouds.gcp.machines import parse_type

ON_DEMAND_SOURCE = "the catalogue: Google has no price list by machine type"


def read(region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None], clock: Clock) -> PriceTable:
    """Return the prices of Spot VMs of `types` in `region` now, in all of its zones. Types without a price are left
    out.

    Raises:
        CloudError: if the prices cannot be read; `NotOffered` if Google states no price.
    """
    import requests
    from google.auth.exceptions import GoogleAuthError

    from everspot_clouds.gcp import prices
    from everspot_clouds.gcp.errors import ApiError, to_cloud_error, trouble
    from everspot_clouds.gcp.http_api import open_api
    from everspot_clouds.gcp.zones import Zones

    api = open_api(clock)
    try:
        zones, type_prices = Zones(api).list_zones(region), list[TypePrice]()
        for name in sorted(set(types)):
            machine = parse_type(name)
            if machine.attached:
                continue
            try:
                steps = prices.in_force(prices.read(prices.request_history(api, machine.machine, region)), as_of)
            except ApiError as error:
                if trouble(error) is not Trouble.REQUEST:
                    raise
                steps = ()
            page()
            if steps:
                type_prices.append(TypePrice(instance_type=name, spot_usd_per_hour=dict.fromkeys(zones, steps[0][1])))
    except (ApiError, requests.RequestException, GoogleAuthError) as error:
        raise to_cloud_error(error) from None
    finally:
        api.close()
    if not type_prices:
        raise NotOffered(f"Google states no Spot prices of these types in {region}; those of the catalogue are used")
    return PriceTable(
        cloud="gcp", region=region, as_of=as_of, on_demand_source=ON_DEMAND_SOURCE, spot_source=prices.SOURCE,
        prices=type_prices,
    )  # fmt: skip
