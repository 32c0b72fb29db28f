"""The partition of AWS in which a region lies: the ARNs of its resources begin with it."""

import pytest
from everspot_clouds.aws.preflight import simulated_resource
from everspot_core.capacity.catalogue import builtin
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.preflight import PreflightPlan

REGIONS = [("eu-west-1", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")]


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
