"""The partition of AWS in which a region lies: the ARNs of its resources begin with it."""

import re
from datetime import UTC, datetime

import pytest
from botocore.session import get_session
from everspot.aws.arns import repository_arn
from everspot_clouds.aws.egress import no_proxy
from everspot_clouds.aws.image_login import HOST
from everspot_clouds.aws.preflight import simulated_resource
from everspot_clouds.aws.prices import spot_prices
from everspot_clouds.aws.rules import JOBS, PARTITIONS, SERVICE_DOMAINS, dns_suffix, partition
from everspot_clouds.aws.tags import ZONE
from everspot_clouds.naming import cloud_of_region
from everspot_core.capacity.catalogue import builtin, zone_region
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.preflight import PreflightPlan
from everspot_store.region import regional_endpoint

REGIONS = [
    ("eu-west-1", "aws"),
    ("us-gov-west-1", "aws-us-gov"),
    ("cn-north-1", "aws-cn"),
    ("eusc-de-east-1", "aws-eusc"),
]


@pytest.mark.parametrize(("region", "partition"), REGIONS)
def test_preflight_simulates_calls_on_resources_of_the_regions_own_partition(region: str, partition: str) -> None:
    urls = {"control_url": "s3://c", "data_url": "s3://d"}
    manifest = Manifest(cluster="everspot-dev", cloud="aws", region=region, **urls)
    plan = PreflightPlan(
        manifest=manifest, catalogue=builtin(), types=(), image="ami-1", image_source="/everspot/image/dev"
    )
    assert {action: simulated_resource(action, plan, "123456789012") for action in (
        "s3:PutObject", "iam:CreateRole", "ssm:GetParameter", "sqs:CreateQueue",
    )} == {
        "s3:PutObject": f"arn:{partition}:s3:::everspot-dev-store-control-preflight/object",
        "iam:CreateRole": f"arn:{partition}:iam::123456789012:role/everspot-dev-preflight",
        "ssm:GetParameter": f"arn:{partition}:ssm:{region}:123456789012:parameter/everspot/image/dev",
        "sqs:CreateQueue": f"arn:{partition}:sqs:{region}:123456789012:everspot-dev-preflight",
    }  # fmt: skip


def test_the_spot_price_history_of_china_is_in_yuan_and_no_price() -> None:
    zones: list[str] = []

    class History:
        def get_paginator(self, _name: str) -> "History":
            return self

        def paginate(self, *, AvailabilityZone: str, **_words: object) -> list[dict[str, list[dict[str, object]]]]:
            zones.append(AvailabilityZone)
            price = {"InstanceType": "m6i.large", "AvailabilityZone": AvailabilityZone, "SpotPrice": "0.04"}
            return [{"SpotPriceHistory": [{**price, "Timestamp": datetime(2026, 1, 1, tzinfo=UTC)}]}]

    pools = [("m6i.large", "cn-north-1a"), ("m6i.large", "us-east-1a")]
    points = spot_prices(History(), pools, datetime(2026, 1, 1, tzinfo=UTC))
    assert [(point.zone, point.usd_per_hour) for point in points] == [("us-east-1a", 0.04)]
    assert zones == ["us-east-1a"]


@pytest.mark.parametrize(("region", "partition"), REGIONS)
def test_jobs_may_have_images_of_the_registries_of_every_partition(region: str, partition: str) -> None:
    host = f"123456789012.dkr.ecr.{region}.{dns_suffix(partition)}"
    parts = HOST.fullmatch(host)
    assert parts is not None and parts["region"] == region
    assert repository_arn(f"{host}/team/train") == f"arn:{partition}:ecr:{region}:123456789012:repository/team/train"
    (image,) = JOBS.images.values()
    assert re.fullmatch(image, f"{host}/team/train@sha256:{'0' * 64}")
    assert HOST.fullmatch(f"{host}.example.org") is None and HOST.fullmatch(host.replace("amazonaws", "amazon")) is None


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_domains_of_a_partition_are_those_of_the_clouds_own_client(name: str) -> None:
    data = get_session().get_component("data_loader").load_data("partitions")["partitions"]
    (outputs,) = [entry["outputs"] for entry in data if entry["id"] == name]
    assert outputs["dnsSuffix"] == PARTITIONS[name].dns_suffix
    assert outputs["dualStackDnsSuffix"] == PARTITIONS[name].dual_stack_suffix
    assert {outputs["dnsSuffix"], outputs["dualStackDnsSuffix"]} <= set(SERVICE_DOMAINS)


@pytest.mark.parametrize("name", PARTITIONS)
def test_regions_are_known_with_the_partition_and_the_domain_of_the_clouds_own_client(name: str) -> None:
    resolver = get_session().get_component("endpoint_resolver")
    regions = resolver.get_available_endpoints("ec2", name)
    assert regions
    for region in regions:
        host = resolver.construct_endpoint("s3", region, name)["hostname"]
        domain = host.partition(f"{region}.")[2] or host.partition("s3.")[2]  # us-east-1 has the global endpoint
        assert (cloud_of_region(region), partition(region), dns_suffix(name)) == ("aws", name, domain)
        assert regional_endpoint(region) == ("" if domain == "amazonaws.com" else f"https://{host}")
        assert f"s3.{region}.{domain}" in no_proxy(region, None)
        assert ZONE.match(f"{region}a") and zone_region(f"{region}a") == region
