"""Price lists of four regions that the catalogue knows nothing of, in the clouds' form, and what a month costs by them.

On-demand prices of g6 and g4dn are AWS's of 2026-08-26 and 2025-11-30, by the tables of instances.vantage.sh (as
tsaol/aws-gpu has copied them); those of g5 and t3, all Spot prices, and those beside instances are of the right size
and no more (gp3 and NAT gateways of Tokyo are those of copies of the price list). Google's SKUs have the form of
services.skus.list, and rates of us-central1 times 1.1; disks have the rates of their region. What is tested is the way
of a price from a list to a month, and the arithmetic.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from moto.ec2.models.instance_types import INSTANCE_TYPES

ON_DEMAND = {
    "eu-central-1": {"g4dn.xlarge": 0.658, "g5.xlarge": 1.258, "g5.2xlarge": 1.516, "g6.xlarge": 1.0064,
                     "g6.2xlarge": 1.22249, "t3.small": 0.024, "t3.micro": 0.012},
    "ap-northeast-1": {"g4dn.xlarge": 0.71, "g5.xlarge": 1.459, "g5.2xlarge": 1.758, "g6.xlarge": 1.16719,
                       "g6.2xlarge": 1.41781, "t3.small": 0.0272, "t3.micro": 0.0136},
}  # fmt: skip
SPOT = 0.4
"""The Spot price in every zone, as a fraction of on-demand."""
CORE, GIB, L4 = 0.027487, 0.00322, 0.616044
SPOT_CORE, SPOT_GIB, SPOT_L4 = 0.010995, 0.001288, 0.24541
E2_CORE, E2_GIB = 0.023993, 0.003216


METERS: list[tuple[str, dict[str, str], str, str]] = [
    ("AmazonEC2", {"volumeApiName": "gp3"}, "EBS:VolumeUsage.gp3", "GB-Mo"),
    ("AmazonEC2", {"volumeApiName": "gp3"}, "EBS:VolumeP-IOPS.gp3", "IOPS-Mo"),
    ("AmazonEC2", {"volumeApiName": "gp3"}, "EBS:VolumeP-Throughput.gp3", "GiBps-mo"),
    ("AmazonEC2", {"productFamily": "NAT Gateway"}, "NatGateway-Hours", "Hrs"),
    ("AmazonEC2", {"productFamily": "NAT Gateway"}, "RegionalNatGateway-Hours", "Hrs"),
    ("AmazonEC2", {"productFamily": "NAT Gateway"}, "NatGateway-Bytes", "GB"),
    ("AmazonVPC", {"productFamily": "VpcEndpoint"}, "VpcEndpoint-Hours", "Hrs"),
    ("AmazonVPC", {"productFamily": "VpcEndpoint"}, "VpcEndpoint-Bytes", "GB"),
    ("AmazonVPC", {"group": "VPCPublicIPv4Address"}, "PublicIPv4:InUseAddress", "Hrs"),
    ("AmazonS3", {"group": "S3-API-Tier1"}, "Requests-Tier1", "Requests"),
    ("AmazonS3", {"group": "S3-API-Tier2"}, "Requests-Tier2", "Requests"),
]
"""Service, attributes, usage type and unit of the products beside instances."""
ZONES = {"eu-central-1": "abc", "ap-northeast-1": "acd"}
"""The zones that a new account has; Tokyo's b takes no newcomers."""
OTHERS: dict[str, tuple[Any, ...]] = {
    "eu-central-1": ("EUC1", 0.0952, 0.006, 49.152, 0.052, 0.156, 0.052, 0.012, 0.01, 0.005, 5.4e-6, 4.3e-7),
    "ap-northeast-1": ("APN1", 0.096, 0.006, 49.152, 0.062, 0.186, 0.062, 0.014, 0.01, 0.005, 4.7e-6, 3.7e-7),
}
"""By region, the prefix of usage types, and the prices of `METERS`."""


class Recorded:
    """A client of the price list or of EC2 in one region, which answers what is recorded above."""

    def __init__(self, region: str) -> None:
        self.region = region

    def get_paginator(self, name: str) -> "Recorded":
        self.operation = name
        return self

    def paginate(self, **query: Any) -> Iterator[dict[str, Any]]:
        prices = ON_DEMAND[self.region]
        if self.operation == "get_products":
            chosen = {entry["Field"]: entry["Value"] for entry in query["Filters"]}
            assert chosen.pop("regionCode") == self.region
            yield {"PriceList": self._products(query["ServiceCode"], chosen)}
        elif self.operation == "describe_instance_types":
            yield {"InstanceTypes": [{"InstanceType": name, **INSTANCE_TYPES[name]} for name in prices]}
        else:
            at = datetime(2026, 11, 1, tzinfo=UTC)
            yield {
                "SpotPriceHistory": [
                    {"InstanceType": name, "AvailabilityZone": f"{self.region}{zone}", "Timestamp": at,
                     "SpotPrice": f"{usd * SPOT:.6f}"}
                    for name, usd in prices.items() for zone in ZONES[self.region] if name[0] == "g"
                ]
            }  # fmt: skip

    def _products(self, service: str, chosen: dict[str, str]) -> list[str]:
        if "tenancy" in chosen:
            assert (service, chosen["tenancy"]) == ("AmazonEC2", "Shared")
            return [product({"instanceType": name}, usd, "Hrs") for name, usd in ON_DEMAND[self.region].items()]
        prefix, *prices = OTHERS[self.region]
        return [
            product({"usagetype": f"{prefix}-{usage}"}, usd, unit)
            for (code, fields, usage, unit), usd in zip(METERS, prices, strict=True)
            if code == service and chosen.items() <= fields.items()
        ]


