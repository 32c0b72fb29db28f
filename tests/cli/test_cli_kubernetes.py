"""The cluster's past on Kubernetes: its bill counts nodes, as an independent one does, and doctor knows where it is."""

import csv
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.jobs.records import Role
from report_helpers import AS_OF, T0, audit, market_log, run_report

BEFORE, AFTER = timedelta(seconds=60), timedelta(seconds=30)


@pytest.fixture
def pods(past: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The past with agents that are pods, each on a node that was launched earlier and was gone later than it."""
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 3 * 3600:.0f}")
    past.store.write_manifest(past.store.manifest().model_copy(update={"cloud": "kubernetes"}))
    for name, document in past.store.launches.scan().items():
        launch, node = document.value, name.replace("i-", "i-node-")
        if launch.role is Role.AGENT:
            fields = {"instance_id": node, "role": Role.NODE, "launched_at": launch.launched_at - BEFORE}
            past.store.launches.create(node, launch.model_copy(update=fields))
            past.store.launches.put(name, launch.model_copy(update={"node": node}))
            if (end := past.store.ends.get(name)) is not None:
                ended = {"instance_id": node, "ended_at": end.value.ended_at + AFTER, "interrupted": False}
                past.store.ends.create(node, end.value.model_copy(update=ended))
    return past


def test_the_report_equals_the_independent_bill_of_the_nodes(pods: Any, tmp_path: Path) -> None:
    report = run_report(pods)
    log = market_log(pods, tmp_path / "log.jsonl")
    agents = [name for name, doc in pods.store.launches.scan().items() if doc.value.role is Role.AGENT]
    lines = [line for line in log.read_text().splitlines() if not any(f'"id": "{name}"' in line for name in agents)]
    log.write_text("".join(f"{line}\n" for line in lines))
    assert report["cost_usd"] > 0
    assert report["cost_usd"] == pytest.approx(audit(log, AS_OF), abs=1e-6)
    assert {row["role"] for row in report["instances"]} == {"node", "scheduler"}
    assert not set(agents) & {row["instance_id"] for row in report["instances"]}
    moved = next(job for job in report["jobs"] if job["job_id"] == "moved")
    assert moved["attempts"] == 3 and moved["cost_usd"] > 0


def test_chargeback_budgets_and_focus_say_the_same(pods: Any, tmp_path: Path) -> None:
    report = run_report(pods)
    charged = pods.run("--json", "chargeback", "--month", "2026-03").json
    assert charged["cost_usd"] == pytest.approx(report["cost_usd"], abs=1e-6)
    lines = {line["kind"]: line["cost_usd"] for line in charged["by"]["Team"]}
    assert lines["boot"] > 0 and lines["drain"] > 0
    assert "(drain)" in pods.run("chargeback", "--month", "2026-03").out
    path = tmp_path / "focus.csv"
    assert pods.run("export", "focus", "--month", "2026-03", "--out", str(path)).code == 0
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert sum(float(row["BilledCost"]) for row in rows) == pytest.approx(report["cost_usd"], abs=1e-6)
    assert any(row["ResourceId"] == "i-node-spot1" for row in rows)
    assert not any(row["ResourceId"] == "i-spot1" for row in rows)
    budgets = {
        (row["team"], row["period"], row["unit"]): row["spent"] for row in pods.run("budget", "--json").json["budgets"]
    }
    assert budgets[None, "day", "dollars"] == pytest.approx(report["cost_usd"], abs=1e-5)
    moved = next(job for job in report["jobs"] if job["job_id"] == "moved")
    assert budgets["research", "day", "dollars"] == pytest.approx(moved["cost_usd"], abs=1e-5)


def test_instances_are_agents_and_not_the_nodes_beneath_them(pods: Any) -> None:
    rows = pods.run("--json", "instances", "--all").json
    listed = rows["instances"] if isinstance(rows, dict) else rows
    assert {row["role"] for row in listed} <= {"agent", "scheduler"}


def test_doctor_asks_the_api_server_whose_store_is_another_clouds(pods: Any) -> None:
    answer = pods.run("--json", "doctor", env={"KUBECONFIG": "/nonexistent"})
    (check,) = (check for check in answer.json["checks"] if check["name"] == "kubernetes")
    assert (check["group"], check["verdict"]) == ("credentials", "fail")
    assert "KUBECONFIG" in check["fix"]


def test_doctor_names_the_nodes_that_others_keep(pods: Any) -> None:
    """Somebody's pod that tolerates the agents' taint keeps a node from being empty."""

    def check() -> tuple[str, str]:
        (row,) = (c for c in pods.run("--json", "doctor").json["checks"] if c["name"] == "instances")
        return row["verdict"], row["detail"]

    assert "i-node-spot1" not in check()[1]
    pods.store.ends.delete("i-node-spot1")
    verdict, detail = check()
    assert verdict == "warn" and "no agent has run for 5 minutes on i-node-spot1: nodes that cost money" in detail
