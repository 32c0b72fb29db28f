"""Adds folders to `sys.path`, so that tests can import shared helpers."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

import program_forks


@pytest.fixture(scope="session", autouse=True)
def _leave_forks() -> Iterator[None]:
    yield
    program_forks.close()
