"""What a preview says before anything is made: of an existing network, a missing image, missing credentials."""

import dataclasses
from typing import Any

import pytest
import yaml
from pulumi import automation

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


def refusal(rig: Any, stack: str) -> str:
    with pytest.raises(automation.CommandError) as refused:
        rig.changes(stack)
    assert "Traceback" not in str(refused.value)
    return str(refused.value)


def written(rig: Any, stack: str, **changes: Any) -> None:
    """A stack file like the local environment's; None takes a setting out."""
    folder = rig.project / "stacks"
    content = yaml.safe_load((folder / "Pulumi.local.yaml").read_text())
    cluster = {**content["config"]["everspot:cluster"], **changes}
    content["config"]["everspot:cluster"] = {key: value for key, value in cluster.items() if value is not None}
    (folder / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(content))


def test_an_existing_network_is_looked_at_before_anything_is_made_in_it(rig: Any) -> None:
    ec2, region = rig.client("ec2"), rig.env["AWS_REGION"]
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    ec2.associate_vpc_cidr_block(VpcId=vpc, CidrBlock="100.64.0.0/16")
    blocks = [("10.9.0.0/24", "a"), ("100.64.0.0/24", "b")]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=region + zone)["Subnet"]["SubnetId"]
        for block, zone in blocks
    ]
    written(rig, "existing", zones=None, vpcId=vpc, subnetIds=subnets)
    told = refusal(rig, "existing")
    assert f"subnetIds[0]: {subnets[0]} cannot reach S3: the VPC has no gateway endpoint of S3" in told
    assert f"subnetIds[1]: {subnets[1]} cannot reach ec2, sqs" in told
    # The second subnet has no table of its own, so that the VPC's main one counts.
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnets[0])
    name = f"com.amazonaws.{region}"
    ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=f"{name}.s3", VpcEndpointType="Gateway", RouteTableIds=[table])
    for service in ("ec2", "sqs"):
        ec2.create_vpc_endpoint(
            VpcId=vpc,
            ServiceName=f"{name}.{service}",
            VpcEndpointType="Interface",
            SubnetIds=subnets,
            PrivateDnsEnabled=True,
        )
    told = refusal(rig, "existing")
    assert subnets[0] not in told
    assert f"{subnets[1]} cannot reach S3: its route table" in told
    written(rig, "existing", zones=None, vpcId=vpc, subnetIds=subnets[:1])
    made = rig.changes("existing")
    assert "everspot-existing-network-blocks" in made
    assert "everspot-existing-network-vpc" not in made


def test_a_missing_image_says_in_one_sentence_what_to_run(rig: Any) -> None:
    written(rig, "imageless", imageId=None, imageParameter="/everspot/image/none")
    told = refusal(rig, "imageless")
    assert "there is no image yet: the parameter /everspot/image/none cannot be read" in told
    assert "packer build -var region=REGION" in told


def test_missing_credentials_are_told_in_one_sentence(rig: Any) -> None:
    env = {**rig.env, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    told = refusal(dataclasses.replace(rig, env=env), "local")
    assert "AWS cannot be asked: credentials or the region are missing" in told


def test_a_customers_default_key_of_volumes_is_told_at_preview(rig: Any) -> None:
    ec2, kms = rig.client("ec2"), rig.client("kms")
    key = kms.create_key()["KeyMetadata"]["Arn"]
    ec2.modify_ebs_default_kms_key_id(KmsKeyId=key)
    try:
        told = rig.stack().preview(color="never").stdout
        assert f"The account's default key for EBS is the customer key {key}: " in told
        assert "need a grant on it, or no instance starts. The account stack makes it, with this key among" in told
    finally:
        ec2.modify_ebs_default_kms_key_id(KmsKeyId="alias/aws/ebs")
    # AWS answers its own key by ARN, once one had been chosen.
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"].startswith("arn:aws:kms:")
    assert "customer key" not in rig.stack().preview(color="never").stdout


def test_the_buckets_keep_no_versions_and_the_default_group_lets_nothing_through(rig: Any) -> None:
    bucket = rig.outputs["dataUrl"].removeprefix("s3://").partition("?")[0]
    assert rig.client("s3").get_bucket_versioning(Bucket=bucket)["Status"] == "Suspended"
    filters = [{"Name": "vpc-id", "Values": [rig.outputs["vpcId"]]}, {"Name": "group-name", "Values": ["default"]}]
    (group,) = rig.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]
    assert group["IpPermissions"] == group["IpPermissionsEgress"] == []


def test_a_preview_over_an_existing_network_asks_for_nothing_that_is_not_in_the_table(rig: Any) -> None:
    assert {"ec2:DescribeRouteTables", "ec2:DescribeVpcEndpoints", "ec2:DescribeSubnets"} <= rig.asked["preview"]
    assert rig.unlisted() == set()
