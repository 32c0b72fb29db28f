"""The metrics of a cluster in Cloud Monitoring, the alerts on them and the dashboard, as values.

Nothing here needs a client, so that a Pulumi program may take it. Sources: Cloud Monitoring API, AlertPolicy
(MetricThreshold takes COMPARISON_GT and COMPARISON_LT alone; MetricAbsence) and Dashboard (mosaicLayout, XyChart).
"""

import json
from dataclasses import dataclass
from typing import Any

from everspot_core.gauges import Gauge

CLUSTER = "cluster"
"""The one label of every metric."""
RESOURCE = "generic_node"
"""The monitored resource that the metrics are written for."""
BUDGET_AT = 0.8
"""The part of a budget beyond which an alert says so."""
SILENT = "300s"
"""A scheduler that has put no figure for this long is silent."""
PERIOD = "300s"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert on one metric. It goes off when the largest figure of five minutes is above the threshold; without a
    threshold, when there is no figure."""

    name: str
    gauge: Gauge
    says: str
    threshold: float | None = 0


ALERTS = (
    Alert(
        name="job-over-estimate",
        gauge=Gauge.JOBS_OVER_ESTIMATE,
        says="A job has held instances for more than twice its expected_duration. `everspot jobs` shows its progress.",
    ),
    Alert(
        name="pool-over-norm",
        gauge=Gauge.POOLS_OVER_NORM,
        says="A spot pool takes far more instances, or costs far more, than it uses to. `everspot fleet` shows which.",
    ),
    Alert(
        name="budget-at-80",
        gauge=Gauge.BUDGET_USED,
        says="80 % of a budget is spent. `everspot budget` shows which; at 100 % its jobs stop.",
        threshold=BUDGET_AT,
    ),
    Alert(
        name="scheduler-silent",
        gauge=Gauge.TICKS,
        says="No scheduler has worked for 5 minutes: running jobs run on. `everspot doctor` checks.",
        threshold=None,
    ),
)


def metric_type(namespace: str, gauge: Gauge) -> str:
    """Cloud Monitoring's name of a figure, such as custom.googleapis.com/everspot/usd_per_hour."""
    return f"custom.googleapis.com/{namespace.strip('/').lower()}/{gauge.value.replace('-', '_')}"


def series(namespace: str, gauge: Gauge, cluster: str) -> str:
    """The filter that selects a figure of one cluster."""
    return (
        f'metric.type="{metric_type(namespace, gauge)}" AND resource.type="{RESOURCE}" AND '
        f'metric.labels.{CLUSTER}="{cluster}"'
    )


def condition(alarm: Alert, namespace: str, cluster: str) -> dict[str, Any]:
    """The condition of an alert, in the API's words."""
    wanted = series(namespace, alarm.gauge, cluster)
    every: dict[str, Any] = {"alignmentPeriod": PERIOD, "perSeriesAligner": "ALIGN_MAX"}
    if alarm.threshold is None:
        absent = {"filter": wanted, "duration": SILENT, "aggregations": [every]}
        return {"displayName": alarm.name, "conditionAbsent": absent}
    above = {
        "filter": wanted,
        "comparison": "COMPARISON_GT",
        "thresholdValue": alarm.threshold,
        "duration": "0s",
        "aggregations": [every],
    }
    return {"displayName": alarm.name, "conditionThreshold": above}


def dashboard(cluster: str, namespace: str) -> str:
    """The body of a dashboard: what works and waits, what it costs, and what is not as usual."""
    charts = (
        ("Jobs", (Gauge.JOBS_RUNNING, Gauge.JOBS_WAITING)),
        ("Instances", (Gauge.INSTANCES,)),
        ("Dollars an hour", (Gauge.USD_PER_HOUR,)),
        ("Not as usual", (Gauge.JOBS_OVER_ESTIMATE, Gauge.POOLS_OVER_NORM)),
        ("Budget used", (Gauge.BUDGET_USED,)),
        ("Ticks of the scheduler", (Gauge.TICKS,)),
    )
    tiles = [
        {
            "xPos": 16 * (n % 3),
            "yPos": 16 * (n // 3),
            "width": 16,
            "height": 16,
            "widget": _chart(title, gauges, cluster, namespace),
        }
        for n, (title, gauges) in enumerate(charts)
    ]
    return json.dumps({"displayName": f"Everspot {cluster}", "mosaicLayout": {"columns": 48, "tiles": tiles}})


def _chart(title: str, gauges: tuple[Gauge, ...], cluster: str, namespace: str) -> dict[str, Any]:
    every = {"alignmentPeriod": "60s", "perSeriesAligner": "ALIGN_MAX"}
    shown = [
        {
            "plotType": "LINE",
            "legendTemplate": gauge.value,
            "timeSeriesQuery": {
                "timeSeriesFilter": {"filter": series(namespace, gauge, cluster), "aggregation": every}
            },
        }
        for gauge in gauges
    ]
    return {"title": title, "xyChart": {"dataSets": shown}}
