"""`cache`, `run_if` and `continue_from` of job files on a whole cluster of the local cloud: a chain of real programs is
submitted twice, and then with one byte of its code changed; a series runs beside it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
print("EVERSPOT step=1 accuracy=0.9", flush=True)
"""


COUNT = """
import os, pathlib
before = pathlib.Path(os.environ.get("EVERSPOT_INPUTS", "none"), "weekly", "count")
folder = pathlib.Path(os.environ["EVERSPOT_OUTPUT_DIR"])
folder.mkdir(exist_ok=True)
(folder / "count").write_text(str(int(before.read_text()) + 1 if before.exists() else 1))
"""


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "e2e", agent_env=PLAIN) as cluster:
        monkeypatch.setenv("EVERSPOT_CLOCK", cluster.cloud.market.clock.variable)
        yield cluster


def submit(folder: Path, name: str, **fields: Any) -> str:
    (folder / f"{name}.yaml").write_text(json.dumps({"name": name, "entrypoint": ["main.py"]} | fields))
    return str(json.loads(everspot("submit", str(folder / f"{name}.yaml"), "--json"))["job_id"])


def submit_chain(folder: Path) -> list[str]:
    """Submit both stages; the ids of their jobs."""
    jobs = []
    for name, after in (("prepare", []), ("train", ["prepare"])):
        jobs.append(submit(folder, name, code=str(folder / name), after=after, cache=True))
    return jobs


def test_an_unchanged_chain_is_not_run_again_a_condition_skips_and_a_series_continues(
    live: LiveCluster, tmp_path: Path
) -> None:
    for name, program in (("prepare", PREPARE), ("train", TRAIN), ("weekly", COUNT)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.py").write_text(program)

    def run_chain() -> list[str]:
        jobs = submit_chain(tmp_path)
        for job in jobs:
            assert live.until(lambda job=job: live.ended(job)) is JobState.SUCCEEDED, everspot("logs", job)
        return jobs

    weekly = submit(tmp_path, "weekly", code=str(tmp_path / "weekly"), every="1m", continue_from="last")
    prepare, train = run_chain()
    prepare_again, train_again = run_chain()
    deployed = {"code": str(tmp_path / "weekly"), "after": ["train"]}
    skipped = submit(tmp_path, "deployed", **deployed, run_if="metric(train.accuracy) > 0.95")
    (tmp_path / "train" / "main.py").write_text(TRAIN.replace('"model")', '"Model")'))
    prepare_third, train_third = run_chain()

    for job, producer in ((prepare_again, prepare), (train_again, train), (prepare_third, prepare)):
        assert live.store.records.get(job).value.reused_from == producer
        assert not live.list_events(job, EventKind.ASSIGNED)
    assert live.list_events(train_third, EventKind.ASSIGNED)
    everspot("pull", prepare_third, "--to", str(tmp_path / "pulled"))
    words = (tmp_path / "pulled" / prepare_third / "deep" / "words.txt").read_text()
    assert f"trained on {words}" in everspot("logs", train_third)

    assert live.until(lambda: live.ended(skipped)) is JobState.SKIPPED
    assert live.until(lambda: live.ended(f"{weekly}-2")) is JobState.SUCCEEDED
    everspot("pull", f"{weekly}-2", "--to", str(tmp_path / "pulled"))
    assert (tmp_path / "pulled" / f"{weekly}-2" / "count").read_text() == "2"

    report = json.loads(everspot("report", "--json"))
    rows = {job["job_id"]: job for job in report["jobs"]}
    saved = 2 * rows[prepare]["cost_usd"] + rows[train]["cost_usd"]
    assert saved > 0
    assert report["reused_stages"]["usd_not_spent"] == pytest.approx(saved, abs=2e-6)
    assert rows[train_third]["reused"] is None
    assert rows[skipped]["cost_usd"] == 0
