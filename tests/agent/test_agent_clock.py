"""An agent compares its machine's clock with the store's at its first heartbeat."""

import logging
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from everspot_clouds.base import Identity
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import InstanceState, Market
from everspot_store import Store, SystemClock
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.watch import Contact

HOUR = timedelta(hours=1)


class WrongClock(SystemClock):
    """The machine's clock, off by a while. The store's, which is the file system's, is right."""

    def __init__(self, skew: timedelta, scale: float = 1.0) -> None:
        super().__init__(scale)
        self._skew = skew

    def now(self) -> datetime:
        return super().now() + self._skew


def beat(folder: Path, clock: WrongClock) -> None:
    """Write the first heartbeat of an instance with a clock."""
    for name in ("control", "data"):
        (folder / name).mkdir()
    store = Store.open(f"file://{folder}/control", f"file://{folder}/data", clock=clock)
    manifest = Manifest(cluster="c", cloud="folder", control_url="file:", data_url="file:")
    identity = Identity(instance_id="i-1", instance_type="m5.large", zone="z", market=Market.SPOT)
    contact = Contact("the store", clock)
    heartbeat = Heartbeat(store, manifest, identity, Hardware(vcpus=2, memory_gib=8), contact, clock, agent_version="1")
    heartbeat.beat(InstanceState.READY, None, None)


@pytest.mark.parametrize(("skew", "side"), [(HOUR, "ahead of"), (-HOUR, "behind")], ids=["ahead", "behind"])
def test_a_wrong_clock_is_an_error_in_the_agents_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, skew: timedelta, side: str
) -> None:
    with caplog.at_level(logging.ERROR):
        beat(tmp_path, WrongClock(skew))
    (message,) = (record.getMessage() for record in caplog.records)
    assert f"{side} the store's" in message
    assert abs(float(message.partition("clock is ")[2].split()[0]) - HOUR.total_seconds()) < 120


@pytest.mark.parametrize("clock", [WrongClock(timedelta()), WrongClock(HOUR, scale=60)], ids=["right", "market time"])
def test_a_right_clock_and_the_time_of_a_market_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clock: WrongClock
) -> None:
    with caplog.at_level(logging.ERROR):
        beat(tmp_path, clock)
    assert caplog.records == []
