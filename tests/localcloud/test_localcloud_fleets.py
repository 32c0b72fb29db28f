"""EC2 Fleet through boto3: launches, refusals, and healing."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_local.market.clock import stamp


def code(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def test_a_maintain_fleet_launches_base_and_spot_and_counts_them(kit: Any) -> None:
    fleet_id = kit.fleet(4, on_demand=1)["FleetId"]
    kit.living(4)
    fleet = kit.described(fleet_id)
    assert (fleet["FleetState"], fleet["ActivityStatus"]) == ("active", "fulfilled")
    assert (fleet["FulfilledCapacity"], fleet["FulfilledOnDemandCapacity"]) == (4.0, 1.0)
    assert fleet["TargetCapacitySpecification"] == {
        "TotalTargetCapacity": 4,
        "OnDemandTargetCapacity": 1,
        "SpotTargetCapacity": 3,
        "DefaultTargetCapacityType": "spot",
    }
    lifecycles = sorted(i.get("InstanceLifecycle", "on-demand") for i in kit.instances())
    assert lifecycles == ["on-demand", "spot", "spot", "spot"]
    assert all(i["SpotInstanceRequestId"].startswith("sir-") for i in kit.instances() if "InstanceLifecycle" in i)
    active = kit.ec2.describe_fleet_instances(FleetId=fleet_id)["ActiveInstances"]
    assert {a["InstanceId"] for a in active} == {i["InstanceId"] for i in kit.instances()}


def test_only_lowest_price_tells_a_number_of_pools(kit: Any) -> None:
    other = kit.described(kit.fleet(0)["FleetId"])["SpotOptions"]
    cheapest = kit.described(kit.fleet(0, SpotOptions={"AllocationStrategy": "lowest-price"})["FleetId"])["SpotOptions"]
    assert "InstancePoolsToUseCount" not in other
    assert cheapest["InstancePoolsToUseCount"] == 1


def test_a_terminated_member_is_replaced_and_the_base_is_kept(kit: Any) -> None:
    kit.fleet(3, on_demand=1)
    first = {i["InstanceId"]: i.get("InstanceLifecycle") for i in kit.living(3)}
    victims = [next(i for i, life in first.items() if life == kind) for kind in (None, "spot")]
    kit.ec2.terminate_instances(InstanceIds=victims)
    for victim in victims:
        kit.reaches(victim, "terminated")
    now = {i["InstanceId"]: i.get("InstanceLifecycle") for i in kit.living(3)}
    assert not set(victims) & set(now)
    assert sorted(str(life) for life in now.values()) == ["None", "spot", "spot"]


def test_a_request_fleet_replaces_nothing(kit: Any) -> None:
    fleet_id = kit.fleet(1, Type="request")["FleetId"]
    only = kit.living(1)[0]["InstanceId"]
    kit.ec2.terminate_instances(InstanceIds=[only])
    kit.reaches(only, "terminated")
    later = threading.Event()
    kit.cloud.market.timeline.after(kit.cloud.market.delays.replace * 3, later.set)
    assert later.wait(60)
    assert kit.described(fleet_id)["FulfilledCapacity"] == 0


@pytest.mark.parametrize(("policy", "remaining"), [("termination", 2), ("no-termination", 4)])
def test_the_total_goes_up_and_down_by_the_excess_policy(kit: Any, policy: str, remaining: int) -> None:
    fleet_id = kit.fleet(2, on_demand=1, ExcessCapacityTerminationPolicy=policy)["FleetId"]
    kit.living(2)
    for total, expected in ((4, 4), (2, remaining)):
        specification = {"TotalTargetCapacity": total}
        assert kit.ec2.modify_fleet(FleetId=fleet_id, TargetCapacitySpecification=specification)["Return"]
        kit.living(expected)
    target = kit.described(fleet_id)["TargetCapacitySpecification"]
    assert (target["OnDemandTargetCapacity"], target["SpotTargetCapacity"]) == (1, 1)
    assert kit.described(fleet_id)["FulfilledOnDemandCapacity"] == 1


def test_spot_instances_beyond_a_lower_target_get_their_notice(kit: Any) -> None:
    fleet_id = kit.fleet(2)["FleetId"]
    kit.living(2)
    before = kit.cloud.market.clock.now()
    kit.ec2.modify_fleet(FleetId=fleet_id, TargetCapacitySpecification={"TotalTargetCapacity": 1})
    kit.living(1)
    (ended,) = [i for i in kit.instances() if i["State"]["Name"] not in ("pending", "running")]
    assert ended["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert kit.log("end")[0]["at"] >= stamp(before + timedelta(seconds=120))


def targets(kit: Any, fleet_id: str) -> tuple[int, int, int]:
    capacity = kit.described(fleet_id)["TargetCapacitySpecification"]
    return capacity["TotalTargetCapacity"], capacity["OnDemandTargetCapacity"], capacity["SpotTargetCapacity"]


def test_modify_fleet_changes_each_target(kit: Any) -> None:
    """EC2 User Guide, "Modify an EC2 Fleet": total, on-demand and Spot; the default target type gets the rest."""
    fleet_id = kit.fleet(0)["FleetId"]
    for specification, expected in (
        ({"TotalTargetCapacity": 3, "OnDemandTargetCapacity": 2}, (3, 2, 1)),
        ({"TotalTargetCapacity": 4}, (4, 2, 2)),
        ({"TotalTargetCapacity": 2, "OnDemandTargetCapacity": 0, "SpotTargetCapacity": 2}, (2, 0, 2)),
        ({"TotalTargetCapacity": 0}, (0, 0, 0)),
    ):
        kit.ec2.modify_fleet(FleetId=fleet_id, TargetCapacitySpecification=specification)
        assert targets(kit, fleet_id) == expected
    with pytest.raises(ClientError) as caught:
        kit.ec2.modify_fleet(
            FleetId=fleet_id, TargetCapacitySpecification={"TotalTargetCapacity": 1, "OnDemandTargetCapacity": 2}
        )
    assert code(caught) == "InvalidTargetCapacitySpecification"
    assert targets(kit, fleet_id) == (0, 0, 0)


@pytest.mark.parametrize("market", ["on-demand", "spot"])
def test_a_fleet_of_one_market_is_scaled_by_its_total_alone(kit: Any, market: str) -> None:
    specification = {"TotalTargetCapacity": 0, "DefaultTargetCapacityType": market}
    fleet_id = kit.fleet(0, TargetCapacitySpecification=specification)["FleetId"]
    for total in (2, 0):
        kit.ec2.modify_fleet(FleetId=fleet_id, TargetCapacitySpecification={"TotalTargetCapacity": total})
        lives = [i.get("InstanceLifecycle", "on-demand") for i in kit.living(total)]
        assert lives == [market] * total


def test_new_overrides_reach_new_instances_only(kit: Any, helpers: Any) -> None:
    template = kit.template()
    fleet_id = kit.fleet(1, helpers.override("m6i.large", "a"), template=template)["FleetId"]
    kit.living(1)
    config = {
        "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "1"},
        "Overrides": [helpers.override("c6i.large", "b")],
    }
    kit.ec2.modify_fleet(
        FleetId=fleet_id, LaunchTemplateConfigs=[config], TargetCapacitySpecification={"TotalTargetCapacity": 2}
    )
    assert sorted(i["InstanceType"] for i in kit.living(2)) == ["c6i.large", "m6i.large"]


def test_weights_are_counted_and_may_exceed_the_target_by_less_than_one_weight(kit: Any, helpers: Any) -> None:
    fleet_id = kit.fleet(5, helpers.override("m6i.xlarge", "a", WeightedCapacity=2))["FleetId"]
    kit.living(3)
    assert kit.described(fleet_id)["FulfilledCapacity"] == 6


def test_priorities_decide_on_demand_when_asked_to(kit: Any, helpers: Any) -> None:
    dear = helpers.override("m6i.xlarge", "a", Priority=1)
    cheap = helpers.override("m6i.large", "a", Priority=2)
    for strategy, expected in (("prioritized", "m6i.xlarge"), ("lowest-price", "m6i.large")):
        answer = kit.fleet(
            1, cheap, dear, Type="instant", on_demand=1, OnDemandOptions={"AllocationStrategy": strategy}
        )
        assert answer["Instances"][0]["InstanceType"] == expected


def test_an_instant_fleet_tells_for_each_override_why_it_gave_nothing(kit: Any, helpers: Any) -> None:
    kit.do("depth", pool="m6i.large/us-east-1a", instances=1)
    kit.do("drought", pool="c6i.large/us-east-1b")
    dry, shallow = helpers.override("c6i.large", "b"), helpers.override("m6i.large", "a")
    capped = helpers.override("m7i.large", "a", MaxPrice="0.002")
    answer = kit.fleet(3, dry, shallow, capped, Type="instant")
    assert len(answer["Instances"]) == 1
    errors = {e["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"]: e for e in answer["Errors"]}
    assert {kind: e["ErrorCode"] for kind, e in errors.items()} == {
        "c6i.large": "InsufficientInstanceCapacity",
        "m6i.large": "InsufficientInstanceCapacity",
        "m7i.large": "SpotMaxPriceTooLow",
    }
    assert "c6i.large" in errors["c6i.large"]["ErrorMessage"]
    assert "us-east-1b" in errors["c6i.large"]["ErrorMessage"]


def test_deleting_terminates_or_leaves_running(kit: Any) -> None:
    left_running, ended = kit.fleet(1)["FleetId"], kit.fleet(2)["FleetId"]
    kit.living(3)
    states = {}
    for fleet_id, terminate in ((left_running, False), (ended, True)):
        answer = kit.ec2.delete_fleets(FleetIds=[fleet_id], TerminateInstances=terminate)
        states[fleet_id] = answer["SuccessfulFleetDeletions"][0]["CurrentFleetState"]
    assert states == {left_running: "deleted_running", ended: "deleted_terminating"}
    kit.living(1)
    assert kit.described(ended)["FleetState"] == "deleted"
    again = kit.ec2.delete_fleets(FleetIds=[ended, "fleet-none"], TerminateInstances=True)
    assert [f["Error"]["Code"] for f in again["UnsuccessfulFleetDeletions"]] == ["fleetIdDoesNotExist"] * 2
    with pytest.raises(ClientError) as caught:
        kit.described("fleet-none")
    assert code(caught) == "InvalidFleetId.NotFound"


def test_history_tells_launches_in_market_time(kit: Any) -> None:
    fleet_id = kit.fleet(2)["FleetId"]
    launched = {i["InstanceId"]: i["LaunchTime"] for i in kit.living(2)}
    records = kit.ec2.describe_fleet_history(FleetId=fleet_id, StartTime=0)["HistoryRecords"]
    changes = {
        r["EventInformation"]["InstanceId"]: r["Timestamp"]
        for r in records
        if (r["EventType"], r["EventInformation"]["EventSubType"]) == ("instance-change", "launched")
    }
    assert changes == launched


def test_a_drought_moves_capacity_elsewhere_and_ends(kit: Any, helpers: Any) -> None:
    only = [helpers.override("m6i.large", "a")]
    two_types = [*only, helpers.override("c6i.large", "b")]
    kit.do("price", pool="c6i.large/us-east-1b", usd=0.08)
    kit.do("depth", pool="*", instances=10)
    kit.fleet(2, *two_types, SpotOptions={"AllocationStrategy": "lowest-price"})
    assert {i["InstanceType"] for i in kit.living(2)} == {"m6i.large"}
    struck = kit.do("drought", pool="m6i.large/us-east-1a", **{"for": "30d"})
    assert len(struck["instances"]) == 2
    helpers.until(lambda: {i["InstanceType"] for i in kit.instances("pending", "running")} == {"c6i.large"})
    assert kit.fleet(1, *only, Type="instant")["Errors"][0]["ErrorCode"] == "InsufficientInstanceCapacity"
    with pytest.raises(ClientError) as caught:
        kit.run(InstanceMarketOptions={"MarketType": "spot"}, Placement={"AvailabilityZone": "us-east-1a"})
    assert code(caught) == "InsufficientInstanceCapacity"
    kit.do("recover", pool="m6i.large/us-east-1a")
    assert kit.fleet(1, *only, Type="instant")["Errors"] == []


def test_a_fleet_that_lacks_capacity_asks_again(kit: Any, helpers: Any) -> None:
    only = helpers.override("m6i.large", "a")
    kit.do("drought", pool="m6i.large/us-east-1a")
    fleet_id = kit.fleet(1, only)["FleetId"]
    helpers.until(lambda: kit.described(fleet_id)["FleetState"] == "active")
    assert kit.described(fleet_id)["ActivityStatus"] == "pending_fulfillment"
    kit.do("recover", pool="m6i.large/us-east-1a")
    kit.living(1)


@pytest.mark.parametrize(("kind", "spot"), [("maintain", set()), ("instant", {"ml"})])
def test_a_template_tags_volumes_but_not_those_of_spot_in_a_fleet_that_is_maintained(
    kit: Any, helpers: Any, kind: str, spot: set[str]
) -> None:
    tags = [{"Key": "Team", "Value": "ml"}]
    template = kit.template(TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")])
    kit.fleet(2, on_demand=1, Type=kind, template=template)
    kit.living(2)
    team_tags: dict[str, set[str]] = {"spot": set(), "on-demand": set()}
    for instance in kit.instances():
        volumes = [m["Ebs"]["VolumeId"] for m in instance["BlockDeviceMappings"]]
        for volume in kit.ec2.describe_volumes(VolumeIds=volumes)["Volumes"]:
            market = instance.get("InstanceLifecycle", "on-demand")
            team_tags[market] |= {tag["Value"] for tag in volume.get("Tags", []) if tag["Key"] == "Team"}
    assert team_tags == {"spot": spot, "on-demand": {"ml"}}
