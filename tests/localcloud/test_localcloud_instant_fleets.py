"""CreateFleet of type `instant`: idempotent by token, complete or partial, with an error for every failed pool."""

from typing import Any

import pytest
from localcloud_refusals import refused

A, B = "us-east-1a", "us-east-1b"


@pytest.fixture
def depths(kit: Any) -> Any:
    """Sets how many Spot instances pools hold, and the same price for each."""

    def put(**pools: int) -> None:
        for name, instances in pools.items():
            kind, zone = name.split("_")
            for action, value in (("depth", {"instances": instances}), ("price", {"usd": 0.05})):
                kit.do(action, pool=f"{kind}.large/us-east-1{zone}", **value)

    return put


def launched(answer: Any) -> list[tuple[str, str, int]]:
    """Type, zone and number of what came."""
    return sorted((g["InstanceType"], g["AvailabilityZone"], len(g["InstanceIds"])) for g in answer["Instances"])


def codes(answer: Any) -> dict[str, str]:
    """The code of every error, by type and zone letter."""
    codes_by_pool = {}
    for error in answer["Errors"]:
        override = error["LaunchTemplateAndOverrides"]["Overrides"]
        codes_by_pool[f"{override['InstanceType'].split('.')[0]}_{override['AvailabilityZone'][-1]}"] = error[
            "ErrorCode"
        ]
    assert len(codes_by_pool) == len(answer["Errors"])
    return codes_by_pool


def test_a_token_launches_once(kit: Any) -> None:
    template = kit.template()
    first = kit.fleet(2, Type="instant", template=template, ClientToken="t" * 64)
    again = kit.fleet(2, Type="instant", template=template, ClientToken="t" * 64)
    assert (again["FleetId"], again["Instances"]) == (first["FleetId"], first["Instances"])
    assert len(kit.log("launch")) == 2
    with refused("IdempotentParameterMismatch", "inconsistent with arguments"):
        kit.fleet(1, Type="instant", template=template, ClientToken="t" * 64)
    assert kit.fleet(2, Type="instant", template=template, ClientToken="T" * 64)["FleetId"] != first["FleetId"]
    for token in ("t" * 65, "é"):
        with refused("InvalidParameterValue", "clientToken"):
            kit.fleet(1, Type="instant", ClientToken=token)


def test_a_token_is_used_up_by_a_fleet_that_got_nothing_but_not_by_a_refusal(kit: Any, helpers: Any) -> None:
    only, template = helpers.override("m6i.large", "a"), kit.template()
    with refused("InvalidInstanceType"):
        kit.fleet(1, helpers.override("m6i.enormous", "a"), Type="instant", template=template, ClientToken="free")
    kit.do("drought", pool="m6i.large/us-east-1a")
    none = kit.fleet(1, only, Type="instant", template=template, ClientToken="free")
    assert none["Instances"] == []
    kit.do("recover", pool="m6i.large/us-east-1a")
    again = kit.fleet(1, only, Type="instant", template=template, ClientToken="free")
    assert (again["FleetId"], again["Errors"]) == (none["FleetId"], none["Errors"])
    assert again["Instances"] == []


