"""TerminateInstances: calls without effect, the description of ended instances and its lifetime, and their cost."""

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_local.market.delays import Delays
from localcloud_refusals import refused

UNKNOWN = "i-0123456789abcdef0"


def test_one_id_that_is_wrong_and_none_is_ended(kit: Any) -> None:
    instance_id = kit.run()
    with refused("InvalidInstanceID.NotFound", UNKNOWN):
        kit.ec2.terminate_instances(InstanceIds=[instance_id, UNKNOWN])
    for malformed in ("i-xyz", "m6i.large", "i-123"):
        with refused("InvalidInstanceID.Malformed", malformed):
            kit.ec2.terminate_instances(InstanceIds=[instance_id, malformed])
        for call in (kit.ec2.describe_instances, kit.ec2.describe_instance_status):
            with refused("InvalidInstanceID.Malformed"):
                call(InstanceIds=[malformed])
    assert kit.log("end") == []


def test_ending_twice_is_fine(kit: Any) -> None:
    instance_id = kit.run()
    states = []
    for ids in ([instance_id, instance_id], [instance_id], [instance_id]):
        (change,) = kit.ec2.terminate_instances(InstanceIds=ids)["TerminatingInstances"]
        states.append(
            (change["PreviousState"]["Name"] in ("shutting-down", "terminated"), change["CurrentState"]["Name"])
        )
        kit.reaches(instance_id, "terminated")
    assert states == [(False, "terminated"), (True, "terminated"), (True, "terminated")]
    assert len(kit.log("end")) == 1


def test_one_that_is_protected_keeps_its_zone(kit: Any) -> None:
    in_b = {"Placement": {"AvailabilityZone": "us-east-1b"}}
    free, unprotected, shielded = kit.run(), kit.run(**in_b), kit.run(**in_b)
    kit.ec2.modify_instance_attribute(InstanceId=shielded, DisableApiTermination={"Value": True})
    with refused("OperationNotPermitted", shielded):
        kit.ec2.terminate_instances(InstanceIds=[free, unprotected, shielded])
    assert [line["id"] for line in kit.log("end")] == [free]
    with refused("OperationNotPermitted", shielded):
        kit.ec2.terminate_instances(InstanceIds=[unprotected, shielded])
    assert len(kit.log("end")) == 1


def test_an_instance_that_has_ended_is_told_of_for_an_hour(kit: Any, helpers: Any) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "of", "Value": "mine"}]}]
    assert Delays().remembered == timedelta(hours=1)
    instance_id, filters = kit.run(TagSpecifications=tags), [{"Name": "tag:of", "Values": ["mine"]}]
    kit.reaches(instance_id, "running")
    with kit.still() as move:
        kit.ec2.terminate_instances(InstanceIds=[instance_id])
        kit.reaches(instance_id, "terminated")
        move(kit.cloud.market.delays.remembered.total_seconds() - 100)
        (reservation,) = kit.ec2.describe_instances(Filters=filters)["Reservations"]
        assert reservation["Instances"][0]["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
        move(200)
        kit.mark(kit.cloud.market.clock.now())  # wakes the market, which sleeps until what was due before

        def forgotten() -> bool:
            return bool(kit.ec2.describe_instances(Filters=filters)["Reservations"] == [])

        helpers.until(forgotten)
        with refused("InvalidInstanceID.NotFound"):
            kit.ec2.describe_instances(InstanceIds=[instance_id])
        with refused("InvalidInstanceID.NotFound"):
            kit.ec2.terminate_instances(InstanceIds=[instance_id])
        assert kit.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [instance_id]}])["Tags"] == []


@pytest.mark.parametrize("by", ["user", "market"])
def test_a_spot_instance_that_its_user_ends_is_no_interruption(kit: Any, by: str) -> None:
    """Only what EC2 takes in its first hour is free: EC2 User Guide, "Billing for interrupted Spot Instances"."""
    (instance_id,) = kit.spot()
    if by == "user":
        kit.ec2.terminate_instances(InstanceIds=[instance_id])
    else:
        kit.do("interrupt", instance=instance_id, notice=False)
    (end,) = kit.log("end")
    assert (end["id"], end["interrupted"]) == (instance_id, by == "market")


def test_what_a_fleet_launched_is_told_of_some_seconds_later_with_its_tags(kit: Any) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "everspot:launch", "Value": "t"}]}]
    by_tag = [{"Name": "tag:everspot:launch", "Values": ["t"]}]
    with kit.still() as move:
        (instance_id,) = kit.spot(TagSpecifications=tags)
        assert kit.ec2.describe_instances(Filters=by_tag)["Reservations"] == []
        assert kit.ec2.describe_tags(Filters=[{"Name": "key", "Values": ["everspot:launch"]}])["Tags"] == []
        with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
            kit.ec2.describe_instances(InstanceIds=[instance_id])
        move(3)
        (reservation,) = kit.ec2.describe_instances(Filters=by_tag)["Reservations"]
        assert [i["InstanceId"] for i in reservation["Instances"]] == [instance_id]
        assert {"Key": "everspot:launch", "Value": "t"} in reservation["Instances"][0]["Tags"]
        (tag,) = kit.ec2.describe_tags(Filters=[{"Name": "key", "Values": ["everspot:launch"]}])["Tags"]
        assert tag["ResourceId"] == instance_id
