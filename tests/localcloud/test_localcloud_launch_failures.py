"""Launches that EC2 accepts and that fail later, and subnets without free addresses."""

from typing import Any

import pytest
from localcloud_refusals import refused


@pytest.mark.parametrize(
    ("code", "reason_code", "message"),
    [
        ("Client.VolumeLimitExceeded", "Server.InternalError", "Volume limit exceeded"),
        ("Client.InternalError", "Server.InternalError", "Client error on launch"),
        ("Client.InvalidKMSKey.InvalidState", "Server.InternalError", "The KMS key provided is in an incorrect state"),
        ("Server.InsufficientInstanceCapacity", "Server.InsufficientInstanceCapacity", "Insufficient capacity"),
    ],
)
def test_an_instance_is_launched_and_dies_seconds_later(kit: Any, code: str, reason_code: str, message: str) -> None:
    kit.do("fail_launches", pool="m6i.large/us-east-1a", code=code)
    (dead,) = kit.spot(1, LaunchTemplateConfigs=configs(kit, "a"))
    instance = kit.reaches(dead, "terminated")
    assert instance["StateReason"]["Code"] == reason_code
    assert instance["StateReason"]["Message"].startswith(f"{code}: {message}")
    (end,) = kit.log("end")
    assert (end["id"], end["interrupted"]) == (dead, False)
    (alive,) = kit.spot(1, LaunchTemplateConfigs=configs(kit, "a"))
    kit.reaches(alive, "running")


def configs(kit: Any, zone: str) -> list[dict[str, Any]]:
    specification = {"LaunchTemplateId": kit.template(), "Version": "$Latest"}
    overrides = [{"InstanceType": "m6i.large", "AvailabilityZone": f"us-east-1{zone}"}]
    return [{"LaunchTemplateSpecification": specification, "Overrides": overrides}]


def test_a_failure_that_ec2_does_not_have_is_refused(kit: Any) -> None:
    with pytest.raises(ValueError, match=r"no failure 'Client\.Rain'.*Client\.VolumeLimitExceeded"):
        kit.do("fail_launches", pool="m6i.large", code="Client.Rain")


def test_a_subnet_without_free_addresses_gives_no_instance(kit: Any) -> None:
    vpc = kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = kit.ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/28", AvailabilityZone="us-east-1a")["Subnet"]
    assert subnet["AvailableIpAddressCount"] == 11  # of 16, AWS keeps five
    place = {"InstanceType": "m6i.large", "SubnetId": subnet["SubnetId"]}
    for _ in range(9):
        kit.run(SubnetId=subnet["SubnetId"])
    answer = kit.fleet(3, place, Type="instant", on_demand=3)
    assert len(answer["Instances"][0]["InstanceIds"]) == 2
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["InsufficientFreeAddressesInSubnet"]
    with refused("InsufficientFreeAddressesInSubnet", "not enough free addresses"):
        kit.run(SubnetId=subnet["SubnetId"])
    (last,) = answer["Instances"][0]["InstanceIds"][1:]
    kit.ec2.terminate_instances(InstanceIds=[last])
    kit.reaches(last, "terminated")
    kit.run(SubnetId=subnet["SubnetId"])
