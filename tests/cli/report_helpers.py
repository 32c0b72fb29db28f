"""Helpers for tests of the report: its moment, list prices, the report itself, and an independent bill of the same
history."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AS_OF = "2026-03-01T15:00:00Z"
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
LISTED = {"m6i.large": 0.096, "c6i.large": 0.085, "m7i.large": 0.1008, "t3.small": 0.0208}


def run_report(world, *arguments):
    answer = world.run("--json", "report", "--as-of", AS_OF, *arguments)
    assert answer.code == 0, answer.err
    return answer.json


def dollars(*parts):
    """Sum of (seconds, dollars an hour)."""
    return pytest.approx(sum(seconds * usd for seconds, usd in parts) / 3600, abs=1e-6)


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
