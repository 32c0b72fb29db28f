"""Volumes of Spot instances get the tags of their instances."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_clouds.aws.volumes import VolumeTags

TAGS = {"Team": "ml", "everspot:cluster": "c"}


def instance(volume: str, *, spot: bool = True, state: str = "running", **tags: str) -> dict[str, Any]:
    """Return the description of an instance by DescribeInstances."""
    all_tags = {**TAGS, **tags, "aws:ec2:fleet-id": "fleet-1"}
    raw: dict[str, Any] = {
        "State": {"Name": state},
        "Tags": [{"Key": key, "Value": value} for key, value in all_tags.items()],
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeId": volume}}],
    }
    return {**raw, "InstanceLifecycle": "spot"} if spot else raw


class Ec2:
    """Takes CreateTags."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], dict[str, str]]] = []
        self.refuse = False
        self.deleted_volumes: set[str] = set()

    def create_tags(self, *, Resources: list[str], Tags: list[dict[str, str]]) -> None:
        if self.refuse:
            raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "CreateTags")
        if self.deleted_volumes & set(Resources):
            raise ClientError({"Error": {"Code": "InvalidVolume.NotFound", "Message": "no"}}, "CreateTags")
        self.calls.append((Resources, {tag["Key"]: tag["Value"] for tag in Tags}))


def test_each_volume_of_a_living_spot_instance_is_tagged_once_as_its_instance_is() -> None:
    ec2 = Ec2()
    tags = VolumeTags(ec2)
    described = [instance("vol-1"), instance("vol-2"), instance("vol-3", Team="vision"), instance("vol-4", spot=False)]
    tags.look([*described, instance("vol-5", state="terminated")])
    assert ec2.calls == [(["vol-1", "vol-2"], TAGS), (["vol-3"], {**TAGS, "Team": "vision"})]
    tags.look([*described, instance("vol-6")])
    assert ec2.calls[2:] == [(["vol-6"], TAGS)]


def test_what_fails_is_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    ec2 = Ec2()
    tags = VolumeTags(ec2)
    ec2.refuse = True
    tags.look([instance("vol-1")])
    tags.look([instance("vol-1")])
    assert len(caplog.records) == 1 and "vol-1" in caplog.text
    ec2.refuse = False
    tags.look([instance("vol-1")])
    assert ec2.calls == [(["vol-1"], TAGS)]


def test_a_volume_that_is_gone_keeps_no_other_from_its_tags(caplog: pytest.LogCaptureFixture) -> None:
    ec2 = Ec2()
    ec2.deleted_volumes = {"vol-2"}
    VolumeTags(ec2).look([instance("vol-1"), instance("vol-2"), instance("vol-3")])
    assert [resources for resources, _ in ec2.calls] == [["vol-1"], ["vol-3"]]
    assert caplog.records == []
