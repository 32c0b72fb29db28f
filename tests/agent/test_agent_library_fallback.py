"""A program on the trainer library that cannot load its newest checkpoint goes on from the one before."""

import json
from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.records import EventKind, JobState, Reason

FRAMEWORKS = Path(__file__).parent / "programs" / "frameworks"
LONG = 300.0


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


def printed(cluster: Cluster, epoch: int) -> str:
    chunks = cluster.store.read_logs("job-1")
    return b"".join(chunk.data for chunk in chunks if chunk.epoch == epoch).decode()


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_library_program_that_cannot_load_its_newest_checkpoint_goes_on_from_the_one_before(
    cluster: Cluster, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    spec = {"checkpoint": {"every": "5s"}, "retries": {"errors": 2, "backoff": "1s"}}
    env = {"NOTES": str(notes), "OMP_NUM_THREADS": "1"}
    cluster.submit("job-1", FRAMEWORKS, name="spoiled", entrypoint=["spoiled.py"], env=env, **spec)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    eventually("it is kept", lambda: cluster.events("job-1", EventKind.CHECKPOINTED), LONG)
    (notes / "kept").touch()
    cluster.stop("i-1", Reason.DRILL)
    cluster.wait_state("job-1", JobState.PENDING, seconds=LONG)
    (notes / "stopped").touch()

    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.PENDING, JobState.FAILED, seconds=LONG)
    assert record.state is JobState.PENDING, printed(cluster, 2)
    assert "the table is spoiled" in printed(cluster, 2)

    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.PENDING, JobState.FAILED, seconds=LONG)
    assert record.state is JobState.SUCCEEDED, printed(cluster, 3)
    (fell_back,) = cluster.events("job-1", EventKind.FELL_BACK)
    data = json.loads(fell_back.to_json())["data"]
    assert data["count"] == 1 and 0 < data["to_step"] < data["from_step"]
    assert f"began at {data['to_step']}\n" in printed(cluster, 3)
