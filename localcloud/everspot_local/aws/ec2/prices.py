"""Stands in for DescribeSpotPriceHistory: the past prices of the market's pools.

A request that names no types is answered with every pool of the catalogue. It does not know other products than
Linux. EC2 API Reference, "Filter": several filters "are joined with an AND", the values of one with an OR.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws.ec2.exceptions import InvalidParameter, UnsupportedHere
from everspot_local.aws.strict import strict
from everspot_local.market.clock import stamp
from everspot_local.market.market import LocalMarket

PRODUCT = "Linux/UNIX"
PAGE = 1000


def price_history(market: LocalMarket, params: dict[str, Any]) -> dict[str, Any]:
    """Return price changes between StartTime and EndTime, newest first, and each pool's price at StartTime."""
    filters = {f["Name"]: f.get("Values", []) for f in params.get("Filters") or []}
    if unknown := set(filters) - {"availability-zone", "availability-zone-id", "instance-type", "product-description"}:
        raise UnsupportedHere(f"the filters {', '.join(sorted(unknown))} of DescribeSpotPriceHistory")
    for products in (params.get("ProductDescriptions"), filters.get("product-description")):
        if products and not any(p.startswith(PRODUCT) for p in products):
            return {"SpotPriceHistory": [], "NextToken": ""}
    zones = _zones(market, params, filters)
    types = _in_all(params.get("InstanceTypes"), filters.get("instance-type"))
    start, end = _moment(params.get("StartTime")), _moment(params.get("EndTime"))
    points = _points(market, types, zones, start, end)
    offset, size = _page(params)
    more = offset + size < len(points)
    return {"SpotPriceHistory": points[offset : offset + size], "NextToken": str(offset + size) if more else ""}


def _zones(market: LocalMarket, params: dict[str, Any], filters: dict[str, list[str]]) -> set[str] | None:
    """Return the names of the requested zones; None if the request names none, which means all."""
    if params.get("AvailabilityZone") and params.get("AvailabilityZoneId"):
        raise EC2ClientError(
            "InvalidParameterCombination",
            "Either AvailabilityZone or AvailabilityZoneId can be specified, but not both",
        )
    names = {zone_id: name for name, zone_id in market.zone_ids.items()}
    zone = params.get("AvailabilityZone") or params.get("AvailabilityZoneId")
    if zone and strict() and zone not in {*names, *names.values()}:
        # As met: https://github.com/aws/aws-sdk-go/issues/369
        raise InvalidParameter(f"Invalid availability zone: [{zone}]")
    ids = filters.get("availability-zone-id")
    return _in_all(
        [names.get(zone, zone)] if zone else None,
        filters.get("availability-zone"),
        [names.get(zone_id, zone_id) for zone_id in ids] if ids else None,
    )


def _in_all(*filters: Iterable[str] | None) -> set[str] | None:
    """Return what each of the lists has that are given; None if none is, which means everything."""
    sets = [set(values) for values in filters if values]
    return set.intersection(*sets) if sets else None


def _points(
    market: LocalMarket, types: set[str] | None, zones: set[str] | None, start: datetime | None, end: datetime | None
) -> list[dict[str, Any]]:
    for kind in sorted(types or ()):
        for zone in market.pools.zones if zones is None else sorted(zones):
            market.pools.get(kind, zone)  # a price is known of every pool that is asked for
    last = min(end, market.clock.now()) if end else market.clock.now()
    points = []
    for pool in market.pools.offered() if types is None else market.pools:
        if (types is not None and pool.instance_type not in types) or (zones is not None and pool.zone not in zones):
            continue
        past_prices = [(at, usd) for at, usd in pool.prices if at <= last]
        starting_price = [p for p in past_prices if start is not None and p[0] <= start][-1:]
        points += [
            (at, pool, usd) for at, usd in [*starting_price, *(p for p in past_prices if start is None or p[0] > start)]
        ]
    points.sort(key=lambda p: (-p[0].timestamp(), p[1].name))
    return [
        {
            "AvailabilityZone": pool.zone,
            "InstanceType": pool.instance_type,
            "ProductDescription": PRODUCT,
            "SpotPrice": f"{usd:.6f}",
            "Timestamp": stamp(at),
        }
        for at, pool, usd in points
    ]


def _page(params: dict[str, Any]) -> tuple[int, int]:
    token = params.get("NextToken") or "0"
    if not token.isdigit():
        raise InvalidParameter(f"Invalid value '{token}' for NextToken")
    return int(token), min(int(params.get("MaxResults") or PAGE), PAGE)


def _moment(value: datetime | None) -> datetime | None:
    return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)