def test_instances_are_told_by_override_and_market(kit: Any, depths: Any, helpers: Any) -> None:
    depths(m6i_a=2, c6i_b=2)
    answer = kit.fleet(5, Type="instant", on_demand=1)
    groups = {(g["InstanceType"], g["Lifecycle"]): len(g["InstanceIds"]) for g in answer["Instances"]}
    assert {n for (_, market), n in groups.items() if market == "spot"} == {2}
    assert sum(groups.values()) == 5
    assert {g["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] for g in answer["Instances"]} == {A, B}
    for group in answer["Instances"]:
        for instance_id in group["InstanceIds"]:
            assert kit.instance(instance_id)["SubnetId"] == group["SubnetId"]


def test_tags_reach_the_fleet_its_instances_volumes_and_interfaces(kit: Any) -> None:
    kinds = ("fleet", "instance", "volume", "network-interface")
    tags = [{"ResourceType": k, "Tags": [{"Key": "of", "Value": k}]} for k in kinds]
    answer = kit.fleet(1, Type="instant", TagSpecifications=tags)
    (instance_id,) = answer["Instances"][0]["InstanceIds"]
    instance = kit.instance(instance_id)
    ids = [
        answer["FleetId"], instance_id, instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"],
        instance["NetworkInterfaces"][0]["NetworkInterfaceId"],
    ]  # fmt: skip
    listed = kit.ec2.describe_tags(Filters=[{"Name": "key", "Values": ["of"]}])["Tags"]
    values = {t["ResourceId"]: t["Value"] for t in listed}
    assert [values[i] for i in ids] == list(kinds)


def test_all_in_one_zone_or_nothing(kit: Any, depths: Any, helpers: Any) -> None:
    """MinTargetCapacity with SingleAvailabilityZone: several types may share the zone, zones may not share the gang."""
    depths(m6i_a=2, c6i_a=2, m6i_b=3, c6i_b=0)
    ways = [helpers.override(f"{kind}.large", zone) for kind in ("m6i", "c6i") for zone in "ab"]
    whole = {"AllocationStrategy": "capacity-optimized", "SingleAvailabilityZone": True, "MinTargetCapacity": 4}
    answer = kit.fleet(4, *ways, Type="instant", SpotOptions=whole)
    assert launched(answer) == [("c6i.large", A, 2), ("m6i.large", A, 2)]
    assert answer["Errors"] == []
    none = kit.fleet(4, *ways, Type="instant", SpotOptions=whole)
    assert none["Instances"] == []
    assert codes(none) == dict.fromkeys(("m6i_a", "c6i_a", "m6i_b", "c6i_b"), "InsufficientInstanceCapacity")
    assert len(kit.log("launch")) == 4


def test_a_pool_that_could_give_a_part_of_the_whole_is_unfulfillable(kit: Any, depths: Any, helpers: Any) -> None:
    depths(m6i_a=9, c6i_b=0)
    kit.do("quota", code="L-34B43A08", value=4)
    ways = helpers.override("m6i.large", "a", WeightedCapacity=2), helpers.override("c6i.large", "b")
    whole = {"AllocationStrategy": "lowest-price", "SingleInstanceType": True, "MinTargetCapacity": 6}
    answer = kit.fleet(6, *ways, Type="instant", SpotOptions=whole)
    assert (answer["Instances"], kit.log("launch")) == ([], [])
    assert codes(answer) == {"m6i_a": "MaxSpotInstanceCountExceeded", "c6i_b": "InsufficientInstanceCapacity"}
    whole["MinTargetCapacity"] = 5
    answer = kit.fleet(4, *ways, Type="instant", SpotOptions=whole)
    assert codes(answer)["m6i_a"] == "UnfulfillableCapacity"
    assert kit.log("launch") == []


@pytest.mark.parametrize(
    ("single", "expected"),
    [
        ({"SingleInstanceType": True}, [("m6i.large", A, 2), ("m6i.large", B, 3)]),
        ({"SingleAvailabilityZone": True}, [("c6i.large", B, 1), ("m6i.large", B, 3)]),
        ({"SingleInstanceType": True, "SingleAvailabilityZone": True}, [("m6i.large", B, 3)]),
    ],
)
def test_a_single_type_or_zone_takes_the_group_that_gives_most(
    kit: Any, depths: Any, helpers: Any, single: Any, expected: Any
) -> None:
    depths(m6i_a=2, c6i_a=1, m6i_b=3, c6i_b=1)
    ways = [helpers.override(f"{kind}.large", zone) for kind in ("c6i", "m6i") for zone in "ab"]
    spot = {"AllocationStrategy": "price-capacity-optimized", **single}
    assert launched(kit.fleet(5, *ways, Type="instant", SpotOptions=spot)) == expected


def test_reservations_first_finds_none_and_falls_through(kit: Any, helpers: Any) -> None:
    first = {"UsageStrategy": "use-capacity-reservations-first"}
    ways = [helpers.override("m6i.xlarge", "a", Priority=1), helpers.override("m6i.large", "a", Priority=2)]
    on_demand = {
        "AllocationStrategy": "prioritized", "CapacityReservationOptions": first, "MinTargetCapacity": 2,
        "SingleAvailabilityZone": True,
    }  # fmt: skip
    answer = kit.fleet(2, *ways, Type="instant", on_demand=2, OnDemandOptions=on_demand)
    assert launched(answer) == [("m6i.xlarge", A, 2)]
    options = kit.described(answer["FleetId"])["OnDemandOptions"]
    assert options == on_demand


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"Type": "maintain", "SpotOptions": {"SingleInstanceType": True}}, "InvalidFleetConfig", "of type instant"),
        (
            {"Type": "request", "OnDemandOptions": {"SingleAvailabilityZone": True}},
            "InvalidFleetConfig",
            "OnDemandOptions.SingleAvailabilityZone",
        ),
        (
            {
                "Type": "maintain",
                "OnDemandOptions": {"CapacityReservationOptions": {"UsageStrategy": "use-capacity-reservations-first"}},
            },
            "InvalidFleetConfig",
            "CapacityReservationOptions",
        ),
        ({"SpotOptions": {"MinTargetCapacity": 2}}, "InvalidFleetConfig", "SingleInstanceType"),
        (
            {"SpotOptions": {"MinTargetCapacity": 1001, "SingleInstanceType": True}},
            "InvalidParameterValue",
            "between 1 and 1000",
        ),
        (
            {"OnDemandOptions": {"CapacityReservationOptions": {"UsageStrategy": "first"}}},
            "InvalidParameterValue",
            "UsageStrategy",
        ),
        ({"SpotOptions": {"MaxTotalPrice": "1"}}, "UnsupportedOperation", "MaxTotalPrice"),
        ({"ReplaceUnhealthyInstances": True}, "InvalidFleetConfig", "of type maintain"),
        (
            {"ReservedCapacityOptions": {"ReservationTypes": ["interruptible-capacity-reservation"]}},
            "UnsupportedOperation",
            "Reserved",
        ),
        (
            {"TagSpecifications": [{"ResourceType": "spot-instances-request", "Tags": []}]},
            "InvalidParameterValue",
            "taggable",
        ),
    ],
)
def test_what_an_instant_fleet_alone_may_have(rig: Any, change: Any, code: str, words: str) -> None:
    with refused(code, words):
        rig.fleet(2, **{"Type": "instant", **change})


