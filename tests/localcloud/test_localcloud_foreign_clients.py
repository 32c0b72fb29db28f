"""Calls of other programs to EC2 and IAM: Karpenter's AWS provider makes each of these calls."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from localcloud_worker import refused


def test_priorities_of_a_fleet_may_be_fractions(kit: Any, helpers: Any) -> None:
    answer = kit.fleet(
        1,
        helpers.override("m6i.large", "a", Priority=0.0963),
        helpers.override("c6i.large", "b", Priority=0.05),
        on_demand=1,
        Type="instant",
        OnDemandOptions={"AllocationStrategy": "prioritized"},
    )
    assert [group["InstanceType"] for group in answer["Instances"]] == ["c6i.large"]  # the lower number comes first
    with pytest.raises(ClientError) as caught:
        kit.fleet(1, helpers.override("m6i.large", "a", Priority=-0.5), Type="instant")
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_an_account_without_reservations_and_placement_groups_says_so(rig: Any) -> None:
    active = [{"Name": "state", "Values": ["active"]}]
    assert rig.ec2.describe_capacity_reservations(Filters=active)["CapacityReservations"] == []
    assert rig.ec2.describe_placement_groups()["PlacementGroups"] == []
    unknown = refused(rig.ec2.describe_capacity_reservations, CapacityReservationIds=["cr-0123456789abcdef0"])
    assert unknown == "InvalidCapacityReservationId.NotFound"
    assert refused(rig.ec2.describe_placement_groups, GroupNames=["a"]) == "InvalidPlacementGroup.Unknown"


def test_what_is_not_emulated_is_refused_by_name_and_not_retried(rig: Any) -> None:
    with pytest.raises(ClientError) as caught:
        rig.ec2.create_placement_group(GroupName="a", Strategy="cluster")
    assert caught.value.response["Error"]["Code"] == "NotImplemented"
    assert "create_placement_group" in str(caught.value)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501  # SDKs retry 500, 502, 503 and 504


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("describe_instance_types", {"InstanceTypes": ["m6i.large"]}),
        ("describe_images", {"Owners": ["self"]}),
        ("describe_subnets", {}),
        ("describe_security_groups", {}),
        ("describe_spot_price_history", {}),
        ("describe_launch_templates", {}),
        ("create_launch_template", {"LaunchTemplateName": "dry", "LaunchTemplateData": {"InstanceType": "m6i.large"}}),
    ],
)
def test_a_dry_run_is_never_carried_out(rig: Any, action: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        getattr(rig.ec2, action)(DryRun=True, **arguments)
    assert caught.value.response["Error"]["Code"] == "DryRunOperation"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    templates = rig.ec2.describe_launch_templates()["LaunchTemplates"]
    assert "dry" not in [template["LaunchTemplateName"] for template in templates]


def test_the_status_of_instances_is_filtered(kit: Any, helpers: Any) -> None:
    ended, running = kit.run(), kit.run()
    for each in (ended, running):
        kit.reaches(each, "running")
    kit.ec2.terminate_instances(InstanceIds=[ended])
    kit.reaches(ended, "terminated")

    def listed(*filters: tuple[str, str], **more: Any) -> set[str]:
        name_filters = [{"Name": name, "Values": [value]} for name, value in filters]
        answer = kit.ec2.describe_instance_status(Filters=name_filters, **more)
        return {status["InstanceId"] for status in answer["InstanceStatuses"]}

    assert listed() == {running}
    assert listed(IncludeAllInstances=True) == {ended, running}
    assert listed(("instance-state-name", "terminated"), IncludeAllInstances=True) == {ended}
    assert listed(("instance-status.status", "ok"), ("instance-state-code", "16")) == {running}
    assert listed(("instance-status.status", "impaired"), IncludeAllInstances=True) == set()
    assert listed(("event.code", "instance-retirement"), IncludeAllInstances=True) == set()


def test_filters_that_an_action_does_not_have_are_refused(rig: Any) -> None:
    def code(call: Any, filters: list[dict[str, Any]]) -> str:
        return refused(call, Filters=filters)

    unknown = [{"Name": "nonsense", "Values": ["a"]}]
    for call in (
        rig.ec2.describe_instances,
        rig.ec2.describe_instance_status,
        rig.ec2.describe_subnets,
        rig.ec2.describe_volumes,
        rig.ec2.describe_spot_price_history,
    ):
        assert code(call, unknown) == "InvalidParameterValue"
    tagged = [{"Name": "tag:team", "Values": ["a"]}, {"Name": "tag-key", "Values": ["team"]}]
    assert rig.ec2.describe_subnets(Filters=tagged)["Subnets"] == []
    many = [{"Name": "subnet-id", "Values": [f"subnet-{n}" for n in range(201)]}]
    assert code(rig.ec2.describe_subnets, many) == "FilterLimitExceeded"


def test_instance_profiles_are_listed_by_path(kit: Any) -> None:
    iam = kit.client("iam")
    iam.create_instance_profile(InstanceProfileName="ours", Path="/karpenter/us-east-1/")
    iam.create_instance_profile(InstanceProfileName="other")

    def listed(**more: Any) -> set[str]:
        return {p["InstanceProfileName"] for p in iam.list_instance_profiles(**more)["InstanceProfiles"]}

    assert listed() == {"ours", "other"}
    assert listed(PathPrefix="/karpenter/") == {"ours"}


def test_spot_prices_are_known_of_every_pool_that_is_sold(kit: Any) -> None:
    pages = kit.ec2.get_paginator("describe_spot_price_history").paginate(
        ProductDescriptions=["Linux/UNIX"], StartTime=kit.cloud.market.clock.now()
    )
    listed = [price for page in pages for price in page["SpotPriceHistory"]]
    prices = {(price["InstanceType"], price["AvailabilityZone"]): price["SpotPrice"] for price in listed}
    offered = kit.ec2.describe_instance_type_offerings(LocationType="availability-zone")["InstanceTypeOfferings"]
    assert {(o["InstanceType"], o["Location"]) for o in offered} >= set(prices)
    assert len({kind for kind, _ in prices}) > 20
    assert kit.log("price") == []  # a request for all prices creates no pool
    kit.spot(1)
    assert {f"{line['usd']:.6f}" for line in kit.log("price")} <= set(prices.values())  # each as it was announced


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("attach_volume", {"Device": "/dev/sdf", "InstanceId": "i-0123456789abcdef0", "VolumeId": "vol-1"}),
        ("detach_volume", {"VolumeId": "vol-1"}),
        ("request_spot_instances", {"InstanceCount": 1, "LaunchSpecification": {"InstanceType": "m6i.large"}}),
        ("create_capacity_reservation", {"InstanceType": "m6i.large", "InstancePlatform": "Linux/UNIX",
                                         "InstanceCount": 1}),
    ],
)  # fmt: skip
def test_what_the_documents_list_as_not_emulated_is_refused(rig: Any, action: str, arguments: dict[str, Any]) -> None:
    assert refused(getattr(rig.ec2, action), **arguments) in {"NotImplemented", "UnsupportedOperation"}
