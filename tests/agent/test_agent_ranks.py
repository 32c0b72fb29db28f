"""A plain program of two ranks goes on from its last checkpoint after one rank was killed."""

import sys
from pathlib import Path

import pytest
from agent_helpers import Cluster, eventually
from everspot_core.records import JobState

FRAMEWORKS = Path(__file__).parent / "programs" / "frameworks"
TORCHRUN = f"{sys.executable} -m everspot_train.launcher --standalone --nproc-per-node=2"
LONG = 300.0


@pytest.mark.nightly  # a rank of gloo may die with SIGABRT when it exits (1 of 12 runs on a busy machine)
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_two_ranks_go_on_from_the_last_checkpoint_after_one_was_killed(cluster: Cluster, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    spec = {"checkpoint": {"every": "5s"}, "retries": {"errors": 2, "backoff": "1s"}}
    env = {"NOTES": str(notes), "OMP_NUM_THREADS": "1"}
    cluster.submit("job-1", FRAMEWORKS, name="ranks", entrypoint=["ranks.py"], env=env, **spec)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1", EVERSPOT_LAUNCHER=TORCHRUN)
    eventually("it is kept", lambda: cluster.store.data.list("jobs/job-1/checkpoints/"), LONG)
    (notes / "kept").touch()
    record = cluster.wait_state("job-1", JobState.PENDING, JobState.FAILED, seconds=LONG)
    assert record.state is JobState.PENDING
    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, JobState.PENDING, seconds=LONG)
    text = b"".join(chunk.data for chunk in cluster.store.read_logs("job-1") if chunk.epoch == 2).decode()
    assert record.state is JobState.SUCCEEDED, text
    assert sorted(line for line in text.splitlines() if "begins at" in line) == [
        "rank 0 begins at 10",
        "rank 1 begins at 10",
    ]
