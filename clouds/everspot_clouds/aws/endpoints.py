"""A dated table of what interface endpoints cost. They are billed for every hour and zone, used or not."""

from collections.abc import Sequence
from datetime import date

from everspot_core.catalogue import Price
from everspot_core.counting import counted

HOURS_PER_MONTH = 730
"""Hours of an average month, as AWS's own calculator counts them."""

_SOURCE = "AWS Price List API, AmazonVPC, usage type VpcEndpoint-Hours; aws.amazon.com/privatelink/pricing"

PRICES: dict[str, Price] = {
    region: Price(usd_per_hour=0.01, as_of=date(2025, 10, 1), source=_SOURCE)
    for region in ("us-east-1", "us-east-2", "us-west-2")
}
"""List price of one interface endpoint in one zone, by region. In other regions it is the same or higher."""

LEAST = "us-east-1"
"""The region whose price stands for regions that the table lacks."""

USD_PER_GB = 0.01
"""Price per GB of the first petabyte a month through a region's interface endpoints."""


NAT_USD_PER_HOUR = 0.045 + 0.005
"""List price of a NAT gateway and of its public address, in us-east-1; elsewhere the same or more (Amazon VPC pricing,
"NAT Gateway Pricing" and "Public IPv4 Address")."""

NAT_USD_PER_GB = 0.045
"""The same for a GB through it, either way. What is sent to the internet costs besides."""

NAT_COST = (
    f"The federation's way out is a NAT gateway for the scheduler: at least ${NAT_USD_PER_HOUR:.3f} an hour, "
    f"${NAT_USD_PER_HOUR * HOURS_PER_MONTH:.2f} a month, and ${NAT_USD_PER_GB} per GB (us-east-1's list price of "
    "2025-10-01), besides the price of what is sent."
)


def endpoints_cost(region: str, services: Sequence[str], zones: int) -> str:
    """What the interface endpoints of a network cost, as a sentence."""
    if not services:
        return "No interface endpoint is declared; S3's gateway endpoint is free."
    price = PRICES.get(region, PRICES[LEAST])
    hourly = len(services) * zones * price.usd_per_hour
    known = region in PRICES
    least = "" if known else "at least "
    whose = (
        f"list price of {price.as_of}"
        if known
        else f"{LEAST}'s list price of {price.as_of}; {region}'s is not known here"
    )
    return (
        f"{len(services) * zones} interface endpoints ({', '.join(services)}; {counted(zones, 'zone')} "
        f"each) cost {least}${hourly:.3f} an hour, ${hourly * HOURS_PER_MONTH:.2f} a month, and ${USD_PER_GB} per GB "
        f"({whose}). S3's gateway endpoint is free."
    )
