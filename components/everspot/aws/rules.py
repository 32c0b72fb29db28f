"""The outbound rules of the instances' security group, one for each destination."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.egress import proxy_port
from pulumi_aws import ec2, vpc

from everspot.common import former_name, name_by_target

HTTPS = 443
"""The only port of calls to AWS."""


class AwsEgressArgs(TypedDict):
    """Destinations outside of an existing VPC that agents and scheduler may connect to, on port 443 except for the
    proxy. The VPC's own addresses, secondary blocks included, and S3 are always allowed."""

    cidrs: NotRequired[list[str]]
    """IPv4 blocks that instances may connect to: central endpoints, or 0.0.0.0/0 if a NAT gateway or a firewall is the
    way out."""
    prefix_list_ids: NotRequired[list[pulumi.Input[str]]]
    """Managed prefix lists that instances may connect to, pl-…."""
    security_group_ids: NotRequired[list[pulumi.Input[str]]]
    """Security groups that instances may connect to, sg-…, for example of endpoints in peered VPCs."""
    proxy: NotRequired[str]
    """A proxy for everything but `no_proxy`: http://host:port, without user and password. Agents, scheduler and jobs
    get it as HTTPS_PROXY and HTTP_PROXY."""
    proxy_cidrs: NotRequired[list[str]]
    """IPv4 blocks of the proxy, to which its port is opened. Default: the VPC's own blocks."""
    no_proxy: NotRequired[list[str]]
    """Hosts that are reached without the proxy, besides the metadata service. Default: S3 of the region, for which the
    VPC then needs a gateway endpoint."""
    unchecked: NotRequired[bool]
    """Whether to skip the check of routes and endpoints at preview, for networks whose name resolution the EC2 API does
    not show. Default: false."""


def allow_out(
    parent: pulumi.Resource,
    name: str,
    group: ec2.SecurityGroup,
    *,
    to: str,
    referenced_security_group_id: pulumi.Input[str] | None = None,
    prefix_list_id: pulumi.Input[str] | None = None,
    cidr_ipv4: pulumi.Input[str] | None = None,
    port: int = HTTPS,
    former: str = "",
) -> None:
    """Let a group's members open connections to one destination on one port. `to`: the destination's name for the
    description; `former`: the rule's earlier name."""
    opts = pulumi.ResourceOptions(parent=parent)
    vpc.SecurityGroupEgressRule(
        name,
        security_group_id=group.id,
        description=f"Instances to {to}",
        referenced_security_group_id=referenced_security_group_id,
        prefix_list_id=prefix_list_id,
        cidr_ipv4=cidr_ipv4,
        ip_protocol="tcp",
        from_port=port,
        to_port=port,
        opts=pulumi.ResourceOptions.merge(opts, former_name(former)) if former else opts,
    )


def allow_egress(
    parent: pulumi.Resource,
    name: str,
    group: ec2.SecurityGroup,
    *,
    blocks: pulumi.Input[str],
    s3: pulumi.Input[str],
    egress: AwsEgressArgs,
) -> None:
    """Add the outbound rules of an existing VPC. `blocks`, `s3`: prefix lists of the VPC's own addresses and of S3."""
    allow_out(parent, f"{name}-out-vpc", group, to="the VPC", prefix_list_id=blocks)
    allow_out(parent, f"{name}-out-s3", group, to="S3", prefix_list_id=s3)
    for suffix, former_suffix, block in name_by_target("cidr", egress.get("cidrs", [])):
        to, former = "a block that egress names", f"{name}-out-{former_suffix}"
        allow_out(parent, f"{name}-out-{suffix}", group, to=to, cidr_ipv4=block, former=former)
    for suffix, former_suffix, prefix_list in name_by_target("list", egress.get("prefix_list_ids", [])):
        to, former = "a prefix list that egress names", f"{name}-out-{former_suffix}"
        allow_out(parent, f"{name}-out-{suffix}", group, to=to, prefix_list_id=prefix_list, former=former)
    for suffix, former_suffix, other in name_by_target("group", egress.get("security_group_ids", [])):
        to, former = "a group that egress names", f"{name}-out-{former_suffix}"
        allow_out(parent, f"{name}-out-{suffix}", group, to=to, referenced_security_group_id=other, former=former)
    port = proxy_port(egress.get("proxy", ""))
    if port is None:
        return
    if not egress.get("proxy_cidrs"):
        allow_out(parent, f"{name}-out-proxy", group, to="the proxy", prefix_list_id=blocks, port=port)
    for suffix, former_suffix, block in name_by_target("proxy", egress.get("proxy_cidrs", [])):
        former = f"{name}-out-{former_suffix}"
        allow_out(parent, f"{name}-out-{suffix}", group, to="the proxy", cidr_ipv4=block, port=port, former=former)
