"""The instances' network: private subnets without any connection to or from the internet."""

import json
import re
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.egress import egress_problems
from everspot_clouds.aws.endpoints import SHELL_SERVICES, base_services, endpoints_cost
from everspot_clouds.aws.network import ZONES_AT_MOST, network_problems, zone_problems
from everspot_core.validation.problems import Problems, camel, shown
from pulumi_aws import ec2, vpc

from everspot import common
from everspot.aws import arns, existing, policies, preview_queries, rules, tagging
from everspot.aws.nat import ANYWHERE, add_nat
from everspot.aws.rules import AwsEgressArgs
from everspot.guard import PlaceChange, Settings, list_changed
from everspot.parts import outputs

DEFAULT_CIDR = "10.64.0.0/16"
"""Addresses of a new VPC when none are given."""

_SERVICE = re.compile(r"^[a-z0-9][a-z0-9.-]{0,62}\Z")


class AwsNetworkArgs(TypedDict):
    """Inputs of `AwsNetwork`: `zones` for a new VPC, or `vpc_id` and `subnet_ids` for an existing one."""

    cluster: str
    """Name of the cluster, for tags."""
    tags: dict[str, str]
    """Tags of everything created; Project, Team and Environment are mandatory."""
    zones: NotRequired[list[str]]
    """Names of the availability zones of a new VPC, with one private subnet each. Add new ones at the end: a zone's
    place in the list decides its subnet's addresses."""
    vpc_cidr: NotRequired[str]
    """IPv4 block of a new VPC, /16 to /24; each zone gets an eighth. Default: 10.64.0.0/16."""
    peer_cidrs: NotRequired[list[str]]
    """Blocks that the VPC must not overlap: offices, peered VPCs, other environments."""
    vpc_id: NotRequired[pulumi.Input[str]]
    """Id of an existing VPC. It needs endpoints for S3, EC2, SQS and STS, or another way to reach these services."""
    subnet_ids: NotRequired[list[pulumi.Input[str]]]
    """Subnets of the existing VPC, each in a zone of its own."""
    egress: NotRequired[AwsEgressArgs]
    """What instances in an existing VPC may connect to. Default: HTTPS to the VPC's own addresses and to S3."""
    services: NotRequired[list[str]]
    """Further AWS services that instances call, such as secretsmanager. A new VPC gets an interface endpoint for each,
    which costs money per zone. An existing VPC is checked for it."""
    session_manager: NotRequired[bool]
    """Whether instances have to reach Session Manager. Default: false."""
    interruption_events: NotRequired[bool]
    """Whether the scheduler has to reach a queue of EC2's notices. Default: true."""
    job_role: NotRequired[bool]
    """Whether agents have to reach STS, to assume the jobs' role. Default: true."""
    bucket_arns: NotRequired[list[pulumi.Input[str]]]
    """ARNs of the only buckets that can be reached through the S3 endpoint of a new VPC. Default: all buckets."""
    flow_log_bucket_arn: NotRequired[pulumi.Input[str]]
    """A bucket for the flow logs of a new VPC. Default: none are kept."""
    nat: NotRequired[bool]
    """Whether a new VPC gets a NAT gateway, so that all instances reach the internet on port 443. It costs money.
    Default: false."""
    scheduler_nat: NotRequired[bool]
    """Whether a new VPC gets a NAT gateway for the scheduler alone: a federation's. It costs money. In an existing VPC
    nothing is made, and a warning says if it has no way out. Default: false."""


