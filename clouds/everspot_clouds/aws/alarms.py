"""The metrics of a cluster in CloudWatch, the alarms on them and the dashboard, as values.

Nothing here needs boto3, so that a Pulumi program may take it.
"""

import json
from dataclasses import dataclass
from datetime import timedelta

from everspot_core.cluster.gauges import Gauge

from everspot_clouds.aws import fixed_prices as fixed
from everspot_clouds.base.alarms import (
    BUDGET,
    BUDGET_AT,
    CHARTS,
    OVER_ESTIMATE,
    OVER_NORM,
    SILENCE,
    SILENT_AFTER,
    Concern,
)

CLUSTER = "Cluster"
"""The one dimension of every metric."""
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm on one metric, in CloudWatch's words. It goes off after `periods` breaching periods in a row; by
    default, once the figure is above 0."""

    about: Concern
    statistic: str = "Maximum"
    comparison: str = "GreaterThanThreshold"
    threshold: float = 0
    period: timedelta = 5 * _MINUTE
    periods: int = 1
    missing: str = "notBreaching"


ALARMS = (
    Alarm(about=OVER_ESTIMATE),
    Alarm(about=OVER_NORM),
    Alarm(about=BUDGET, comparison="GreaterThanOrEqualToThreshold", threshold=BUDGET_AT),
    Alarm(
        about=SILENCE,
        statistic="Sum",
        comparison="LessThanThreshold",
        threshold=1,
        period=_MINUTE,
        periods=SILENT_AFTER // _MINUTE,
        missing="breaching",
    ),
)


USD_A_MONTH = float(
    fixed.metrics_usd(fixed.METRIC, fixed.REQUESTS)
    + len(ALARMS) * fixed.ALARM.usd_per_month
    + fixed.DASHBOARD.usd_per_month
)
"""The metrics, alarms and dashboard of one cluster."""


def metric_name(gauge: Gauge) -> str:
    """CloudWatch's name of a figure, such as UsdPerHour."""
    return "".join(part.capitalize() for part in gauge.value.split("-"))


def dashboard(cluster: str, region: str, namespace: str, alarm_arns: list[str]) -> str:
    """Return the body of a dashboard: running and waiting jobs, costs, and everything unusual."""
    alarms = {
        "type": "alarm", "x": 0, "y": 0, "width": 24, "height": 2,
        "properties": {"title": f"Everspot {cluster}", "alarms": alarm_arns},
    }  # fmt: skip
    graphs = [
        {
            "type": "metric", "x": 8 * (n % 3), "y": 2 + 6 * (n // 3), "width": 8, "height": 6,
            "properties": {
                "title": title, "region": region, "period": 60, "view": "timeSeries",
                "stat": "Sum" if Gauge.TICKS in gauges else "Maximum",
                "metrics": [[namespace, metric_name(gauge), CLUSTER, cluster] for gauge in gauges],
            },
        }
        for n, (title, gauges) in enumerate(CHARTS)
    ]  # fmt: skip
    return json.dumps({"widgets": [alarms, *graphs]})
