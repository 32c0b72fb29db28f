"""`stop` of a job file on a whole cluster of the local cloud: instances are taken with notice, and the jobs end where
undisturbed ones do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_helpers import PROGRAMS, LiveCluster, everspot, forking
from everspot_core.jobs.records import EventKind, JobState

# tests/agent/test_agent_early_stop.py interrupts both kinds of programs under real agents, and test_e2e_put_off.py has
# a job begin after another one on a whole cluster.
pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.timeout(1800)]

HOLD = 30
RULE = {"metric": "val_loss", "min_delta": "0.1%", "patience": 12}


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "e2e", agent_env=forking()) as cluster:
        monkeypatch.setenv("EVERSPOT_CLOCK", cluster.cloud.market.clock.variable)
        yield cluster


def submit(folder: Path, name: str, program: str, **fields: Any) -> str:
    gate = folder / f"gate-{name}"
    gate.mkdir()
    env = {"GATE": str(gate), "HOLD": str(HOLD) if "interrupted" in name else "0"}
    job = {"name": name, "code": str(PROGRAMS / "stopping"), "entrypoint": [program], "stop": RULE, "env": env}
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps({k: v for k, v in (job | fields).items() if v is not None}))
    return str(json.loads(everspot("submit", str(file), "--json"))["job_id"])


def interrupt(live: LiveCluster, gate: Path, job: str) -> None:
    """Take the instance of a job that is held at a step, and let the job go on once it knows."""
    live.until(lambda: (gate / f"held-{HOLD}").exists())
    live.cloud.do("interrupt", instance=live.store.records.get(job).value.owner)
    live.until(lambda: live.list_events(job, EventKind.STOP_DEMANDED))
    (gate / f"go-{HOLD}").touch()


def test_interrupted_jobs_stop_where_undisturbed_ones_do_and_later_jobs_begin(
    live: LiveCluster, tmp_path: Path
) -> None:
    plain = submit(tmp_path, "plain-interrupted", "plain.py", checkpoint={"every": "5s"})
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "plain.py").write_text("print('began')")
    later = submit(tmp_path, "later", "plain.py", stop=None, code=str(tmp_path / "later"), after=["plain-interrupted"])
    interrupt(live, tmp_path / "gate-plain-interrupted", plain)
    fit = submit(tmp_path, "fit-interrupted", "fit.py")
    undisturbed = submit(tmp_path, "fit-undisturbed", "fit.py")
    interrupt(live, tmp_path / "gate-fit-interrupted", fit)

    for job in (plain, later, fit, undisturbed):
        assert live.until(lambda job=job: live.ended(job)) is JobState.SUCCEEDED, job
    rows = {row["job_id"]: row for row in json.loads(everspot("jobs", "--all", "--json"))}
    assert rows[plain]["interruptions"] == rows[fit]["interruptions"] == 1
    assert rows[undisturbed]["interruptions"] == 0
    assert (rows[plain]["early_stop"]["step"], rows[plain]["early_stop"]["best_step"]) == (80, 20)
    assert rows[fit]["early_stop"] == rows[undisturbed]["early_stop"]
    assert rows[fit]["step"] == rows[fit]["early_stop"]["step"]
    assert rows[later]["early_stop"] is None

    jobs = {job["job_id"]: job["early_stop"] for job in json.loads(everspot("report", "--json"))["jobs"]}
    for job in (plain, fit):
        assert jobs[job]["sentence"] == rows[job]["detail"]
        assert jobs[job]["steps_not_done"] == 100_000 - rows[job]["step"]
        assert jobs[job]["usd_not_spent_estimate"] > 0
