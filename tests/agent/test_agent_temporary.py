"""The temporary directory of a job: short enough for sockets, private, and gone when the job is."""

import os
import signal
from pathlib import Path

import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.records import JobState
from everspot_train.agent.temporary import MOST_BYTES, TemporaryFolders

WORKERS = Path(__file__).parent / "programs" / "workers"
LONG = "a-name-of-forty-characters-as-teams-give-20261127-060000-abc"


def output(cluster: Cluster, job_id: str) -> list[str]:
    return b"".join(chunk.data for chunk in cluster.store.read_logs(job_id)).decode().splitlines()


@pytest.mark.torch
def test_data_loader_workers_run_under_a_job_with_a_long_name(cluster: Cluster) -> None:
    assert len(LONG) == 60
    cluster.submit(LONG, WORKERS, name=LONG[:39], entrypoint=["workers.py"], retries={"errors": 0})
    cluster.assign(LONG, "i-1")
    cluster.start_agent("i-1")

    cluster.wait_state(LONG, JobState.SUCCEEDED, seconds=300)

    first, *totals = (line for line in output(cluster, LONG) if line.startswith(("TMPDIR", "spawn", "forkserver")))
    _, folder, mode = first.split()
    assert totals == ["spawn file_system 7.0", "forkserver file_descriptor 7.0"]
    assert (len(folder) <= MOST_BYTES, mode) == (True, "700")
    eventually("the folder is removed", lambda: not Path(folder).exists())


def test_what_a_killed_agent_left_is_removed_by_the_next(cluster: Cluster) -> None:
    program = "import os, time; print('at', os.environ['TMPDIR'], flush=True); time.sleep(300)"
    code = cluster.root / "code"
    code.mkdir()
    (code / "idle.py").write_text(program)
    cluster.submit("job-1", code, entrypoint=["idle.py"])
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1")

    def printed() -> str | None:
        text = "".join(file.read_text() for file in agent.home.glob("runs/*/output.log"))
        return text.split()[1] if text.endswith("\n") else None

    folder = Path(eventually("it prints its folder", printed))
    (folder / "rest").write_text("x")

    agent.signal_tree(signal.SIGKILL)
    agent.wait()
    assert folder.exists()
    cluster.start_agent("i-2")  # of another state folder

    eventually("the folder is removed", lambda: not folder.exists())


@pytest.mark.parametrize(("name", "inside"), [("h", True), ("h" * 60, False)])
def test_directories_lie_in_the_state_folder_if_its_path_is_short(tmp_path: Path, name: str, inside: bool) -> None:
    short = Path(f"/tmp/{os.getpid()}{os.urandom(2).hex()}")
    short.symlink_to(tmp_path)
    try:
        shared = short / "s"
        shared.mkdir()
        folders = TemporaryFolders(short / name, shared)
        first, other = folders.make(), folders.make()
        assert first != other
        assert first.is_relative_to(short / name if inside else shared)
        assert {folder.stat().st_mode & 0o777 for folder in (first, other, first.parent)} == {0o700}

        TemporaryFolders(short / name, shared).clear()
        assert first.exists() is not inside, "a living agent's directories stay"
        folders.clear()
        assert first.exists() is not inside
    finally:
        short.unlink()


def test_only_abandoned_directories_of_agents_are_removed(tmp_path: Path) -> None:
    home = Path("/" + "h" * 60)
    dead = TemporaryFolders(home, tmp_path)
    (leftover := dead.make()).joinpath("deep").mkdir(mode=0o500)
    assert dead._lock is not None
    os.close(dead._lock)
    (tmp_path / "everspot-notes").mkdir()
    (tmp_path / "everspot-file").write_text("a user's")
    (tmp_path / "everspot-link").symlink_to(leftover.parent)

    TemporaryFolders(home, tmp_path).clear()

    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["everspot-file", "everspot-link", "everspot-notes"]
