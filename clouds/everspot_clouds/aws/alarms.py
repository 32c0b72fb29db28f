"""The metrics of a cluster in CloudWatch, the alarms on them and the dashboard, as values.

Nothing here needs boto3, so that a Pulumi program may take it.
"""

import json
from dataclasses import dataclass
from datetime import timedelta

from everspot_core.gauges import Gauge

CLUSTER = "Cluster"
"""The one dimension of every metric."""
BUDGET_AT = 0.8
"""The fraction of a budget at which an alarm goes off."""
SILENT_MINUTES = 5
USD_A_MONTH = 8 * 0.30 + 4 * 0.10 + 3.00 + 0.44
"""Amazon CloudWatch pricing, us-east-1: $0.30 for each custom metric, $0.10 for each alarm, $3 for a dashboard beyond
the account's first three, and $0.01 for 1,000 requests, of which there is one a minute."""
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """An alarm on one metric, in CloudWatch's words. It goes off after `periods` breaching periods in a row; by
    default, once the figure is above 0."""

    name: str
    gauge: Gauge
    says: str
    statistic: str = "Maximum"
    comparison: str = "GreaterThanThreshold"
    threshold: float = 0
    period: timedelta = 5 * _MINUTE
    periods: int = 1
    missing: str = "notBreaching"


ALARMS = (
    Alarm(
        name="job-over-estimate",
        gauge=Gauge.JOBS_OVER_ESTIMATE,
        says="A job has held instances for more than twice its expected_duration. `everspot jobs` shows its progress.",
    ),
    Alarm(
        name="pool-over-norm",
        gauge=Gauge.POOLS_OVER_NORM,
        says="A spot pool takes far more instances, or costs far more, than it uses to. `everspot fleet` shows which.",
    ),
    Alarm(
        name="budget-at-80",
        gauge=Gauge.BUDGET_USED,
        says="80 % of a budget is spent. `everspot budget` shows which; at 100 % its jobs stop.",
        comparison="GreaterThanOrEqualToThreshold",
        threshold=BUDGET_AT,
    ),
    Alarm(
        name="scheduler-silent",
        gauge=Gauge.TICKS,
        says=f"No scheduler has worked for {SILENT_MINUTES} minutes: running jobs run on. `everspot doctor` checks.",
        statistic="Sum",
        comparison="LessThanThreshold",
        threshold=1,
        period=_MINUTE,
        periods=SILENT_MINUTES,
        missing="breaching",
    ),
)


def metric_name(gauge: Gauge) -> str:
    """CloudWatch's name of a figure, such as UsdPerHour."""
    return "".join(word.capitalize() for word in gauge.value.split("-"))


def dashboard(cluster: str, region: str, namespace: str, alarm_arns: list[str]) -> str:
    """The body of a dashboard: running and waiting jobs, costs, and everything unusual."""
    rows = (
        ("Jobs", (Gauge.JOBS_RUNNING, Gauge.JOBS_WAITING), "Maximum"),
        ("Instances", (Gauge.INSTANCES,), "Maximum"),
        ("Dollars an hour", (Gauge.USD_PER_HOUR,), "Maximum"),
        ("Not as usual", (Gauge.JOBS_OVER_ESTIMATE, Gauge.POOLS_OVER_NORM), "Maximum"),
        ("Budget used", (Gauge.BUDGET_USED,), "Maximum"),
        ("Ticks of the scheduler", (Gauge.TICKS,), "Sum"),
    )
    alarms = {
        "type": "alarm", "x": 0, "y": 0, "width": 24, "height": 2,
        "properties": {"title": f"Everspot {cluster}", "alarms": alarm_arns},
    }  # fmt: skip
    graphs = [
        {
            "type": "metric", "x": 8 * (n % 3), "y": 2 + 6 * (n // 3), "width": 8, "height": 6,
            "properties": {
                "title": title, "region": region, "stat": statistic, "period": 60, "view": "timeSeries",
                "metrics": [[namespace, metric_name(gauge), CLUSTER, cluster] for gauge in gauges],
            },
        }
        for n, (title, gauges, statistic) in enumerate(rows)
    ]  # fmt: skip
    return json.dumps({"widgets": [alarms, *graphs]})
