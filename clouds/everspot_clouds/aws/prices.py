"""Spot prices from EC2."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from everspot_core.costs.ledger import PricePoint
from everspot_core.jobs.records import Market

SOURCE = "ec2:DescribeSpotPriceHistory"
PRODUCT = "Linux/UNIX"
YUAN = "cn-"
"""How the regions begin whose prices are in yuan. The price list says its currency; the Spot price history does not
(EC2 API, SpotPrice), so that 7 yuan would be read as 7 dollars."""


def spot_prices(ec2: Any, pools: Iterable[tuple[str, str]], since: datetime) -> list[PricePoint]:
    """Return the price in force at `since` and each change after it, for these pools (type, zone), oldest first.

    Each zone is asked on its own, so that no zone is asked for a type that it lacks. China's zones have no prices here:
    the history states them in yuan, and does not say so.

    Raises:
        botocore's errors.
    """
    types: dict[str, set[str]] = defaultdict(set)
    for instance_type, zone in pools:
        if not zone.startswith(YUAN):
            types[zone].add(instance_type)
    points = [
        _point(raw)
        for zone, names in sorted(types.items())
        for page in ec2.get_paginator("describe_spot_price_history").paginate(
            InstanceTypes=sorted(names), AvailabilityZone=zone, ProductDescriptions=[PRODUCT], StartTime=since
        )
        for raw in page["SpotPriceHistory"]
        if raw["InstanceType"] in names
    ]
    return sorted(points, key=lambda p: (p.at, p.instance_type, p.zone))


def _point(raw: dict[str, Any]) -> PricePoint:
    return PricePoint(
        instance_type=raw["InstanceType"],
        zone=raw["AvailabilityZone"],
        market=Market.SPOT,
        at=raw["Timestamp"].astimezone(UTC),
        usd_per_hour=float(raw["SpotPrice"]),
        source=SOURCE,
    )
