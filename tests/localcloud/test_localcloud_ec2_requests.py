"""EC2's throttling, eventual consistency of new instances, and pagination."""

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from localcloud_refusals import refused


def refused_for_its_token(ec2: Any) -> None:
    """CreateFleet, which costs a token whatever comes of it."""
    try:
        ec2.create_fleet(
            LaunchTemplateConfigs=[{"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-0", "Version": "1"}}],
            TargetCapacitySpecification={"TotalTargetCapacity": 1},
            Type="instant",
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "InvalidLaunchTemplateId.NotFound":
            raise


@pytest.mark.parametrize(
    ("call", "most", "refill"),
    [
        (lambda ec2: ec2.delete_vpc_endpoints(VpcEndpointIds=["vpce-0"]), 4, 0.3),
        (lambda ec2: ec2.describe_instances(), 50, 10),
        (lambda ec2: ec2.describe_instances(MaxResults=5), 100, 20),
        (lambda ec2: ec2.delete_fleets(FleetIds=["fleet-0"], TerminateInstances=True), 50, 5),
        (lambda ec2: ec2.get_spot_placement_scores(InstanceTypes=["m6i.large"], TargetCapacity=1), 100, 20),
        (lambda ec2: refused_for_its_token(ec2), 50, 5),
    ],
    ids=["its own bucket", "unfiltered", "filtered", "mutating", "GetSpotPlacementScores", "CreateFleet"],
)
def test_too_many_requests(kit: Any, call: Callable[[Any], Any], most: int, refill: float) -> None:
    with kit.still() as move:
        for _ in range(most):
            call(kit.ec2)
        with pytest.raises(ClientError) as caught:
            call(kit.ec2)
        answer = caught.value.response
        assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == ("RequestLimitExceeded", 503)
        assert "has been throttled on ec2:" in answer["Error"]["Message"]
        move(1 / refill)
        call(kit.ec2)
        with refused("RequestLimitExceeded"):
            call(kit.ec2)


def test_many_instances_take_many_tokens(kit: Any) -> None:
    with kit.still() as move:
        with refused("RequestLimitExceeded"):
            kit.ec2.terminate_instances(InstanceIds=[f"i-{n:017x}" for n in range(1001)])
        move(10)
        with refused("InvalidInstanceID.NotFound"):
            kit.ec2.terminate_instances(InstanceIds=["i-00000000000000001"])


def test_boto3_by_itself_survives_throttling(kit: Any) -> None:
    client = boto3.client(
        "ec2", endpoint_url=kit.cloud.endpoint, region_name="us-east-1", aws_access_key_id="test",
        aws_secret_access_key="test", config=Config(retries={"mode": "standard", "total_max_attempts": 5}),
    )  # fmt: skip
    for _ in range(12):
        client.delete_vpc_endpoints(VpcEndpointIds=["vpce-0"])


def test_a_young_instance_is_not_listed(kit: Any) -> None:
    by_state = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    with kit.still() as move:
        instance_id = kit.run()
        for call in (kit.ec2.describe_instances, kit.ec2.describe_instance_status):
            with refused("InvalidInstanceID.NotFound", instance_id):
                call(InstanceIds=[instance_id])
        assert kit.ec2.describe_instances(Filters=by_state)["Reservations"] == []
        move(3)
        assert kit.instance(instance_id)["State"]["Name"] == "pending"
        assert len(kit.ec2.describe_instances(Filters=by_state)["Reservations"]) == 1


def test_lists_come_a_page_at_a_time(kit: Any) -> None:
    fleets = {kit.fleet(0)["FleetId"] for _ in range(3)}
    first = kit.ec2.describe_fleets(MaxResults=2)
    assert len(first["Fleets"]) == 2
    second = kit.ec2.describe_fleets(MaxResults=2, NextToken=first["NextToken"])
    assert "NextToken" not in second
    assert {f["FleetId"] for f in first["Fleets"] + second["Fleets"]} == fleets
    assert len(kit.ec2.describe_instance_types()["InstanceTypes"]) == 100
    with refused("InvalidParameterCombination"):
        kit.ec2.describe_subnets(SubnetIds=["subnet-0"], MaxResults=5)
    with refused("InvalidNextToken"):
        kit.ec2.describe_fleets(NextToken="elsewhere")
