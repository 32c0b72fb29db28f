"""What the agent does when the store fails it, and when nobody needs it any more: real processes."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_helpers import FAST, Cluster, eventually, market_in, metadata_pages
from everspot_core.cluster.manifest import Proxy
from everspot_core.documents import parse_duration
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.records import InstanceState, JobState, Role
from everspot_store import Store


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

    def __enter__(self) -> Path:
        self._here.rename(self._away)
        return self._away

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


def test_training_goes_on_through_an_outage_that_outlasts_the_lease_and_the_job_is_taken_back(short: Cluster) -> None:
    short.submit("job-1", env={"TOY_STEPS": "100000", "TOY_EVERY": "1000000", "TOY_DEAF": "1"})
    short.assign("job-1", "i-1")
    agent = short.start_agent("i-1")
    short.wait_steps(5)
    lease = agent.home / "runs" / "job-1-000001" / "lease.json"
    with Outage(short) as away:
        over = float(json.loads(lease.read_text())["valid_until"])
        eventually("the lease is over", lambda: time.monotonic() > over)
        executed = len(short.trace())
        eventually("it trains on", lambda: len(short.trace()) > executed)
        # To the scheduler the outage has been shorter: it has found a record that stood still, and given the owner up.
        table = Store.open(away.as_uri(), short.store.data.url).records
        document = table.get("job-1")
        assert document is not None
        lost = transitions.expire(document.value, short.clock.now())
        assert (lost.state, lost.preemptions) == (JobState.PENDING, 1)
        assert table.replace("job-1", document, lost) is not None
    record = short.wait_state("job-1", JobState.RUNNING)
    assert (record.epoch, record.owner, record.preemptions) == (1, "i-1", 0)
    eventually("it is told", lambda: any(e.data.get("reclaimed") for e in short.store.events("job-1")))
    executed = len(short.trace())
    eventually("it trains on", lambda: len(short.trace()) > executed)
    assert {fact["epoch"] for fact in short.trace()} == {1}


def test_an_idle_instance_says_gone_and_switches_itself_off(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, FAST.model_copy(update={"idle_limit": parse_duration("2s")}))
    try:
        agent = cluster.start_agent("i-1")
        assert agent.wait() == 0
        assert (agent.home / "powered-off").exists()
        document = cluster.store.instances.get("i-1")
        assert document is not None
        assert document.value.state is InstanceState.GONE
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
        cluster.wait_instance("i-1", lambda record: record.state is InstanceState.READY)
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
    proxy = Proxy(url="http://proxy.invalid:3128", no_proxy=("169.254.169.254",))
    manifest = cluster.manifest.model_copy(update={"role": Role.SCHEDULER, "proxy": proxy})
    server.pages = metadata_pages(manifest, "i-s", "on-demand")
    proc = cluster.start_with_metadata(server, "i-s")
    eventually("a scheduler's heartbeat", lambda: cluster.store.schedulers.scan())
    command = Path(f"/proc/{proc.popen.pid}/cmdline").read_bytes().split(b"\0")
    assert b"everspot_scheduler.main" in command
    assert json.loads((proc.home / "manifest.json").read_text())["role"] == "scheduler"
    environment = Path(f"/proc/{proc.popen.pid}/environ").read_bytes().split(b"\0")
    assert {b"HTTPS_PROXY=http://proxy.invalid:3128", b"NO_PROXY=169.254.169.254"} <= set(environment)
    proc.popen.terminate()
    assert proc.wait() == 0


def test_an_instance_without_a_manifest_says_so_and_fails(cluster: Cluster) -> None:
    server = cluster.metadata_server("i-1")
    server.pages["latest/user-data"] = "no manifest"
    agent = cluster.start_with_metadata(server, "i-1")
    assert agent.wait() == 1
    assert "holds no manifest" in agent.output
