"""The dashboard and the guide name exactly the metrics that exist."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from everspot_scheduler.watch.prometheus import PrometheusWatcher

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "docs/grafana/everspot.json"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "info": ("_info",), "gauge": ("",)}


@pytest.fixture(scope="module")
def metric_types(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return every metric of a scheduler in a cluster with all features, with its type."""
    from elastic_helpers import ElasticCluster
    from everspot_scheduler.loop import Scheduler
    from everspot_store import ManualClock
    from scheduler_helpers import folder_store

    clock = ManualClock()
    here = ElasticCluster(folder_store(tmp_path_factory.mktemp("cluster"), clock), clock)
    watcher = PrometheusWatcher()
    here.schedulers = [Scheduler(here.store, here.manifest, here.cloud, "s1", watchers=[watcher])]
    here.run(1)
    return {family.name: family.type for family in watcher.registry.collect()}


def series(metric_types: dict[str, str]) -> set[str]:
    return {f"{name}{suffix}" for name, kind in metric_types.items() for suffix in SUFFIXES[kind]}


def test_the_dashboard_asks_for_every_metric_that_there_is_and_for_no_other(metric_types: dict[str, str]) -> None:
    board = json.loads(DASHBOARD.read_text())
    queried = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\beverspot_\w+", target["expr"])
    }
    queried |= set(re.findall(r"\beverspot_\w+", json.dumps(board["templating"])))
    assert queried - series(metric_types) == set()
    shown = {
        name for name, kind in metric_types.items() if any(f"{name}{suffix}" in queried for suffix in SUFFIXES[kind])
    }
    assert set(metric_types) - shown == set()


def test_every_query_is_of_the_chosen_jobs_and_of_each_cluster_by_itself() -> None:
    expressions = [t["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for t in panel["targets"]]
    selectors = [s for e in expressions for s in re.findall(r"everspot_\w+(\{[^}]*\})?", e)]
    assert [s for s in selectors if 'job=~"$job"' not in s or 'cluster=~"$cluster"' not in s] == []
    mixed = r"\b(?:sum|max|min)\b(?! by \(cluster\b)"
    assert [e for e in expressions if re.search(mixed, e)] == []


def test_gauges_are_not_summed_over_two_schedulers_that_run_at_once(metric_types: dict[str, str]) -> None:
    expressions = [t["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for t in panel["targets"]]
    summed = {name for e in expressions for name in re.findall(r"sum by \([^)]*\) \((everspot_\w+)", e)}
    assert {name for name in summed if metric_types.get(name) == "gauge"} == set()


def test_no_two_panels_lie_on_each_other() -> None:
    places = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    cells = {(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])}
    assert len(cells) == sum(p["w"] * p["h"] for p in places)
    assert max(x for x, _ in cells) < 24


def test_the_guide_has_each_metric_with_its_labels(metric_types: dict[str, str]) -> None:
    rows = re.findall(r"^\| (`everspot_[^|]*) \|", (ROOT / "docs/guide/monitoring.md").read_text(), re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(everspot_\w+)`", row)}
    ends = {"counter": "_total", "info": "_info"}
    assert documented == {f"{name}{ends.get(kind, '')}" for name, kind in metric_types.items()}


def test_the_dashboard_is_the_one_that_its_tool_writes() -> None:
    tool = [sys.executable, ROOT / "tools/grafana.py", "--check"]
    assert subprocess.run(tool, check=False, timeout=60).returncode == 0
