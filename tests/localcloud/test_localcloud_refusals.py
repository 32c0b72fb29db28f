"""What EC2 refuses, the local cloud refuses, by EC2's own codes: the table of docs/local-cloud.md, rule by rule."""

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.ec2.images import BAKED_IMAGE
from everspot_local.cloud import LocalCloud
from everspot_local.options import Options
from moto.ec2.models import ec2_backends

OLD_IMAGE = "ami-12c6146b"  # x86_64, on /dev/sda1, 15 GiB, boots either way


@contextmanager
def refused(code: str, words: str = "") -> Iterator[None]:
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.response["Error"]["Code"] == code
    assert words in caught.value.response["Error"]["Message"]


@pytest.fixture(scope="module")
def rig(module_cloud: LocalCloud, kit_class: Any) -> Iterator[Any]:
    """One kit for every rule that leaves nothing behind."""
    with pytest.MonkeyPatch.context() as patch:
        made = kit_class(module_cloud, patch)
        made.roles()
        yield made


def image(rig: Any, **facts: Any) -> str:
    request = {
        "Name": "test", "Architecture": "x86_64", "VirtualizationType": "hvm", "EnaSupport": True,
        "RootDeviceName": "/dev/sda1", **facts,
    }  # fmt: skip
    return str(rig.ec2.register_image(**request)["ImageId"])


def root(**ebs: Any) -> dict[str, Any]:
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": ebs}]}


LAUNCHES: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("no image", {}, {"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound", "ami-0123456789abcdef0"),
    ("no type", {}, {"InstanceType": "m6i.enormous"}, "InvalidParameterValue", "Invalid value 'm6i.enormous'"),
    ("arm64 on x86_64", {"Architecture": "arm64"}, {}, "InvalidParameterValue", "not match the architecture 'arm64'"),
    ("x86_64 on arm64", {}, {"InstanceType": "t4g.small"}, "InvalidParameterValue", "architecture 'arm64' of the"),
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
    ("IOPS of gp2", {}, root(VolumeSize=20, VolumeType="gp2", Iops=3000), "InvalidParameterCombination", "iops"),
    ("a volume beyond its type", {}, root(VolumeSize=2000, VolumeType="standard"), "InvalidParameterValue", "1024"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "request_", "code", "words"), [row[1:] for row in LAUNCHES], ids=[row[0] for row in LAUNCHES]
)
def test_a_launch_that_cannot_be(rig: Any, facts: Any, request_: Any, code: str, words: str) -> None:
    """By a launch template, as Everspot launches: EC2 looks at none of it before."""
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
    asked = root(VolumeType="gp3", Iops=4000, Throughput=1000, Encrypted=True)
    template = rig.template(ImageId=BAKED_IMAGE, **asked)
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


def test_user_data_of_a_launch_is_limited_too(rig: Any) -> None:
    with refused("InvalidParameterValue", "User data is limited to 16384 bytes"):
        rig.run(UserData="x" * 16385)


def subnets(rig: Any, zones: str, vpc: str | None = None) -> list[str]:
    vpc = vpc or rig.ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    return [
        rig.ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.8.{i}.0/24", AvailabilityZone=f"us-east-1{zone}")["Subnet"][
            "SubnetId"
        ]
        for i, zone in enumerate(zones)
    ]


def test_a_fleet_names_a_pool_once(rig: Any) -> None:
    first, second, other = subnets(rig, "aab")
    ways = [{"InstanceType": "m6i.large", "SubnetId": s} for s in (first, second)]
    with refused("InvalidFleetConfig", "duplicate instance pools"):
        rig.fleet(1, *ways, Type="instant")
    with refused("InvalidFleetConfig", "duplicate instance pools"):
        rig.fleet(1, *[{"InstanceType": "m6i.large", "AvailabilityZone": "us-east-1a"}] * 2)
    ways[1] = {"InstanceType": "m6i.large", "SubnetId": other}
    assert rig.fleet(1, *ways, Type="instant")["Errors"] == []


def test_a_group_of_another_vpc(rig: Any) -> None:
    """A fleet over two VPCs: what its groups do not belong to gives nothing."""
    (subnet,) = subnets(rig, "a")
    vpc = rig.ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]["VpcId"]
    group = rig.ec2.create_security_group(GroupName="other", Description="another VPC", VpcId=vpc)["GroupId"]
    template = rig.template(NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [group]}])
    answer = rig.fleet(1, {"InstanceType": "m6i.large", "SubnetId": subnet}, template=template, Type="instant")
    assert [e["ErrorCode"] for e in answer["Errors"]] == ["InvalidParameter"]
    assert "belong to different networks" in answer["Errors"][0]["ErrorMessage"]
    rig.ec2.delete_security_group(GroupId=group)