def product(attributes: dict[str, str], usd: float, unit: str) -> str:
    """A product as the Price List Query API writes it."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": f"{usd:.10f}"}}
    terms = {"OnDemand": {"a": {"priceDimensions": {"b": dimension}}}}
    return json.dumps({"product": {"attributes": attributes}, "terms": terms})


GOOGLE_REGIONS = ("europe-west1", "us-east4")


def sku(
    description: str, usd: float, unit: str = "h", usage: str = "OnDemand", regions: Sequence[str] = GOOGLE_REGIONS
) -> dict[str, Any]:
    """A SKU as services.skus.list writes it."""
    rate = {"currencyCode": "USD", "units": "0", "nanos": round(usd * 10**9)}
    expression = {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": rate}]}
    return {
        "description": description, "category": {"usageType": usage}, "serviceRegions": list(regions),
        "pricingInfo": [{"pricingExpression": expression}],
    }  # fmt: skip


SKUS = [
    sku("G2 Instance Core running in Belgium", CORE), sku("G2 Instance Ram running in Belgium", GIB, "GiBy.h"),
    sku("Nvidia L4 GPU running in Belgium", L4),
    sku("Spot Preemptible G2 Instance Core running in Belgium", SPOT_CORE, usage="Preemptible"),
    sku("Spot Preemptible G2 Instance Ram running in Belgium", SPOT_GIB, "GiBy.h", "Preemptible"),
    sku("Nvidia L4 GPU attached to Spot Preemptible VMs running in Belgium", SPOT_L4, usage="Preemptible"),
    sku("E2 Instance Core running in Belgium", E2_CORE), sku("E2 Instance Ram running in Belgium", E2_GIB, "GiBy.h"),
    *(sku(f"{text} in Belgium", usd, "GiBy.mo", regions=["europe-west1"])
      for text, usd in (("Balanced PD Capacity", 0.10), ("Regional Balanced PD Capacity", 0.20))),
    *(sku(f"{text} in Virginia", usd, "GiBy.mo", regions=["us-east4"])
      for text, usd in (("Balanced PD Capacity", 0.11), ("Regional Balanced PD Capacity", 0.22))),
    sku("External IP Charge on a Standard VM", 0.005, regions=["global"]),
    sku("Nvidia L4 GPU attached to DWS Defined Duration VMs running in Belgium", L4 / 2),
]  # fmt: skip
MACHINES = [
    *({"name": f"g2-standard-{n}", "guestCpus": n, "memoryMb": 4096 * n,
       "accelerators": [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}]} for n in (4, 8, 12)),
    {"name": "e2-small", "guestCpus": 2, "memoryMb": 2048}, {"name": "e2-micro", "guestCpus": 2, "memoryMb": 1024},
    {"name": "a4x-highgpu-4g", "guestCpus": 140, "memoryMb": 905216,
     "accelerators": [{"guestAcceleratorType": "nvidia-gb200", "guestAcceleratorCount": 4}]},
]  # fmt: skip


class Google(BaseHTTPRequestHandler):
    """Google's APIs as far as prices are read."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path.endswith("/machineTypes"):
            self._answer(200, {"items": MACHINES})
        elif path.endswith("/skus"):
            self._answer(200, {"skus": SKUS, "nextPageToken": ""})
        else:
            region = path.rpartition("/")[2]
            letters = "bcd" if region == "europe-west1" else "abc"
            self._answer(200, {"zones": [f"https://x/zones/{region}-{zone}" for zone in letters]})

    def do_POST(self) -> None:
        self._answer(400, {"error": {"code": 400, "errors": [{"reason": "invalid"}], "message": "no history"}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def google_price_lists() -> Iterator[dict[str, str]]:
    """Serve Google's APIs, and yield the environment of a program that reads its prices there."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Google)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {
            "EVERSPOT_GCP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "GOOGLE_OAUTH_ACCESS_TOKEN": "a",
            "GOOGLE_CLOUD_PROJECT": "my-project",
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


MONTHS = {
    # One on-demand and three Spot instances of the cheapest type with one GPU, and the scheduler; five volumes of
    # 75 GiB; two endpoints in three zones; 242 requests an hour that write or list, and 811 that read.
    "eu-central-1": 730 * (1.0064 + 3 * 0.40256 + 0.024) + 5 * 75 * 0.0952 + 2 * 3 * 730 * 0.012
    + 730 * (242 * 0.0054 + 811 * 0.00043) / 1000,
    "ap-northeast-1": 730 * (1.16719 + 3 * 0.466876 + 0.0272) + 5 * 75 * 0.096 + 2 * 3 * 730 * 0.014
    + 730 * (242 * 0.0047 + 811 * 0.00037) / 1000,
    # g2-standard-4 is 4 cores, 16 GiB and one L4; e2-small is half a core and 2 GiB. Five disks of 60 GiB.
    "europe-west1": 730 * (0.777512 + 3 * 0.309998 + 0.0184285) + 5 * 60 * 0.10 + 1.12,
    "us-east4": 730 * (0.777512 + 3 * 0.309998 + 0.0184285) + 5 * 60 * 0.11 + 1.12,
}  # fmt: skip
"""Dollars of a month of the `prod` settings that `everspot init` writes, summed by hand: $1,723.27 in eu-central-1,
$1,992.73 in ap-northeast-1, $1,291.05 in europe-west1 and $1,294.05 in us-east4."""
