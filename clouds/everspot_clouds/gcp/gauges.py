"""Figures of a cluster as custom metrics of Cloud Monitoring.

Sources: Cloud Monitoring API, timeSeries.create (one point for each series in a request, at most 200 series); "Create
custom metrics", for the monitored resource generic_node.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from everspot_core.cluster.gauges import Gauge

from everspot_clouds.gcp.alarms import CLUSTER, RESOURCE, metric_type
from everspot_clouds.gcp.http_api import Api


class MonitoringFigures:
    """Writes the figures of one cluster."""

    def __init__(self, api: Api, cluster: str, region: str) -> None:
        self._api, self._cluster, self._region = api, cluster, region

    def put(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        """Write all figures in one request. Raises the errors of `Api`."""
        body = request(self._api.project, self._cluster, self._region, namespace, gauges, at)
        self._api.post("monitoring", f"projects/{self._api.project}/timeSeries", body)


def request(
    project: str, cluster: str, region: str, namespace: str, gauges: Mapping[Gauge, float], at: datetime
) -> dict[str, Any]:
    """Return the body of timeSeries.create."""
    node = {"project_id": project, "location": region or "global", "namespace": namespace, "node_id": cluster}
    return {
        "timeSeries": [
            {
                "metric": {"type": metric_type(namespace, gauge), "labels": {CLUSTER: cluster}},
                "resource": {"type": RESOURCE, "labels": node},
                "metricKind": "GAUGE",
                "valueType": "DOUBLE",
                "points": [{"interval": {"endTime": at.astimezone(UTC).isoformat()}, "value": {"doubleValue": value}}],
            }
            for gauge, value in gauges.items()
        ]
    }