@pytest.mark.parametrize(
    ("kind", "market", "quota", "code"),
    [
        ("m6i.large", "spot", "L-34B43A08", "MaxSpotInstanceCountExceeded"),
        ("m6i.large", "on-demand", "L-1216C47A", "VcpuLimitExceeded"),
        ("g5.xlarge", "spot", "L-3819A6DF", "MaxSpotInstanceCountExceeded"),
        ("g5.xlarge", "on-demand", "L-DB2E81BA", "VcpuLimitExceeded"),
        ("p4d.24xlarge", "on-demand", "L-417A185B", "VcpuLimitExceeded"),
    ],
)
def test_vcpu_quotas_are_per_family_and_market(kit: Any, kind: str, market: str, quota: str, code: str) -> None:
    pools = kit.cloud.market.pools
    zone = next(z for z in pools.zones if pools.get(kind, z) is not None)
    kit.do("depth", pool=f"{kind}/{zone}", instances=9)
    vcpus = pools.catalogue.types[kind].vcpus
    kit.do("quota", code=quota, value=2 * vcpus)
    on_demand = 3 if market == "on-demand" else 0
    way = {"InstanceType": kind, "AvailabilityZone": zone}
    answer = kit.fleet(3, way, Type="instant", on_demand=on_demand)
    assert sum(len(group["InstanceIds"]) for group in answer["Instances"]) == 2
    assert [e["ErrorCode"] for e in answer["Errors"]] == [code]
    more = {"InstanceMarketOptions": {"MarketType": "spot"}} if market == "spot" else {}
    with refused(code):
        kit.run(InstanceType=kind, Placement={"AvailabilityZone": zone}, **more)
    kit.do("quota", code=quota, value=3 * vcpus)
    assert kit.run(InstanceType=kind, Placement={"AvailabilityZone": zone}, **more)


def test_a_fleet_beyond_its_quota_says_so_in_its_history_and_asks_again(kit: Any, helpers: Any) -> None:
    kit.roles()
    kit.do("quota", code="L-34B43A08", value=0)
    fleet_id = kit.fleet(1)["FleetId"]

    def told() -> list[str]:
        records = kit.ec2.describe_fleet_history(FleetId=fleet_id, StartTime=0)["HistoryRecords"]
        return [r["EventInformation"]["EventSubType"] for r in records if r["EventType"] == "service-error"]

    helpers.until(told)
    assert set(told()) == {"spotInstanceCountLimitExceeded"}
    kit.do("quota", code="L-34B43A08", value=2)
    kit.living(1)


def test_service_quotas_tell_the_values_that_hold(kit: Any) -> None:
    api = kit.client("service-quotas")
    kit.do("quota", code="L-C4BD4855", value=192)
    listed = api.get_paginator("list_service_quotas").paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 5})
    found = {quota["QuotaCode"]: quota for page in listed for quota in page["Quotas"]}
    assert found["L-34B43A08"]["QuotaName"] == "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"
    assert found["L-C4BD4855"]["Value"] == 192
    assert len(found) == 17
    told = api.get_service_quota(ServiceCode="ec2", QuotaCode="L-C4BD4855")["Quota"]
    assert told == found["L-C4BD4855"]
    with refused("NoSuchResourceException"):
        api.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")
    with pytest.raises(ValueError, match="unknown quota"):
        kit.do("quota", code="L-1", value=3)


def test_vpcs_are_limited(kit: Any) -> None:
    for _ in range(4):  # the default one counts
        kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")
    with refused("VpcLimitExceeded"):
        kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")


def test_a_max_price_is_per_unit_and_has_a_least(kit: Any, helpers: Any) -> None:
    kit.do("price", pool="m6i.xlarge/us-east-1a", usd=0.08)
    for price in ("0.001", "0"):
        with refused("InvalidParameterValue", "MaxPrice"):
            kit.fleet(1, helpers.override("m6i.xlarge", "a", MaxPrice=price), Type="instant")
    low, enough = (helpers.override("m6i.xlarge", "a", MaxPrice=p, WeightedCapacity=2) for p in ("0.039", "0.041"))
    answer = kit.fleet(2, low, Type="instant")
    assert (answer["Instances"], [e["ErrorCode"] for e in answer["Errors"]]) == ([], ["SpotMaxPriceTooLow"])
    assert len(kit.fleet(2, enough, Type="instant")["Instances"]) == 1


