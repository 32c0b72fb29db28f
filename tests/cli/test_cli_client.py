"""`everspot.Client`: the Python API of jobs, with the command's own checks and words."""

import multiprocessing
import re
import subprocess
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import everspot
import everspot_cli.client
import pytest
from everspot_core.jobs.records import EventKind, JobState, Progress, Reason
from everspot_store import ManualClock
from everspot_store.testing import Fault, FaultScript, faulty_store

from tests.cli.conftest import World

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/python.md"
JOB: dict[str, Any] = {"name": "train", "recipe": "image-classification"}


@pytest.fixture
def client(world: World) -> everspot.Client:
    return everspot.Client(world.url)


def run(world: World, job: str = "train-1") -> str:
    world.launch("i-spot1", 0)
    world.submit(job, 0)
    world.assign(job, "i-spot1", 10)
    world.start(job, 20)
    return job


def test_a_job_of_a_file_or_of_fields_is_submitted(world: World, client: everspot.Client, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: train\nrecipe: image-classification\n")
    from_file = client.submit(tmp_path / "job.yaml", overrides={"parameters.epochs": 3})
    from_fields = client.submit(JOB | {"tags": {"Team": "vision"}})
    specs = {job: world.store.jobs.get(job).value.spec for job in (from_file, from_fields)}
    assert specs[from_file].parameters == {"epochs": 3}
    assert specs[from_fields].tags == {"Team": "vision"}
    assert [event.kind for event in world.store.events(from_file)] == [EventKind.SUBMITTED]
    status = client.status(from_fields[:-2])
    assert (status.job_id, status.state, status.reason) == (from_fields, JobState.PENDING, None)


def test_a_client_that_outlives_an_update_of_the_cluster_submits_to_the_cluster_of_now(
    world: World, client: everspot.Client
) -> None:
    """A notebook stays open for days. The cached stage of another image would be a wrong result."""
    stage = JOB | {"cache": True}
    first = client.submit(stage)
    again = client.submit(stage)
    world.store.write_manifest(world.store.manifest().model_copy(update={"generation": "g2", "team": "speech"}))
    later = client.submit(stage)
    jobs = {job: world.store.jobs.get(job).value for job in (first, again, later)}
    assert [jobs[job].same_stage for job in (first, again, later)] == [[], [first], []]
    assert [jobs[job].spec.tags.get("Team") for job in (again, later)] == [None, "speech"]


def test_the_code_of_fields_is_relative_to_this_folder(
    world: World, client: everspot.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    with pytest.warns(UserWarning, match="nothing in the code mentions the folder checkpoints"):
        job = client.submit({"name": "own", "entrypoint": ["train.py"], "code": "src"})
    assert world.store.jobs.get(job).value.code_digest is not None


def test_a_job_is_submitted_where_warnings_are_errors(world: World, client: everspot.Client) -> None:
    late = {"name": "late", "recipe": "image-classification", "deadline": "1m", "expected_duration": "1h"}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error")
        job = client.submit(late, force=True)
    assert world.store.jobs.names() == [job]
    assert any("deadline" in str(warning.message) for warning in seen)


def test_one_error_names_every_bad_field(client: everspot.Client) -> None:
    with pytest.raises(everspot.CliError) as refusal:
        client.submit({"name": "Train", "recipe": "image-classification", "gpus": 1}, overrides={"priority": "high"})
    assert {problem["field"] for problem in refusal.value.problems} == {"name", "gpus", "priority"}
    assert str(refusal.value) == "the job: 3 fields are wrong"


def test_no_cluster_and_no_job_are_errors_of_one_kind(client: everspot.Client, tmp_path: Path) -> None:
    for broken in (everspot.Client(str(tmp_path / "none")), everspot.Client(cluster="unknown")):
        with pytest.raises(everspot.CliError):
            broken.status("train")
    for call in (client.status, client.cancel, client.metrics, client.outputs, lambda job: list(client.logs(job))):
        with pytest.raises(everspot.CliError, match="there is no job 'none'"):
            call("none")


def test_waiting_ends_with_the_job_or_with_its_timeout(world: World, client: everspot.Client) -> None:
    job = run(world)
    with pytest.raises(TimeoutError, match="train-1 has not ended within 0s"):
        client.wait(job, timeout=timedelta(0))
    end = threading.Timer(0.5, lambda: world.finish(job, 100, 50, 0.9))
    end.start()
    status = client.wait("train")
    end.join()
    assert status.succeeded and (status.step, status.metrics["test_accuracy"]) == (50, 0.9)
    assert status.reason is Reason.FINISHED


def test_waiting_outlasts_a_store_that_does_not_answer_for_a_while(
    world: World, client: everspot.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of hours is waited for over the sleep of a laptop; the command `job --wait` waits the same way."""
    job, faults = run(world), FaultScript()
    control, data = world.store.control._backend, world.store.data._backend
    client._session.__dict__["store"] = faulty_store(control, data, world.clock, faults)
    client._session.__dict__["clock"] = ManualClock(world.clock.now())
    for nth in range(5, 40):
        faults.on("get", key="records/*", nth=nth, fault=Fault.NEVER_ARRIVED)
    end = threading.Timer(0.5, world.finish, (job, 100, 50, 0.9))
    end.start()
    assert client.wait(job).succeeded
    end.join()
    assert faults.spent
    monkeypatch.setattr(everspot_cli.client, "LONGEST_OUTAGE", timedelta(seconds=5))
    for nth in range(5, 100):
        faults.on("get", key="records/*", nth=nth, fault=Fault.NEVER_ARRIVED)
    world.save(world.record(job).model_copy(update={"state": JobState.PENDING}))
    with pytest.raises(everspot.CliError, match="does not answer"):
        client.wait(job)


def test_a_client_in_a_forked_process_is_refused_and_does_not_hang(world: World, client: everspot.Client) -> None:
    """Threads of the store's library do not survive a fork."""
    job = run(world)
    client.status(job)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def read_status() -> None:
        try:
            client.status(job)
        except everspot.CliError as error:
            answers.put(f"{error}: {error.hint}")

    child = context.Process(target=read_status)
    child.start()
    try:
        assert "used before this process was forked: none works here: use threads, or" in answers.get(timeout=60)
    finally:
        child.kill()
        child.join()
    assert client.status(job).state is JobState.RUNNING


def test_a_failed_job_says_why(world: World, client: everspot.Client) -> None:
    job = run(world)
    world.leave(job, 100, Reason.BUDGET, detail="budget spent")
    status = client.wait(job)
    assert (status.state, status.reason, status.detail) == (JobState.FAILED, Reason.BUDGET, "budget spent")
    assert not status.succeeded


def test_lines_are_whole_however_the_log_was_cut(world: World, client: everspot.Client) -> None:
    job = run(world)
    data = "epoch 1\nloss 0,3 µ\nlast".encode()
    for seq, piece in enumerate((data[:3], data[3:18], data[18:])):  # the second cut is within a letter
        world.store.logs.append(job, 1, seq, piece)
    assert list(client.logs(job)) == ["epoch 1", "loss 0,3 µ", "last"]
    assert list(client.logs(job, tail=1)) == ["last"]


def test_each_state_of_a_progress_bar_is_a_line_as_soon_as_the_next_one_is_there(
    world: World, client: everspot.Client
) -> None:
    job = run(world)
    world.store.logs.append(job, 1, 0, b"epoch 1\r\n10%\r20%\r")
    lines = client.logs(job, follow=True)
    assert [next(lines), next(lines)] == ["epoch 1", "10%"]
    world.store.logs.append(job, 1, 1, b"\n30%")
    world.finish(job, 100, 50, 0.9)
    assert list(lines) == ["20%", "30%"]


def test_a_followed_log_ends_with_the_job(world: World, client: everspot.Client) -> None:
    job = run(world)
    world.store.logs.append(job, 1, 0, b"one\n")
    lines = client.logs(job, follow=True)
    assert next(lines) == "one"
    world.store.logs.append(job, 1, 1, b"two\n")
    world.finish(job, 100, 50, 0.9)
    assert list(lines) == ["two"]


def test_metrics_are_courses_by_step(world: World, client: everspot.Client) -> None:
    job = run(world)
    world.store.metrics.append(job, 1, 0, b'{"step": 1, "metrics": {"acc": 0.1, "loss": 2}}\n')
    world.store.metrics.append(job, 1, 1, b'{"step": 5, "metrics": {"acc": 0.5, "loss": 1}}\n')
    record = world.record(job)
    assert record is not None
    world.save(record.model_copy(update={"progress": Progress(step=9, metrics={"acc": 0.7})}))
    metrics = client.metrics(job)
    assert list(metrics) == ["loss", "acc"]
    assert metrics == {"loss": [(1, 2), (5, 1)], "acc": [(1, 0.1), (5, 0.5), (9, 0.7)]}


def test_a_job_is_cancelled_once_it_runs_and_not_after_its_end(world: World, client: everspot.Client) -> None:
    job = run(world)
    client.cancel(job)
    assert world.store.cancels.get(job) is not None
    world.finish(job, 100, 50, 0.9)
    with pytest.raises(everspot.CliError, match="has already ended: SUCCEEDED"):
        client.cancel(job)


def test_outputs_come_into_a_folder_of_the_job(world: World, client: everspot.Client, tmp_path: Path) -> None:
    job = run(world)
    with pytest.raises(everspot.CliError, match="has not ended, and has no outputs yet"):
        client.outputs(job, to=tmp_path)
    made = tmp_path / "made"
    (made / "plots").mkdir(parents=True)
    (made / "model.txt").write_text("weights")
    (made / "plots" / "loss.txt").write_text("curve")
    world.store.outputs(job).keep(1, made, lambda: True)
    paths = client.outputs(job, to=tmp_path / "results")
    assert {path.relative_to(tmp_path / "results" / job): path.read_text() for path in paths} == {
        Path("model.txt"): "weights",
        Path("plots/loss.txt"): "curve",
    }
    assert [path.name for path in client.outputs(job, "plots", to=tmp_path / "more")] == ["loss.txt"]


def test_the_program_of_the_guide_runs(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given the guide's own program, when its job prints, reports, leaves a file and succeeds, then it shows them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERSPOT_STORE", world.url)
    program, _ = re.findall(r"```python\n(.+?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "model.txt").write_text("weights")

    def train() -> None:
        while not (jobs := list(world.store.jobs.names())):
            time.sleep(0.05)
        (job,) = jobs
        world.launch("i-spot1", 0)
        world.assign(job, "i-spot1", 10)
        world.start(job, 20)
        world.store.logs.append(job, 1, 0, b"epoch 1\n")
        world.store.metrics.append(job, 1, 0, b'{"step": 5, "metrics": {"loss": 0.25}}\n')
        world.store.outputs(job).keep(1, tmp_path / "made", lambda: True)
        world.finish(job, 100, 50, 0.9)

    trainer = threading.Thread(target=train)
    trainer.start()
    exec(compile(program, str(GUIDE), "exec"), {})
    trainer.join()
    shown = capsys.readouterr().out
    assert shown.startswith("epoch 1\n") and "(50, 0.3)" in shown and "model.txt" in shown


def test_the_client_is_loaded_without_pulumi() -> None:
    program = (
        "import everspot, sys; everspot.Client('/tmp');"
        "print([name for name in ('pulumi', 'torch', 'boto3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