def test_a_launch_template_is_named_with_a_version_that_exists(rig: Any) -> None:
    def launch(**specification: str) -> Any:
        config = {"LaunchTemplateSpecification": specification, "Overrides": []}
        return rig.fleet(1, Type="instant", LaunchTemplateConfigs=[config])

    template = rig.template()
    with refused("InvalidLaunchTemplateId.VersionNotFound", "version 7"):
        launch(LaunchTemplateId=template, Version="7")
    with refused("MissingParameter", "Version"):
        launch(LaunchTemplateId=template)
    with refused("InvalidParameterCombination", "by its ID or by its name"):
        launch(LaunchTemplateId=template, LaunchTemplateName="both", Version="1")
    with refused("UnsupportedOperation", "LaunchTemplateSpecificationUserData"):
        launch(LaunchTemplateId=template, Version="1", LaunchTemplateSpecificationUserData="e30=")
    with refused("InvalidLaunchTemplateId.NotFound"):
        launch(LaunchTemplateId="lt-00000000000000000", Version="1")
    with refused("InvalidFleetConfig", "at most 50"):
        rig.fleet(1, Type="instant", LaunchTemplateConfigs=[{"LaunchTemplateSpecification": {"Version": "1"}}] * 51)


def test_an_instant_fleet_may_name_more_pools_than_others(rig: Any, helpers: Any) -> None:
    zones = "abcdef"
    catalogue = rig.cloud.market.pools.catalogue
    kinds = sorted(k for k, t in catalogue.types.items() if t.arch == "x86_64")[: 301 // len(zones) + 1]
    ways = [helpers.override(kind, zone) for kind in kinds for zone in zones][:301]
    assert rig.fleet(1, *ways, Type="instant")["FleetId"]
    with refused("InvalidFleetConfig", "at most 300"):
        rig.fleet(1, *ways, Type="request")


def test_a_subnet_that_does_not_exist_is_told_of_its_override(kit: Any, helpers: Any) -> None:
    missing = {"InstanceType": "c6i.large", "SubnetId": "subnet-00000000000000000", "AvailabilityZone": B}
    answer = kit.fleet(2, helpers.override("m6i.large", "a"), missing, Type="instant")
    assert launched(answer) == [("m6i.large", A, 2)]
    assert codes(answer) == {"c6i_b": "InvalidSubnetID.NotFound"}
    assert {e["Lifecycle"] for e in answer["Errors"]} == {"spot"}


def test_a_template_that_tags_spot_requests_launches_nothing_on_demand(kit: Any) -> None:
    tags = [{"ResourceType": "spot-instances-request", "Tags": [{"Key": "a", "Value": "b"}]}]
    template = kit.template(TagSpecifications=tags)
    answer = kit.fleet(1, Type="instant", on_demand=1, template=template)
    assert {(e["ErrorCode"], e["Lifecycle"]) for e in answer["Errors"]} == {("InvalidParameterValue", "on-demand")}
    assert len(kit.fleet(1, Type="instant", template=template)["Instances"]) == 1


def test_launches_beyond_the_request_limit_are_told_of_their_overrides(kit: Any, helpers: Any) -> None:
    """A burst of 1,000 launches, then 2 a second: EC2's resource bucket of RunInstances."""
    only = helpers.override("m6i.large", "a")
    kit.do("depth", pool="m6i.large/us-east-1a", instances=5)
    with kit.still() as move:
        assert kit.cloud.account.buckets.launch(998)
        answer = kit.fleet(3, only, Type="instant")
        assert launched(answer) == [("m6i.large", A, 2)]
        assert codes(answer) == {"m6i_a": "RequestLimitExceeded"}
        move(1)
        whole = {"SingleAvailabilityZone": True, "MinTargetCapacity": 3}
        assert codes(kit.fleet(3, only, Type="instant", SpotOptions=whole)) == {"m6i_a": "RequestLimitExceeded"}
        assert launched(kit.fleet(2, only, Type="instant")) == [("m6i.large", A, 2)]


def test_instant_fleets_are_deleted_with_their_instances_and_25_at_once(kit: Any) -> None:
    answer = kit.fleet(1, Type="instant")
    fleet_id = answer["FleetId"]
    failures = kit.ec2.delete_fleets(FleetIds=[fleet_id], TerminateInstances=False)["UnsuccessfulFleetDeletions"]
    assert [f["Error"]["Code"] for f in failures] == ["fleetNotInDeletableState"]
    with refused("InvalidParameterValue", "up to 25"):
        kit.ec2.delete_fleets(FleetIds=[fleet_id] * 26, TerminateInstances=True)
    kit.ec2.delete_fleets(FleetIds=[fleet_id], TerminateInstances=True)
    kit.reaches(answer["Instances"][0]["InstanceIds"][0], "terminated")
