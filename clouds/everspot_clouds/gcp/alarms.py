"""The metrics of a cluster in Cloud Monitoring, the alerts on them and the dashboard, as values.

Nothing here needs a client, so that a Pulumi program may take it. Sources: Cloud Monitoring API, AlertPolicy
(MetricThreshold takes COMPARISON_GT and COMPARISON_LT alone; MetricAbsence) and Dashboard (mosaicLayout, XyChart).
"""

import json
from dataclasses import dataclass
from typing import Any

from everspot_core.cluster.gauges import Gauge

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

CLUSTER = "cluster"
"""The one label of every metric."""
RESOURCE = "generic_node"
"""The monitored resource that the metrics are written for."""
PERIOD = "300s"


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert on one metric. It goes off when the largest figure of five minutes is above the threshold; without a
    threshold, when there is no figure."""

    about: Concern
    threshold: float | None = 0


ALERTS = (
    Alert(about=OVER_ESTIMATE),
    Alert(about=OVER_NORM),
    Alert(about=BUDGET, threshold=BUDGET_AT),
    Alert(about=SILENCE, threshold=None),
)


def metric_type(namespace: str, gauge: Gauge) -> str:
    """Cloud Monitoring's name of a figure, such as custom.googleapis.com/everspot/usd_per_hour."""
    return f"custom.googleapis.com/{namespace.strip('/').lower()}/{gauge.value.replace('-', '_')}"


def series(namespace: str, gauge: Gauge, cluster: str) -> str:
    """Return the filter that selects a figure of one cluster."""
    return (
        f'metric.type="{metric_type(namespace, gauge)}" AND resource.type="{RESOURCE}" AND '
        f'metric.labels.{CLUSTER}="{cluster}"'
    )


def condition(alarm: Alert, namespace: str, cluster: str) -> dict[str, Any]:
    """Return the condition of an alert, in the API's words."""
    series_filter = series(namespace, alarm.about.gauge, cluster)
    aggregation: dict[str, Any] = {"alignmentPeriod": PERIOD, "perSeriesAligner": "ALIGN_MAX"}
    if alarm.threshold is None:
        absent = {
            "filter": series_filter,
            "duration": f"{SILENT_AFTER.total_seconds():.0f}s",
            "aggregations": [aggregation],
        }
        return {"displayName": alarm.about.name, "conditionAbsent": absent}
    above = {
        "filter": series_filter,
        "comparison": "COMPARISON_GT",
        "thresholdValue": alarm.threshold,
        "duration": "0s",
        "aggregations": [aggregation],
    }
    return {"displayName": alarm.about.name, "conditionThreshold": above}


def dashboard(cluster: str, namespace: str) -> str:
    """Return the body of a dashboard: what works and waits, what it costs, and what is not as usual.

    Zeros are left out: the API does not tell them back, and a plan would want to write them for ever
    (https://github.com/hashicorp/terraform-provider-google/issues/24650).
    """
    tiles = [_tile(n, _chart(title, gauges, cluster, namespace)) for n, (title, gauges) in enumerate(CHARTS)]
    return json.dumps({"displayName": f"Everspot {cluster}", "mosaicLayout": {"columns": 48, "tiles": tiles}})


def _tile(number: int, widget: dict[str, Any]) -> dict[str, Any]:
    """Return a third of a row, from the upper left."""
    place = {"xPos": 16 * (number % 3), "yPos": 16 * (number // 3)}
    return {**{axis: at for axis, at in place.items() if at}, "width": 16, "height": 16, "widget": widget}


def _chart(title: str, gauges: tuple[Gauge, ...], cluster: str, namespace: str) -> dict[str, Any]:
    aggregation = {"alignmentPeriod": "60s", "perSeriesAligner": "ALIGN_MAX"}
    shown = [
        {
            "plotType": "LINE",
            "legendTemplate": gauge.value,
            "timeSeriesQuery": {
                "timeSeriesFilter": {"filter": series(namespace, gauge, cluster), "aggregation": aggregation}
            },
        }
        for gauge in gauges
    ]
    return {"title": title, "xyChart": {"dataSets": shown}}
