"""The memory of a job's checkpoints: the next attempt on the same machine reads it, and another job removes it."""

from pathlib import Path

import program_forks
import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.records import EventKind, JobState
from everspot_train.agent.temporary import MEMORY, PREFIX, TemporaryFolders, is_claimed

PROGRAMS = Path(__file__).parent / "programs"
LONG = 300.0


@pytest.fixture
def launcher() -> str:
    return program_forks.launcher()


def memory_files(agent: int) -> list[Path]:
    """The memory of jobs, of the agent with this process id."""
    claimed = [
        folder for folder in MEMORY.glob(f"{PREFIX}*") if is_claimed(folder) and has_opened(agent, folder / "lock")
    ]
    return [path for folder in claimed for path in folder.glob("*/memory-*")]


def has_opened(pid: int, path: Path) -> bool:
    return any(link.resolve() == path for link in Path(f"/proc/{pid}/fd").iterdir())


def fail_once(cluster: Cluster, folder: Path) -> int:
    """Have a job fail after its first checkpoint. `folder`: for its notes. Returns the agent's process id."""
    notes = folder / "notes"
    notes.mkdir()
    spec = {"checkpoint": {"every": "5s"}, "retries": {"errors": 2, "backoff": "1s"}}
    env = {"NOTES": str(notes), "OMP_NUM_THREADS": "1"}
    cluster.submit("job-1", PROGRAMS / "frameworks", name="once", entrypoint=["fails_once.py"], env=env, **spec)
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1").popen.pid
    eventually("it is kept", lambda: cluster.events("job-1", EventKind.CHECKPOINTED), LONG)
    (notes / "kept").touch()
    cluster.wait_state("job-1", JobState.PENDING, seconds=LONG)
    return agent


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_retry_on_the_same_machine_reads_its_memory_and_another_job_removes_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    agent = fail_once(cluster, tmp_path)
    assert memory_files(agent)

    cluster.assign("job-1", "i-1")
    eventually("it trains again", lambda: len(cluster.events("job-1", EventKind.TRAINING)) == 2, LONG)
    training = cluster.events("job-1", EventKind.TRAINING)[-1].data
    assert training["restored"] is True
    assert training["local_bytes"] > 0
    cluster.wait_state("job-1", JobState.SUCCEEDED, seconds=LONG)
    assert not memory_files(agent)


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_the_memory_of_a_job_that_has_ended_goes_when_another_one_starts(cluster: Cluster, tmp_path: Path) -> None:
    files = memory_files(fail_once(cluster, tmp_path))
    assert files

    cluster.submit("job-2", env={"TOY_STEPS": "3", "TOY_STEP_SECONDS": "0.01"})
    cluster.assign("job-2", "i-1")
    cluster.wait_state("job-2", JobState.SUCCEEDED, seconds=LONG)
    assert not any(path.exists() for path in files)


def test_only_the_folder_of_a_living_agent_is_claimed(tmp_path: Path) -> None:
    folders = TemporaryFolders(None, tmp_path)
    own = folders.make().parent
    (tmp_path / f"{PREFIX}fake").mkdir()
    (tmp_path / f"{PREFIX}file").touch()
    assert [path for path in tmp_path.iterdir() if is_claimed(path)] == [own]
