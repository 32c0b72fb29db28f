"""Where the instances live: private subnets without a way to or from the internet."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

import pulumi
import pulumi_aws as aws
from everspot_core.network import network_problems
from everspot_core.problems import Problems
from pulumi_aws import ec2, vpc

from everspot import common

INTERFACE_ENDPOINTS = ("ec2", "sqs", "ssm", "ssmmessages", "logs", "monitoring")
"""Services that instances reach inside the VPC. Each costs money per zone and hour; S3's gateway is free."""

DEFAULT_CIDR = "10.64.0.0/16"
"""Addresses of a new VPC when none are given."""


class NetworkArgs(TypedDict):
    """Inputs of `Network`: `zones` for a new VPC, or `vpc_id` and `subnet_ids` for an existing one."""

    cluster: str
    """Name of the cluster, for tags."""
    tags: dict[str, str]
    """Tags of everything created; Project, Team and Environment are mandatory."""
    zones: NotRequired[list[str]]
    """Availability zones of a new VPC, by name, one private subnet in each. Add new ones at the end: the place in the
    list decides a subnet's addresses."""
    vpc_cidr: NotRequired[str]
    """IPv4 block of a new VPC, /16 to /24; each zone gets an eighth. Default: 10.64.0.0/16."""
    peer_cidrs: NotRequired[list[str]]
    """Blocks that the VPC must not overlap: offices, peered VPCs, other environments."""
    vpc_id: NotRequired[pulumi.Input[str]]
    """An existing VPC, which has the endpoints named in `Network` or another way to these services."""
    subnet_ids: NotRequired[list[pulumi.Input[str]]]
    """Subnets of the existing VPC, each in a zone of its own."""
    customer_key: NotRequired[bool]
    """Whether a customer-managed KMS key is in use, and so KMS has to be reached. Default: false."""


