"""AWS's list prices of everything but instances: one dated table, of us-east-1.

Regions in `SAME` have the same prices. In others a price that has a key is taken from the region's price table
(`pricelists`). Any other price is mostly the same or higher there, and an estimate says so. The account's free
allotments (the first alarms, dashboards and metrics) are not counted: they may be used up.
"""

from datetime import date
from fractions import Fraction

from everspot_core.cluster.gauges import Gauge

from everspot_clouds.costing import FixedPrice, price

AS_OF = date(2025, 10, 1)
"""The day of the prices."""

SAME = ("us-east-1", "us-east-2", "us-west-2")

ENDPOINT = price(
    "0.01",
    "hour",
    "aws.amazon.com/privatelink/pricing: an interface endpoint, in each zone",
    "endpoints",
    "endpoint_hour",
)
NAT = price("0.045", "hour", "aws.amazon.com/vpc/pricing, NAT Gateway Pricing", "NAT gateways", "nat_gateway_hour")
NAT_GB = price("0.045", "GB", "aws.amazon.com/vpc/pricing, NAT Gateway Pricing: data processed, either way")
ADDRESS = price(
    "0.005",
    "hour",
    "aws.amazon.com/vpc/pricing, Public IPv4 Address: in use or idle, since 2024-02-01",
    "addresses",
    "public_address_hour",
)
KEY = price(
    "1", "month", "aws.amazon.com/kms/pricing: a key, and each of its first two rotations as much again", "keys"
)
ROTATIONS = 2
"""Rotations of a key that cost as much as the key itself; later ones are free (the same page)."""

_CLOUDWATCH = "aws.amazon.com/cloudwatch/pricing"
METRIC = price("0.30", "month", f"{_CLOUDWATCH}: a custom metric, of the first 10,000", "monitoring")
ALARM = price(
    "0.10", "month", f"{_CLOUDWATCH}: a metric of a standard resolution alarm, of 60 s and more", "monitoring"
)
FAST_ALARM = price("0.30", "month", f"{_CLOUDWATCH}: a metric of a high resolution alarm, of 10 or 30 s", "monitoring")
COMPOSITE_ALARM = price("0.50", "month", f"{_CLOUDWATCH}: a composite alarm", "monitoring")
DASHBOARD = price("3", "month", f"{_CLOUDWATCH}: a dashboard beyond the account's first three", "monitoring")
REQUESTS = price("0.01", "1,000 requests", f"{_CLOUDWATCH}: PutMetricData", "monitoring")
DETAILED = price("2.10", "month", f"{_CLOUDWATCH}: detailed monitoring of an instance, seven metrics", "monitoring")

_EBS = "aws.amazon.com/ebs/pricing, General Purpose SSD (gp3)"
GP3_GIB = price("0.08", "month", f"{_EBS}: a GiB", "volumes", "gp3_gib_month")
GP3_IOPS = price("0.005", "month", f"{_EBS}: an IOPS above 3,000", "volumes", "gp3_iops_month")
GP3_MIBS = price("0.04", "month", f"{_EBS}: a MiB/s above 125", "volumes", "gp3_mibs_month")
INITIALIZATION_GIB = price(
    "0.0036",
    "GB",
    "aws.amazon.com/ebs/pricing, Provisioned Rate for Volume Initialization: a GiB at 300 MiB/s",
)
GP3_FREE = (3000, 125)
"""IOPS and MiB/s that a gp3 volume has without further cost."""

METRICS_A_CLUSTER = len(Gauge)
"""Custom metrics of a cluster with monitoring."""
MINUTES_A_MONTH = 43_800
"""The scheduler's requests that write them: one a minute."""


def metrics_usd(metric: FixedPrice, requests: FixedPrice) -> Fraction:
    """Return dollars for a month of these metrics, by the prices of one and of 1,000 requests."""
    return METRICS_A_CLUSTER * metric.usd + MINUTES_A_MONTH * requests.usd / 1000


_S3 = "aws.amazon.com/s3/pricing, S3 Standard, Requests"
STORE_WRITES = price("0.005", "1,000 requests", f"{_S3}: PUT, COPY, POST and LIST", "store requests", "s3_writes_1000")
STORE_READS = price("0.0004", "1,000 requests", f"{_S3}: GET and all others", "store requests", "s3_reads_1000")
