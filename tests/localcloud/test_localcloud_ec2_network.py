"""EC2's refusals of networks and tags: descriptions, groups in use, endpoints, and VPCs beyond the quota."""

from collections.abc import Callable
from typing import Any

import pytest
from localcloud_refusals import refused

LONG = "k" * 129
TAGS: list[tuple[str, list[dict[str, str]], str]] = [
    ("a long key", [{"Key": LONG, "Value": ""}], "InvalidParameterValue"),
    ("a long value", [{"Key": "k", "Value": "v" * 257}], "InvalidParameterValue"),
    ("a reserved key", [{"Key": "aws:mine", "Value": ""}], "InvalidParameterValue"),
    ("an empty key", [{"Key": "", "Value": ""}], "InvalidParameterValue"),
    ("a key twice", [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}], "InvalidParameterValue"),
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


def test_what_leads_out_of_a_network_stays_as_long_as_something_uses_it(rig: Any) -> None:
    ec2 = rig.ec2
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    with refused("Gateway.NotAttached"):
        ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    nat = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
    (nat_gateway,) = ec2.describe_nat_gateways(NatGatewayIds=[nat])["NatGateways"]
    assert nat_gateway["NatGatewayAddresses"][0]["AllocationId"] == address
    with refused("InvalidIPAddress.InUse"):
        ec2.release_address(AllocationId=address)
    with refused("DependencyViolation", "mapped public address"):
        ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    with refused("DependencyViolation"):
        ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_nat_gateway(NatGatewayId=nat)
    with refused("NatGatewayNotFound"):
        ec2.delete_nat_gateway(NatGatewayId="nat-0123456789abcdef0")
    ec2.release_address(AllocationId=address)
    ec2.delete_subnet(SubnetId=subnet)
    with refused("DependencyViolation"):
        ec2.delete_vpc(VpcId=vpc)
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.delete_vpc(VpcId=vpc)


def test_a_rule_keeps_its_description_whatever_it_names(rig: Any) -> None:
    ec2 = rig.ec2
    group = ec2.create_security_group(GroupName="keeps", Description="d")["GroupId"]
    lists = ec2.describe_managed_prefix_lists()["PrefixLists"]
    to = {
        "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "to a block"}],
        "UserIdGroupPairs": [{"GroupId": group, "Description": "to a group"}],
        "PrefixListIds": [{"PrefixListId": lists[0]["PrefixListId"], "Description": "to a list"}],
    }
    for kind, sources in to.items():
        rule: Any = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, kind: sources}
        ec2.authorize_security_group_egress(GroupId=group, IpPermissions=[rule])
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])["SecurityGroupRules"]
    assert {r["Description"] for r in rules if r.get("FromPort") == 443} == {"to a block", "to a group", "to a list"}
    ec2.delete_security_group(GroupId=group)


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
    endpoint = ec2.create_vpc_endpoint(**request, SecurityGroupIds=[group])["VpcEndpoint"]["VpcEndpointId"]
    with refused("DependencyViolation", group):
        ec2.delete_security_group(GroupId=group)
    with refused("InvalidParameter", "conflicting DNS domain for sqs.us-east-1.amazonaws.com"):
        ec2.create_vpc_endpoint(**request)
    ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint])
    for each in (group, other):
        ec2.delete_security_group(GroupId=each)


def test_an_endpoint_of_a_service_that_does_not_exist(rig: Any) -> None:
    vpc = rig.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
    with refused("InvalidServiceName", "com.amazonaws.us-east-1.sqsx"):
        rig.ec2.create_vpc_endpoint(
            VpcId=vpc, ServiceName="com.amazonaws.us-east-1.sqsx", VpcEndpointType="Interface"
        )  # fmt: skip


def test_vpcs_are_limited(kit: Any) -> None:
    for _ in range(4):  # the default one counts
        kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")
    with refused("VpcLimitExceeded"):
        kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")
