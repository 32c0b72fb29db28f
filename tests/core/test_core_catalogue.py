import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from everspot_core.capacity.catalogue import InstanceType, Price, UnknownInstanceType, builtin, zone_region
from pydantic import ValidationError

ROOT = Path(__file__).parents[2]


def test_known_aws_prices_are_carried_over():
    catalogue = builtin()
    for name, usd in (("p3.2xlarge", 3.06), ("g5.xlarge", 1.006), ("g4dn.xlarge", 0.526)):
        assert catalogue.on_demand(name, "us-east-1").usd_per_hour == usd
    low, high = catalogue.spot_range("g5.xlarge", "us-east-1")
    assert (low.usd_per_hour, high.usd_per_hour) == (0.4246, 0.4507)
    assert catalogue.zones("g5.xlarge", "us-east-1")[:2] == ("use1-az1", "use1-az2")


def test_every_price_has_a_source_a_date_and_says_that_the_date_is_inferred():
    catalogue = builtin()
    prices = []
    for region in catalogue.regions:
        for name in catalogue.offered(region):
            prices += [catalogue.on_demand(name, region), *(catalogue.spot_range(name, region) or ())]
    prices = [p for p in prices if p is not None]
    assert len(prices) > 600
    assert all(p.as_of is not None for p in prices)
    inferred = [p for p in prices if "skypilot-catalog" in p.source]
    assert len(inferred) > 600 and all("not known" in p.note for p in inferred)
    assert all("karpenter" in p.source and p.as_of == date(2026, 7, 20) for p in prices if p not in inferred)


@pytest.mark.parametrize(
    ("name", "gpus", "gpu", "gpu_memory_gib", "nvswitch"),
    [
        ("g6e.8xlarge", 1, "L40S", 44.7, False), ("g6e.16xlarge", 1, "L40S", 44.7, False),
        ("g6e.24xlarge", 4, "L40S", 44.7, False), ("g6f.xlarge", 1, "L4", 2.79, False),
        ("gr6f.4xlarge", 1, "L4", 11.18, False), ("g7.48xlarge", 8, "RTX PRO 4500", 32, False),
        ("g7e.2xlarge", 1, "RTX PRO 6000", 96, False), ("p6-b300.48xlarge", 8, "B300", 268.59, True),
        ("g2-standard-16", 1, "L4", 24, False), ("g2-standard-32", 1, "L4", 24, False),
        ("g4-standard-384", 8, "RTX PRO 6000", 96, False), ("a2-ultragpu-8g", 8, "A100-80GB", 80, None),
        ("a2-megagpu-16g", 16, "A100", 40, None), ("a3-highgpu-2g", 2, "H100", 80, None),
        ("a3-highgpu-4g", 4, "H100", 80, None), ("a3-megagpu-8g", 8, "H100", 80, True),
        ("a3-ultragpu-8g", 8, "H200", 141, True), ("a4-highgpu-8g", 8, "B200", 180, True),
        ("a4x-highgpu-4g", 4, "GB200", 186, True),
    ],
)  # fmt: skip
def test_types_of_2026_are_known(name, gpus, gpu, gpu_memory_gib, nvswitch):
    kind = builtin().get(name)
    assert (kind.gpus, kind.gpu, kind.gpu_memory_gib, kind.nvswitch) == (gpus, gpu, gpu_memory_gib, nvswitch)


def test_the_files_are_what_the_tables_of_the_tool_say():
    done = subprocess.run([sys.executable, ROOT / "tools/catalogue.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_spot_price_is_above_its_on_demand_price():
    catalogue = builtin()
    for region in catalogue.regions:
        for name in catalogue.offered(region):
            on_demand, spot = catalogue.on_demand(name, region), catalogue.spot_range(name, region)
            if on_demand and spot:
                assert spot[0].usd_per_hour <= spot[1].usd_per_hour <= on_demand.usd_per_hour


@pytest.mark.parametrize(
    ("name", "region"),
    [
        ("a2-ultragpu-1g", "us-central1"),
        ("a2-highgpu-1g", "europe-west4"),
        ("a3-highgpu-1g", "us-west1"),
    ],
)
def test_rows_marked_suspect_are_left_out(name, region):
    assert builtin().on_demand(name, region) is None
    assert name not in builtin().offered(region)


def test_a_machine_that_takes_different_gpus_is_a_type_for_each():
    catalogue = builtin()
    assert catalogue.get("n1-standard-8+t4").gpu == "T4"
    assert catalogue.get("n1-standard-8+v100").gpu == "V100"


def test_unknown_type_is_refused_with_near_names():
    with pytest.raises(UnknownInstanceType, match=r"'g5\.xlarg'.*did you mean g5\.xlarge") as caught:
        builtin().get("g5.xlarg")
    assert "g5.xlarge" in caught.value.near


def test_a_type_declared_in_place_is_priced_without_a_date_everywhere():
    own = InstanceType(name="x9.large", vcpus=2, memory_gib=8, on_demand_usd_per_hour=0.5)
    catalogue = builtin().with_types([own])
    price = catalogue.on_demand("x9.large", "us-east-1")
    assert (price.usd_per_hour, price.as_of, price.source) == (0.5, None, "declared in the settings")
    assert catalogue.get("x9.large") is own
    assert catalogue.spot_range("x9.large", "us-east-1") is None
    assert "x9.large" not in builtin().types


@pytest.mark.parametrize(
    ("days", "text"),
    [(0, "seen today"), (1, "1 day old"), (59, "59 days old"), (60, "1 month old"),
     (324, "10 months old"), (729, "23 months old"), (730, "2 years old"), (800, "2 years old")],
)  # fmt: skip
def test_a_price_says_how_old_it_is(days, text):
    price = Price(usd_per_hour=1, as_of=date(2026, 1, 1), source="x")
    assert price.age(date.fromordinal(date(2026, 1, 1).toordinal() + days)) == text
    assert Price(usd_per_hour=1, as_of=None, source="x").age(date(2026, 1, 1)) == "undated"


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("ap-southeast-1b", "ap-southeast-1"),
        ("europe-west4-b", "europe-west4"),
    ],
)
def test_region_of_a_zone(zone, region):
    assert zone_region(zone) == region


def test_a_zone_id_is_not_a_zone_name():
    with pytest.raises(ValueError, match="use1-az1"):
        zone_region("use1-az1")


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [("vcpus", 1, 10_000), ("memory_gib", 0.001, 1_000_000), ("gpus", 0, 1_000), ("gpu_memory_gib", 0, 10_000),
     ("local_nvme_gb", 0, 1_000_000), ("network_gbps", 0.1, 100_000), ("on_demand_usd_per_hour", 0.001, 10_000)],
)  # fmt: skip
def test_a_type_has_figures_that_a_machine_can_have(field, least, most):
    type_fields = {"name": "one", "vcpus": 1, "memory_gib": 1}
    assert [getattr(InstanceType(**type_fields | {field: value}), field) for value in (least, most)] == [least, most]
    for value in (least - 1, most + 1):
        with pytest.raises(ValidationError, match=rf"1 validation error for InstanceType\n{field}\n"):
            InstanceType(**type_fields | {field: value})
