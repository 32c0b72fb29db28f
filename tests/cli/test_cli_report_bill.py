"""The report equals an independent bill, which shares no code with it, at any moment."""

import json
import re
from datetime import timedelta

import pytest
from everspot_clouds.price_files import write_table
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_core.jobs.records import EventKind, Reason
from report_helpers import ROOT, T0, audit, market_log


@pytest.mark.parametrize("minutes", [0.5, 30, 100, 180])
def test_the_independent_bill_is_equal_at_any_moment(past, tmp_path, minutes):
    until = (T0 + timedelta(minutes=minutes)).isoformat()
    report = past.run("--json", "report", "--as-of", until).json
    assert report["cost_usd"] == audit(market_log(past, tmp_path / "market.jsonl"), until)
    assert report["cost_usd"] > 0


def test_the_independent_bill_shares_no_code():
    text = (ROOT / "tools/audit_bill.py").read_text()
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.M))
    assert imported <= {"argparse", "json", "sys", "datetime", "decimal", "fractions", "pathlib", "typing"}


def test_the_independent_bill_knows_the_free_first_hour_and_the_minimum(tmp_path):
    log = tmp_path / "market.jsonl"
    lines = [
        {"event": "price", "at": "2026-01-01T00:00:00Z", "type": "t", "zone": "z", "usd": 0.36},
        *({"event": "launch", "at": "2026-01-01T00:00:00Z", "id": i, "type": "t", "zone": "z", "market": "spot"}
          for i in ("free", "paid", "short", "full")),
        {"event": "end", "at": "2026-01-01T00:00:10Z", "id": "short", "interrupted": False},
        {"event": "end", "at": "2026-01-01T00:59:59Z", "id": "free", "interrupted": True},
        {"event": "end", "at": "2026-01-01T00:59:59Z", "id": "paid", "interrupted": False},
        {"event": "end", "at": "2026-01-01T01:00:00Z", "id": "full", "interrupted": True},
    ]  # fmt: skip
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "la')
    assert audit(log, "2026-01-01T02:00:00Z") == pytest.approx((60 + 3599 + 3600) * 0.36 / 3600, abs=1e-6)


def test_what_was_spent_does_not_depend_on_the_folder_of_the_command(past, tmp_path, monkeypatch):
    """The price table of a project is of what comes; the ledger is priced by the cluster's own tables."""
    commands = [("report",), ("chargeback", "--month", "2026-03"), ("audit", "--month", "2026-03"), ("budget",)]
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 10800:.0f}")
    past.submit("later", 9100)
    past.assign("later", "i-base", 9110)  # its pool has no recorded price
    project = tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    before = [past.run("--json", *command).json for command in commands]
    rows = [TypePrice(instance_type=name, on_demand_usd_per_hour=9.0) for name in ("m6i.large", "c6i.large")]
    table = PriceTable(
        cloud="aws", region="us-east-1", as_of=T0, on_demand_source="list", spot_source="spot", prices=rows
    )
    write_table(project / "prices", table)
    monkeypatch.chdir(project)
    assert [past.run("--json", *command).json for command in commands] == before


def test_a_job_whose_last_event_is_missing_is_billed_to_its_release(world, monkeypatch):
    """An agent that cannot write its last event releases the job nevertheless, on an instance that lives on."""
    monkeypatch.setenv("EVERSPOT_CLOCK", f"1e-12@{T0.timestamp() + 10 * 86_400:.0f}")
    world.launch("i-base", 0)
    for job, seconds in (("whole", 100), ("cut", 8000)):
        world.submit(job, seconds, tags={"Team": job})
        world.assign(job, "i-base", seconds + 10)
        world.start(job, seconds + 20)
        world.to(seconds + 3610)
        if job == "whole":
            world.emit(job, EventKind.FINISHED, step=10)
        world.leave(job, seconds + 3610, Reason.FINISHED)
    jobs = {row["job_id"]: row for row in world.run("--json", "report").json["jobs"]}
    assert jobs["cut"]["cost_usd"] == jobs["whole"]["cost_usd"] == pytest.approx(0.096)
    assert jobs["cut"]["job_duration_seconds"] == 3600
    charged = world.run("--json", "chargeback", "--month", "2026-03").json["by"]["Team"]
    assert {row["value"]: row["cost_usd"] for row in charged}["cut"] == jobs["cut"]["cost_usd"]
    until = (T0 + timedelta(seconds=9810)).isoformat()
    earlier = {row["job_id"]: row for row in world.run("--json", "report", "--as-of", until).json["jobs"]}
    assert earlier["cut"]["cost_usd"] == pytest.approx(0.048), "it ran at that moment"
    assert earlier["cut"]["state"] == "RUNNING"
