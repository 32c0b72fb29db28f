"""A program on the trainer library that ends with 0 before its last step, on a real agent."""

from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster
from everspot_core.jobs.records import EventKind, JobState

PROGRAM = Path(__file__).parent / "programs" / "early"


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("how", "message", "durable"),
    [
        ("break", "ended at step 3 of 9 with exit code 0. If it is finished there, let it call run.finish()", 3),
        pytest.param(
            "sys.exit", "ended at step 3 of 9 with exit code 0. If it is finished there, let it call run.finish()", 3,
            marks=pytest.mark.nightly,
        ),
        ("os._exit", "inside of its `with Run.open(…)`", None),
        ("finish", "", 3),
    ],
)  # fmt: skip
def test_an_early_end_is_an_error_unless_the_program_says_that_it_is_finished(
    how: str, message: str, durable: int | None, cluster: Cluster
) -> None:
    cluster.submit(
        "job-1", PROGRAM, name="early", entrypoint=["early.py"], env={"EARLY": how}, retries={"errors": 0}
    )  # fmt: skip
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")

    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, seconds=240)

    assert record.state is (JobState.FAILED if message else JobState.SUCCEEDED)
    assert record.progress.durable_step == durable
    for event in cluster.events("job-1", EventKind.ERROR):
        assert message in event.data["message"]
    assert bool(message) == bool(cluster.events("job-1", EventKind.ERROR))
    head = cluster.store.checkpoints("job-1").head()
    assert [c.step for c in head.checkpoints] == ([3] if durable else [])