def test_only_a_maintain_fleet_may_begin_empty(kit: Any) -> None:
    kit.roles()
    assert kit.fleet(0)["FleetId"]
    for kind in ("instant", "request"):
        with refused("InvalidTargetCapacitySpecification"):
            kit.fleet(0, Type=kind)


LONG = "k" * 129
TAGS: list[tuple[str, list[dict[str, str]], str]] = [
    ("a long key", [{"Key": LONG, "Value": ""}], "InvalidParameterValue"),
    ("a long value", [{"Key": "k", "Value": "v" * 257}], "InvalidParameterValue"),
    ("a reserved key", [{"Key": "aws:mine", "Value": ""}], "InvalidParameterValue"),
    ("an empty key", [{"Key": "", "Value": ""}], "InvalidParameterValue"),
    ("51 tags", [{"Key": f"k{i}", "Value": ""} for i in range(51)], "TagLimitExceeded"),
]


@pytest.mark.parametrize(("tags", "code"), [row[1:] for row in TAGS], ids=[row[0] for row in TAGS])
def test_tags_that_cannot_be(rig: Any, tags: list[dict[str, str]], code: str) -> None:
    vpc = rig.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    calls: list[Callable[[], Any]] = [
        lambda: rig.ec2.create_tags(Resources=[vpc], Tags=tags),
        lambda: rig.ec2.create_security_group(
            GroupName="tagged", Description="d", TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}]
        ),
        lambda: rig.fleet(0, TagSpecifications=[{"ResourceType": "fleet", "Tags": tags}]),
        lambda: rig.template(TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]),
    ]
    for call in calls:
        with refused(code):
            call()
    rig.ec2.create_tags(Resources=[vpc], Tags=[{"Key": LONG[:128], "Value": "v" * 256}])


def test_descriptions_of_groups_and_rules(rig: Any) -> None:
    create = rig.ec2.create_security_group
    for text in ("it's mine", "a > b", "d" * 256):
        with refused("InvalidParameterValue", "Invalid security group description"):
            create(GroupName="described", Description=text)
    with refused("InvalidParameterValue", "Character sets beyond ASCII"):
        create(GroupName="described", Description="für alle")
    with refused("InvalidParameterValue", "sg-"):
        create(GroupName="sg-mine", Description="d")
    group = create(GroupName="described", Description="a-z. _-:/()#,@[]+=&;{}!$*")["GroupId"]
    rule = {
        "IpProtocol": "tcp",
        "FromPort": 1,
        "ToPort": 1,
        "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "a->b"}],
    }
    for call in (rig.ec2.authorize_security_group_ingress, rig.ec2.authorize_security_group_egress):
        with refused("InvalidParameterValue", "Invalid rule description"):
            call(GroupId=group, IpPermissions=[rule])
    rig.ec2.delete_security_group(GroupId=group)


def test_a_group_that_is_named_elsewhere_stays(rig: Any) -> None:
    ec2 = rig.ec2
    group, other = (ec2.create_security_group(GroupName=f"g{i}", Description="d")["GroupId"] for i in range(2))
    rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[rule])
    with refused("DependencyViolation", group):
        ec2.delete_security_group(GroupId=group)
    ec2.revoke_security_group_ingress(GroupId=other, IpPermissions=[rule])
    instance_id = rig.run(SecurityGroupIds=[group])
    with refused("DependencyViolation", group):
        ec2.delete_security_group(GroupId=group)
    ec2.terminate_instances(InstanceIds=[instance_id])
    rig.reaches(instance_id, "terminated")
    vpc = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["VpcId"]
    request = {"VpcId": vpc, "ServiceName": "com.amazonaws.us-east-1.sqs", "VpcEndpointType": "Interface"}
    made = ec2.create_vpc_endpoint(**request, SecurityGroupIds=[group])["VpcEndpoint"]["VpcEndpointId"]
    with refused("DependencyViolation", group):
        ec2.delete_security_group(GroupId=group)
    with refused("InvalidParameter", "conflicting DNS domain for sqs.us-east-1.amazonaws.com"):
        ec2.create_vpc_endpoint(**request)
    ec2.delete_vpc_endpoints(VpcEndpointIds=[made])
    for each in (group, other):
        ec2.delete_security_group(GroupId=each)


