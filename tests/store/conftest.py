import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_store import ManualClock, Store

sys.path.insert(0, str(Path(__file__).parent))
from gcs_helpers import Door

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def submission() -> Callable[..., JobSubmission]:
    """Makes a submission with whatever settings of the spec a test wants."""

    def make(job_id: str = "job-1", **spec: object) -> JobSubmission:
        settings = {"name": "test", "recipe": "image_classification", **spec}
        return JobSubmission(job_id=job_id, spec=JobSpec.model_validate(settings), submitted_at=AT)

    return make


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(AT)


@pytest.fixture
def folder_store(tmp_path: Path, clock: ManualClock) -> Store:
    return open_folder_store(tmp_path, clock)


def open_folder_store(root: Path, clock: ManualClock | None = None) -> Store:
    for name in ("control", "data"):
        (root / name).mkdir(exist_ok=True)
    urls = [(root / name).as_uri() for name in ("control", "data")]
    store = Store.open(*urls, clock=clock)
    store.write_manifest(Manifest(cluster="test", cloud="folder", control_url=urls[0], data_url=urls[1]))
    return store


@pytest.fixture
def s3_store(s3_urls: list[str], clock: ManualClock) -> Store:
    control, data = s3_urls
    store = Store.open(control, data, clock=clock)
    store.write_manifest(Manifest(cluster="test", cloud="aws", region="eu-west-1", control_url=control, data_url=data))
    return store


@pytest.fixture(scope="session")
def gcs_door() -> Iterator[Door]:
    with Door() as door:
        yield door


@pytest.fixture
def gs_store(gcs_door: Door, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Store:
    """On Cloud Storage, which takes one write a second to a name by the test's own clock."""
    gcs_door.open(clock)
    for name, value in gcs_door.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("control", "data"):
        gcs_door.objects.make_bucket(f"everspot-{name}")
    control, data = "gs://everspot-control", "gs://everspot-data"
    store = Store.open(control, data, clock=clock)
    store.write_manifest(Manifest(cluster="test", cloud="folder", control_url=control, data_url=data))
    return store


@pytest.fixture(params=["folder", "s3", "gs"])
def store(request: pytest.FixtureRequest) -> Store:
    """The same behaviour is asked of every kind of store."""
    fixture: Store = request.getfixturevalue(f"{request.param}_store")
    return fixture
