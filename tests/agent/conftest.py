"""Fixtures of the agent's tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # agent_helpers is shared with tests/faults

import program_forks
from agent_helpers import FAST, Cluster


@pytest.fixture(scope="session", autouse=True)
def _leave_forks() -> Iterator[None]:
    yield
    program_forks.close()


@pytest.fixture
def launcher() -> str:
    """What agents start programs by. Files of tests whose programs import torch have `program_forks.launcher`."""
    return sys.executable


@pytest.fixture
def cluster(tmp_path: Path, launcher: str) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, FAST, launcher=launcher)
    yield cluster
    cluster.close()
