"""`everspot init` in regions that the catalogue knows nothing of, against recorded price lists: the month that it
states is the sum that a person gets with the same list.

On-demand prices of g6 and g4dn are AWS's of 2026-08-26 and 2025-11-30, by the tables of instances.vantage.sh (as
tsaol/aws-gpu has copied them); those of g5 and t3, and all Spot prices, are of the right size and no more. Google's
SKUs have the form of services.skus.list, and rates of us-central1 times 1.1. What is tested is the way of a price from
a list to a month, and the arithmetic.
"""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.cli.conftest import everspot

HOURS = 730
ON_DEMAND = {
    "eu-central-1": {"g4dn.xlarge": 0.658, "g5.xlarge": 1.258, "g5.2xlarge": 1.516, "g6.xlarge": 1.0064,
                     "g6.2xlarge": 1.22249, "t3.small": 0.024, "t3.micro": 0.012},
    "ap-northeast-1": {"g4dn.xlarge": 0.71, "g5.xlarge": 1.459, "g5.2xlarge": 1.758, "g6.xlarge": 1.16719,
                       "g6.2xlarge": 1.41781, "t3.small": 0.0272, "t3.micro": 0.0136},
}  # fmt: skip
SPOT = 0.4
"""Of on-demand, in every zone."""
CORE, GIB, L4 = 0.027487, 0.00322, 0.616044
SPOT_CORE, SPOT_GIB, SPOT_L4 = 0.010995, 0.001288, 0.24541
E2_CORE, E2_GIB = 0.023993, 0.003216


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
            assert chosen["regionCode"] == self.region and chosen["tenancy"] == "Shared"
            yield {"PriceList": [self._product(name, usd) for name, usd in prices.items()]}
        elif self.operation == "describe_instance_types":
            yield {"InstanceTypes": [{"InstanceType": name, **INSTANCE_TYPES[name]} for name in prices]}
        else:
            at = datetime(2026, 11, 1, tzinfo=UTC)
            yield {
                "SpotPriceHistory": [
                    {"InstanceType": name, "AvailabilityZone": f"{self.region}{zone}", "Timestamp": at,
                     "SpotPrice": f"{usd * SPOT:.6f}"}
                    for name, usd in prices.items() for zone in "abc" if name[0] == "g"
                ]
            }  # fmt: skip

    def _product(self, name: str, usd: float) -> str:
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}}
        terms = {"OnDemand": {"a": {"priceDimensions": {"b": dimension}}}}
        return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms})


