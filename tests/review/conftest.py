"""Event logs that the real engine wrote for the local stacks, and their parsed contents.

They are as recorded, but for what no reader looks at: debug lines, what resources that stay are made of, outputs that
were not compared, and where the machine keeps its files. `*-again` are second previews of the same change.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from everspot_clouds.aws.resources import KINDS as AWS
from everspot_clouds.base.resources import ResourceKinds, joined
from everspot_clouds.gcp.resources import KINDS as GCP
from everspot_clouds.kubernetes.resources import KINDS as KUBERNETES
from everspot_core.capacity.market import Market
from everspot_review.event_log import EventLog
from everspot_review.events import read
from everspot_review.jobs import RunningJobs
from everspot_review.judge import judge
from everspot_review.report import EnvironmentReport

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers in this folder
LOGS = Path(__file__).parent / "logs"
KINDS = joined(AWS, GCP, KUBERNETES)
RUNNING = RunningJobs({Market.SPOT: 3, Market.ON_DEMAND: 1})


@pytest.fixture(scope="session")
def lines() -> Callable[[str], list[str]]:
    """The lines of a recorded log."""
    return lambda name: (LOGS / f"{name}.jsonl").read_text().splitlines()


@pytest.fixture(scope="session")
def log(lines: Callable[[str], list[str]]) -> Callable[[str], EventLog]:
    """A recorded log, read."""
    logs: dict[str, EventLog] = {}

    def read_once(name: str) -> EventLog:
        if name not in logs:
            logs[name] = read(lines(name))
        return logs[name]

    return read_once


@pytest.fixture(scope="session")
def report(log: Callable[[str], EventLog]) -> Callable[..., EnvironmentReport]:
    """The report on a recorded preview, while three jobs run on Spot and one on-demand."""

    def build(name: str, environment: str = "aws-dev", **more: Any) -> EnvironmentReport:
        arguments = {"kinds": KINDS, "running": RUNNING, "base": "a" * 40, "head": "b" * 40} | more
        return judge(log(name), environment=environment, stack=environment, **arguments)

    return build


@pytest.fixture(scope="session")
def step_line() -> Callable[..., str]:
    """A line of a log: one step of one resource."""

    def line(op: str = "update", name: str = "thing", type: str = "aws:s3/bucket:Bucket", **more: Any) -> str:
        parents = more.pop("parents", "")
        urn = f"urn:pulumi:dev::everspot::{parents}{type}::{name}"
        sides = {}
        for side in ("old", "new"):
            inputs, flags = more.pop(side, {}), more.pop(f"{side}_flags", {})
            exists = inputs is not None and not (side == "old" and op.startswith("create"))
            sides[side] = {"custom": True, "id": "id-1", "inputs": inputs, "outputs": {}, **flags} if exists else None
        metadata = {"op": op, "urn": urn, "type": type, "detailedDiff": {}, **sides, **more}
        return json.dumps({"sequence": 1, "resourcePreEvent": {"metadata": metadata}})

    return line


@pytest.fixture(scope="session")
def kinds() -> ResourceKinds:
    """The resource kinds of both clouds."""
    return KINDS


@pytest.fixture(scope="session")
def running() -> RunningJobs:
    """Three jobs on Spot and one on-demand."""
    return RUNNING
