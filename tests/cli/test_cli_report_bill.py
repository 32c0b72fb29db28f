"""The independent bill: it shares no code with the report, and is equal to it at any moment."""

import json
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from report_helpers import LISTED, T0

ROOT = Path(__file__).parents[2]


def market_log(past, path: Path) -> Path:
    """The market's own log of the same past."""
    lines = []
    for launch in (doc.value for doc in past.store.launches.scan().values()):
        listed = {} if launch.market.value == "spot" else {"usd_per_hour": LISTED[launch.instance_type]}
        lines.append({"event": "launch", "at": launch.launched_at.isoformat(), "id": launch.instance_id,
                      "type": launch.instance_type, "zone": launch.zone, "market": launch.market.value,
                      **listed})  # fmt: skip
    for end in (doc.value for doc in past.store.ends.scan().values()):
        lines.append({"event": "end", "at": end.ended_at.isoformat(), "id": end.instance_id,
                      "interrupted": end.interrupted})  # fmt: skip
    for point in past.store.prices():
        if point.market.value == "spot":
            lines.append({"event": "price", "at": point.at.isoformat(), "type": point.instance_type,
                          "zone": point.zone, "usd": point.usd_per_hour})  # fmt: skip
    lines.sort(key=lambda line: line["at"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def audit(log: Path, until: str) -> float:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/audit_bill.py", log, "--until", until, "--json"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["total_usd"]


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
