"""EC2's refusals of launches and launch templates: images, types, volumes, user data."""

import base64
import time
from typing import Any

import pytest
from everspot_local.aws.ec2.images import BAKED_IMAGE
from localcloud_refusals import refused, root


def image(rig: Any, **facts: Any) -> str:
    request = {
        "Name": f"test-{time.monotonic_ns()}", "Architecture": "x86_64", "VirtualizationType": "hvm",
        "EnaSupport": True, "RootDeviceName": "/dev/sda1", **facts,
    }  # fmt: skip
    return str(rig.ec2.register_image(**request)["ImageId"])


LAUNCHES: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("no image", {}, {"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound", "ami-0123456789abcdef0"),
    ("no type", {}, {"InstanceType": "m6i.enormous"}, "InvalidParameterValue", "Invalid value 'm6i.enormous'"),
    ("arm64 on x86_64", {"Architecture": "arm64"}, {}, "InvalidParameterValue", "not match the architecture 'arm64'"),
    ("x86_64 on arm64", {}, {"InstanceType": "t4g.small"}, "InvalidParameterValue", "architecture 'arm64' of the"),
    ("credits of a type without them", {}, {"CreditSpecification": {"CpuCredits": "standard"}},
     "InstanceCreditSpecification.NotSupported", "m6i.large"),
    ("UEFI on a BIOS type", {"BootMode": "uefi"}, {"InstanceType": "p4d.24xlarge"},
     "InvalidParameterValue", "boot mode of UEFI"),
    ("no ENA", {"EnaSupport": False}, {}, "InvalidParameterCombination", "(ENA) is required for the 'm6i.large'"),
    ("root below its snapshot", {}, root(VolumeSize=14), "InvalidBlockDeviceMapping", "expect size >= 15GB"),
    ("a second volume without size", {},
     {"BlockDeviceMappings": [{"DeviceName": "/dev/sdf", "Ebs": {"VolumeType": "gp3"}}]},
     "InvalidBlockDeviceMapping", "must be provided for: /dev/sdf"),
    ("throughput above a quarter of IOPS", {}, root(VolumeSize=20, VolumeType="gp3", Throughput=751),
     "InvalidParameterValue", "Throughput (MiBps) to iops ratio of 0.250333 is too high"),
    ("IOPS above 500 a GiB", {}, root(VolumeSize=20, VolumeType="gp3", Iops=10001),
     "InvalidParameterValue", "Iops to volume size ratio of 500.05"),
    ("IOPS below gp3's", {}, root(VolumeSize=20, VolumeType="gp3", Iops=100),
     "InvalidParameterValue", "minimum is 3000"),
    ("throughput beyond gp3's", {}, root(VolumeSize=20, VolumeType="gp3", Iops=9000, Throughput=2001),
     "InvalidParameterValue", "maximum is 2000"),
    ("groups beside an interface", {}, {"SecurityGroupIds": ["sg-1"], "NetworkInterfaces": [{"DeviceIndex": 0}]},
     "InvalidParameterCombination", "Network interfaces and an instance-level security groups"),
    ("IOPS of gp2", {}, root(VolumeSize=20, VolumeType="gp2", Iops=3000), "InvalidParameterCombination", "iops"),
    ("a volume beyond its type", {}, root(VolumeSize=2000, VolumeType="standard"), "InvalidParameterValue", "1024"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "request_", "code", "words"), [row[1:] for row in LAUNCHES], ids=[row[0] for row in LAUNCHES]
)
def test_a_launch_that_cannot_be(rig: Any, facts: Any, request_: Any, code: str, words: str) -> None:
    """The launch uses a launch template, as Everspot does. EC2 does not check a template before a launch."""
    data = {"ImageId": image(rig, **facts), "InstanceType": "m6i.large", **request_}
    template = rig.template(**data)
    specification = {"LaunchTemplateId": template, "Version": "$Latest"}
    before = len(rig.cloud.machines.all)
    with refused(code, words):
        rig.ec2.run_instances(LaunchTemplate=specification, MinCount=1, MaxCount=1)
    if data["InstanceType"] != "m6i.enormous":  # a fleet of a type that does not exist is not made at all
        override = {"InstanceType": data["InstanceType"], "AvailabilityZone": "us-east-1a"}
        errors = rig.fleet(1, override, template=template, Type="instant")["Errors"]
        assert {e["ErrorCode"] for e in errors} == {code}
        assert words in errors[0]["ErrorMessage"]
    assert len(rig.cloud.machines.all) == before


