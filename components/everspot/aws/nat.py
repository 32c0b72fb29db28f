"""The way from a new network to the internet: a NAT gateway in a public subnet of its own.

It is declared only where jobs are to reach the internet (`nat`), or for a federation whose peers are outside of the
region, because it costs money by the hour. Nothing comes in by it. The route is the subnets'. A federation's is for the
scheduler alone: agents have no rule that lets them out (Amazon VPC User Guide, "NAT gateways").
"""

from ipaddress import IPv4Network

import pulumi
from everspot_clouds.aws.endpoints import JOBS_NAT_COST, NAT_COST
from everspot_clouds.aws.network import outside_block
from pulumi_aws import ec2

from everspot.aws.rules import allow_out

ANYWHERE = "0.0.0.0/0"


def add_nat(
    parent: pulumi.Resource,
    name: str,
    *,
    cidr: str,
    zone: str,
    routes: ec2.RouteTable,
    tags: dict[str, str],
    for_jobs: bool,
) -> pulumi.Output[str]:
    """Declare it; returns the id of the scheduler's security group.

    Args:
        zone: The zone of the gateway. Without that zone the internet is not reached, and all else goes on.
        routes: The routes of the private subnets.
        for_jobs: Whether jobs use it too, for what its cost is said to be.
    """
    if pulumi.runtime.is_dry_run():
        pulumi.log.info(JOBS_NAT_COST if for_jobs else NAT_COST, parent)
    child = pulumi.ResourceOptions(parent=parent)

    def tagged(suffix: str) -> dict[str, str]:
        return {**tags, "Name": f"{name}-{suffix}"}

    gateway = ec2.InternetGateway(f"{name}-internet", vpc_id=routes.vpc_id, tags=tagged("internet"), opts=child)
    subnet = ec2.Subnet(
        f"{name}-outside",
        vpc_id=routes.vpc_id,
        availability_zone=zone,
        cidr_block=str(outside_block(IPv4Network(cidr))),
        map_public_ip_on_launch=False,
        tags=tagged("outside"),
        opts=child,
    )
    public = ec2.RouteTable(
        f"{name}-outside-routes",
        vpc_id=routes.vpc_id,
        routes=[{"cidr_block": ANYWHERE, "gateway_id": gateway.id}],
        tags=tagged("outside"),
        opts=child,
    )
    placed = ec2.RouteTableAssociation(
        f"{name}-outside-routes", subnet_id=subnet.id, route_table_id=public.id, opts=child
    )
    address = ec2.Eip(f"{name}-nat", domain="vpc", tags=tagged("nat"), opts=child)
    nat = ec2.NatGateway(
        f"{name}-nat",
        subnet_id=subnet.id,
        allocation_id=address.allocation_id,
        tags=tagged("nat"),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[gateway, placed]),
    )
    ec2.Route(
        f"{name}-to-nat",
        route_table_id=routes.id,
        destination_cidr_block=ANYWHERE,
        nat_gateway_id=nat.id,
        opts=child,
    )
    group = ec2.SecurityGroup(
        f"{name}-scheduler",
        vpc_id=routes.vpc_id,
        description="Scheduler: out to its peers, in from nowhere",
        tags=tagged("scheduler"),
        opts=child,
    )
    allow_out(parent, f"{name}-out-peers", group, to="stores and sign-in of peers", cidr_ipv4=ANYWHERE)
    return pulumi.Output.from_input(group.id)
