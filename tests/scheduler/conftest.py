"""Fixtures of the scheduler's tests."""

import logging
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from everspot_store import ManualClock, Store
from moto.server import ThreadedMotoServer

sys.path.insert(0, str(Path(__file__).parent))

from scheduler_kit import Cluster, folder_store

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AT)


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    return Cluster(folder_store(tmp_path, clock), clock)


@pytest.fixture(scope="session")
def scheduler_moto() -> Iterator[str]:
    logging.getLogger("werkzeug").disabled = True
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(scheduler_moto: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The standard environment of a process that may use the AWS at this endpoint."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", scheduler_moto)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return scheduler_moto


@pytest.fixture
def s3_cluster(aws: str, clock: ManualClock) -> Cluster:
    client = boto3.client("s3", region_name="us-east-1")
    names = [f"everspot-{part}-{uuid4().hex[:12]}" for part in ("control", "data")]
    for name in names:
        client.create_bucket(Bucket=name)
    client.close()
    return Cluster(Store.open(*[f"s3://{name}" for name in names], clock=clock), clock)
