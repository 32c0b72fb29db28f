"""Fixtures of the scheduler's tests."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from everspot_store import ManualClock, Store

sys.path.insert(0, str(Path(__file__).parent))

from scheduler_helpers import Cluster, folder_store

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AT)


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    return Cluster(folder_store(tmp_path, clock), clock)


@pytest.fixture
def s3_cluster(s3_urls: list[str], clock: ManualClock) -> Cluster:
    return Cluster(Store.open(*s3_urls, clock=clock), clock)