def sku(description: str, usd: float, unit: str = "h", usage: str = "OnDemand") -> dict[str, Any]:
    rate = {"currencyCode": "USD", "units": "0", "nanos": round(usd * 10**9)}
    expression = {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": rate}]}
    return {
        "description": description, "category": {"usageType": usage}, "serviceRegions": ["europe-west1", "us-east4"],
        "pricingInfo": [{"pricingExpression": expression}],
    }  # fmt: skip


SKUS = [
    sku("G2 Instance Core running in Belgium", CORE), sku("G2 Instance Ram running in Belgium", GIB, "GiBy.h"),
    sku("Nvidia L4 GPU running in Belgium", L4),
    sku("Spot Preemptible G2 Instance Core running in Belgium", SPOT_CORE, usage="Preemptible"),
    sku("Spot Preemptible G2 Instance Ram running in Belgium", SPOT_GIB, "GiBy.h", "Preemptible"),
    sku("Nvidia L4 GPU attached to Spot Preemptible VMs running in Belgium", SPOT_L4, usage="Preemptible"),
    sku("E2 Instance Core running in Belgium", E2_CORE), sku("E2 Instance Ram running in Belgium", E2_GIB, "GiBy.h"),
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
            self._answer(200, {"zones": [f"https://x/zones/{region}-{zone}" for zone in "bcd"]})

    def do_POST(self) -> None:
        self._answer(400, {"error": {"code": 400, "errors": [{"reason": "invalid"}], "message": "no history"}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def begin(folder: Path, cloud: str, region: str) -> dict[str, Any]:
    account = "123456789012" if cloud == "aws" else "my-project"
    words = ["--cloud", cloud, "--account", account, "--region", region, "--team", "vision"]
    done = everspot("init", str(folder), *words, "--repository", "Org/fleets", "--yes", "--json")
    assert done.code == 0, done.err
    assert (folder / f"prices/{cloud}-{region}.json").is_file()
    return {step["stack"]: step for step in json.loads(done.out)["steps"] if step["stack"]}


def instances(folder: Path, stack: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """The estimate's dollars for instances, from the settings alone: a preview gives the same."""
    monkeypatch.chdir(folder)
    answer = everspot("estimate", "--settings", f"stacks/Pulumi.{stack}.yaml", "--json")
    after = json.loads(answer.out)["environments"][stack]["after"]
    assert after["unpriced"] == []
    return sum(part["range"]["expected"] for part in after["parts"] if part["kind"].endswith("instances"))


@pytest.mark.parametrize("region", sorted(ON_DEMAND))
def test_a_month_on_aws_is_what_the_list_adds_up_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str):
    monkeypatch.setattr(boto3, "client", lambda service, region_name, config: Recorded(region))
    steps, list_prices = begin(tmp_path, "aws", region), ON_DEMAND[region]
    # One on-demand and three Spot instances of the cheapest type with one GPU, and the scheduler.
    by_hand = HOURS * (list_prices["g6.xlarge"] * (1 + 3 * SPOT) + list_prices["t3.small"])
    assert instances(tmp_path, "prod", monkeypatch) == pytest.approx(by_hand, rel=0.1)
    assert steps["prod"]["costs"].startswith("Costs $")
    assert steps["prod"]["usd_per_month"]["expected"] == pytest.approx(by_hand, rel=0.4)
    assert steps["prod"]["usd_per_month"]["expected"] > by_hand, "volumes and the network come on top"


@pytest.mark.parametrize("region", ["europe-west1", "us-east4"])
def test_a_month_on_google_cloud_is_what_the_skus_add_up_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str
):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Google)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("EVERSPOT_GCP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "a")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    try:
        steps = begin(tmp_path, "gcp", region)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    on_demand, spot = 4 * CORE + 16 * GIB + L4, 4 * SPOT_CORE + 16 * SPOT_GIB + SPOT_L4
    by_hand = HOURS * (on_demand + 3 * spot + 0.5 * E2_CORE + 2 * E2_GIB)
    assert instances(tmp_path, "prod", monkeypatch) == pytest.approx(by_hand, rel=0.1)
    assert steps["prod"]["costs"].startswith("Costs $")
    table = json.loads((tmp_path / f"prices/gcp-{region}.json").read_text())
    assert table["unpriced"]["a4x-highgpu-4g"] == "the SKUs of A4X are not known"
    shown = everspot("prices", "--region", region).out
    assert "g2-standard-4" in shown and "cloudbilling:services.skus" in shown


def test_without_prices_nothing_is_called_a_cost_and_the_command_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(boto3, "client", lambda *_, **__: (_ for _ in ()).throw(ValueError("no list")))
    words = ["--cloud", "aws", "--account", "123456789012", "--region", "eu-central-1", "--team", "vision"]
    done = everspot("init", str(tmp_path), *words, "--repository", "Org/fleets", "--yes", "--json")
    assert done.code == 0 and not (tmp_path / "prices").exists()
    costs = {step["stack"]: step["costs"] for step in json.loads(done.out)["steps"] if step["stack"]}
    for stack in ("dev", "prod"):
        assert not costs[stack].startswith("Costs")
        assert "`everspot cost prices refresh --region eu-central-1`" in costs[stack]


def test_a_region_of_no_cloud_and_a_folder_of_no_project_are_refused(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "is no region of a cloud" in everspot("cost", "prices", "--region", "Ohio").err
    refused = everspot("cost", "prices", "refresh", "--region", "eu-central-1")
    assert refused.code == 1 and "there is no project here" in refused.err
    shown = everspot("cost", "prices", "--region", "eu-central-1")
    assert "No price of eu-central-1 is known" in shown.out
