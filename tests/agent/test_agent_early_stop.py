"""`stop` of a job file ends a job whose metric no longer improves: real agents, programs and signals."""

import signal
from pathlib import Path
from typing import Any

import program_forks
import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.early_stop import EarlyStop
from everspot_core.jobs.records import EventKind, JobRecord, JobState, Reason

STOPPING = Path(__file__).parent / "programs" / "stopping"
RULE = {"metric": "val_loss", "min_delta": "0.1%", "patience": 12}


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


def start(cluster: Cluster, job: str, program: str, hold: int = 0, **spec: Any) -> None:
    gate = cluster.root / job
    gate.mkdir()
    fields = {"stop": RULE, "env": {"GATE": str(gate), "HOLD": str(hold)}}
    cluster.submit(job, STOPPING, name="stopping", entrypoint=[program], **fields | spec)
    cluster.assign(job, f"{job}-first")
    cluster.start_agent(f"{job}-first")


def finish(cluster: Cluster, job: str) -> tuple[JobRecord, EarlyStop]:
    record = cluster.wait_state(job, JobState.SUCCEEDED, JobState.FAILED)
    assert record.state is JobState.SUCCEEDED, record.detail
    assert record.last_reason is Reason.FINISHED
    assert record.errors == 0
    stop = record.progress.early_stop
    assert stop is not None
    assert record.detail == stop.sentence
    (finished,) = cluster.events(job, EventKind.FINISHED)
    assert finished.data["message"] == stop.sentence
    return record, stop


def read_output(cluster: Cluster, job: str) -> int:
    outputs = cluster.store.outputs(job)
    (model,) = outputs.list("model.txt")
    return int(outputs.fetch(model, cluster.root / f"outputs-{job}").read_text())


def wait_for_gate(cluster: Cluster, job: str, step: int) -> None:
    eventually(f"{job} is held at {step}", lambda: (cluster.root / job / f"held-{step}").exists())


def release(cluster: Cluster, job: str, step: int) -> None:
    (cluster.root / job / f"go-{step}").touch()


def test_a_plain_program_gets_sigterm_and_has_finished(cluster: Cluster) -> None:
    start(cluster, "job-1", "plain.py")
    record, stop = finish(cluster, "job-1")
    assert (stop.step, stop.best, stop.best_step) == (80, 0.05, 20)
    assert record.detail == (
        "stopped early: val_loss has not improved by 0.1% for 12 evaluations; best 0.05 at step 20"
    )
    assert record.preemptions == 0
    assert not {"notice", "interrupted", "error", "failed"} & set(cluster.kinds("job-1"))
    assert read_output(cluster, "job-1") >= 80


@pytest.mark.parametrize("ending", ["notice", "loss"])
def test_an_interrupted_plain_program_stops_at_the_same_evaluation(cluster: Cluster, ending: str) -> None:
    start(cluster, "job-1", "plain.py", hold=60, checkpoint={"every": "5s"})
    wait_for_gate(cluster, "job-1", 60)
    if ending == "notice":
        cluster.stop("job-1-first", Reason.DRILL)
        cluster.wait_state("job-1", JobState.PENDING)
    else:
        published = lambda: cluster.events("job-1", EventKind.CHECKPOINTED)  # noqa: E731
        count = len(published())
        eventually("what it has done is kept", lambda: len(published()) > count)
        cluster.agents[-1].signal_tree(signal.SIGKILL)
        cluster.expire("job-1")
    release(cluster, "job-1", 60)
    cluster.assign("job-1", "i-2")
    cluster.start_agent("i-2")
    record, stop = finish(cluster, "job-1")
    assert (stop.step, stop.best, stop.best_step) == (80, 0.05, 20)
    assert (record.epoch, record.preemptions) == (2, 1)
    (_, resumed) = cluster.events("job-1", EventKind.TRAINING)
    assert 20 < resumed.data["from_step"] <= 60  # type: ignore[operator]


@pytest.mark.torch
def test_a_loop_on_the_library_ends_at_the_same_step_whether_interrupted_or_not(cluster: Cluster) -> None:
    start(cluster, "job-1", "fit.py")
    record, undisturbed = finish(cluster, "job-1")
    assert 60 < undisturbed.best_step + 60 <= undisturbed.step
    assert (record.progress.step, record.progress.durable_step) == (undisturbed.step,) * 2
    assert read_output(cluster, "job-1") == undisturbed.step  # the code behind the loop has run
    assert record.progress.total_steps == 100_000

    hold = undisturbed.step - 12
    start(cluster, "job-2", "fit.py", hold=hold)
    wait_for_gate(cluster, "job-2", hold)
    cluster.stop("job-2-first", Reason.DRILL)
    eventually("it is told to stop", lambda: cluster.events("job-2", EventKind.STOP_DEMANDED))
    release(cluster, "job-2", hold)
    cluster.wait_state("job-2", JobState.PENDING)
    cluster.assign("job-2", "i-2")
    cluster.start_agent("i-2")
    record, disturbed = finish(cluster, "job-2")
    assert disturbed == undisturbed
    assert (record.epoch, record.progress.step) == (2, undisturbed.step)
    (_, resumed) = cluster.events("job-2", EventKind.TRAINING)
    assert (resumed.data["restored"], resumed.data["from_step"]) == (True, hold)
    assert read_output(cluster, "job-2") == undisturbed.step


def test_a_program_that_never_reports_the_metric_is_told_so_in_its_log(cluster: Cluster) -> None:
    start(cluster, "job-1", "plain.py", stop=RULE | {"metric": "eval_loss"}, setup=["sed -i s/100_001/31/ plain.py"])
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert record.progress.early_stop is None
    assert "warning: stop: the program has never reported eval_loss" in cluster.printed()


def test_a_program_at_its_last_step_is_not_ended_early(cluster: Cluster) -> None:
    start(cluster, "job-1", "plain.py", setup=["sed -i 's/100_001/81/; s/100000/80/' plain.py"])
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert (record.progress.step, record.progress.early_stop, record.detail) == (80, None, "")
