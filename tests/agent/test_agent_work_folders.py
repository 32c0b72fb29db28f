"""The working directory of a job has the same path in every attempt, and nobody else uses it."""

import subprocess
import sys
from pathlib import Path

import pytest
from everspot_train.agent.work_folders import MOST_PATHS, WorkFolders


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "work"


def test_each_attempt_gets_the_same_path_and_finds_nothing_in_it(root: Path) -> None:
    for machine in range(3):
        folder = WorkFolders(root).claim("job-1")
        assert folder.path == root / "job-1"
        assert (list(folder.path.iterdir()), folder.path.stat().st_mode & 0o777) == ([], 0o700)
        (folder.path / "inner").mkdir()
        (folder.path / "inner" / "file").write_text(f"{machine}")
        folder.release()
        assert not folder.path.exists()


def test_a_folder_that_an_ended_agent_left_is_emptied(root: Path) -> None:
    old_folder = root / "job-1"
    (old_folder / "closed").mkdir(parents=True)
    (old_folder / "closed" / "file").write_text("old")
    (old_folder / "link").symlink_to(root.parent)
    (old_folder / "closed").chmod(0o500)
    old_folder.chmod(0o500)

    folder = WorkFolders(root).claim("job-1")

    assert (folder.path, list(folder.path.iterdir())) == (old_folder, [])
    assert root.parent.exists()


def test_a_folder_that_a_living_agent_has_is_left_to_it(root: Path) -> None:
    frozen = WorkFolders(root).claim("job-1")
    (frozen.path / "file").write_text("its own")
    others = WorkFolders(root)
    others.clear()

    folder = others.claim("job-1")

    assert folder.path == root / "job-1~2"
    assert (frozen.path / "file").read_text() == "its own"
    frozen.release()
    folder.release()
    assert list(root.iterdir()) == []


def test_a_folder_that_a_process_of_an_ended_attempt_may_write_to_is_not_used_again(root: Path) -> None:
    path = root / "job-1"
    path.mkdir(parents=True)
    env = {"EVERSPOT_CHECKPOINT_DIR": str(path / "checkpoints")}
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "\n"
        folders = WorkFolders(root)
        folders.clear()
        assert path.exists()
        assert folders.claim("job-1").path == root / "job-1~2"
        process.communicate()
    assert WorkFolders(root).claim("job-1").path == path


def test_what_ended_agents_left_is_removed(root: Path) -> None:
    (root / "job-1" / "inner").mkdir(parents=True)
    WorkFolders(root).clear()
    assert list(root.iterdir()) == []
    WorkFolders(root / "missing").clear()


def test_it_is_an_error_if_all_paths_are_in_use(root: Path) -> None:
    folders = WorkFolders(root)
    claims = [folders.claim("job-1") for _ in range(MOST_PATHS)]
    assert len({folder.path for folder in claims}) == MOST_PATHS
    with pytest.raises(OSError, match="no working directory for job job-1: 20 in"):
        folders.claim("job-1")
    assert folders.claim("job-2").path == root / "job-2"