class AwsNetwork(pulumi.ComponentResource):
    """A new VPC of private subnets with the endpoints that instances need, or an existing VPC given by its ids.

    A new VPC has no internet gateway, no NAT and no public address, unless `nat` asks for them. Instances accept no
    connections. They may open connections to port 443 of the endpoints and of S3, with `nat` of everything, and in an
    existing VPC to what `egress` allows.
    """

    vpc_id: pulumi.Output[str]
    """Id of the VPC."""
    subnet_ids: pulumi.Output[list[str]]
    """Ids of the private subnets, in the order of the zones."""
    security_group_id: pulumi.Output[str]
    """Security group of the instances."""

    def __init__(self, name: str, args: AwsNetworkArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsNetwork"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_network(problems, args)
        common.raise_bad(problems, f"AwsNetwork {name}")
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        # The same subnets with their known number, for who creates something for each of them. Not an output.
        self.subnets: list[pulumi.Output[str]] = []
        self._region = preview_queries.read_region(self)
        self._services = needed_services(args)
        self.outside: list[pulumi.Output[str]] = []  # the scheduler's security group, with a NAT gateway
        if "vpc_id" in args:
            self._adopt(args["vpc_id"], args.get("subnet_ids", []), args.get("egress", {}))
        else:
            self._create(args.get("zones", []), args.get("vpc_cidr", DEFAULT_CIDR))
        self.subnet_ids = pulumi.Output.all(*self.subnets).apply(list)
        self.register_outputs(outputs(self))

    def _tags(self, suffix: str) -> dict[str, str]:
        return tagging.cluster_tags(self._args["cluster"], self._args["tags"], Name=f"{self._name}-{suffix}")

    def _create(self, zones: Sequence[str], cidr: str) -> None:
        blocks = network_problems(Problems(), zones=zones, vpc_cidr=cidr)
        region_zones = preview_queries.invoke(
            self,
            "index/getAvailabilityZones:getAvailabilityZones",
            {"state": "available"},
            failed=f"AwsNetwork {self._name}: the region's zones cannot be listed (ec2:DescribeAvailabilityZones).",
        )
        sound = pulumi.Output.all(self._region, region_zones).apply(
            lambda seen: _check_zones(self._name, zones, seen[0], seen[1]["names"])
        )
        pulumi.Output.all(self._region, sound).apply(
            lambda seen: _tell_cost(self, endpoints_cost(seen[0], self._services, len(zones)))
        )
        network = ec2.Vpc(
            f"{self._name}-vpc",
            cidr_block=sound.apply(lambda _: cidr),  # so that nothing is made for zones that are not there
            enable_dns_support=True,
            enable_dns_hostnames=True,  # the endpoints' private names need it
            tags=self._tags("vpc"),
            opts=self._child,
        )
        routes = ec2.RouteTable(f"{self._name}-routes", vpc_id=network.id, tags=self._tags("routes"), opts=self._child)
        self.vpc_id = network.id
        # Adopted, and left without a rule: an interface that is put into it by mistake can connect to nothing.
        ec2.DefaultSecurityGroup(
            f"{self._name}-default", vpc_id=network.id, tags=self._tags("default"), opts=self._child
        )
        self._flow_log()
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
        if has_nat(self._args):
            for_jobs = self._args.get("nat", False)
            tags = tagging.cluster_tags(self._args["cluster"], self._args["tags"])
            self.outside.append(
                add_nat(self, self._name, cidr=cidr, zone=zones[0], routes=routes, tags=tags, for_jobs=for_jobs)
            )
            if for_jobs:
                rules.allow_out(
                    self, f"{self._name}-out-internet", self._instances, to="the internet", cidr_ipv4=ANYWHERE
                )

    def _flow_log(self) -> None:
        bucket = self._args.get("flow_log_bucket_arn")
        if bucket is not None:
            ec2.FlowLog(
                f"{self._name}-flow-log",
                vpc_id=self.vpc_id,
                traffic_type="ALL",
                log_destination_type="s3",
                log_destination=bucket,
                tags=self._tags("flow-log"),
                opts=self._child,
            )

    def _endpoints(self, routes: ec2.RouteTable) -> None:
        s3 = ec2.VpcEndpoint(
            f"{self._name}-endpoint-s3",
            vpc_id=self.vpc_id,
            service_name=self._service("s3"),
            vpc_endpoint_type="Gateway",
            route_table_ids=[routes.id],
            policy=self._bucket_policy(),
            tags=self._tags("s3"),
            opts=self._child,
        )
        instances = self._group("instances", "Instances: out to the endpoints and S3, in from nowhere")
        endpoints = self._group("endpoints", "Endpoints: in from the instances")
        rules.allow_out(
            self,
            f"{self._name}-out-endpoints",
            instances,
            to="the endpoints",
            referenced_security_group_id=endpoints.id,
        )
        rules.allow_out(self, f"{self._name}-out-s3", instances, to="S3", prefix_list_id=s3.prefix_list_id)
        vpc.SecurityGroupIngressRule(
            f"{self._name}-in-endpoints",
            security_group_id=endpoints.id,
            description="Endpoints from the instances",
            referenced_security_group_id=instances.id,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            opts=self._child,
        )
        for service in self._services:
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

    def _bucket_policy(self) -> pulumi.Output[str] | None:
        arns = self._args.get("bucket_arns")
        if arns is None:
            return None
        return pulumi.Output.all(*arns).apply(lambda known: json.dumps(policies.s3_endpoint(known)))

    def _adopt(self, vpc_id: pulumi.Input[str], subnet_ids: Sequence[pulumi.Input[str]], egress: AwsEgressArgs) -> None:
        needs = ", ".join(self._services)
        common.warn_if_unknown(
            self,
            f"AwsNetwork {self._name}: the VPC or its subnets are made by the same update, and cannot be checked now. "
            f"If instances have no way to S3, {needs}, or two subnets are in one zone, the update fails when other "
            "resources exist already. Make the network in an update before, or leave out vpcId and subnetIds.",
            [vpc_id, *subnet_ids],
        )
        adopted = existing.look(
            self._name,
            vpc_id,
            subnet_ids,
            region=self._region,
            services=self._services,
            egress=egress,
            outward=self._args.get("scheduler_nat", False),
            parent=self,
        )
        self.vpc_id, self.subnets = adopted.vpc_id, adopted.subnets
        instances = self._group("instances", "Instances: out to the VPC and S3, in from nowhere")
        # A list of its own, because how many blocks a VPC has is only known once EC2 has been asked.
        blocks = ec2.ManagedPrefixList(
            f"{self._name}-blocks",
            address_family="IPv4",
            max_entries=adopted.blocks.apply(len),
            entries=adopted.blocks.apply(lambda known: [{"cidr": block} for block in known]),
            tags=self._tags("blocks"),
            opts=self._child,
        )
        s3 = preview_queries.invoke(
            self,
            "ec2/getPrefixList:getPrefixList",
            {"name": self._service("s3")},
            failed=f"AwsNetwork {self._name}: S3's prefix list cannot be found (ec2:DescribePrefixLists).",
        ).apply(lambda adopted: str(adopted["id"]))
        rules.allow_egress(self, self._name, instances, blocks=blocks.id, s3=s3, egress=egress)

    def _service(self, service: str) -> pulumi.Output[str]:
        return preview_queries.service_name(self._region, service)

    def _group(self, suffix: str, description: str) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            f"{self._name}-{suffix}",
            vpc_id=self.vpc_id,
            description=description,
            tags=self._tags(suffix),
            opts=self._child,
        )
        if suffix == "instances":
            self._instances, self.security_group_id = group, group.id
        return group


