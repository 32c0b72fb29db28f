"""A cluster on AWS with two peers: one that is reached over the internet, and one in the same region."""

from typing import Any

from everspot_clouds.federation_names import visitor_name

PEERS = [
    {
        "name": "everspot-gcp-prod",
        "cloud": "gcp",
        "control": "gs://gcp-control",
        "data": "gs://gcp-data",
        "scheduler": "everspot-gcp-prod-scheduler@my-project.iam.gserviceaccount.com",
        "schedulerId": "104857600000000000001",
        "projectNumber": "200000000002",
    },
    {
        "name": "everspot-next-door",
        "cloud": "aws",
        "control": "s3://next-control?region=eu-west-1",
        "data": "s3://next-data?region=eu-west-1",
        "scheduler": "arn:aws:iam::210987654321:role/everspot-next-door-identity-scheduler-1",
    },
]


def ways_out(rig: Any) -> list[Any]:
    """Return the resources for egress from the cluster's network."""
    ec2, here = rig.client("ec2"), {"Name": "vpc-id", "Values": [rig.outputs["vpcId"]]}
    nats = ec2.describe_nat_gateways(Filters=[here, {"Name": "state", "Values": ["pending", "available"]}])
    attached = {"Name": "attachment.vpc-id", "Values": [rig.outputs["vpcId"]]}
    gateways = ec2.describe_internet_gateways(Filters=[attached])["InternetGateways"]
    return [*nats["NatGateways"], *gateways, *ec2.describe_addresses()["Addresses"]]


def peer_roles(rig: Any) -> set[str]:
    """The roles that schedulers of peers become."""
    return {r["RoleName"] for r in rig.client("iam").list_roles()["Roles"]} & {
        visitor_name("everspot-local", peer["name"]) for peer in PEERS
    }


def check_federation(rig: Any, peers: list[dict[str, Any]]) -> None:
    """The scheduler, and nobody else, has a way to the peer that is elsewhere; each peer has a role of its own."""
    ec2 = rig.client("ec2")
    nat, gateway, address = ways_out(rig)
    assert nat["State"] == "available" and nat["NatGatewayAddresses"][0]["AllocationId"] == address["AllocationId"]
    tables = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [rig.outputs["vpcId"]]}])["RouteTables"]
    ways = {
        association["SubnetId"]: route.get("NatGatewayId") or route.get("GatewayId")
        for table in tables
        for route in table["Routes"]
        if route.get("DestinationCidrBlock") == "0.0.0.0/0"
        for association in table["Associations"]
        if "SubnetId" in association
    }
    inside = dict.fromkeys(rig.outputs["subnetIds"], nat["NatGatewayId"])
    assert ways == {**inside, nat["SubnetId"]: gateway["InternetGatewayId"]}
    vpc_filter = [{"Name": "vpc-id", "Values": [rig.outputs["vpcId"]]}]
    out = {
        group["GroupId"]
        for group in ec2.describe_security_groups(Filters=vpc_filter)["SecurityGroups"]
        for rule in group["IpPermissionsEgress"]
        for block in rule["IpRanges"]
        if block["CidrIp"] == "0.0.0.0/0"
    }
    assert len(out) == 1 and out <= launched_with(rig, scheduler_template(rig))
    assert not out & launched_with(rig, rig.outputs["launchTemplateId"])
    assert peer_roles(rig) == {visitor_name("everspot-local", peer["name"]) for peer in PEERS}
    assert [peer["name"] for peer in peers] == [peer["name"] for peer in PEERS]
    assert peers[1]["identity"] == "arn:aws:iam::210987654321:role/" + visitor_name(
        "everspot-next-door", "everspot-local"
    )


def scheduler_template(rig: Any) -> str:
    """The id of the launch template of the scheduler's group."""
    groups = rig.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    (group,) = [g for g in groups if g["AutoScalingGroupName"] == rig.outputs["schedulerGroup"]]
    return str(group["LaunchTemplate"]["LaunchTemplateId"])


def launched_with(rig: Any, launch_template: str) -> set[str]:
    """The security groups of what a launch template launches."""
    query = {"LaunchTemplateId": launch_template, "Versions": ["$Latest"]}
    (version,) = rig.client("ec2").describe_launch_template_versions(**query)["LaunchTemplateVersions"]
    (nic,) = version["LaunchTemplateData"]["NetworkInterfaces"]
    return set(nic["Groups"])


def endpoints(rig: Any) -> set[str]:
    """The services that have an endpoint in the cluster's network."""
    here = [{"Name": "vpc-id", "Values": [rig.outputs["vpcId"]]}]
    return {
        endpoint["ServiceName"] for endpoint in rig.client("ec2").describe_vpc_endpoints(Filters=here)["VpcEndpoints"]
    }
