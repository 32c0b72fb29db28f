"""Figures of a cluster as custom metrics of CloudWatch, and their cost."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from everspot_core.cluster.gauges import Gauge

from everspot_clouds.aws.alarms import CLUSTER, metric_name


class Gauges:
    """Writes the figures of one cluster. The client is made when it is first needed."""

    def __init__(self, session: Any, config: Any, cluster: str) -> None:
        self._session, self._config, self._cluster = session, config, cluster
        self._client: Any = None

    def put(self, namespace: str, gauges: Mapping[Gauge, float], at: datetime) -> None:
        """Write all of them in one request.

        Raises:
            botocore's errors.
        """
        if self._client is None:
            self._client = self._session.client("cloudwatch", config=self._config)
        dimensions = [{"Name": CLUSTER, "Value": self._cluster}]
        self._client.put_metric_data(
            Namespace=namespace,
            MetricData=[
                {"MetricName": metric_name(gauge), "Dimensions": dimensions, "Timestamp": at, "Value": value}
                for gauge, value in gauges.items()
            ],
        )

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            self._client.close()
