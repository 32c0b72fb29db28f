"""The networks that may read the scheduler's metrics: none, unless the spec names them."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.egress import group_problems
from everspot_core.cluster.manifest import METRICS_PORT, Metrics
from everspot_core.validation.cidr import parse_block
from everspot_core.validation.problems import Problems
from pulumi_aws import ec2, vpc

from everspot.aws import tagging
from everspot.common import former_name, name_by_target

WIDEST = 8
"""The prefix length of the widest block that may read. The metrics are neither encrypted nor behind a login."""
PORTS = (1024, 65535)
"""The ports that may be chosen. The scheduler does not run as root, so it cannot use lower ones."""


class AwsPrometheusArgs(TypedDict):
    """Who may read the scheduler's metrics. At least one block or group has to be named."""

    cidrs: NotRequired[list[str]]
    """IPv4 blocks from which Prometheus reads, /8 or smaller."""
    security_group_ids: NotRequired[list[pulumi.Input[str]]]
    """Security groups whose members read, sg-…, in the cluster's VPC or in a peered one."""
    port: NotRequired[int]
    """The scheduler's port, 1024 to 65535. Default: 9494."""


def check_prometheus(problems: Problems, args: AwsPrometheusArgs) -> None:
    """Add a problem for each mistake in the settings."""
    has_source = bool(args.get("cidrs") or args.get("security_group_ids"))
    problems.need(
        has_source,
        "cidrs",
        "is empty; name the address blocks from which the metrics may be read, or groups in securityGroupIds",
    )
    for index, text in enumerate(args.get("cidrs", [])):
        block = parse_block(text, f"cidrs[{index}]", problems)
        if block is not None:
            problems.need(block.prefixlen >= WIDEST, f"cidrs[{index}]", f"{text} is wider than a /{WIDEST}")
    group_problems(problems, args)
    problems.number(args.get("port", METRICS_PORT), "port", *PORTS, whole=True)


def build_metrics(args: AwsPrometheusArgs | None) -> Metrics | None:
    """Return the metrics section of the scheduler's own manifest."""
    return None if args is None else Metrics(port=int(args.get("port", METRICS_PORT)))


def scraped_group(
    parent: pulumi.Resource,
    name: str,
    *,
    cluster: str,
    tags: dict[str, str],
    vpc_id: pulumi.Input[str],
    args: AwsPrometheusArgs,
) -> pulumi.Output[str]:
    """Return a security group for the scheduler's instance alone. It opens the port to the named blocks and groups.
    Agents are not in it."""
    child, port = pulumi.ResourceOptions(parent=parent), int(args.get("port", METRICS_PORT))
    group = ec2.SecurityGroup(
        name,
        vpc_id=vpc_id,
        description="The scheduler's metrics: in from Prometheus",
        tags=tagging.cluster_tags(cluster, tags, Name=name),
        opts=child,
    )
    blocks, groups = args.get("cidrs", []), args.get("security_group_ids", [])
    sources: list[tuple[str, str, str | None, pulumi.Input[str] | None]] = []
    sources += [(suffix, former, block, None) for suffix, former, block in name_by_target("cidr", blocks)]
    sources += [(suffix, former, None, other) for suffix, former, other in name_by_target("group", groups)]
    for suffix, former_suffix, block, other in sources:
        vpc.SecurityGroupIngressRule(
            f"{name}-in-{suffix}",
            security_group_id=group.id,
            description="Metrics to Prometheus",
            cidr_ipv4=block,
            referenced_security_group_id=other,
            ip_protocol="tcp",
            from_port=port,
            to_port=port,
            opts=pulumi.ResourceOptions.merge(child, former_name(f"{name}-in-{former_suffix}")),
        )
    return group.id
