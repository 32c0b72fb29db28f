#!/usr/bin/env python3
"""Writes docs/grafana/everspot.json, the dashboard of the scheduler's metrics.

grafana.py            write it
grafana.py --check    exit with 1 if it is not up to date
"""

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "docs" / "grafana" / "everspot.json"
WIDTH, HEIGHT, ACROSS = 8, 8, 3
SOURCE = {"type": "prometheus", "uid": "${source}"}
MINE = 'job=~"$job",cluster=~"$cluster"'

# Title, unit, and the queries with their legends. `{}` stands for the selector of the dashboard's variables. Two
# schedulers of a cluster may run for a while, and both report the whole cluster: a gauge is their maximum. Increases
# are summed, because a new scheduler's counter goes on where the last one's ended.
PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Jobs", "none", (("max by (cluster, state) (everspot_jobs{})", "{{state}}"),)),
    ("Why jobs wait", "none", (("max by (cluster, why) (everspot_waiting_jobs{})", "{{why}}"),)),
    ("Pending time", "s", (("max by (cluster, of) (everspot_pending_seconds{})", "{{of}}"),)),
    (
        "Cost of running jobs",
        "currencyUSD",
        (("max by (cluster, job_id, team, project) (everspot_job_cost_usd{})", "{{job_id}} {{team}} {{project}}"),),
    ),
    (
        "Time to spare before the nearest deadline",
        "s",
        (
            ("min by (cluster) (everspot_deadline_slack_seconds{})", "slack"),
            ("max by (cluster) (everspot_late_jobs{})", "late jobs"),
        ),
    ),
    (
        "Instances",
        "none",
        (
            (
                "sum by (cluster, market, phase) (max by (cluster, market, phase, type) (everspot_instances{}))",
                "{{market}} {{phase}}",
            ),
        ),
    ),
    (
        "Launched, of what may be",
        "none",
        (
            ("max by (cluster) (everspot_elastic_instances{})", "launched"),
            ("max by (cluster) (everspot_elastic_max_instances{})", "cap"),
        ),
    ),
    (
        "Dollars an hour",
        "currencyUSD",
        (
            ("max by (cluster, role, market) (everspot_usd_per_hour{})", "{{role}} {{market}}"),
            ("max by (cluster) (everspot_elastic_usd_per_hour{})", "launched"),
            ("max by (cluster) (everspot_elastic_max_usd_per_hour{})", "cap of what is launched"),
        ),
    ),
    (
        "Price by pool",
        "currencyUSD",
        (("max by (cluster, type, zone, market) (everspot_pool_usd_per_hour{})", "{{type}} {{zone}} {{market}}"),),
    ),
    (
        "Placement score by pool",
        "none",
        (("max by (cluster, type, zone) (everspot_pool_placement_score{})", "{{type}} {{zone}}"),),
    ),
    (
        "Interruptions a day by pool",
        "none",
        (("sum by (cluster, type, zone) (increase(everspot_pool_interruptions_total{}[1d]))", "{{type}} {{zone}}"),),
    ),
    (
        "Interruptions an instance-hour by pool, over a day",
        "none",
        (
            (
                "sum by (cluster, type, zone, market) (increase(everspot_pool_interruptions_total{}[1d]))"
                " / sum by (cluster, type, zone, market) (increase(everspot_pool_instance_hours_total{}[1d]))",
                "{{type}} {{zone}} {{market}}",
            ),
        ),
    ),
    (
        "Busy instances",
        "percentunit",
        (
            (
                "sum by (cluster, market) (max by (cluster, market, type) (everspot_instances"
                f'{{phase="busy",{MINE}}}))'
                " / sum by (cluster, market) (max by (cluster, market, phase, type) (everspot_instances{}))",
                "{{market}}",
            ),
        ),
    ),
    (
        "Launches by what came of them",
        "none",
        (("sum by (cluster, outcome, market) (increase(everspot_launches_total{}[1h]))", "{{market}}: {{outcome}}"),),
    ),
    (
        "Refusals",
        "none",
        (("sum by (cluster, kind, market) (increase(everspot_refusals_total{}[1h]))", "{{market}}: {{kind}}"),),
    ),
    (
        "Instances given by pool, a day",
        "none",
        (
            (
                "sum by (cluster, type, zone, market) (increase(everspot_pool_instances_total{}[1d]))",
                "{{type}} {{zone}} {{market}}",
            ),
        ),
    ),
    (
        "GPUs that compute",
        "percentunit",
        (("max by (cluster, team, project) (everspot_gpu_utilization_ratio{})", "{{team}} {{project}}"),),
    ),
    (
        "Wasted on idle GPUs, an hour",
        "currencyUSD",
        (("max by (cluster, team, project) (everspot_wasted_gpu_usd_per_hour{})", "{{team}} {{project}}"),),
    ),
    (
        "Budgets used",
        "percentunit",
        (
            (
                "max by (cluster, scope, team, period, unit) (everspot_budget_used_ratio{})",
                "{{scope}} {{team}} {{unit}} a {{period}}",
            ),
        ),
    ),
    (
        "Anomalies",
        "none",
        (
            ("max by (cluster) (everspot_jobs_over_estimate{})", "jobs far over their estimate"),
            ("max by (cluster, kind) (everspot_anomalies{})", "{{kind}}"),
            ("max by (cluster, norm) (everspot_pools_over_norm{})", "pools over their {{norm}}"),
        ),
    ),
    (
        "Ticks of the scheduler",
        "s",
        (
            (
                "histogram_quantile(0.95, sum by (cluster, le) (rate(everspot_tick_seconds_bucket{}[5m])))",
                "95th percentile",
            ),
            ("time() - max by (cluster) (everspot_last_count_timestamp_seconds{})", "since it counted last"),
            ("sum by (cluster) (rate(everspot_tick_failures_total{}[5m])) * 60", "given up, a minute"),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    return {
        "title": "Everspot",
        "uid": "everspot",
        "tags": ["everspot"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "job",
                    "label": "Scrape job",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": "label_values(everspot_info, job)",
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                },
                {
                    "name": "cluster",
                    "label": "Cluster",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": "label_values(everspot_info, cluster)",
                    "refresh": 2,
                    "includeAll": True,
                    "allValue": ".*",  # also metrics that were scraped without this label
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, title: str, unit: str, queries: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": SOURCE,
        "gridPos": {
            "x": WIDTH * (number % ACROSS), "y": HEIGHT * (number // ACROSS), "w": WIDTH, "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + n), "datasource": SOURCE, "expr": query.replace("{}", f"{{{MINE}}}"),
                "legendFormat": f"{{{{cluster}}}} {legend}",
            }
            for n, (query, legend) in enumerate(queries)
        ],
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    """Write or check."""
    text = json.dumps(dashboard(), indent=2) + "\n"
    if "--check" in arguments:
        return int(not TARGET.exists() or TARGET.read_text() != text)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
