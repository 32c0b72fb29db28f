"""Reads a region's prices from AWS: on-demand and everything but instances from the Price List API, Spot from EC2, and
the types' resources from EC2."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everspot_core.capacity.price_table import PriceTable, TypePrice

from everspot_clouds.aws import fixed_prices as fixed
from everspot_clouds.aws.instance_types import GPU_PATTERNS, VALUES, describe
from everspot_clouds.aws.prices import PRODUCT, YUAN
from everspot_clouds.aws.prices import SOURCE as SPOT_SOURCE
from everspot_clouds.base import CloudError

ON_DEMAND_SOURCE = "pricing:GetProducts"
# The API answers in few regions, each for all of a partition (botocore's endpoints.json: api.pricing).
_ENDPOINTS = {"cn-": "cn-northwest-1"}
_ENDPOINT = "us-east-1"
# Many products have an instance type's name. These filters select plain on-demand use: shared tenancy, no other
# software, no reservation, in use. The last two exclude capacity blocks and unused reservations.
_TERMS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "licenseModel": "No License required",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


@dataclass(frozen=True, slots=True)
class _Meter:
    """The product of one price of everything but instances.

    Attributes:
        key: Of the price, in `PriceTable.other_usd`.
        service: Its code in the price list.
        attribute: The attribute that selects its product, beside the region.
        value: Of that attribute.
        usage: The usage type without the region before it: of `EUC1-NatGateway-Hours`, in us-east-1 `NatGateway-Hours`.
        unit: The unit of the list's price.
        factor: Multiplies the list's price.
    """

    key: str
    service: str
    attribute: str
    value: str
    usage: str
    unit: str
    factor: float = 1


# As GetProducts answers them. "RegionalNatGateway-Hours" is another product; gp3's throughput has a price for a GiB/s,
# and S3's requests for a single one.
_METERS = (
    _Meter(fixed.ENDPOINT.key, "AmazonVPC", "productFamily", "VpcEndpoint", "VpcEndpoint-Hours", "Hrs"),
    _Meter(fixed.ADDRESS.key, "AmazonVPC", "group", "VPCPublicIPv4Address", "PublicIPv4:InUseAddress", "Hrs"),
    _Meter(fixed.NAT.key, "AmazonEC2", "productFamily", "NAT Gateway", "NatGateway-Hours", "Hrs"),
    _Meter(fixed.GP3_GIB.key, "AmazonEC2", "volumeApiName", "gp3", "EBS:VolumeUsage.gp3", "GB-Mo"),
    _Meter(fixed.GP3_IOPS.key, "AmazonEC2", "volumeApiName", "gp3", "EBS:VolumeP-IOPS.gp3", "IOPS-Mo"),
    _Meter(fixed.GP3_MIBS.key, "AmazonEC2", "volumeApiName", "gp3", "EBS:VolumeP-Throughput.gp3", "GiBps-mo", 1 / 1024),
    _Meter(fixed.STORE_WRITES.key, "AmazonS3", "group", "S3-API-Tier1", "Requests-Tier1", "Requests", 1000),
    _Meter(fixed.STORE_READS.key, "AmazonS3", "group", "S3-API-Tier2", "Requests-Tier2", "Requests", 1000),
)


def read(
    region: str, types: Iterable[str], as_of: datetime, page: Callable[[], None], *, gpu_types: bool = False
) -> PriceTable:
    """Return the prices of `types` in `region` now, by the account of the standard environment. `gpu_types`: see
    `Provider.price_table`.

    Raises:
        CloudError: if the price lists cannot be read.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    from everspot_clouds.aws.errors import to_cloud_error, trouble

    config = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 5, "mode": "standard"})

    def client(service: str, where: str) -> Any:
        return boto3.client(service, region_name=where, config=config)

    try:
        return aws_prices(client, region, types, as_of, page, gpu_types=gpu_types)
    except ClientError as error:
        raise to_cloud_error(error) from None
    except (BotoCoreError, ValueError) as error:
        raise CloudError(f"the price lists cannot be read: {error}", trouble(error)) from None


