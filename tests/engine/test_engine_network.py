"""What a preview says before anything is made: of bad settings, an existing network, a missing image, credentials."""

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
    told = rig.refused("existing")
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
    told = rig.refused("existing")
    assert subnets[0] not in told
    assert f"{subnets[1]} cannot reach S3: its route table" in told
    written(rig, "existing", zones=None, vpcId=vpc, subnetIds=subnets[:1])
    seen = rig.preview("existing")
    assert "everspot-existing-network-blocks" in seen.changes
    assert "everspot-existing-network-vpc" not in seen.changes


def test_a_missing_image_says_in_one_sentence_what_to_run(rig: Any) -> None:
    written(rig, "imageless", imageId=None, imageParameter="/everspot/image/none")
    told = rig.refused("imageless")
    assert "there is no image yet: the parameter /everspot/image/none cannot be read" in told
    assert "packer build -var region=REGION" in told


def test_missing_credentials_are_told_in_one_sentence(rig: Any) -> None:
    env = {**rig.env, "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    told = dataclasses.replace(rig, env=env).refused()
    assert "AWS cannot be asked: credentials or the region are missing" in told


def test_a_customers_default_key_of_volumes_and_a_quota_that_does_not_reach_are_told_at_preview(rig: Any) -> None:
    ec2, kms = rig.client("ec2"), rig.client("kms")
    key = kms.create_key()["KeyMetadata"]["Arn"]
    ec2.modify_ebs_default_kms_key_id(KmsKeyId=key)
    rig.market("quota", code=SPOT_QUOTA, value=2)
    try:
        told = rig.preview().told
        assert f"The account's quotas do not hold 4 units on spot: {SPOT_QUOTA} (All Standard (A, C, D, H" in told
        assert "has 2 vCPUs left for 1 of them. Ask for 8 vCPUs of" in told
        assert f"The account's default key for EBS is the customer key {key}: " in told
        assert "need a grant on it, or no instance starts. The account stack makes it, with this key among" in told
    finally:
        ec2.modify_ebs_default_kms_key_id(KmsKeyId="alias/aws/ebs")
        rig.market("quota", code=SPOT_QUOTA, value=1000)
    # AWS answers its own key by ARN, once one had been chosen.
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"].startswith("arn:aws:kms:")
    told = rig.preview().told
    assert "customer key" not in told and "quotas do not hold" not in told


def test_a_zone_that_lacks_a_type_and_a_volume_too_small_are_refused_at_preview(rig: Any) -> None:
    written(rig, "small", volumeGib=8)
    assert "volumeGib: 8 GiB is less than the image's own root volume of" in rig.refused("small")
    capacity = rig.declared()["capacity"]
    types = [*capacity["instanceTypes"], {"type": "p4d.24xlarge"}]
    written(rig, "unsold", capacity={**capacity, "instanceTypes": types})
    told = rig.refused("unsold")
    assert "capacity.instanceTypes[5].zones: EC2 does not offer p4d.24xlarge in eu-west-1" in told


def test_bad_settings_are_told_all_at_once(rig: Any) -> None:
    standing = {"target": 5, "onDemandBase": 50}
    written(rig, "bad", vpcCidr="10.0.0.0/30", capacity={**rig.declared()["capacity"], "standing": standing})
    told = rig.refused("bad")
    assert "capacity.standing.onDemandBase: 50 is above the target" in told
    assert "vpcCidr: 10.0.0.0/30 has to lie" in told


def test_a_preview_over_an_existing_network_asks_for_nothing_that_is_not_in_the_table(rig: Any) -> None:
    assert {"ec2:DescribeRouteTables", "ec2:DescribeVpcEndpoints", "ec2:DescribeSubnets"} <= rig.asked["preview"]
    assert {"ec2:GetEbsDefaultKmsKeyId", "ec2:DescribeInstanceTypeOfferings"} <= rig.asked["preview"]
    assert rig.unlisted() == set()
