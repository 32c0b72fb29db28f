"""Monitoring: a dashboard and alerts in Cloud Monitoring, and the scheduler's permission to put their figures there.

It is off by default, since each alert costs money. A preview prints the price.
"""

from typing import Any, NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.alarms import ALERTS, Alert, condition, dashboard
from everspot_clouds.gcp.network import resource_problem
from everspot_core.cluster.manifest import Monitoring
from everspot_core.validation.problems import Problems
from pulumi_gcp import monitoring

from everspot import common
from everspot.gcp import policies, preview_queries, tagging
from everspot.gcp.case_conversion import snake
from everspot.gcp.granting import Granting
from everspot.parts import outputs

NAMESPACE = "Everspot"
"""Name under which the metrics are kept. Clusters of one project differ by a label."""

CHANNEL_FORM = "projects/PROJECT/notificationChannels/ID"


class GcpAlarmsArgs(TypedDict):
    """The recipients of a cluster's alerts."""

    channels: NotRequired[list[str]]
    """Notification channels of Cloud Monitoring, projects/PROJECT/notificationChannels/ID. Default: nobody is told."""


class GcpMonitoringArgs(TypedDict):
    """Inputs of `GcpMonitoring`."""

    cluster: str
    """Name of the cluster: the label of its metrics."""
    tags: dict[str, str]
    """Tags of the alerts, as labels. Project, Team and Environment are mandatory."""
    scheduler_account: pulumi.Input[str]
    """Email of the scheduler's service account, which gets the permission to write metrics."""
    scheduler_unique_id: pulumi.Input[str]
    """Unique id of the scheduler's service account, a number."""
    alarms: NotRequired[GcpAlarmsArgs]
    """The recipients of the alerts. Default: nobody."""


class GcpMonitoring(pulumi.ComponentResource):
    """A dashboard of one cluster in Cloud Monitoring, and alerts: a job that runs too long, a pool that does worse than
    usual, a budget that is spent to 80 %, a silent scheduler."""

    dashboard: pulumi.Output[str]
    """The dashboard, projects/PROJECT/dashboards/ID."""
    alert_policies: pulumi.Output[list[str]]
    """The alerts, projects/PROJECT/alertPolicies/ID."""

    def __init__(self, name: str, args: GcpMonitoringArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpMonitoring"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_monitoring(problems.at("alarms"), args.get("alarms", {}))
        common.raise_bad(problems, f"GcpMonitoring {name}")
        self._name, self._args = name, args
        may = Granting(self, name, args["cluster"], args["scheduler_account"], args["scheduler_unique_id"])
        put = may.role("gauges", policies.PUT_METRICS, "Put the cluster's figures")
        may.on_project("put", preview_queries.read_place(self).apply(lambda place: place["project"]), put)
        self.alert_policies = pulumi.Output.all(*[self._alarm(alarm).name for alarm in ALERTS]).apply(list)
        board = monitoring.Dashboard(
            f"{name}-dashboard",
            dashboard_json=dashboard(args["cluster"], NAMESPACE),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.dashboard = board.id
        self.register_outputs(outputs(self))

    def _alarm(self, alarm: Alert) -> "monitoring.AlertPolicy":
        cluster = self._args["cluster"]
        return monitoring.AlertPolicy(
            f"{self._name}-{alarm.about.name}",
            display_name=f"Everspot {cluster}: {alarm.about.name}",
            combiner="OR",
            conditions=[snake(condition(alarm, NAMESPACE, cluster))],
            documentation={"content": alarm.about.sentence, "mime_type": "text/markdown"},
            notification_channels=self._args.get("alarms", {}).get("channels", []),
            user_labels=tagging.cluster_labels(cluster, self._args["tags"]),
            opts=pulumi.ResourceOptions(parent=self),
        )


def check_monitoring(problems: Problems, args: GcpAlarmsArgs) -> None:
    """Add a problem for each mistake in the settings."""
    for index, channel in enumerate(args.get("channels", [])):
        reason = resource_problem(channel, CHANNEL_FORM)
        problems.need(reason is None, f"channels[{index}]", reason or "")


def build_monitoring(args: GcpAlarmsArgs | None) -> Monitoring | None:
    """Return the monitoring settings of the scheduler; None without monitoring."""
    return None if args is None else Monitoring(namespace=NAMESPACE)


def add_monitoring(
    parent: pulumi.Resource,
    name: str,
    spec: Any,
    scheduler_account: pulumi.Output[str],
    scheduler_unique_id: pulumi.Output[str],
) -> list[pulumi.Resource]:
    """Return the component of a cluster whose spec asks for monitoring, in a list; empty for all others."""
    if "monitoring" not in spec:
        return []
    args: GcpMonitoringArgs = {
        "cluster": name,
        "tags": spec["tags"],
        "scheduler_account": scheduler_account,
        "scheduler_unique_id": scheduler_unique_id,
        "alarms": spec["monitoring"],
    }
    return [GcpMonitoring(f"{name}-monitoring", args, pulumi.ResourceOptions(parent=parent))]
