"""`everspot cost prices refresh` against the local cloud's price lists, and the commands that use the written file."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from everspot_clouds.aws.pricelists import aws_prices
from everspot_clouds.registry import provider
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.cluster.manifest import Manifest
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from everspot_scheduler.ledger import Ledger

REGION = "us-east-1"
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def market(tmp_path: Path) -> Iterator[LocalCloud]:
    with LocalCloud(Options(state_dir=tmp_path / "local", boot_command=None, region=REGION)) as market:
        yield market


@pytest.fixture
def cluster(market, world, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": market.endpoint,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    world.store.write_manifest(
        Manifest.model_validate({**world.store.manifest().model_dump(), "cloud": "aws", "region": REGION})
    )
    return world


def test_what_the_price_lists_say_is_noted_and_used_by_all(cluster):
    answer = cluster.run("--json", "prices", "refresh")
    assert (answer.code, answer.err) == (0, "")
    table = cluster.store.price_table()
    assert {row.instance_type for row in table.prices} == set(builtin().offered(REGION))
    rows = {row["instance_type"]: row for row in answer.json["prices"]}
    listed = builtin().on_demand("g5.xlarge", REGION).usd_per_hour
    assert rows["g5.xlarge"]["on_demand_usd_per_hour"] == listed
    assert rows["g5.xlarge"]["price_source"] == "pricing:GetProducts"
    (g5,) = (row for row in table.prices if row.instance_type == "g5.xlarge")
    assert [min(g5.spot_usd_per_hour.values()), max(g5.spot_usd_per_hour.values())] == rows["g5.xlarge"][
        "spot_usd_per_hour"
    ]
    assert all(zone.startswith(REGION) for zone in g5.spot_usd_per_hour)
    raised = [r.model_copy(update={"on_demand_usd_per_hour": 9.0}) if r is g5 else r for r in table.prices]
    cluster.store.write_price_table(table.model_copy(update={"prices": raised}))
    shown = cluster.run("prices", "--type", "g5.xlarge")
    assert "9.0000" in shown.out
    everything = cluster.run("prices", env={"COLUMNS": "80"}).out
    assert everything.count("pricing:GetProducts") == 1  # below the table, and not in each row
    assert max(map(len, everything.splitlines()[:-2])) <= 80
    ledger = Ledger(cluster.store, cluster.store.manifest())
    ledger.load()
    assert ledger.catalogue.on_demand("g5.xlarge", REGION).usd_per_hour == 9.0


class Lists:
    """A client of the price lists and of EC2 in a region of China, as far as prices are read from them."""

    def get_paginator(self, name):
        self.operation = name
        return self

    def paginate(self, **_):
        point = {"InstanceType": "g5.xlarge", "AvailabilityZone": "cn-north-1a", "SpotPrice": "7.0", "Timestamp": AT}
        terms = {"OnDemand": {"t": {"priceDimensions": {"d": {"unit": "Hrs", "pricePerUnit": {"CNY": "20.0"}}}}}}
        product = {"product": {"attributes": {"instanceType": "g5.xlarge"}}, "terms": terms}
        yield {"SpotPriceHistory": [point], "PriceList": [json.dumps(product)], "InstanceTypes": []}


@pytest.mark.parametrize(("region", "spot"), [("cn-north-1", []), ("eu-west-1", [7.0])])
def test_prices_in_yuan_are_not_taken_for_dollars(region, spot):
    table = aws_prices(lambda *_: Lists(), region, ["g5.xlarge"], AT, lambda: None)
    assert [usd for row in table.prices for usd in row.spot_usd_per_hour.values()] == spot


def test_doctor_doubts_figures_of_more_than_thirty_days(cluster):
    def check() -> dict[str, str]:
        return next(c for c in cluster.run("--json", "doctor").json["checks"] if c["name"] == "prices")

    assert "the catalogue's own of" in check()["detail"]
    cluster.run("prices", "refresh")
    assert check()["verdict"] == "ok"
    table = cluster.store.price_table()
    cluster.store.write_price_table(table.model_copy(update={"as_of": table.as_of - timedelta(days=31)}))
    assert check()["verdict"] == "warn"
    assert check()["fix"] == "everspot cost prices refresh"
    spot = [row.model_copy(update={"on_demand_usd_per_hour": None}) for row in table.prices]
    cluster.store.write_price_table(table.model_copy(update={"prices": spot}))
    old = builtin().on_demand("g5.xlarge", REGION).as_of
    assert (check()["verdict"], f"on-demand prices are the catalogue's of {old}" in check()["detail"]) == ("warn", True)
    assert "onDemandUsdPerHour" in check()["fix"], "no list is there to refresh them from"


def test_a_refresh_that_brings_spot_prices_alone_says_so(cluster, monkeypatch):
    def lists(self, region, types, now, page, *, gpu_types):
        row = TypePrice(instance_type="g5.xlarge", spot_usd_per_hour={f"{REGION}a": 0.4})
        return PriceTable(
            cloud="aws", region=region, as_of=now, on_demand_source="none", spot_source="a list", prices=[row]
        )

    monkeypatch.setattr(type(provider("aws")), "price_table", lists)
    old = builtin().on_demand("g5.xlarge", REGION).as_of
    out = cluster.run("prices", "refresh", "--type", "g5.xlarge").out
    assert f"Noted for the cluster: Spot prices. On-demand prices stay the catalogue's of {old}." in out


def test_prices_of_several_sources_are_told_apart_and_types_without_one_named(world):
    world.offer("m6i.large", "own.large", name="own.large", vcpus=2, memory_gib=4, on_demand_usd_per_hour=1.5)
    out = world.run("prices", "--type", "own.large", "--type", "m6i.large", "--type", "zz.none").out
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert rows["own.large"].endswith("(1)") and rows["m6i.large"].endswith("(2)") and rows["zz.none"].endswith("—")
    assert "Prices (1): " in out and "Prices (2): skypilot-org/skypilot-catalog" in out
    assert "declare onDemandUsdPerHour" in out


def test_a_cluster_without_a_price_list_says_so(world):
    answer = world.run("prices", "refresh")
    assert answer.code == 1
    assert "this cluster is on a folder" in answer.err


def test_what_aws_refuses_is_told_in_one_sentence(cluster, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    answer = cluster.run("prices", "refresh")
    assert answer.code == 4
    assert "the price lists cannot be read" in answer.err
    assert cluster.store.price_table() is None
