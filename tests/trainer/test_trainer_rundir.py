"""The run directory: whole documents with one writer each, and no import of torch."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from everspot_core.jobs.records import Reason
from everspot_train.rundir import LeaseFile, RunDir, RunDirError, Status, StopRequest, TrainingPhase


def test_what_was_not_written_is_none_and_what_was_is_read_back(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    assert rundir.read(StopRequest) is None
    rundir.write(StopRequest(reason=Reason.DRILL, deadline=12.5))
    assert rundir.read(StopRequest) == StopRequest(reason=Reason.DRILL, deadline=12.5)
    assert [path.name for path in tmp_path.iterdir()] == ["stop.json"]
    rundir.remove(StopRequest)
    rundir.remove(StopRequest)
    assert rundir.read(StopRequest) is None


def test_a_file_that_is_something_else_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "lease.json").write_text("{}")
    with pytest.raises(RunDirError, match=r"lease\.json is not a LeaseFile"):
        RunDir(tmp_path).read(LeaseFile)


def test_a_reader_never_sees_half_a_document(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    rundir.write(Status(step=0))
    over = threading.Event()

    def rewrite() -> None:
        for step in range(500):
            rundir.write(Status(step=step, message="x" * 5000))
        over.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    steps = []
    while not over.is_set():
        steps.append(rundir.read(Status).step)
    writer.join()
    assert steps == sorted(steps)


def test_an_agent_finds_its_directory_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSPOT_RUN_DIR", raising=False)
    assert RunDir.from_environment() is None
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(tmp_path))
    assert RunDir.from_environment().path == tmp_path


def test_the_last_four_phases_are_final() -> None:
    assert [phase.value for phase in TrainingPhase if phase.final] == ["stopped", "finished", "fenced", "failed"]


def test_the_run_directory_and_the_recipes_parameters_need_no_torch() -> None:
    code = "import sys, everspot_train.rundir, everspot_train.recipes.parameters; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_status_has_few_metrics_with_short_names_that_a_terminal_can_show(tmp_path: Path) -> None:
    """The job's record holds them, and everybody reads it."""
    names = ["x" * 10_000, "loss\x1b[2J", "a\nb", "val/loss", *(f"m{number}" for number in range(100_000))]
    (tmp_path / "status.json").write_text(json.dumps({"metrics": dict.fromkeys(names, 1.0)}))
    status = RunDir(tmp_path).read(Status)
    assert status is not None
    assert next(iter(status.metrics)) == "val/loss"
    assert len(status.to_json()) < 100_000
