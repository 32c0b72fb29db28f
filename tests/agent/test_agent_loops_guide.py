"""The programs in the guide on other frameworks are stopped and resumed unchanged."""

import re
from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.records import EventKind, JobState, Reason

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "frameworks.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
LONG = 300.0


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


def framework(program: str) -> str:
    match = re.search(r"from everspot_train\.frameworks\.(\w+) import", program)
    assert match is not None
    return match[1]


@pytest.mark.torch
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "program", [PROGRAMS[0], *(pytest.param(p, marks=pytest.mark.nightly) for p in PROGRAMS[1:])], ids=framework
)
def test_a_program_of_the_guide_resumes_where_it_was_stopped(cluster: Cluster, tmp_path: Path, program: str) -> None:
    code = tmp_path / "src"
    code.mkdir()
    # So that the stop comes while it trains, however fast the machine is.
    (code / "train.py").write_text(f"import torch, time\ntorch.set_num_threads(1)\n{slowed(program)}")
    env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    cluster.submit("job-1", code, name="guide", entrypoint=["train.py"], env=env, retries={"errors": 0})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    outputs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/output.log"))  # noqa: E731
    trains = re.compile(r"EVERSPOT step=[1-9]")
    eventually("it trains", lambda: any(trains.search(file.read_text()) for file in outputs()), LONG)
    cluster.stop("i-1", Reason.DRILL)
    stopped = cluster.wait_state("job-1", JobState.PENDING, JobState.FAILED, JobState.SUCCEEDED, seconds=LONG)
    assert stopped.state is JobState.PENDING, cluster.printed()
    cluster.assign("job-1", "i-1")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, seconds=LONG)
    assert record.state is JobState.SUCCEEDED, cluster.printed()
    (_, resumed) = cluster.events("job-1", EventKind.TRAINING)
    assert resumed.data["from_step"] == stopped.progress.step > 0
    assert record.progress.step == record.progress.total_steps
    assert "loss" in record.progress.metrics


def slowed(program: str) -> str:
    """The program with a loss function that takes a while during the first attempt."""
    return (
        "from pathlib import Path\n"
        "if not Path('checkpoints').is_dir() or not any(Path('checkpoints').iterdir()):\n"
        "    forward = torch.nn.Linear.forward\n"
        "    torch.nn.Linear.forward = lambda *a: time.sleep(0.02) or forward(*a)\n"
    ) + program
