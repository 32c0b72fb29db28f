"""Fixtures of the scheduler's tests."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import botocore.loaders
import pytest
from everspot_store import ManualClock, Store

sys.path.insert(0, str(Path(__file__).parent))

from elastic_helpers import ElasticCluster, LocalAccount
from everspot_core.jobs.records import Market
from everspot_local.cloud import LocalCloud
from everspot_local.gcp.environment import owner
from everspot_local.market.delays import Delays
from everspot_local.options import Options
from google_helpers import GoogleProject
from scheduler_helpers import Cluster, folder_store

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="session", autouse=True)
def described_once() -> Iterator[None]:
    """A session of boto3 reads what describes its services, megabytes, and keeps it. Here every scheduler that starts
    has a session of its own, and they keep it together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", cache(botocore.loaders.create_loader))
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AT)


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    return Cluster(folder_store(tmp_path, clock), clock)


@pytest.fixture
def s3_cluster(s3_urls: list[str], clock: ManualClock) -> Cluster:
    return Cluster(Store.open(*s3_urls, clock=clock), clock)


@pytest.fixture
def here(tmp_path: Path) -> ElasticCluster:
    """A cluster whose scheduler launches from pools that the test fills."""
    clock = ManualClock()
    return ElasticCluster(folder_store(tmp_path, clock), clock)


@pytest.fixture
def spot_only(tmp_path: Path) -> ElasticCluster:
    clock = ManualClock()
    return ElasticCluster(folder_store(tmp_path, clock), clock, markets=[Market.SPOT])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAccount]:
    """A local cloud of instances without processes, ten minutes in a second."""
    delays = Delays(visible=timedelta(0), remembered=timedelta(days=30))
    options = Options(state_dir=tmp_path_factory.mktemp("local"), scale=600, boot_command=None, delays=delays)
    with LocalCloud(options) as cloud, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", cloud.endpoint)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        account = LocalAccount(cloud)
        yield account
        account.ec2.close()


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleProject]:
    """A local Google Cloud of instances without processes, ten minutes in a second."""
    options = Options(tmp_path_factory.mktemp("google"), cloud="gcp", scale=600, boot_command=None)
    with LocalCloud(options) as cloud, pytest.MonkeyPatch.context() as patch:
        for name, value in owner(cloud.endpoint, "europe-west4").items():
            patch.setenv(name, value)
        yield GoogleProject(cloud)
