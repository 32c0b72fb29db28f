"""A destroy while jobs run, through the real engine; the store is a folder, and there is no cloud."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from everspot.guard import FORCE
from everspot_core.jobs.records import JobRecord, JobState
from everspot_store import Store
from pulumi import automation

ROOT = Path(__file__).resolve().parents[2]
UP = ("up", "--yes", "--skip-preview", "--color=never")
DESTROY = ("destroy", "--yes", "--skip-preview", "--color=never")
PROGRAM = """
import pulumi
from everspot.guard import guard

class Whole(pulumi.ComponentResource):
    def __init__(self):
        super().__init__("everspot:index:Whole", "whole")
        part = pulumi.Stash("part", pulumi.ResourceOptions(parent=self), input="what jobs run on")
        guard(self, "whole-guard", {url!r}, [part], on={on})
        self.register_outputs({{}})

Whole()
"""

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


def test_destroy_is_refused_while_jobs_run_and_nothing_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file://{tmp_path}/control"
    (tmp_path / "control").mkdir()
    (tmp_path / "state").mkdir()
    store = Store.open(url, url)
    runs = JobRecord(job_id="fashion-1", state=JobState.RUNNING, changed_at=datetime(2026, 1, 1, tzinfo=UTC))
    record_version = store.records.create("fashion-1", runs)
    assert record_version is not None
    (tmp_path / "Pulumi.yaml").write_text("name: guarded\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(PROGRAM.format(url=url, on=True))
    env = {
        "PATH": f"{ROOT}/.everspot/toolchain/bin:{ROOT}/.venv/bin:{os.environ['PATH']}",
        "PULUMI_BACKEND_URL": f"file://{tmp_path}/state", "PULUMI_CONFIG_PASSPHRASE": "x",
        "PULUMI_HOME": str(tmp_path / "home"), "PULUMI_SKIP_UPDATE_CHECK": "1", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    monkeypatch.setenv("PATH", env["PATH"])
    engine = automation.PulumiCommand()

    def pulumi(*words: str) -> str:
        return engine.run([*words, "--stack=dev"], str(tmp_path), env).stdout

    engine.run(["stack", "init", "dev"], str(tmp_path), env)
    pulumi(*UP)
    with pytest.raises(automation.CommandError, match="--run-program"):
        pulumi(*DESTROY)
    with pytest.raises(
        automation.CommandError, match=r"1 job would be ended: fashion-1\. `everspot cluster drain --wait` first"
    ):
        pulumi(*DESTROY, "--run-program")
    names = {r["urn"].rsplit("::", 1)[1] for r in resources(pulumi("stack", "export"))}
    assert {"part", "whole-guard"} <= names
    # A disabled guard is deleted while jobs run, because the engine still has its hook. That needs no program.
    (tmp_path / "__main__.py").write_text(PROGRAM.format(url=url, on=False))
    pulumi(*UP)
    pulumi(*DESTROY)
    (tmp_path / "__main__.py").write_text(PROGRAM.format(url=url, on=True))
    pulumi(*UP)
    # Drained: what waits is no reason. Forced works too, which the environment of the destroy says.
    assert (
        store.records.replace("fashion-1", record_version, runs.model_copy(update={"state": JobState.PENDING}))
        is not None
    )
    pulumi(*DESTROY, "--run-program")
    assert resources(pulumi("stack", "export")) == []
    assert FORCE == "EVERSPOT_FORCE_DESTROY"


def resources(state: str) -> list[dict[str, Any]]:
    return list(json.loads(state)["deployment"].get("resources", []))
