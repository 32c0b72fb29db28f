"""The networks that may read the scheduler's metrics: none, unless the spec names them."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.egress import group_problems
from everspot_core.cluster.manifest import METRICS_PORT
from everspot_core.validation.problems import Problems
from pulumi_aws import ec2, vpc

from everspot.aws import tagging
from everspot.common import former_name, name_by_target
from everspot.scraping import check_scraping


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
    check_scraping(problems, args, args.get("cidrs", []))
    group_problems(problems, args)


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
