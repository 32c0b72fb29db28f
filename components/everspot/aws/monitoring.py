"""Monitoring: a dashboard and alarms in CloudWatch, and the scheduler's permission to put their figures there.

It is off by default, since CloudWatch charges for each custom metric, alarm and dashboard. A preview prints the price.
"""

import json
from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.alarms import ALARMS, CLUSTER, Alarm, dashboard, metric_name
from everspot_core.cluster.manifest import Monitoring
from everspot_core.validation.problems import Problems
from pulumi_aws import cloudwatch, iam

from everspot import common
from everspot.aws import arns, policies, preview_queries, tagging
from everspot.parts import outputs

NAMESPACE = "Everspot"
"""Namespace of the metrics in CloudWatch. Clusters of one account and region differ by a dimension."""


class AwsAlarmsArgs(TypedDict):
    """The recipients of a cluster's alarms."""

    topic_arn: NotRequired[str]
    """ARN of an SNS topic that gets a message when an alarm goes off and when it is over. The topic's policy, and that
    of its customer-managed key if it has one, have to allow `cloudwatch.amazonaws.com`. Default: nobody is told."""


class AwsMonitoringArgs(TypedDict):
    """Inputs of `AwsMonitoring`."""

    cluster: str
    """Name of the cluster: the dimension of its metrics, and the dashboard's name."""
    tags: dict[str, str]
    """Tags of the alarms. Project, Team and Environment are mandatory."""
    scheduler_role_arn: pulumi.Input[str]
    """ARN of the scheduler's role, which gets the permission to put metrics into the namespace Everspot."""
    alarms: NotRequired[AwsAlarmsArgs]
    """The recipients of the alarms. Default: nobody."""


class AwsMonitoring(pulumi.ComponentResource):
    """A CloudWatch dashboard of one cluster, and alarms: a job that runs too long, a pool that does worse than usual, a
    budget that is spent to 80 %, a silent scheduler."""

    dashboard_name: pulumi.Output[str]
    """Name of the dashboard."""
    alarm_arns: pulumi.Output[list[str]]
    """ARNs of the alarms."""

    def __init__(self, name: str, args: AwsMonitoringArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsMonitoring"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_monitoring(problems.at("alarms"), args.get("alarms", {}))
        common.raise_bad(problems, f"AwsMonitoring {name}")
        self._name, self._args = name, args
        child = pulumi.ResourceOptions(parent=self)
        iam.RolePolicy(
            f"{name}-permissions",
            role=pulumi.Output.from_input(args["scheduler_role_arn"]).apply(lambda arn: arn.rpartition("/")[2]),
            policy=json.dumps(policies.monitoring_policy(NAMESPACE)),
            opts=child,
        )
        self.alarm_arns = pulumi.Output.all(*[self._alarm(alarm).arn for alarm in ALARMS]).apply(list)
        board = cloudwatch.Dashboard(
            f"{name}-dashboard",
            dashboard_name=args["cluster"],
            dashboard_body=pulumi.Output.all(preview_queries.read_region(self), self.alarm_arns).apply(
                lambda known: dashboard(args["cluster"], known[0], NAMESPACE, known[1])
            ),
            opts=child,
        )
        self.dashboard_name = board.dashboard_name
        self.register_outputs(outputs(self))

    def _alarm(self, alarm: Alarm) -> cloudwatch.MetricAlarm:
        topic = self._args.get("alarms", {}).get("topic_arn")
        topics = [] if topic is None else [topic]
        return cloudwatch.MetricAlarm(
            f"{self._name}-{alarm.about.name}",
            alarm_description=alarm.about.sentence,
            namespace=NAMESPACE,
            metric_name=metric_name(alarm.about.gauge),
            dimensions={CLUSTER: self._args["cluster"]},
            statistic=alarm.statistic,
            comparison_operator=alarm.comparison,
            threshold=alarm.threshold,
            period=int(alarm.period.total_seconds()),
            evaluation_periods=alarm.periods,
            treat_missing_data=alarm.missing,
            alarm_actions=topics,
            ok_actions=topics,
            tags=tagging.cluster_tags(self._args["cluster"], self._args["tags"]),
            opts=pulumi.ResourceOptions(parent=self),
        )


def check_monitoring(problems: Problems, args: AwsAlarmsArgs) -> None:
    """Add a problem for each mistake in the settings."""
    arns.check_arn(problems, args, "topic_arn", "sns", "")


def build_monitoring(args: AwsAlarmsArgs | None) -> Monitoring | None:
    """Return the monitoring settings of the scheduler; None without monitoring."""
    return None if args is None else Monitoring(namespace=NAMESPACE)


def add_monitoring(
    parent: pulumi.Resource, name: str, spec: Any, scheduler_role_arn: pulumi.Output[str]
) -> list[pulumi.Resource]:
    """Return the component of a cluster whose spec asks for monitoring, in a list; empty for all others."""
    if "monitoring" not in spec:
        return []
    args: AwsMonitoringArgs = {
        "cluster": name,
        "tags": spec["tags"],
        "scheduler_role_arn": scheduler_role_arn,
        "alarms": spec["monitoring"],
    }
    return [AwsMonitoring(f"{name}-monitoring", args, pulumi.ResourceOptions(parent=parent))]
