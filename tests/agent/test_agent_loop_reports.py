"""What loops of Hugging Face, Lightning and Accelerate report, and where they begin, under a real agent."""

import json
import os
import subprocess
from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.records import EventKind, JobState, Reason

PROGRAMS = Path(__file__).parent / "programs"
LOOPS = PROGRAMS / "loops"
LONG = 300.0


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_loop_over_a_stream_resumes_and_reports_all_its_metrics(cluster: Cluster, tmp_path: Path) -> None:
    by_hand = tmp_path / "by-hand"
    by_hand.mkdir()
    (by_hand / "here").touch()  # it waits for nobody
    env = {"OMP_NUM_THREADS": "1", "HABITS": ""}
    whole = {"PATH": os.environ["PATH"], "HOME": str(by_hand), "NOTES": str(by_hand), **env}
    subprocess.run(
        [*program_forks.command(), str(LOOPS / "reports.py")], cwd=by_hand, env=whole, check=True, timeout=600
    )
    undisturbed = json.loads((by_hand / "result.json").read_text())
    assert undisturbed["steps"] == 40

    notes = tmp_path / "notes"
    notes.mkdir()
    cluster.submit("job-1", LOOPS, name="loop", entrypoint=["reports.py"], env={**env, "NOTES": str(notes)})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    ended = (JobState.PENDING, JobState.FAILED, JobState.SUCCEEDED)
    eventually("it is there", lambda: (notes / "here").exists() or cluster.record("job-1").state in ended, LONG)
    assert (notes / "here").exists(), cluster.printed()
    cluster.stop("i-1", Reason.DRILL)
    run_dirs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/stop.json"))  # noqa: E731
    eventually("it is asked to stop", run_dirs, LONG)
    (notes / "struck").touch()
    stopped = cluster.wait_state("job-1", *ended, seconds=LONG)
    assert stopped.state is JobState.PENDING, cluster.printed()
    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    record = cluster.wait_state("job-1", *ended, seconds=LONG)

    assert record.state is JobState.SUCCEEDED, cluster.printed()
    assert json.loads((notes / "result.json").read_text()) == undisturbed
    (_, resumed) = cluster.events("job-1", EventKind.TRAINING)
    assert resumed.data["from_step"] == stopped.progress.step == 31
    assert record.progress.step == 40
    assert record.progress.metrics["loss"] == pytest.approx(undisturbed["loss"])
    assert len(record.progress.metrics) == 151
    assert record.progress.metrics[f"per_class/accuracy_of_class_00149_{'x' * 40}"] == 149 / 7


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_the_first_attempt_begins_with_the_user_s_checkpoint(cluster: Cluster, framework: str) -> None:
    env = {"OMP_NUM_THREADS": "1", "FRAMEWORK": framework}
    cluster.submit(
        "job-1", PROGRAMS / "frameworks", name="loop", entrypoint=["begin.py"], env=env, retries={"errors": 0}
    )
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    record = cluster.wait_state("job-1", JobState.FAILED, JobState.SUCCEEDED, seconds=LONG)
    assert record.state is JobState.SUCCEEDED, cluster.printed()
    (training,) = cluster.events("job-1", EventKind.TRAINING)
    assert "EVERSPOT step=5 " in cluster.printed() and "EVERSPOT step=0 " not in cluster.printed()
    assert training.data["from_step"] == 5
    assert record.progress.step == 10


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_trainer_of_lightning_with_its_defaults_keeps_its_checkpoints_and_reports_no_placeholder(
    cluster: Cluster, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    env = {"OMP_NUM_THREADS": "1", "NOTES": str(notes)}
    cluster.submit("job-1", PROGRAMS / "frameworks", name="loop", entrypoint=["defaults.py"], env=env)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    ended = (JobState.PENDING, JobState.FAILED, JobState.SUCCEEDED)
    eventually("it is there", lambda: (notes / "here").exists() or cluster.record("job-1").state in ended, LONG)
    assert (notes / "here").exists(), cluster.printed()
    cluster.stop("i-1", Reason.DRILL)
    run_dirs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/stop.json"))  # noqa: E731
    eventually("it is asked to stop", run_dirs, LONG)
    (notes / "struck").touch()
    stopped = cluster.wait_state("job-1", *ended, seconds=LONG)
    assert stopped.state is JobState.PENDING, cluster.printed()
    assert stopped.progress.step == stopped.progress.durable_step == 20
    (interrupted,) = cluster.events("job-1", EventKind.INTERRUPTED)
    assert interrupted.data["durable_step"] == 20
    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    record = cluster.wait_state("job-1", *ended, seconds=LONG)

    printed = cluster.printed()
    assert record.state is JobState.SUCCEEDED, printed
    assert "what ModelCheckpoint writes into" in printed and "elsewhere is lost with the instance" in printed
    lines = printed.splitlines()
    assert "resumes True, warned of the middle: False" in lines
    assert "by hand, warned of the middle: True" in lines
    assert "best checkpoints/lightning/fit-1/epoch=2-step=48.ckpt True" in lines
    (skipped,) = (line for line in lines if line.startswith("left "))
    assert (
        "'checkpoints/lightning/fit-1/epoch=2-step=48.ckpt'" in skipped and skipped.count("checkpoints/lightning") == 1
    )
    assert record.progress.step == record.progress.durable_step == 48
    assert "hp_metric" not in record.progress.metrics
