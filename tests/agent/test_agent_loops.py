"""Loops of Hugging Face, Lightning and Accelerate are interrupted, inside a save and elsewhere, under a real agent.

They go on with the losses of a run without Everspot, bit for bit."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import program_forks
import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.records import EventKind, JobState, Reason

LOOPS = Path(__file__).parent / "programs" / "loops"
LONG = 300.0
HF, LIGHTNING, ACCELERATE = "hf.py", "lit.py", "acc.py"
NIGHTLY = pytest.mark.nightly

CASES = [
    pytest.param(HF, "best", 1, "save 10", "drill", marks=NIGHTLY),
    pytest.param(HF, "early", 1, "evaluation 8", "drill", marks=NIGHTLY),
    pytest.param(HF, "epochs", 2, "step 9", "drill", marks=NIGHTLY),
    pytest.param(HF, "", 1, "save 10", "kill"),
    pytest.param(HF, "", 1, "step 7", "drill", marks=NIGHTLY),
    pytest.param(HF, "", 1, "step 12", "lost", marks=NIGHTLY),
    pytest.param(HF, "", 2, "save 5", "drill", marks=NIGHTLY),
    pytest.param(HF, "best", 1, "after", "drill", marks=NIGHTLY),
    pytest.param(HF, "twice", 1, "save 15", "kill", marks=NIGHTLY),
    pytest.param(LIGHTNING, "time", 1, "save 10", "drill"),
    pytest.param(LIGHTNING, "", 2, "step 7", "drill", marks=NIGHTLY),
    pytest.param(LIGHTNING, "workers", 1, "step 12", "lost", marks=NIGHTLY),
    pytest.param(LIGHTNING, "early", 1, "validation 6", "drill", marks=NIGHTLY),
    pytest.param(LIGHTNING, "", 1, "save 20", "kill", marks=NIGHTLY),
    pytest.param(LIGHTNING, "twice", 1, "after", "drill", marks=NIGHTLY),
    pytest.param(ACCELERATE, "", 2, "step 7", "drill"),
    pytest.param(ACCELERATE, "", 1, "save 11", "kill", marks=NIGHTLY),
    pytest.param(ACCELERATE, "seedable naming", 1, "evaluation 1", "drill", marks=NIGHTLY),
    pytest.param(ACCELERATE, "", 1, "step 12", "lost", marks=NIGHTLY),
    pytest.param(ACCELERATE, "", 1, "after", "drill", marks=NIGHTLY),
]


def environment(notes: Path, habits: str) -> dict[str, str]:
    notes.mkdir()
    return {"NOTES": str(notes), "HABITS": habits, "OMP_NUM_THREADS": "1", "USE_LIBUV": "0"}


def read_records(notes: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (notes / "record.jsonl").read_text().splitlines()]


def keyed(records: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the records by their subject. Duplicates must be equal."""
    result: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        key = (record["call"], record.get("step"), *sorted(record))
        assert result.setdefault(key, record) == record
    return result


