"""Programs that do not use the trainer library report steps and metrics: by lines of output, or TensorBoard's files."""

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_helpers import Cluster, Proc, eventually
from everspot_core.costs.attempts import attempts, interruptions
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Reason
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STEPS = Path(__file__).parent / "programs" / "steps"


def start(cluster: Cluster, mode: str, **env: str) -> Proc:
    cluster.submit("job-1", STEPS, name="steps", entrypoint=["steps.py"], env={"STEPS": mode, **env})
    cluster.assign("job-1", "i-1")
    return cluster.start_agent("i-1")


def wait_for_step(cluster: Cluster, step: int) -> JobRecord:
    def look() -> JobRecord | None:
        record = cluster.record("job-1")
        return record if record is not None and record.progress.step >= step else None

    record = eventually(f"the record shows step {step}", look)
    assert isinstance(record, JobRecord)
    return record


def recorded(cluster: Cluster) -> list[dict[str, Any]]:
    chunks = list(cluster.store.read_metrics("job-1"))
    return [json.loads(line) for chunk in chunks for line in chunk.data.splitlines()]


def test_lines_of_output_are_the_steps_and_metrics_of_a_job(cluster: Cluster) -> None:
    start(cluster, "lines")
    progress = wait_for_step(cluster, 20).progress
    assert (progress.total_steps, progress.steps_per_epoch) == (400, 40)
    assert progress.metrics == {"loss": 1 / progress.step, "eval/top-1": progress.step / 400}
    assert progress.steps_per_second is not None and 0 < progress.steps_per_second < 11
    cluster.stop("i-1", Reason.DRILL)
    stopped = cluster.wait_state("job-1", JobState.PENDING).progress.step
    assert stopped >= 20

    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert (record.progress.step, record.progress.metrics["loss"]) == (400, 1 / 400)
    first, second = cluster.events("job-1", EventKind.TRAINING)
    assert first.data["from_step"] == 0
    resumed = second.data["from_step"]
    assert isinstance(resumed, int) and 0 < resumed <= stopped
    (interruption,) = interruptions(attempts(cluster.events("job-1")))
    assert (interruption.resumed_step, interruption.steps_redone) == (resumed, stopped - resumed)
    (finished,) = cluster.events("job-1", EventKind.FINISHED)
    assert (finished.data["step"], finished.data["metrics"]) == (400, record.progress.metrics)
    lines = recorded(cluster)
    assert len(lines) >= 4
    assert all(line["metrics"]["loss"] == 1 / line["step"] for line in lines if "loss" in line["metrics"])


def test_event_files_are_the_steps_of_a_program_that_prints_none(cluster: Cluster) -> None:
    start(cluster, "event files", HOLD_AT="20")
    logs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/output.log"))  # noqa: E731
    eventually("it trains", lambda: any("at 8\n" in file.read_text() for file in logs()))
    cluster.stop("i-1", Reason.DRILL)
    stopped = cluster.wait_state("job-1", JobState.PENDING).progress.step
    assert stopped >= 8

    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert record.progress.step == 30
    assert math.isclose(record.progress.metrics["train/loss"], 1 / 30, rel_tol=1e-6)
    (_, resumed) = cluster.events("job-1", EventKind.TRAINING)
    assert resumed.data["from_step"] == stopped + 1  # the files of the first attempt were put back, and do not count
    assert [line["step"] for line in recorded(cluster)][-1] == 30


def test_a_killed_job_is_one_curve_in_tensorboard(cluster: Cluster, tmp_path: Path) -> None:
    killed = start(cluster, "event files")
    logs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/output.log"))  # noqa: E731
    eventually("it trains", lambda: any("at 8\n" in file.read_text() for file in logs()))
    killed.signal_tree(signal.SIGKILL)
    cluster.expire("job-1")
    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    command = [
        "--store",
        cluster.manifest.control_url,
        "tensorboard",
        "job-1",
        "--logdir",
        str(tmp_path / "runs"),
        "--json",
    ]
    done = subprocess.run([sys.executable, "-m", "everspot_cli.main", *command], check=True, capture_output=True)
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["state"], run["last_step"]) == ("SUCCEEDED", 30)
    events = EventAccumulator(run["folder"]).Reload().Scalars("train/loss")
    steps = [event.step for event in events]
    assert steps == sorted(set(steps))
    assert steps[-1] == 30
    assert all(math.isclose(event.value, 1 / event.step, rel_tol=1e-6) for event in events)


def test_hostile_output_and_event_files_harm_nothing(cluster: Cluster) -> None:
    agent = start(cluster, "hostile")
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED)
    assert record.state is JobState.SUCCEEDED
    assert (record.progress.step, record.progress.metrics["loss"]) == (30009, 0.25)
    assert len(record.progress.metrics) <= 200
    assert all(math.isfinite(value) for value in record.progress.metrics.values())
    assert agent.popen.poll() is None and "Traceback" not in agent.output
    lines = recorded(cluster)
    assert all(value is None or math.isfinite(value) for line in lines for value in line["metrics"].values())
    assert sum("loss" in line["metrics"] for line in lines) < 60
    logged = b"".join(chunk.data for chunk in cluster.store.read_logs("job-1"))
    assert len(logged) > 4 << 20