def aws_prices(
    client: Callable[[str, str], Any],
    region: str,
    types: Iterable[str],
    as_of: datetime,
    page: Callable[[], None],
    *,
    gpu_types: bool = False,
) -> PriceTable:
    """Return the prices and the resources of `types` in `region` now. Types with neither an on-demand nor a Spot price
    are left out.

    Args:
        client: makes a boto3 client of a service for a region.
        as_of: the date of the table.
        page: called after each page of an answer, for a progress bar.
        gpu_types: whether all types with NVIDIA GPUs that the region has are read as well.

    Raises:
        botocore's errors; ValueError if an answer is not what the API's documentation says.
    """
    requested = sorted(set(types))
    endpoint = next((where for prefix, where in _ENDPOINTS.items() if region.startswith(prefix)), _ENDPOINT)
    pricing, ec2 = client("pricing", endpoint), client("ec2", region)
    described = describe(ec2, [*requested, *(GPU_PATTERNS if gpu_types else ())], page)
    offered = {kind.name for kind in described}
    names = sorted({*requested, *(kind.name for kind in described if kind.gpus)})
    # The whole region's list has some hundred pages of a hundred products; a few types are requested for by name.
    listed = dict(_on_demand(pricing, region, page, [None] if gpu_types else names))
    pools = {}
    if not region.startswith(YUAN):
        for first in range(0, len(names), VALUES):
            pools.update(_spot(ec2, names[first : first + VALUES], as_of, page))
    spot: dict[str, dict[str, float]] = {name: {} for name in names}
    for (name, zone), usd in pools.items():
        spot[name][zone] = usd
    return PriceTable(
        cloud="aws",
        region=region,
        as_of=as_of,
        on_demand_source=ON_DEMAND_SOURCE,
        spot_source=SPOT_SOURCE,
        prices=[
            TypePrice(instance_type=n, on_demand_usd_per_hour=listed.get(n), spot_usd_per_hour=spot[n])
            for n in names
            if n in listed or spot[n]
        ],
        types=[kind for kind in described if kind.name in listed or spot.get(kind.name)],
        unpriced={name: _reason(name, offered, region) for name in names if name not in listed},
        other_usd=dict(_others(pricing, region, page)),
    )


def _reason(name: str, offered: Collection[str], region: str) -> str:
    """Return why a type has no on-demand price."""
    if name not in offered:
        return f"EC2 does not offer it in {region}"
    return f"the price list of {region} has no shared Linux on-demand price of it"


def _on_demand(
    pricing: Any, region: str, page: Callable[[], None], names: Iterable[str | None]
) -> Iterator[tuple[str, float]]:
    """Yield type and price of each of the named types that the region sells; of all of them for None."""
    for name in names:
        terms = {"regionCode": region, **_TERMS, **({} if name is None else {"instanceType": name})}
        for product in _products(pricing, "AmazonEC2", terms, page):
            usd = _listed_usd(product, "Hrs")
            if usd is not None:
                yield product["product"]["attributes"]["instanceType"], usd


def _others(pricing: Any, region: str, page: Callable[[], None]) -> Iterator[tuple[str, float]]:
    """Yield key and price of everything but instances, if the region's list has exactly one price. For the rest the
    estimate uses another region's price."""
    for service, attribute, value in dict.fromkeys((meter.service, meter.attribute, meter.value) for meter in _METERS):
        products = list(_products(pricing, service, {"regionCode": region, attribute: value}, page))
        for meter in (m for m in _METERS if (m.service, m.value) == (service, value)):
            usage = re.compile(rf"(?:[A-Z0-9]+-)?{re.escape(meter.usage)}")
            own = [p for p in products if usage.fullmatch(str(p["product"]["attributes"].get("usagetype")))]
            prices = {usd for product in own if (usd := _listed_usd(product, meter.unit)) is not None}
            if len(prices) == 1:
                yield meter.key, round(prices.pop() * meter.factor, 9)


def _products(
    pricing: Any, service: str, terms: Mapping[str, str], page: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    """Yield the products of a service that match all terms. `page`: called after each page."""
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in terms.items()]
    for answer in pricing.get_paginator("get_products").paginate(ServiceCode=service, Filters=filters):
        yield from map(json.loads, answer["PriceList"])
        page()


def _listed_usd(product: dict[str, Any], unit: str) -> float | None:
    """Return dollars for a unit. A price of 0 marks a product that is not sold separately, so it counts as no price."""
    try:
        terms = product["terms"].get("OnDemand", {})
        dimensions = [d for term in terms.values() for d in term["priceDimensions"].values() if d["unit"] == unit]
        prices = [float(d["pricePerUnit"]["USD"]) for d in dimensions if "USD" in d["pricePerUnit"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{ON_DEMAND_SOURCE} answered a product that cannot be read: {error!r} is missing") from error
    sold = [usd for usd in prices if usd > 0]
    return max(sold) if sold else None


def _spot(ec2: Any, types: list[str], at: datetime, page: Callable[[], None]) -> dict[tuple[str, str], float]:
    """Return the price in force at a moment, by type and zone."""
    newest: dict[tuple[str, str], tuple[datetime, float]] = {}
    for answer in ec2.get_paginator("describe_spot_price_history").paginate(
        Filters=[{"Name": "instance-type", "Values": types}], ProductDescriptions=[PRODUCT], StartTime=at
    ):
        for point in answer["SpotPriceHistory"]:
            pool, price = (point["InstanceType"], point["AvailabilityZone"]), float(point["SpotPrice"])
            if pool not in newest or point["Timestamp"] > newest[pool][0]:
                newest[pool] = (point["Timestamp"], price)
        page()
    return {pool: usd for pool, (_, usd) in newest.items() if usd > 0}
