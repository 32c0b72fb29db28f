"""`cache` of a job file on a whole cluster of the local cloud: a chain of real programs is submitted twice, and then
with one byte of its code changed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_helpers import PLAIN, LiveCluster, everspot
from everspot_core.jobs.records import EventKind, JobState

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]

PREPARE = """
import os, pathlib, uuid
folder = pathlib.Path(os.environ["EVERSPOT_OUTPUT_DIR"])
(folder / "deep").mkdir(parents=True)
(folder / "deep" / "words.txt").write_text(uuid.uuid4().hex)
"""
TRAIN = """
import os, pathlib
print("trained on", (pathlib.Path(os.environ["EVERSPOT_INPUTS"]) / "prepare/deep/words.txt").read_text(), flush=True)
folder = pathlib.Path(os.environ["EVERSPOT_OUTPUT_DIR"])
folder.mkdir(exist_ok=True)
(folder / "model").write_text("model")
"""


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "e2e", agent_env=PLAIN) as cluster:
        monkeypatch.setenv("EVERSPOT_CLOCK", cluster.cloud.market.clock.variable)
        yield cluster


def submit_chain(folder: Path) -> list[str]:
    """Submit both stages; the ids of their jobs."""
    jobs = []
    for name, after in (("prepare", []), ("train", ["prepare"])):
        job = {"name": name, "code": str(folder / name), "entrypoint": ["main.py"], "after": after, "cache": True}
        (folder / f"{name}.yaml").write_text(json.dumps(job))
        jobs.append(json.loads(everspot("submit", str(folder / f"{name}.yaml"), "--json"))["job_id"])
    return jobs


def test_an_unchanged_chain_is_not_run_again_and_a_changed_stage_reads_the_reused_outputs(
    live: LiveCluster, tmp_path: Path
) -> None:
    for name, program in (("prepare", PREPARE), ("train", TRAIN)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.py").write_text(program)

    def run_chain() -> list[str]:
        jobs = submit_chain(tmp_path)
        for job in jobs:
            assert live.until(lambda job=job: live.ended(job)) is JobState.SUCCEEDED, everspot("logs", job)
        return jobs

    prepare, train = run_chain()
    prepare_again, train_again = run_chain()
    (tmp_path / "train" / "main.py").write_text(TRAIN.replace('"model")', '"Model")'))
    prepare_third, train_third = run_chain()

    for job, producer in ((prepare_again, prepare), (train_again, train), (prepare_third, prepare)):
        assert live.store.records.get(job).value.reused_from == producer
        assert not live.list_events(job, EventKind.ASSIGNED)
    assert live.list_events(train_third, EventKind.ASSIGNED)
    everspot("pull", prepare_third, "--to", str(tmp_path / "pulled"))
    words = (tmp_path / "pulled" / prepare_third / "deep" / "words.txt").read_text()
    assert f"trained on {words}" in everspot("logs", train_third)

    report = json.loads(everspot("report", "--json"))
    rows = {job["job_id"]: job for job in report["jobs"]}
    saved = 2 * rows[prepare]["cost_usd"] + rows[train]["cost_usd"]
    assert saved > 0
    assert report["reused_stages"]["usd_not_spent"] == pytest.approx(saved, abs=2e-6)
    assert rows[train_third]["reused"] is None
