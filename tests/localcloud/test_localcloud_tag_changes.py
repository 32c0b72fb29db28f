"""Tags change after creation: what a service describes of each kind of resource that the product tags has the new ones.

Sources: the calls by which the upstream provider changes and reads tags (terraform-provider-aws, `tags_gen.go` and the
`Read` of each resource).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

Tags = dict[str, str]
FIRST = {"Project": "everspot", "Team": "vision", "Note": "goes"}
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)

POLICY = TRUST.replace('"Principal": {"Service": "ec2.amazonaws.com"}', '"Resource": "*"')


def listed(tags: Tags, key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
    return [{key: k, value: v} for k, v in tags.items()]


def read(tags: Any, key: str = "Key", value: str = "Value") -> Tags:
    return {t[key]: t[value] for t in tags or []}


@dataclass(frozen=True)
class Tagged:
    """How a kind of resource is tagged.

    Attributes:
        make: Creates one with FIRST and returns its name.
        put: Sets some tags.
        drop: Removes some keys.
        show: Reads all tags, as the provider does.
    """

    make: Callable[[Any], str]
    put: Callable[[Any, str, Tags], Any]
    drop: Callable[[Any, str, list[str]], Any]
    show: Callable[[Any, str], Tags]


def ec2(kind: str, make: Callable[[Any, Any], str], describe: str, ids: str, answer: str) -> Tagged:
    def created(kit: Any) -> str:
        return make(kit, [{"ResourceType": kind, "Tags": listed(FIRST)}])

    return Tagged(
        created,
        lambda kit, name, tags: kit.ec2.create_tags(Resources=[name], Tags=listed(tags)),
        lambda kit, name, keys: kit.ec2.delete_tags(Resources=[name], Tags=[{"Key": key} for key in keys]),
        lambda kit, name: read(getattr(kit.ec2, describe)(**{ids: [name]})[answer][0].get("Tags")),
    )


def vpc(kit: Any) -> str:
    return str(kit.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"])


def subnet(kit: Any) -> str:
    return str(kit.ec2.create_subnet(VpcId=vpc(kit), CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"])


def outside(kit: Any) -> str:
    """A subnet of a network with a way out, as a NAT gateway needs."""
    inner = subnet(kit)
    network = kit.ec2.describe_subnets(SubnetIds=[inner])["Subnets"][0]["VpcId"]
    gateway = kit.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    kit.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network)
    return inner


def template(kit: Any, specs: Any) -> str:
    data = {"ImageId": "ami-12c6146b", "InstanceType": "m6i.large"}
    answer = kit.ec2.create_launch_template(
        LaunchTemplateName="tagged", LaunchTemplateData=data, TagSpecifications=specs
    )
    return str(answer["LaunchTemplate"]["LaunchTemplateId"])


def queue(kit: Any) -> str:
    return str(kit.client("sqs").create_queue(QueueName="tagged", tags=FIRST)["QueueUrl"])


def rule(kit: Any) -> str:
    pattern = json.dumps({"source": ["aws.ec2"]})
    events = kit.client("events")
    return str(events.put_rule(Name="tagged", EventPattern=pattern, Tags=listed(FIRST))["RuleArn"])


def bucket(kit: Any) -> str:
    s3 = kit.client("s3")
    s3.create_bucket(Bucket="tagged-bucket")
    s3.put_bucket_tagging(Bucket="tagged-bucket", Tagging={"TagSet": listed(FIRST)})
    return "tagged-bucket"


def bucket_tags(kit: Any, name: str) -> Tags:
    return read(kit.client("s3").get_bucket_tagging(Bucket=name)["TagSet"])


def set_bucket_tags(kit: Any, name: str, tags: Tags) -> None:
    kit.client("s3").put_bucket_tagging(Bucket=name, Tagging={"TagSet": listed(tags)})


def alarm(kit: Any) -> str:
    watch = kit.client("cloudwatch")
    watch.put_metric_alarm(
        AlarmName="tagged", MetricName="Jobs", Namespace="Everspot", Statistic="Maximum", Period=60,
        EvaluationPeriods=1, Threshold=1, ComparisonOperator="GreaterThanThreshold", Tags=listed(FIRST),
    )  # fmt: skip
    return str(watch.describe_alarms(AlarmNames=["tagged"])["MetricAlarms"][0]["AlarmArn"])


def group(kit: Any) -> str:
    kit.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="tagged", MinSize=0, MaxSize=0, VPCZoneIdentifier=subnet(kit),
        LaunchTemplate={"LaunchTemplateId": template(kit, []), "Version": "1"}, Tags=of_group("tagged", FIRST),
    )  # fmt: skip
    return "tagged"


def of_group(name: str, tags: Tags) -> list[dict[str, Any]]:
    more = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    return [{**tag, **more} for tag in listed(tags)]


def shown_group(kit: Any, name: str) -> Tags:
    groups = kit.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    return read(groups["AutoScalingGroups"][0].get("Tags"))


def iam(
    noun: str, name: str, make: Callable[[Any], Any], show: Callable[[Any, str], Any], tagged_parameter: str = ""
) -> Tagged:
    parameter = tagged_parameter or f"{noun.title().replace('_', '')}Name"

    def created(kit: Any) -> str:
        return str(make(kit.client("iam")) or name)

    return Tagged(
        created,
        lambda kit, resource, tags: getattr(kit.client("iam"), f"tag_{noun}")(
            **{parameter: resource, "Tags": listed(tags)}
        ),
        lambda kit, resource, keys: getattr(kit.client("iam"), f"untag_{noun}")(
            **{parameter: resource, "TagKeys": keys}
        ),
        lambda kit, resource: read(show(kit.client("iam"), resource)),
    )


KINDS = {
    "vpc": ec2("vpc", lambda kit, specs: kit.ec2.create_vpc(
        CidrBlock="10.9.0.0/16", TagSpecifications=specs)["Vpc"]["VpcId"], "describe_vpcs", "VpcIds", "Vpcs"),
    "subnet": ec2("subnet", lambda kit, specs: kit.ec2.create_subnet(
        VpcId=vpc(kit), CidrBlock="10.9.1.0/24", TagSpecifications=specs)["Subnet"]["SubnetId"],
        "describe_subnets", "SubnetIds", "Subnets"),
    "security group": ec2("security-group", lambda kit, specs: kit.ec2.create_security_group(
        GroupName="tagged", Description="d", VpcId=vpc(kit), TagSpecifications=specs)["GroupId"],
        "describe_security_groups", "GroupIds", "SecurityGroups"),
    "route table": ec2("route-table", lambda kit, specs: kit.ec2.create_route_table(
        VpcId=vpc(kit), TagSpecifications=specs)["RouteTable"]["RouteTableId"],
        "describe_route_tables", "RouteTableIds", "RouteTables"),
    "internet gateway": ec2("internet-gateway", lambda kit, specs: kit.ec2.create_internet_gateway(
        TagSpecifications=specs)["InternetGateway"]["InternetGatewayId"],
        "describe_internet_gateways", "InternetGatewayIds", "InternetGateways"),
    "address": ec2("elastic-ip", lambda kit, specs: kit.ec2.allocate_address(
        Domain="vpc", TagSpecifications=specs)["AllocationId"], "describe_addresses", "AllocationIds", "Addresses"),
    "NAT gateway": ec2("natgateway", lambda kit, specs: kit.ec2.create_nat_gateway(
        SubnetId=outside(kit), AllocationId=kit.ec2.allocate_address(Domain="vpc")["AllocationId"],
        TagSpecifications=specs)["NatGateway"]["NatGatewayId"],
        "describe_nat_gateways", "NatGatewayIds", "NatGateways"),
    "endpoint": ec2("vpc-endpoint", lambda kit, specs: kit.ec2.create_vpc_endpoint(
        VpcId=vpc(kit), ServiceName="com.amazonaws.us-east-1.s3",
        TagSpecifications=specs)["VpcEndpoint"]["VpcEndpointId"],
        "describe_vpc_endpoints", "VpcEndpointIds", "VpcEndpoints"),
    "prefix list": ec2("prefix-list", lambda kit, specs: kit.ec2.create_managed_prefix_list(
        PrefixListName="tagged", MaxEntries=1, AddressFamily="IPv4",
        TagSpecifications=specs)["PrefixList"]["PrefixListId"],
        "describe_managed_prefix_lists", "PrefixListIds", "PrefixLists"),
    "launch template": ec2(
        "launch-template", template, "describe_launch_templates", "LaunchTemplateIds", "LaunchTemplates"),
    "fleet": ec2("fleet", lambda kit, specs: kit.fleet(0, TagSpecifications=specs)["FleetId"],
                 "describe_fleets", "FleetIds", "Fleets"),
    "volume": ec2("volume", lambda kit, specs: kit.ec2.create_volume(
        AvailabilityZone="us-east-1a", Size=8, TagSpecifications=specs)["VolumeId"],
        "describe_volumes", "VolumeIds", "Volumes"),
    "queue": Tagged(
        queue,
        lambda kit, url, tags: kit.client("sqs").tag_queue(QueueUrl=url, Tags=tags),
        lambda kit, url, keys: kit.client("sqs").untag_queue(QueueUrl=url, TagKeys=keys),
        lambda kit, url: dict(kit.client("sqs").list_queue_tags(QueueUrl=url).get("Tags", {})),
    ),
    "rule": Tagged(
        rule,
        lambda kit, name, tags: kit.client("events").tag_resource(ResourceARN=name, Tags=listed(tags)),
        lambda kit, name, keys: kit.client("events").untag_resource(ResourceARN=name, TagKeys=keys),
        lambda kit, name: read(kit.client("events").list_tags_for_resource(ResourceARN=name)["Tags"]),
    ),
    "bucket": Tagged(
        bucket,
        lambda kit, name, tags: set_bucket_tags(kit, name, {**bucket_tags(kit, name), **tags}),
        lambda kit, name, keys: set_bucket_tags(
            kit, name, {key: value for key, value in bucket_tags(kit, name).items() if key not in keys}
        ),
        bucket_tags,
    ),
    "alarm": Tagged(
        alarm,
        lambda kit, name, tags: kit.client("cloudwatch").tag_resource(ResourceARN=name, Tags=listed(tags)),
        lambda kit, name, keys: kit.client("cloudwatch").untag_resource(ResourceARN=name, TagKeys=keys),
        lambda kit, name: read(kit.client("cloudwatch").list_tags_for_resource(ResourceARN=name)["Tags"]),
    ),
    "Auto Scaling group": Tagged(
        group,
        lambda kit, name, tags: kit.client("autoscaling").create_or_update_tags(Tags=of_group(name, tags)),
        lambda kit, name, keys: kit.client("autoscaling").delete_tags(
            Tags=[{"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": key} for key in keys]
        ),
        shown_group,
    ),
    "key": Tagged(
        lambda kit: kit.client("kms").create_key(Tags=listed(FIRST, "TagKey", "TagValue"))["KeyMetadata"]["KeyId"],
        lambda kit, name, tags: kit.client("kms").tag_resource(KeyId=name, Tags=listed(tags, "TagKey", "TagValue")),
        lambda kit, name, keys: kit.client("kms").untag_resource(KeyId=name, TagKeys=keys),
        lambda kit, name: read(kit.client("kms").list_resource_tags(KeyId=name)["Tags"], "TagKey", "TagValue"),
    ),
    "role": iam("role", "tagged", lambda c: c.create_role(
        RoleName="tagged", AssumeRolePolicyDocument=TRUST, Tags=listed(FIRST)) and "",
        lambda c, resource: c.get_role(RoleName=resource)["Role"].get("Tags")),
    "policy": iam("policy", "", lambda c: c.create_policy(
        PolicyName="tagged", PolicyDocument=POLICY,
        Tags=listed(FIRST))["Policy"]["Arn"],
        lambda c, resource: c.get_policy(PolicyArn=resource)["Policy"].get("Tags"), "PolicyArn"),
    "instance profile": iam("instance_profile", "tagged", lambda c: c.create_instance_profile(
        InstanceProfileName="tagged", Tags=listed(FIRST)) and "",
        lambda c, resource: c.get_instance_profile(InstanceProfileName=resource)["InstanceProfile"].get("Tags")),
    "sign-in": iam("open_id_connect_provider", "", lambda c: c.create_open_id_connect_provider(
        Url="https://forge.test", ClientIDList=["sts.amazonaws.com"], ThumbprintList=["a" * 40],
        Tags=listed(FIRST))["OpenIDConnectProviderArn"],
        lambda c, resource: c.get_open_id_connect_provider(OpenIDConnectProviderArn=resource).get("Tags"),
        "OpenIDConnectProviderArn"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_tags_that_are_changed_added_and_removed_are_described_so(kit: Any, kind: str) -> None:
    resource = KINDS[kind]
    name = resource.make(kit)
    assert resource.show(kit, name) == FIRST
    resource.put(kit, name, {"Team": "speech", "Owner": "me"})
    assert resource.show(kit, name) == {**FIRST, "Team": "speech", "Owner": "me"}
    resource.drop(kit, name, ["Note", "Owner"])
    assert resource.show(kit, name) == {"Project": "everspot", "Team": "speech"}
    resource.drop(kit, name, ["Note"])  # a missing resource is no failure
    assert resource.show(kit, name) == {"Project": "everspot", "Team": "speech"}


def test_what_is_not_there_cannot_be_tagged(kit: Any) -> None:
    with pytest.raises(ClientError) as refused:
        kit.ec2.create_tags(Resources=["lt-0123456789abcdef0"], Tags=[{"Key": "Team", "Value": "x"}])
    assert refused.value.response["Error"]["Code"] == "InvalidLaunchTemplateId.NotFound"


def test_a_filter_by_tag_finds_a_launch_template_by_its_tags_of_now(kit: Any) -> None:
    name = template(kit, [{"ResourceType": "launch-template", "Tags": listed(FIRST)}])
    kit.ec2.create_tags(Resources=[name], Tags=listed({"Team": "speech"}))
    for team, matches in (("vision", 0), ("speech", 1)):
        filters = [{"Name": "tag:Team", "Values": [team]}]
        assert len(kit.ec2.describe_launch_templates(Filters=filters)["LaunchTemplates"]) == matches
