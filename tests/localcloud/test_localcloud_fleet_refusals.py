"""EC2 Fleet through boto3: refusals, and the required service-linked roles."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from localcloud_refusals import refused


def code(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


NO_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"


def test_a_maintain_fleet_needs_the_roles_of_fleets_and_of_its_markets(bare: Any, helpers: Any) -> None:
    create = bare.client("iam").create_service_linked_role
    with refused(NO_ROLE, "service-linked role for EC2 Fleet."):
        bare.fleet(1, on_demand=1)
    create(AWSServiceName="ec2fleet.amazonaws.com")
    with refused(NO_ROLE, "service-linked role for EC2 Spot Instances."):
        bare.fleet(1)
    fleet_id = bare.fleet(1, on_demand=1)["FleetId"]
    bare.living(1)
    bare.ec2.modify_fleet(FleetId=fleet_id, TargetCapacitySpecification={"TotalTargetCapacity": 2})
    query = {"FleetId": fleet_id, "StartTime": "2020-01-01T00:00:00Z"}
    helpers.until(lambda: NO_ROLE in str(bare.ec2.describe_fleet_history(**query)["HistoryRecords"]))
    create(AWSServiceName="spot.amazonaws.com")
    bare.living(2)
    assert bare.fleet(1)["FleetId"].startswith("fleet-")
    with refused("InvalidInput", "has been taken"):
        create(AWSServiceName="spot.amazonaws.com")


def test_spot_instances_need_their_service_linked_role_and_an_instant_fleet_no_other(bare: Any) -> None:
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    with refused(NO_ROLE, "service-linked role for EC2 Spot Instances.", status=403):
        bare.run(**spot)
    answer = bare.fleet(2, Type="instant", on_demand=1)
    assert [(g["Lifecycle"], len(g["InstanceIds"])) for g in answer["Instances"]] == [("on-demand", 1)]
    assert {(e["Lifecycle"], e["ErrorCode"]) for e in answer["Errors"]} == {("spot", NO_ROLE)}
    assert {e["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"] for e in answer["Errors"]} == {
        "m6i.large",
        "c6i.large",
    }
    bare.client("iam").create_service_linked_role(AWSServiceName="spot.amazonaws.com")
    assert bare.run(**spot)
    answer = bare.fleet(2, Type="instant")
    assert sum(len(group["InstanceIds"]) for group in answer["Instances"]) == 2
    assert answer["Errors"] == []
    assert {group["Lifecycle"] for group in answer["Instances"]} == {"spot"}


def test_strategies_that_the_local_cloud_lacks_are_refused_by_name(kit: Any) -> None:
    for name, expected in (
        ("diversified", "UnsupportedOperation"),
        ("priceCapacityOptimized", "InvalidParameterValue"),
    ):
        with pytest.raises(ClientError) as caught:
            kit.fleet(1, Type="instant", SpotOptions={"AllocationStrategy": name})
        assert code(caught) == expected
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ValidUntil": "2030-01-01T00:00:00Z"}, "UnsupportedOperation"),
        ({"SpotOptions": {"MaxTotalPrice": "3"}}, "UnsupportedOperation"),
        (
            {"SpotOptions": {"InstancePoolsToUseCount": 2, "AllocationStrategy": "capacity-optimized"}},
            "InvalidFleetConfig",
        ),
        ({"SpotOptions": {"InstanceInterruptionBehavior": "stop"}}, "UnsupportedOperation"),
        ({"Type": "instant", "ExcessCapacityTerminationPolicy": "termination"}, "InvalidFleetConfig"),
        ({"on_demand": 9}, "InvalidTargetCapacitySpecification"),
        ({"TagSpecifications": [{"ResourceType": "instance", "Tags": []}]}, "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_not_offered_is_refused(kit: Any, change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ClientError) as caught:
        kit.fleet(2, **change)
    assert code(caught) == expected


def test_instance_types_that_do_not_exist_or_are_not_offered_are_refused(kit: Any, helpers: Any) -> None:
    with pytest.raises(ClientError) as caught:
        kit.fleet(1, helpers.override("m6i.enormous", "a"), Type="instant")
    assert code(caught) == "InvalidInstanceType"
    nowhere = next(z for z in "abcdef" if kit.cloud.market.pools.get("p4de.24xlarge", f"us-east-1{z}") is None)
    answer = kit.fleet(1, helpers.override("p4de.24xlarge", nowhere), Type="instant")
    assert answer["Errors"][0]["ErrorCode"] == "InvalidFleetConfiguration"
    with pytest.raises(ClientError) as caught:
        kit.run(InstanceType="p4de.24xlarge", Placement={"AvailabilityZone": f"us-east-1{nowhere}"})
    assert code(caught) == "Unsupported"
