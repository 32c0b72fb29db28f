"""Fixtures of the agent's tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # agent_helpers is shared with tests/faults

from agent_helpers import FAST, Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, FAST)
    yield cluster
    cluster.close()
