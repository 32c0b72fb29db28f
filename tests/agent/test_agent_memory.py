"""What a job's processes hold of the machine's memory."""

import os
import sys
from pathlib import Path

import pytest
from agent_helpers import eventually
from everspot_core.jobs.records import Progress
from everspot_train.agent import memory
from everspot_train.agent.process import JobLaunch, LocalLauncher
from everspot_train.rundir import Status

CHILD = "import time; kept = b'x' * (96 * 2**20); time.sleep(600)"


def test_a_group_is_counted_without_the_files_that_were_read(tmp_path: Path) -> None:
    (tmp_path / "memory.stat").write_text("anon 1073741824\nfile 9663676416\nkernel 12345\nshmem 536870912\n")
    assert memory.of_group(tmp_path) == 1.5
    (tmp_path / "memory.stat").write_text("")
    assert memory.of_group(tmp_path) is None
    assert memory.of_group(tmp_path / "none") is None


def test_of_processes_what_they_share_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, anon, shared in ((1, 1048576, 524288), (2, 2097152, 262144)):
        (tmp_path / str(pid)).mkdir()
        status = f"Name:\tpython 3\nRssAnon:\t{anon:8d} kB\nRssFile:\t 9000 kB\nRssShmem:\t{shared:8d} kB\n"
        (tmp_path / str(pid) / "status").write_text(status)
    monkeypatch.setattr(memory, "PROC", tmp_path)
    assert memory.of_processes([1, 2, 3]) == 3.5
    assert memory.of_processes([3]) is None
    assert memory.of_processes([]) is None


def test_a_program_is_counted_with_its_children(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "job-1-000001"
    run_dir.mkdir(parents=True)
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"
    launcher = LocalLauncher(run_dir.parent, adopt=False, groups=False)
    process = launcher.launch(JobLaunch([sys.executable, "-c", program], run_dir, tmp_path, dict(os.environ)))
    try:
        eventually("the child holds 96 MiB", lambda: (process.memory_gib() or 0) > 96 / 1024)
    finally:
        process.kill()
    assert process.memory_gib() is None


def test_what_was_measured_in_fp32_does_not_count_in_mixed_precision() -> None:
    """Given a job that changed to mixed precision, when it reports less GPU memory, then that is its use."""
    status = Status(step=1, gpu_memory_gib=13.0, mixed=True)
    after = memory.most(Progress(gpu_memory_gib=17.0, mixed=False), None, status)
    assert (after["gpu_memory_gib"], after["mixed"]) == (13.0, True)
    again = memory.most(Progress(**after), None, status.model_copy(update={"gpu_memory_gib": 12.0}))
    assert again["gpu_memory_gib"] == 13.0
