"""A destroy over running jobs, through the real engine; the store is a folder, and there is no cloud."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from everspot.guard import FORCE
from everspot_core.records import JobRecord, JobState
from everspot_store import Store
from pulumi import automation

ROOT = Path(__file__).resolve().parents[2]
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
    kept = store.records.create("fashion-1", runs)
    assert kept is not None
    (tmp_path / "Pulumi.yaml").write_text("name: guarded\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(PROGRAM.format(url=url, on=True))
    env = {
        "PULUMI_BACKEND_URL": f"file://{tmp_path}/state", "PULUMI_CONFIG_PASSPHRASE": "x",
        "PULUMI_HOME": str(tmp_path / "home"), "PULUMI_SKIP_UPDATE_CHECK": "1", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    monkeypatch.setenv("PATH", f"{ROOT}/.everspot/toolchain/bin:{ROOT}/.venv/bin:{os.environ['PATH']}")
    options = automation.LocalWorkspaceOptions(env_vars=env)
    stack = automation.create_or_select_stack(stack_name="dev", work_dir=str(tmp_path), opts=options)
    stack.up(color="never")
    with pytest.raises(automation.CommandError, match="--run-program"):
        stack.destroy(color="never")
    with pytest.raises(
        automation.CommandError, match=r"1 job would be ended: fashion-1\. `everspot drain --wait` first"
    ):
        stack.destroy(color="never", run_program=True)
    names = {r["urn"].rsplit("::", 1)[1] for r in stack.export_stack().deployment["resources"]}
    assert {"part", "whole-guard"} <= names
    # Switched off, the guard goes by itself, whatever runs: and the engine still knows its hook.
    for on in (False, True):
        (tmp_path / "__main__.py").write_text(PROGRAM.format(url=url, on=on))
        stack.up(color="never")
    # Drained: what waits is no reason. Forced works too, which the environment of the destroy says.
    assert store.records.replace("fashion-1", kept, runs.model_copy(update={"state": JobState.PENDING})) is not None
    stack.destroy(color="never", run_program=True)
    assert stack.export_stack().deployment.get("resources", []) == []
    assert FORCE == "EVERSPOT_FORCE_DESTROY"
