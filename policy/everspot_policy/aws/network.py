"""Rules for addresses and for the traffic that is let in."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.addresses import open_ranges
from everspot_policy.aws.kinds import CONFIGURATION, SINGLE, SPOT_FLEET, TEMPLATE
from everspot_policy.reading import denied, hidden, number, objects, text, yes
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

SUBNETS = ("aws:ec2/subnet:Subnet", "aws:ec2/defaultSubnet:DefaultSubnet")
ADDRESS = "aws:ec2/eip:Eip"
BOUND_ADDRESS = "aws:ec2/eipAssociation:EipAssociation"
GROUPS = ("aws:ec2/securityGroup:SecurityGroup", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
RULES_IN = ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",)
LISTS = ("aws:ec2/managedPrefixList:ManagedPrefixList", "aws:ec2/managedPrefixListEntry:ManagedPrefixListEntry")
"""Ranges by a name, which rules of groups refer to."""
NAT = "aws:ec2/natGateway:NatGateway"
INTERFACE = "aws:ec2/networkInterface:NetworkInterface"
IPV6 = ("ipv6AddressCount", "ipv6Addresses", "ipv6PrefixCount", "ipv6Prefixes")
"""Inputs that give an instance an IPv6 address. All of them are public (Amazon VPC User Guide, "Enable internet access
for a VPC using an internet gateway")."""
EKS_CLUSTER = "aws:eks/cluster:Cluster"
FUNCTION_URL = "aws:lambda/functionUrl:FunctionUrl"
LIGHTSAIL_PORTS = "aws:lightsail/instancePublicPorts:InstancePublicPorts"


@rule(
    "aws-no-public-address",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="Instances have no public address",
    remedy="Set associatePublicIpAddress and mapPublicIpOnLaunch to false, and no IPv6 address; reach instances "
    "through Session Manager and let them reach AWS through VPC endpoints.",
    types=(*SINGLE, CONFIGURATION, TEMPLATE, SPOT_FLEET, *SUBNETS, ADDRESS, BOUND_ADDRESS, INTERFACE),
    checkov=("CKV_AWS_88", "CKV_AWS_130"),
)
def no_public_address(subject: Subject) -> Iterator[Problem]:
    """Find anything that gives an instance a public address by itself."""
    inputs = subject.inputs
    for path, each in [("", inputs), *objects(inputs, "networkInterfaces"), *objects(inputs, "launchSpecifications")]:
        for name in IPV6:
            value = each.get(name)
            if yes(value) or (number(value) or 0) > 0 or (isinstance(value, list | tuple) and value):
                yield Problem(f"{path}.{name}".lstrip("."), "gives an IPv6 address, which is public")
    switches = {
        "networkInterfaces": "associatePublicIpAddress",
        "launchSpecifications": "associatePublicIpAddress",
        "": "mapPublicIpOnLaunch" if subject.type in SUBNETS else "associatePublicIpAddress",
    }
    for part, name in switches.items():
        for path, each in objects(inputs, part) if part else [("", inputs)]:
            if yes(each.get(name)):
                yield Problem(f"{path}.{name}".lstrip("."), "has to be false")
    if subject.type == BOUND_ADDRESS:
        yield Problem("", "gives an instance a public address")
    for name in ("instance", "networkInterface"):
        if subject.type == ADDRESS and inputs.get(name) is not None:
            yield Problem(name, "gets a public address")


@rule(
    "aws-subnet-ipv6",
    Level.ADVISORY,
    Severity.LOW,
    title="Subnets assign no IPv6 addresses",
    remedy="Leave assignIpv6AddressOnCreation out, or route ::/0 to an egress-only internet gateway.",
    types=SUBNETS,
)
def subnet_ipv6(subject: Subject) -> Iterator[Problem]:
    """Find subnets whose instances get IPv6 addresses. The subnet's routes, which are other resources, decide whether
    the internet reaches these."""
    if yes(subject.inputs.get("assignIpv6AddressOnCreation")):
        yield Problem("assignIpv6AddressOnCreation", "gives each instance an IPv6 address")


@rule(
    "aws-nothing-open",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No port is open to everybody",
    remedy="Name the security groups or ranges that may connect. For a public service, note an exception.",
    types=(*GROUPS, OLD_RULE, *RULES_IN, *LISTS, EKS_CLUSTER, FUNCTION_URL, LIGHTSAIL_PORTS),
    checkov=("CKV_AWS_24", "CKV_AWS_25", "CKV_AWS_260", "CKV_AWS_277"),
)
def nothing_open(subject: Subject) -> Iterator[Problem]:
    """Find rules that admit everybody: within a group or a list, or as separate resources, in both of their forms; and
    services' own doors."""
    inputs = subject.inputs
    if subject.type == EKS_CLUSTER:
        yield from _open_api_server(inputs)
    if subject.type == FUNCTION_URL and text(inputs.get("authorizationType")) == "NONE":
        yield Problem("authorizationType", "has to be AWS_IAM")
    sources: list[tuple[str, Mapping[str, Any], tuple[str, ...]]]
    if subject.type in RULES_IN:
        sources = [("", inputs, ("cidrIpv4", "cidrIpv6"))]
    elif subject.type in LISTS:
        sources = [("", inputs, ("cidr",)), *((path, each, ("cidr",)) for path, each in objects(inputs, "entries"))]
    elif subject.type == LIGHTSAIL_PORTS:
        sources = [(path, each, ("cidrs", "ipv6Cidrs")) for path, each in objects(inputs, "portInfos")]
    elif subject.type == OLD_RULE:
        sources = [("", inputs, ("cidrBlocks", "ipv6CidrBlocks"))] if inputs.get("type") == "ingress" else []
    else:
        sources = [(path, each, ("cidrBlocks", "ipv6CidrBlocks")) for path, each in objects(inputs, "ingress")]
    for path, each, names in sources:
        for name in names:
            for cidr in open_ranges(each.get(name)):
                yield Problem(f"{path}.{name}".lstrip("."), f"{cidr} is everybody")


def _open_api_server(inputs: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the ranges of a public endpoint of Kubernetes' API. EKS makes it public, and for everybody, where nothing
    else is said (Amazon EKS User Guide, "Cluster API server endpoint")."""
    for path, each in objects(inputs, "vpcConfig"):
        ranges = each.get("publicAccessCidrs")
        if denied(each.get("endpointPublicAccess")) or hidden(each.get("endpointPublicAccess")) or hidden(ranges):
            continue
        for cidr in open_ranges(ranges or "0.0.0.0/0"):
            yield Problem(f"{path}.publicAccessCidrs", f"{cidr} is everybody")


@rule(
    "aws-no-nat",
    Level.ADVISORY,
    Severity.LOW,
    title="There is no NAT gateway without a stated reason",
    remedy="It costs about $33 a month and $0.045 per GB. Use endpoints of S3 and of services instead, or note an "
    "exception.",
    types=(NAT,),
)
def no_nat(subject: Subject) -> Iterator[Problem]:
    """Yield every NAT gateway: also a private one costs by the hour."""
    kind = text(subject.inputs.get("connectivityType")) or "public"
    yield Problem("", f"is a {kind} NAT gateway")


@rule(
    "aws-default-group-empty",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Default security groups have no rules",
    remedy="Declare no ingress and no egress. Instances without a group of their own get this one.",
    types=(GROUPS[1],),
    checkov=("CKV2_AWS_12",),
)
def default_group_empty(subject: Subject) -> Iterator[Problem]:
    """Yield rules of a default group."""
    for name in ("ingress", "egress"):
        value = subject.inputs.get(name)
        if value and not hidden(value):
            yield Problem(name, "has to be empty")


RULES: tuple[Rule, ...] = (no_public_address, subnet_ipv6, nothing_open, no_nat, default_group_empty)
