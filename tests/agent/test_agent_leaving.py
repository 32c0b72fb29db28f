"""How an agent ends its instance, how long it may take to stop, and what it answers to health checks."""

import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_clouds.base import Identity, MetadataUnavailable
from everspot_clouds.folder import FolderMetadata
from everspot_clouds.registry import provider
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from everspot_store import ManualClock
from everspot_train.agent import main as agent
from everspot_train.agent.health import Health, health_at

IDENTITY = Identity(instance_id="i-1", instance_type="x", zone="z", market=Market.SPOT)


class Ending(FolderMetadata):
    """A cloud that answers the request to end the instance as the test says."""

    def __init__(self, tmp_path: Path, answer: bool | Exception) -> None:
        super().__init__(tmp_path / "manifest.json", IDENTITY)
        self.answer = answer

    def end(self) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "switched_off"),
    [(True, False), (False, True), (MetadataUnavailable("project/project-id: no route"), True)],
)
def test_the_machine_is_switched_off_unless_the_cloud_ends_the_instance(
    answer: bool | Exception, switched_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSPOT_POWEROFF", f"touch {tmp_path / 'off'}")
    agent._leave_machine(Ending(tmp_path, answer))
    assert (tmp_path / "off").exists() is switched_off


@pytest.mark.parametrize(
    ("cloud", "market", "seconds"),
    [
        ("aws", Market.SPOT, 80),
        ("folder", Market.ON_DEMAND, 80),
        ("gcp", Market.SPOT, 20),
        ("gcp", Market.ON_DEMAND, 80),
    ],
)
def test_how_long_a_stop_may_take_is_the_clouds_rule(
    cloud: str, market: Market, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVERSPOT_STOP_SECONDS", raising=False)
    manifest = Manifest(cluster="test", cloud=cloud, control_url="file:///c", data_url="file:///d")
    identity = Identity(instance_id="i-1", instance_type="x", zone="z", market=market)
    assert agent._stop_within(manifest, identity) == timedelta(seconds=seconds)
    monkeypatch.setenv("EVERSPOT_STOP_SECONDS", "7.5")
    assert agent._stop_within(manifest, identity) == timedelta(seconds=7.5)


@pytest.mark.parametrize(
    ("cloud", "chosen", "seconds"),
    [("aws", None, 120), ("folder", None, 120), ("gcp", None, 25), ("gcp", timedelta(minutes=2), 145)],
)
def test_how_long_a_notice_is_is_the_clouds_rule(cloud: str, chosen: timedelta | None, seconds: float) -> None:
    manifest = Manifest(cluster="test", cloud=cloud, notice=chosen, control_url="file:///c", data_url="file:///d")
    assert provider(cloud).notice(manifest) == timedelta(seconds=seconds)


def status(health: Health, path: str = "/healthz") -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{health.port}{path}", timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_an_agent_is_healthy_while_it_looks_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSPOT_HEALTH", "127.0.0.1:0")
    clock, limit = ManualClock(), timedelta(minutes=15)
    assert health_at(None, clock.monotonic, limit, clock) is None
    began = clock.monotonic()
    health = health_at(9495, lambda: began, limit, clock)
    assert health is not None
    try:
        assert (status(health), status(health, "/"), status(health, "/healthz?x=1")) == (200, 404, 200)
        clock.advance(limit)
        assert status(health) == 503
        monkeypatch.setenv("EVERSPOT_HEALTH", f"127.0.0.1:{health.port}")
        assert health_at(9495, lambda: began, limit, clock) is None  # the address is taken: the agent works on
    finally:
        health.close()
