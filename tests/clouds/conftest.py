"""What the tests of clouds share: a second cloud, and a cluster on it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from everspot_clouds import registry
from everspot_core.manifest import Manifest
from everspot_store import ManualClock, Store

sys.path.insert(0, str(Path(__file__).parent))  # pretend_cloud is imported by its name, as a cloud is

from pretend_cloud.cloud import BEGAN, PretendCloud


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[PretendCloud]]:
    """The second cloud, known to the product by one entry of the registry."""
    monkeypatch.setitem(registry.CLOUDS, "pretend", registry.CloudEntry("pretend_cloud.provider", ("pretend",)))
    yield PretendCloud
    PretendCloud.taken = None


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