def test_an_endpoint_of_a_service_that_does_not_exist(rig: Any) -> None:
    vpc = rig.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    with refused("InvalidServiceName", "com.amazonaws.us-east-1.sqsx"):
        rig.ec2.create_vpc_endpoint(
            VpcId=vpc, ServiceName="com.amazonaws.us-east-1.sqsx", VpcEndpointType="Interface"
        )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "most", "refill"),
    [
        (lambda ec2: ec2.delete_vpc_endpoints(VpcEndpointIds=["vpce-0"]), 4, 0.3),
        (lambda ec2: ec2.describe_instances(), 50, 10),
        (lambda ec2: ec2.describe_instances(MaxResults=5), 100, 20),
        (lambda ec2: ec2.delete_fleets(FleetIds=["fleet-0"], TerminateInstances=True), 50, 5),
    ],
    ids=["its own bucket", "unfiltered", "filtered", "mutating"],
)
def test_too_many_requests(kit: Any, call: Callable[[Any], Any], most: int, refill: float) -> None:
    with kit.still() as move:
        for _ in range(most):
            call(kit.ec2)
        with pytest.raises(ClientError) as caught:
            call(kit.ec2)
        answer = caught.value.response
        assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == ("RequestLimitExceeded", 503)
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


def test_a_young_instance_is_not_told_of(kit: Any) -> None:
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
    kit.roles()
    fleets = {kit.fleet(0)["FleetId"] for _ in range(3)}
    first = kit.ec2.describe_fleets(MaxResults=2)
    assert len(first["Fleets"]) == 2
    rest = kit.ec2.describe_fleets(MaxResults=2, NextToken=first["NextToken"])
    assert "NextToken" not in rest
    assert {f["FleetId"] for f in first["Fleets"] + rest["Fleets"]} == fleets
    assert len(kit.ec2.describe_instance_types()["InstanceTypes"]) == 100
    with refused("InvalidParameterCombination"):
        kit.ec2.describe_subnets(SubnetIds=["subnet-0"], MaxResults=5)
    with refused("InvalidNextToken"):
        kit.ec2.describe_fleets(NextToken="elsewhere")


def test_one_failure_in_the_markets_thread_does_not_empty_a_fleet_for_good(kit: Any, monkeypatch: Any) -> None:
    kit.roles()
    backend = ec2_backends[ACCOUNT]["us-east-1"]
    launch, failures = backend.run_instances, []

    def fail_twice(*args: Any, **more: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise RuntimeError("the market stumbles")
        return launch(*args, **more)

    monkeypatch.setattr(backend, "run_instances", fail_twice)
    kit.fleet(2)
    kit.living(2)
    assert len(failures) == 2


def test_a_listener_that_fails_keeps_no_instance_alive(kit: Any, monkeypatch: Any) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("nobody listens")

    monkeypatch.setattr(kit.cloud.machines, "listeners", [fail, *kit.cloud.machines.listeners])
    kit.roles()
    kit.fleet(1)
    first = kit.living(1)[0]["InstanceId"]
    kit.ec2.terminate_instances(InstanceIds=[first])
    kit.reaches(first, "terminated")
    assert kit.living(1)[0]["InstanceId"] != first


def test_a_lenient_cloud_takes_it_all(module_cloud: LocalCloud, kit_class: Any, tmp_path: Path) -> None:
    module_cloud.close()  # there is one local cloud in a process
    options = Options(state_dir=tmp_path, scale=120.0, boot_command=None, lenient=True)
    with LocalCloud(options) as cloud, pytest.MonkeyPatch.context() as patch:
        kit = kit_class(cloud, patch)
        kit.template(MetadataOptions={"HttpPutResponseHopLimit": 65})
        for _ in range(6):
            kit.ec2.delete_vpc_endpoints(VpcEndpointIds=["vpce-0"])
        (instance_id,) = kit.spot(template=kit.template(**root(VolumeSize=1)))
        assert kit.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]


def test_the_table_names_tests_that_exist() -> None:
    here = Path(__file__)
    text = (here.parents[2] / "docs" / "local-cloud.md").read_text(encoding="utf-8")
    table = text.partition("## What it refuses")[2].partition("EC2 looks at images")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    files = [here, here.with_name("test_localcloud_fleets.py")]
    tests = set(re.findall(r"^def test_(\w+)", "".join(f.read_text(encoding="utf-8") for f in files), re.MULTILINE))
    assert len(rows) > 30
    for row in rows:
        named = re.findall(r"`(\w+)(…?)`", row.split("|")[-2])
        assert named, row
        for name, cut in named:
            assert any(test.startswith(name) if cut else test == name for test in tests), row