def train_undisturbed(folder: Path, program: str, habits: str, processes: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Run the program by hand: nothing of Everspot is active."""
    cwd = folder / "by-hand"
    cwd.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), **environment(folder / "undisturbed", habits)}
    command = [*shlex.split(program_forks.launcher(processes)), str(LOOPS / program)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "EVERSPOT" not in done.stdout
    return keyed(read_records(folder / "undisturbed"))


@pytest.mark.torch
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("program", "habits", "processes", "place", "how"), CASES)
def test_an_interrupted_loop_computes_what_an_undisturbed_one_does(
    cluster: Cluster, tmp_path: Path, program: str, habits: str, processes: int, place: str, how: str
) -> None:
    undisturbed = train_undisturbed(tmp_path, program, habits, processes)
    notes = tmp_path / "notes"
    env = {**environment(notes, habits), "STRIKE": place}
    when: dict[str, Any] = {"steps": 11} if place == "save 11" else {"every": "5s"}
    if program == ACCELERATE and how == "lost":
        when["steps"] = 5  # a quick machine comes to the place in less than 5 s, before any checkpoint was due
    spec: dict[str, Any] = {"checkpoint": when, "retries": {"errors": 1, "backoff": "1s"}}
    cluster.submit("job-1", LOOPS, name="loop", entrypoint=[program], env=env, processes=processes, **spec)
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1", EVERSPOT_LAUNCHER=program_forks.launcher(processes))
    eventually("the program is there", lambda: (notes / "here").exists() or ended(cluster), LONG)
    assert (notes / "here").exists(), cluster.printed()
    if how == "drill":
        cluster.stop("i-1", Reason.DRILL)
        run_dirs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/stop.json"))  # noqa: E731
        eventually("it is asked to stop", run_dirs, LONG)
    elif how == "kill":
        kill_program(agent.tree(), program)
    else:
        eventually("a checkpoint is kept", lambda: cluster.events("job-1", EventKind.CHECKPOINTED), LONG)
        agent.end()
    (notes / "struck").touch()
    if how == "lost":
        cluster.expire("job-1")
    record = cluster.wait_state("job-1", JobState.PENDING, JobState.FAILED, JobState.SUCCEEDED, seconds=LONG)
    assert record.state is JobState.PENDING, cluster.printed()
    if how == "drill":
        assert record.progress.durable_step == record.progress.step > 0
    before = read_records(notes)

    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2", EVERSPOT_LAUNCHER=program_forks.launcher(processes))
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, JobState.PENDING, seconds=LONG)
    assert record.state is JobState.SUCCEEDED, cluster.printed()

    records = read_records(notes)
    assert keyed(records) == undisturbed
    if how == "drill" and place != "after":
        assert len(records) == len(undisturbed)  # no step was done twice
    assert len(before) < len(undisturbed) or place == "after"
    assert len(records) > len(before)
    last = sum(record["steps"] for record in undisturbed.values() if "steps" in record)  # of all calls
    assert record.progress.step == record.progress.total_steps == last
    assert record.progress.durable_step == last
    assert record.progress.steps_per_epoch is not None
    assert "loss" in record.progress.metrics


@pytest.mark.torch
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("program", "metric", "patience", "place"),
    [
        pytest.param(HF, "eval_loss", 2, "evaluation 8", marks=NIGHTLY),
        pytest.param(LIGHTNING, "val_loss", 2, "validation 6"),
        pytest.param(ACCELERATE, "test_loss", 1, "evaluation 1", marks=NIGHTLY),
    ],
)
def test_stop_of_the_job_file_ends_a_loop_where_the_framework_s_early_stopping_does(
    cluster: Cluster, tmp_path: Path, program: str, metric: str, patience: int, place: str
) -> None:
    undisturbed = train_undisturbed(tmp_path, program, "early", 1)
    notes = tmp_path / "notes"
    env = {**environment(notes, ""), "STRIKE": place}
    stop = {"metric": metric, "min_delta": 10.0, "patience": patience}
    cluster.submit("job-1", LOOPS, name="loop", entrypoint=[program], env=env, stop=stop)
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1", EVERSPOT_LAUNCHER=program_forks.launcher())
    eventually("the program is there", lambda: (notes / "here").exists() or ended(cluster), LONG)
    cluster.stop("i-1", Reason.DRILL)
    run_dirs = lambda: list(cluster.root.glob("instances/*/runs/job-1-000001/stop.json"))  # noqa: E731
    eventually("it is asked to stop", run_dirs, LONG)
    (notes / "struck").touch()
    cluster.wait_state("job-1", JobState.PENDING, JobState.FAILED, JobState.SUCCEEDED, seconds=LONG)
    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2", EVERSPOT_LAUNCHER=program_forks.launcher())
    record = cluster.wait_state("job-1", JobState.SUCCEEDED, JobState.FAILED, JobState.PENDING, seconds=LONG)
    assert record.state is JobState.SUCCEEDED, cluster.printed()
    assert keyed(read_records(notes)) == undisturbed  # the code behind the loop has run, too
    early_stop = record.progress.early_stop
    assert early_stop is not None
    assert (early_stop.step, early_stop.evaluations) == (record.progress.step, patience)
    assert record.detail == early_stop.sentence


def ended(cluster: Cluster) -> bool:
    record = cluster.record("job-1")
    return record is not None and record.state in (JobState.PENDING, JobState.FAILED, JobState.SUCCEEDED)


def kill_program(pids: list[int], program: str) -> None:
    for pid in pids:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if program.encode() in command and b"agent.main" not in command and b"launcher" not in command:
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError(f"{program} is not there")
