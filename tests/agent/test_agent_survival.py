"""What the agent does when the store fails it, and when nobody needs it any more: real processes."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_kit import FAST, Cluster, eventually, market_in, metadata_pages
from everspot_core.documents import parse_duration
from everspot_core.records import InstanceState, JobState, Role


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Cluster]:
    update = {"lease_ttl": parse_duration("8s"), "idle_limit": None, "orphan_limit": parse_duration("15m")}
    cluster = Cluster(tmp_path, FAST.model_copy(update=update))
    yield cluster
    cluster.close()


class Outage:
    """The control bucket is away."""

    def __init__(self, cluster: Cluster) -> None:
        self._here, self._away = cluster.root / "control", cluster.root / "control-away"

    def __enter__(self) -> None:
        self._here.rename(self._away)

    def __exit__(self, *_: object) -> None:
        self._away.rename(self._here)


def test_training_goes_on_through_an_outage_that_is_shorter_than_the_lease(cluster: Cluster) -> None:
    cluster.submit("job-1", env={"TOY_STEPS": "150", "TOY_EVERY": "1000", "TOY_STEP_SECONDS": "0.05"})
    cluster.assign("job-1", "i-1")
    cluster.start_agent("i-1")
    cluster.wait_steps(5)
    with Outage(cluster):
        before = len(cluster.trace())
        time.sleep(1.5)
        assert len(cluster.trace()) > before
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)
    assert (record.epoch, record.preemptions, record.errors) == (1, 0, 0)
    assert [fact["step"] for fact in cluster.trace()] == list(range(150))


def test_training_is_killed_when_the_lease_ends_in_an_outage_and_nothing_is_written_then(short: Cluster) -> None:
    """The program does not look at its lease by itself."""
    short.submit("job-1", env={"TOY_STEPS": "100000", "TOY_EVERY": "1000000", "TOY_DEAF": "1"})
    short.assign("job-1", "i-1")
    agent = short.start_agent("i-1")
    short.wait_steps(5)
    before = short.record("job-1")
    with Outage(short):
        eventually("the training process is gone", lambda: agent.tree() == [agent.popen.pid])
        executed = len(short.trace())
    time.sleep(1)
    assert len(short.trace()) == executed
    record = short.record("job-1")
    assert record is not None
    assert before is not None
    assert (record.state, record.epoch, record.owner) == (JobState.RUNNING, 1, "i-1")
    assert "is abandoned: the lease is lost" in agent.output
    # The scheduler finds a record that stands still; the instance takes it again under the next epoch.
    short.expire("job-1")
    short.assign("job-1", "i-1")
    eventually("it trains again", lambda: short.trace()[-1]["epoch"] == 2)


def test_an_idle_instance_says_gone_and_switches_itself_off(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, FAST.model_copy(update={"idle_limit": parse_duration("2s")}))
    try:
        agent = cluster.start_agent("i-1")
        assert agent.wait() == 0
        assert (agent.home / "powered-off").exists()
        found = cluster.store.instances.get("i-1")
        assert found is not None
        assert found.value.state is InstanceState.GONE
    finally:
        cluster.close()


def test_without_a_command_for_it_the_machine_is_never_switched_off(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, FAST.model_copy(update={"idle_limit": parse_duration("1s")}))
    try:
        commands = tmp_path / "bin"
        commands.mkdir()
        for name in ("systemctl", "poweroff", "shutdown", "sudo"):
            (commands / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/switched-off\n")
            (commands / name).chmod(0o755)
        agent = cluster.start_agent("i-1", EVERSPOT_POWEROFF="", PATH=f"{commands}:/usr/bin:/bin")
        assert agent.wait() == 0
        assert not (tmp_path / "switched-off").exists()
        assert "the machine runs on" in agent.output
    finally:
        cluster.close()


def test_an_orphaned_instance_switches_itself_off(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, FAST.model_copy(update={"orphan_limit": parse_duration("2s")}))
    try:
        agent = cluster.start_agent("i-1")
        cluster.wait_instance("i-1", lambda found: found.state is InstanceState.READY)
        with Outage(cluster):
            assert agent.wait() == 0
        assert (agent.home / "powered-off").exists()
        assert "orphan limit" in agent.output
    finally:
        cluster.close()


def test_a_notice_gets_through_a_metadata_service_that_fails_most_of_the_time(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-1")
    cluster.submit("job-1", env={"TOY_STEPS": "1000", "TOY_EVERY": "500"})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_with_metadata(server, "i-1")
    cluster.wait_steps(5)
    server.failures = [503, None, 500, 503, None, 503]
    server.announce_interruption(market_in(20))
    cluster.wait_state("job-1", JobState.PENDING)
    assert agent.popen.poll() is None


def test_the_scheduler_role_becomes_the_scheduler_with_the_manifest_handed_over(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-s")
    manifest = cluster.manifest.model_copy(update={"role": Role.SCHEDULER})
    server.pages = metadata_pages(manifest, "i-s", "on-demand")
    proc = cluster.start_with_metadata(server, "i-s")
    eventually("a scheduler's heartbeat", lambda: cluster.store.schedulers.scan())
    command = Path(f"/proc/{proc.popen.pid}/cmdline").read_bytes().split(b"\0")
    assert b"everspot_scheduler.main" in command
    assert json.loads((proc.home / "manifest.json").read_text())["role"] == "scheduler"
    proc.popen.terminate()
    assert proc.wait() == 0


def test_an_instance_without_a_manifest_says_so_and_fails(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-1")
    server.pages["latest/user-data"] = "no manifest"
    agent = cluster.start_with_metadata(server, "i-1")
    assert agent.wait() == 1
    assert "holds no manifest" in agent.output
