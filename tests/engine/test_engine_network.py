"""Errors and warnings of a preview: an existing network, a missing image, credentials."""

import dataclasses
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

SPOT_QUOTA = "L-34B43A08"  # standard instances, in vCPUs


def written(rig: Any, stack: str, **changes: Any) -> None:
    """A stack file like the local environment's; None takes a setting out."""
    folder = rig.project / "stacks"
    content = yaml.safe_load((folder / "Pulumi.local.yaml").read_text())
    cluster = {**content["config"]["everspot:cluster"], **changes}
    content["config"]["everspot:cluster"] = {key: value for key, value in cluster.items() if value is not None}
    (folder / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(content))


def test_a_new_cluster_whose_name_another_one_has_is_refused(rig: Any) -> None:
    ec2 = rig.client("ec2")
    written(rig, "twin")

    def group(*tags: tuple[str, str]) -> str:
        tagged = [{"ResourceType": "security-group", "Tags": [{"Key": key, "Value": value} for key, value in tags]}]
        name = f"of-{len(tags)}-tags-{tags[0][1]}"
        return str(ec2.create_security_group(GroupName=name, Description="a", TagSpecifications=tagged)["GroupId"])

    mark = ("everspot:store", "0123456789")
    group(("everspot:cluster", "everspot-other"), mark)
    group(("everspot:cluster", "everspot-twin"))  # of a part that is declared by itself
    assert "everspot-twin-store-control" in rig.preview("twin").changes
    other = group(("everspot:cluster", "everspot-twin"), mark)
    message = rig.refused("twin")
    assert f"Another cluster called everspot-twin is in this account and region (security groups {other})" in message
    ec2.delete_security_group(GroupId=other)


def test_an_existing_network_is_looked_at_before_anything_is_made_in_it(rig: Any) -> None:
    ec2, region = rig.client("ec2"), rig.env["AWS_REGION"]
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="100.64.0.0/16")
    blocks = [("10.9.0.0/24", "a"), ("100.64.0.0/24", "b")]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=region + zone)["Subnet"]["SubnetId"]
        for block, zone in blocks
    ]
    # The second subnet has no table of its own, so that the VPC's main one counts.
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnets[0])
    endpoint(rig, "s3", VpcId=vpc, VpcEndpointType="Gateway", RouteTableIds=[table])
    inside = {"VpcId": vpc, "VpcEndpointType": "Interface", "SubnetIds": subnets, "PrivateDnsEnabled": True}
    endpoint(rig, "ec2", **inside)
    written(rig, "existing", zones=None, vpcId=vpc, subnetIds=subnets)
    message = rig.refused("existing")
    missing = "cannot reach sqs, sts: the VPC has no interface endpoint with private DNS"
    assert f"subnetIds[0]: {subnets[0]} {missing}" in message
    assert f"{subnets[0]} cannot reach S3" not in message and "cannot reach ec2" not in message
    assert f"subnetIds[1]: {subnets[1]} cannot reach S3: its route table" in message
    for service in ("sqs", "sts", "monitoring"):
        endpoint(rig, service, **inside)
    key = rig.client("kms").create_key()["KeyMetadata"]["Arn"]
    ec2.modify_ebs_default_kms_key_id(KmsKeyId=key)
    rig.market("quota", code=SPOT_QUOTA, value=2)
    capacity = {**rig.declared()["capacity"], "elastic": {"maxInstances": 8, "maxUsdPerHour": 1}}
    topic = {"topicArn": rig.client("sns").create_topic(Name="alarms")["TopicArn"]}
    written(rig, "existing", zones=None, vpcId=vpc, subnetIds=subnets[:1], capacity=capacity, monitoring=topic)
    run = rig.preview("existing")
    assert "everspot-existing-network-blocks" in run.changes
    assert "everspot-existing-network-vpc" not in run.changes
    assert "nothing running: $0.041, $30.00 a month (scheduler t3.small $0.023, its disk $0.008, " in run.output
    assert "store requests $0.002, monitoring $0.009)" in run.output
    assert "standing: $" in run.output
    assert "elastic: up to $1.00 more (maxUsdPerHour; 8 instances of m6i.xlarge at" in run.output
    assert f"The account's quotas do not hold 4 units on spot: {SPOT_QUOTA} (All Standard (A, C, D, H" in run.output
    assert "has 2 vCPUs left for 1 of them. Ask for 8 vCPUs of" in run.output
    assert f"The account's default key for EBS is the customer key {key}: " in run.output
    assert "need a grant on it, or no instance starts. The account stack makes it, with this key among" in run.output


def endpoint(rig: Any, service: str, **how: Any) -> None:
    rig.client("ec2").create_vpc_endpoint(ServiceName=f"com.amazonaws.{rig.env['AWS_REGION']}.{service}", **how)


def test_a_missing_image_says_in_one_sentence_what_to_run(rig: Any) -> None:
    written(rig, "imageless", imageId=None, imageParameter="/everspot/image/none")
    message = rig.refused("imageless")
    assert "there is no image yet: the parameter /everspot/image/none cannot be read" in message
    assert "packer build -var region=REGION" in message


def test_missing_credentials_are_told_in_one_sentence(rig: Any) -> None:
    env = {**rig.env, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    message = dataclasses.replace(rig, env=env).refused()
    assert "AWS cannot be asked: credentials or the region are missing" in message


def test_a_preview_over_an_existing_network_asks_for_nothing_that_is_not_in_the_table(rig: Any) -> None:
    assert {"ec2:DescribeRouteTables", "ec2:DescribeVpcEndpoints", "ec2:DescribeSubnets"} <= rig.requested_actions[
        "preview"
    ]
    assert {"ec2:GetEbsDefaultKmsKeyId", "ec2:DescribeInstanceTypeOfferings"} <= rig.requested_actions["preview"]
    assert rig.unlisted() == set()
