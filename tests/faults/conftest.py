"""Fixtures of the fault tests: the agent tests' cluster."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

import program_forks
from agent_helpers import FAST, Cluster


@pytest.fixture(scope="session", autouse=True)
def _leave_forks() -> Iterator[None]:
    yield
    program_forks.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, FAST)
    yield cluster
    cluster.close()


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: the folder store syncs every write, and these tests write a lot."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path, prefix="everspot-faults-") as folder:
        yield Path(folder)