class Network(pulumi.ComponentResource):
    """A VPC of private subnets with the endpoints that instances need, or an existing VPC taken by its ids.

    There is no internet gateway, no NAT and no public address. Instances may open connections to port 443 of the
    endpoints and of S3, and accept none.
    """

    vpc_id: pulumi.Output[str]
    """Id of the VPC."""
    subnet_ids: pulumi.Output[list[str]]
    """Ids of the private subnets, in the order of the zones."""
    security_group_id: pulumi.Output[str]
    """Security group of the instances."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("Network"), name, {}, opts)
        problems = Problems()
        common.check_common(problems, args["cluster"], args["tags"])
        check_network(problems, args)
        common.raise_bad(problems, f"Network {name}")
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._invoke = pulumi.InvokeOutputOptions(parent=self)
        # The same subnets with their known number, for who creates something for each of them. Not an output.
        self.subnets: list[pulumi.Output[str]] = []
        self._region = aws.get_region_output(opts=self._invoke).region
        if "vpc_id" in args:
            self._adopt(args["vpc_id"], args.get("subnet_ids", []))
        else:
            self._create(args.get("zones", []), args.get("vpc_cidr", DEFAULT_CIDR))
        self.subnet_ids = pulumi.Output.all(*self.subnets).apply(list)
        self.register_outputs(
            {"vpcId": self.vpc_id, "subnetIds": self.subnet_ids, "securityGroupId": self.security_group_id}
        )

    def _tags(self, suffix: str) -> dict[str, str]:
        return common.cluster_tags(self._args["cluster"], self._args["tags"], Name=f"{self._name}-{suffix}")

    def _create(self, zones: Sequence[str], cidr: str) -> None:
        blocks = network_problems(Problems(), zones=zones, vpc_cidr=cidr)
        network = ec2.Vpc(
            f"{self._name}-vpc",
            cidr_block=cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,  # the endpoints' private names need it
            tags=self._tags("vpc"),
            opts=self._child,
        )
        routes = ec2.RouteTable(f"{self._name}-routes", vpc_id=network.id, tags=self._tags("routes"), opts=self._child)
        self.vpc_id = network.id
        for zone, block in zip(zones, blocks, strict=True):
            subnet = ec2.Subnet(
                f"{self._name}-subnet-{zone}",
                vpc_id=network.id,
                availability_zone=zone,
                cidr_block=str(block),
                map_public_ip_on_launch=False,
                tags=self._tags(zone),
                opts=self._child,
            )
            ec2.RouteTableAssociation(
                f"{self._name}-routes-{zone}", subnet_id=subnet.id, route_table_id=routes.id, opts=self._child
            )
            self.subnets.append(subnet.id)
        self._endpoints(routes)

    def _endpoints(self, routes: ec2.RouteTable) -> None:
        s3 = ec2.VpcEndpoint(
            f"{self._name}-endpoint-s3",
            vpc_id=self.vpc_id,
            service_name=self._service("s3"),
            vpc_endpoint_type="Gateway",
            route_table_ids=[routes.id],
            tags=self._tags("s3"),
            opts=self._child,
        )
        instances = self._group("instances", "Instances: out to the endpoints and S3, in from nowhere")
        endpoints = self._group("endpoints", "Endpoints: in from the instances")
        self._allow_out(instances, "endpoints", referenced_security_group_id=endpoints.id)
        self._allow_out(instances, "s3", prefix_list_id=s3.prefix_list_id)
        vpc.SecurityGroupIngressRule(
            f"{self._name}-in-endpoints",
            security_group_id=endpoints.id,
            referenced_security_group_id=instances.id,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            opts=self._child,
        )
        services = (*INTERFACE_ENDPOINTS, "kms") if self._args.get("customer_key", False) else INTERFACE_ENDPOINTS
        for service in services:
            ec2.VpcEndpoint(
                f"{self._name}-endpoint-{service}",
                vpc_id=self.vpc_id,
                service_name=self._service(service),
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=self.subnets,
                security_group_ids=[endpoints.id],
                tags=self._tags(service),
                opts=self._child,
            )

    def _adopt(self, vpc_id: pulumi.Input[str], subnet_ids: Sequence[pulumi.Input[str]]) -> None:
        found = ec2.get_vpc_output(id=vpc_id, opts=self._invoke)
        self.vpc_id = found.id
        facts = [ec2.get_subnet_output(id=subnet, opts=self._invoke) for subnet in subnet_ids]
        looked_at = pulumi.Output.all(
            vpc=found.id, zones=[f.availability_zone for f in facts], vpcs=[f.vpc_id for f in facts]
        ).apply(lambda seen: _check_adopted(self._name, seen["vpc"], seen["zones"], seen["vpcs"]))
        # Each id passes through the check, so that nothing is created in subnets that EC2 Fleet would refuse.
        self.subnets = [pulumi.Output.all(fact.id, looked_at).apply(lambda pair: str(pair[0])) for fact in facts]
        instances = self._group("instances", "Instances: out to the VPC and S3, in from nowhere")
        self._allow_out(instances, "vpc", cidr_ipv4=found.cidr_block)
        s3 = ec2.get_prefix_list_output(name=self._service("s3"), opts=self._invoke)
        self._allow_out(instances, "s3", prefix_list_id=s3.id)

    def _service(self, service: str) -> pulumi.Output[str]:
        return pulumi.Output.concat("com.amazonaws.", self._region, ".", service)

    def _group(self, suffix: str, description: str) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            f"{self._name}-{suffix}",
            vpc_id=self.vpc_id,
            description=description,
            tags=self._tags(suffix),
            opts=self._child,
        )
        if suffix == "instances":
            self.security_group_id = group.id
        return group

    def _allow_out(
        self,
        group: ec2.SecurityGroup,
        suffix: str,
        *,
        referenced_security_group_id: pulumi.Input[str] | None = None,
        prefix_list_id: pulumi.Input[str] | None = None,
        cidr_ipv4: pulumi.Input[str] | None = None,
    ) -> None:
        vpc.SecurityGroupEgressRule(
            f"{self._name}-out-{suffix}",
            security_group_id=group.id,
            referenced_security_group_id=referenced_security_group_id,
            prefix_list_id=prefix_list_id,
            cidr_ipv4=cidr_ipv4,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            opts=self._child,
        )


def check_network(problems: Problems, args: NetworkArgs) -> None:
    """Add what is wrong with the choice between a new and an existing network, and with the new one's addresses."""
    if "vpc_id" in args or "subnet_ids" in args:
        both = "vpc_id" in args and bool(args.get("subnet_ids"))
        problems.need(both, "subnetIds", "vpcId and subnetIds belong together")
        for name, key in (("zones", "zones"), ("vpcCidr", "vpc_cidr"), ("peerCidrs", "peer_cidrs")):
            problems.need(key not in args, name, "is for a new network; vpcId names an existing one")
        return
    network_problems(
        problems,
        zones=args.get("zones", []),
        vpc_cidr=args.get("vpc_cidr", DEFAULT_CIDR),
        peer_cidrs=args.get("peer_cidrs", []),
    )


def _check_adopted(name: str, vpc_id: str, zones: Sequence[str], vpcs: Sequence[str]) -> bool:
    problems = Problems()
    for index, zone in enumerate(zones):
        here = f"subnetIds[{index}]"
        problems.need(zone not in zones[:index], here, f"is in {zone} too; EC2 accepts one subnet of a zone in a fleet")
        problems.need(vpcs[index] == vpc_id, here, f"belongs to {vpcs[index]}, not to {vpc_id}")
    common.raise_bad(problems, f"Network {name}")
    return True
