"""Fixtures of the scheduler's tests."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import boto3
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
def s3_cluster(aws: str, clock: ManualClock) -> Cluster:
    client = boto3.client("s3", region_name="eu-west-1")
    names = [f"everspot-{part}-{uuid4().hex[:12]}" for part in ("control", "data")]
    for name in names:
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    client.close()
    return Cluster(Store.open(*[f"s3://{name}?region=eu-west-1" for name in names], clock=clock), clock)