def test_what_fits_is_launched_and_has_what_was_asked_for(rig: Any) -> None:
    own = rig.ec2.describe_images(ImageIds=[BAKED_IMAGE], Owners=["self"])["Images"][0]
    (device,) = own["BlockDeviceMappings"]
    assert (own["RootDeviceName"], own["Architecture"], own["EnaSupport"], own["BootMode"]) == (
        "/dev/sda1", "x86_64", True, "uefi-preferred",
    )  # fmt: skip
    assert (device["DeviceName"], device["Ebs"]["VolumeSize"]) == ("/dev/sda1", 75)
    root_options = root(VolumeType="gp3", Iops=4000, Throughput=1000, Encrypted=True)
    template = rig.template(ImageId=BAKED_IMAGE, **root_options)
    (instance_id,) = rig.spot(template=template)
    (volume,) = rig.ec2.describe_volumes(
        Filters=[{"Name": "attachment.instance-id", "Values": [instance_id]}]
    )["Volumes"]  # fmt: skip
    assert (volume["Size"], volume["Iops"], volume["Throughput"], volume["Encrypted"]) == (75, 4000, 1000, True)
    rig.ec2.terminate_instances(InstanceIds=[instance_id])


TEMPLATES: list[tuple[str, dict[str, Any], str, str]] = [
    ("shutdown behaviour", {"InstanceInitiatedShutdownBehavior": "explode"}, "InvalidParameterValue", "explode"),
    ("volume type", root(VolumeSize=20, VolumeType="gp9"), "InvalidParameterValue", "gp9"),
    ("metadata tokens", {"MetadataOptions": {"HttpTokens": "maybe"}}, "InvalidParameterValue", "HttpTokens"),
    ("no hop", {"MetadataOptions": {"HttpPutResponseHopLimit": 0}}, "InvalidParameterValue", "between 1 and 64"),
    ("65 hops", {"MetadataOptions": {"HttpPutResponseHopLimit": 65}}, "InvalidParameterValue", "between 1 and 64"),
    ("user data", {"UserData": base64.b64encode(b"x" * 16385).decode()}, "InvalidUserData.Malformed", "16384 bytes"),
    ("a reserved tag", {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "aws:x", "Value": ""}]}]},
     "InvalidParameterValue", "reserved"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code", "words"), [row[1:] for row in TEMPLATES], ids=[row[0] for row in TEMPLATES])
def test_a_template_that_cannot_be(rig: Any, data: dict[str, Any], code: str, words: str) -> None:
    good = rig.template(UserData=base64.b64encode(b"x" * 16384).decode())
    with refused(code, words):
        rig.template(**data)
    with refused(code, words):
        rig.ec2.create_launch_template_version(LaunchTemplateId=good, LaunchTemplateData=data)
    assert len(rig.ec2.describe_launch_template_versions(LaunchTemplateId=good)["LaunchTemplateVersions"]) == 1


@pytest.mark.parametrize(
    "market_options",
    [
        {"MarketType": "capacity-block"},
        {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.01"}},
        {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}},
        {"MarketType": "spot", "SpotOptions": {"InstanceInterruptionBehavior": "stop"}},
    ],
)
def test_what_is_not_played_of_market_options_is_refused_by_name(rig: Any, market_options: dict[str, Any]) -> None:
    with refused("UnsupportedOperation", "InstanceMarketOptions of RunInstances"):
        rig.run(InstanceMarketOptions=market_options)
    template = rig.template(InstanceMarketOptions=market_options)
    errors = rig.fleet(1, template=template, Type="instant")["Errors"]
    assert {e["ErrorCode"] for e in errors} == {"UnsupportedOperation"}


def test_user_data_of_a_launch_is_limited_too(rig: Any) -> None:
    with refused("InvalidParameterValue", "User data is limited to 16384 bytes"):
        rig.run(UserData="x" * 16385)