def network_place(args: AwsNetworkArgs) -> dict[str, Any]:
    """Return the settings by which the parts of a network that instances need are replaced: the id of an existing VPC,
    or the addresses of a new one and of its zones' subnets."""
    if "vpc_id" in args:
        return {"vpcId": args["vpc_id"]}
    zones, cidr = args.get("zones", []), args.get("vpc_cidr", DEFAULT_CIDR)
    blocks = network_problems(Problems(), zones=zones, vpc_cidr=cidr)
    return {"vpcCidr": cidr, "zones": {zone: str(block) for zone, block in zip(zones, blocks, strict=True)}}


def _list_moved(old: Settings, new: Settings) -> list[str]:
    """Return the settings by which running instances lose their network. A zone that is added moves none."""
    whole = {key: value for key, value in old.items() if key != "zones"}
    subnets = list_changed(old.get("zones", {}), new.get("zones", {}))
    return list_changed(whole, new) or (["list of zones"] if subnets else [])


CUT_OFF = PlaceChange(
    _list_moved,
    "replaces subnets, routes and endpoints",
    "Instances in them reach the store no longer: their jobs go on elsewhere, from an older checkpoint",
)
"""The change of a network in which instances run."""


def check_network(problems: Problems, args: AwsNetworkArgs) -> None:
    """Add a problem for each mistake in the choice between a new and an existing network, and in the new one's
    addresses."""
    for index, service in enumerate(args.get("services", [])):
        fits = bool(_SERVICE.match(service))
        problems.need(fits, f"services[{index}]", f"{shown(service)} is not a service such as secretsmanager")
    arns.check_arn(problems, args, "flow_log_bucket_arn", "s3", "")
    egress_problems(problems.at("egress"), args.get("egress", {}))
    if "vpc_id" in args or "subnet_ids" in args:
        complete = "vpc_id" in args and bool(args.get("subnet_ids"))
        problems.need(complete, "subnetIds", "vpcId and subnetIds belong together")
        for key in ("zones", "vpc_cidr", "peer_cidrs", "flow_log_bucket_arn", "nat"):
            problems.need(key not in args, camel(key), "is for a new network; vpcId names an existing one")
        return
    room = not has_nat(args) or len(args.get("zones", [])) < ZONES_AT_MOST
    problems.need(room, "zones", f"at most {ZONES_AT_MOST - 1} with a NAT gateway, which needs the last block")
    problems.need("egress" not in args, "egress", "is for an existing network; a new one has endpoints of its own")
    network_problems(
        problems,
        zones=args.get("zones", []),
        vpc_cidr=args.get("vpc_cidr", DEFAULT_CIDR),
        peer_cidrs=args.get("peer_cidrs", []),
    )


def has_nat(args: AwsNetworkArgs) -> bool:
    """Return whether a network gets a NAT gateway: a new one, for all instances or for the scheduler alone."""
    return "vpc_id" not in args and (args.get("nat", False) or args.get("scheduler_nat", False))


def needed_services(args: AwsNetworkArgs) -> tuple[str, ...]:
    """Return the services that instances reach through interface endpoints, each once."""
    shell = SHELL_SERVICES if args.get("session_manager", False) else ()
    base = base_services(events=args.get("interruption_events", True), job_role=args.get("job_role", True))
    return tuple(dict.fromkeys((*base, *shell, *args.get("services", []))))


def _check_zones(name: str, zones: Sequence[str], region: str, region_zones: Sequence[str]) -> bool:
    problems = Problems()
    zone_problems(problems, zones=zones, region=region, region_zones=region_zones)
    common.raise_bad(problems, f"AwsNetwork {name}")
    return True


def _tell_cost(resource: pulumi.Resource, sentence: str) -> None:
    if pulumi.runtime.is_dry_run():
        pulumi.log.info(sentence, resource)
