"""Prices from the clouds' own price lists: the command reads them with the real clients, and the newest price
applies."""

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ClientError
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.price_table import PriceTable, TypePrice, priced


def client(kit, region):
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    return boto3.client("pricing", endpoint_url=kit.cloud.endpoint, region_name=region, **keys)


@pytest.fixture
def pricing(kit):
    return client(kit, "us-east-1")


def match(**fields):
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]


def test_the_price_list_pages_and_lists_what_is_never_sold_too(pricing):
    pages = list(
        pricing.get_paginator("get_products").paginate(
            ServiceCode="AmazonEC2", Filters=match(regionCode="us-east-1"), PaginationConfig={"PageSize": 50}
        )
    )
    products = [json.loads(text) for page in pages for text in page["PriceList"]]
    assert len(pages) > 1
    instances = [p["product"]["attributes"] for p in products if p["product"]["productFamily"] == "Compute Instance"]
    assert {attributes["capacitystatus"] for attributes in instances} == {"Used", "UnusedCapacityReservation"}


def test_bare_metal_has_a_family_of_its_own_and_a_row_for_dedicated_hosts(pricing):
    """Given the filters of Karpenter, which takes no on-demand price unless both of its queries have some."""
    common = {
        "regionCode": "us-east-1", "serviceCode": "AmazonEC2", "preInstalledSw": "NA", "operatingSystem": "Linux",
        "capacitystatus": "Used", "marketoption": "OnDemand",
    }  # fmt: skip

    def prices(**fields):
        answer = pricing.get_products(ServiceCode="AmazonEC2", Filters=match(**common, **fields), MaxResults=100)
        products = [json.loads(text) for text in answer["PriceList"]]
        names = [product["product"]["attributes"]["instanceType"] for product in products]
        skus = {product["product"]["sku"] for product in products}
        terms = [next(iter(product["terms"]["OnDemand"].values())) for product in products]
        dimensions = [next(iter(term["priceDimensions"].values())) for term in terms]
        assert len(skus) == len(names) == len(set(names))
        return dict(zip(names, (float(each["pricePerUnit"]["USD"]) for each in dimensions), strict=True))

    shared = prices(tenancy="Shared", productFamily="Compute Instance")
    metal = prices(tenancy="Dedicated", productFamily="Compute Instance (bare metal)")
    catalogue = builtin()
    assert shared and metal and all(".metal" in name for name in metal)
    assert not any(".metal" in name for name in shared)
    for name, usd in {**shared, **metal}.items():
        assert usd == catalogue.on_demand(name, "us-east-1").usd_per_hour, name
    assert prices(tenancy="Shared", productFamily="Compute Instance (bare metal)") == metal


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"ServiceCode": "AmazonRDS"}, "NotFoundException"),
        ({"ServiceCode": "AmazonEC2", "NextToken": "x"}, "InvalidNextTokenException"),
        ({"ServiceCode": "AmazonEC2", "Filters": [{"Type": "EQUALS", "Field": "a", "Value": "b"}]}, "InvalidParameter"),
    ],
)
def test_the_price_list_refuses_what_it_does_not_know(pricing, query, code):
    with pytest.raises(ClientError) as refused:
        pricing.get_products(**query)
    assert refused.value.response["Error"]["Code"].startswith(code)


def test_the_price_list_is_to_be_had_in_few_regions(kit):
    with pytest.raises(ClientError, match="AccessDenied"):
        client(kit, "eu-west-3").get_products(ServiceCode="AmazonEC2")


TABLE = PriceTable(
    cloud="aws",
    region="us-east-1",
    as_of=datetime(2026, 11, 1, 12, tzinfo=UTC),
    on_demand_source="list",
    spot_source="history",
    prices=[
        TypePrice(instance_type="g5.xlarge", on_demand_usd_per_hour=1.5, spot_usd_per_hour={"a": 0.6, "b": 0.4}),
        TypePrice(instance_type="c6i.large", spot_usd_per_hour={"a": 0.03}),
    ],
)


def test_a_table_takes_the_place_of_the_catalogue_s_prices_figure_by_figure():
    before, after = builtin(), priced(builtin(), TABLE)
    assert after.on_demand("g5.xlarge", "us-east-1").usd_per_hour == 1.5
    assert str(after.on_demand("g5.xlarge", "us-east-1").as_of) == "2026-11-01"
    assert [p.usd_per_hour for p in after.spot_range("g5.xlarge", "us-east-1")] == [0.4, 0.6]
    assert after.on_demand("c6i.large", "us-east-1") == before.on_demand("c6i.large", "us-east-1")
    assert after.spot_range("c6i.large", "us-east-1")[0].usd_per_hour == 0.03
    for name, region in (("g5.xlarge", "eu-west-1"), ("m6i.large", "us-east-1")):
        assert after.on_demand(name, region) == before.on_demand(name, region)
    assert after.zones("g5.xlarge", "us-east-1") == before.zones("g5.xlarge", "us-east-1")
    assert priced(before, None) is before


def test_figures_older_than_thirty_days_are_doubted():
    assert TABLE.age(TABLE.as_of + timedelta(days=31)) == timedelta(days=31)
    assert TABLE.age(TABLE.as_of - timedelta(days=1)) == timedelta(0)
