"""What the tests of clouds share: a second cloud, and a cluster on it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from everspot_clouds import registry
from everspot_clouds.kubernetes.service_account import FOLDER_VARIABLE
from everspot_core.cluster.manifest import Manifest
from everspot_local.cloud import LocalCloud
from everspot_local.gcp.environment import owner
from everspot_local.kubernetes.control_plane import ControlPlane
from everspot_local.options import Options
from everspot_store import ManualClock, Store

sys.path.insert(0, str(Path(__file__).parent))  # pretend_cloud is imported by its name, as a cloud is

from kubernetes_place import CLAIMS, PROGRAM, Place
from pretend_cloud.cloud import BEGAN, PretendCloud

GOOGLE_SCALE = 60.0  # a minute of the market takes a real second


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[PretendCloud]]:
    """The second cloud, known to the product by one entry of the registry."""
    monkeypatch.setitem(registry.CLOUDS, "pretend", registry.CloudEntry("pretend_cloud.provider", ("pretend",)))
    yield PretendCloud
    PretendCloud.preempted_at = None


@pytest.fixture
def store(pretend: type[PretendCloud], tmp_path: Path) -> Store:
    """The store of a cluster on it, in folders."""
    urls = [f"file://{tmp_path / name}" for name in ("control", "data")]
    for name in ("control", "data"):
        (tmp_path / name).mkdir()
    store = Store.open(*urls, clock=ManualClock(BEGAN))
    store.write_manifest(
        Manifest(cluster="test", cloud="pretend", region="us-central1", control_url=urls[0], data_url=urls[1])
    )
    return store


@pytest.fixture(scope="session")
def google_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """One local Google Cloud, whose instances are no processes, for all tests that ask for one."""
    folder = tmp_path_factory.mktemp("google")
    with LocalCloud(Options(folder, cloud="gcp", scale=GOOGLE_SCALE, boot_command=None)) as cloud:
        yield cloud


@pytest.fixture
def google(google_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """It with nothing in it, and the environment of the project's owner."""
    google_cloud.reset()
    for name, value in owner(google_cloud.endpoint, "europe-west4").items():
        monkeypatch.setenv(name, value)
    return google_cloud


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of Kubernetes that knows the NodeClaims of Karpenter."""
    with ControlPlane(PROGRAM, tmp_path_factory.mktemp("plane")) as plane:
        plane.admin().create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CLAIMS)
        yield plane


@pytest.fixture
def place(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A namespace on it, and the environment of a pod of the scheduler there."""
    place = Place(plane, tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(plane.port))
    monkeypatch.setenv(FOLDER_VARIABLE, str(place.account("everspot-scheduler")))
    place.template("sleep", "1000")
    yield place
    place.close()
