"""The real process is killed during its work repeatedly, and stopped by a signal."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_store import SystemClock
from scheduler_helpers import Cluster, folder_store


@contextmanager
def process(manifest: Path, *options: str) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-m", "everspot_scheduler.main", "--manifest", str(manifest), *options]
    log = manifest.with_suffix(".log")
    with log.open("ab") as err:
        child = subprocess.Popen(command, stderr=err, env={k: v for k, v in os.environ.items() if "AWS" not in k})
        try:
            yield child
        finally:
            child.kill()
            child.wait()


@pytest.fixture
def real(tmp_path: Path) -> Cluster:
    clock = SystemClock()
    cluster = Cluster(folder_store(tmp_path, clock), clock)
    limits = cluster.manifest.limits.model_copy(update={"tick_every": timedelta(milliseconds=20)})
    cluster.manifest = cluster.manifest.model_copy(update={"cloud": "folder", "limits": limits})
    (tmp_path / "manifest.json").write_bytes(cluster.manifest.to_json())
    return cluster


def work(cluster: Cluster) -> None:
    """Everybody's turn, while the scheduler's process does what it does; nothing may be owned twice meanwhile."""
    for agent in cluster.agents.values():
        agent.turn()
        cluster.check()
    cluster.clock.sleep(timedelta(milliseconds=5))


def begun(log: Path) -> int:
    return log.read_text().count(" begins for cluster ")


def test_a_process_that_is_killed_at_any_moment_assigns_nothing_twice(real: Cluster, tmp_path: Path) -> None:
    dice, kills, log = random.Random(5), 6, tmp_path / "manifest.log"
    real.length = 3
    for n in range(4):
        real.agent(f"i-{n}")
    for life in range(kills):
        for n in range(4):
            real.submit(f"j{life}-{n}")
        with process(tmp_path / "manifest.json") as child:
            while begun(log) <= life:
                work(real)
            until = real.clock.monotonic() + timedelta(seconds=dice.random() * 0.15)
            while real.clock.monotonic() < until:
                work(real)
            child.send_signal(signal.SIGKILL)
    jobs = list(real.store.jobs.scan())
    with process(tmp_path / "manifest.json") as child:
        while begun(log) <= kills:
            work(real)
        until = real.clock.monotonic() + timedelta(minutes=5)
        while real.clock.monotonic() < until and {real.state(name) for name in jobs} != {"SUCCEEDED"}:
            work(real)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    assert len(jobs) == 4 * kills
    assert {real.state(name) for name in jobs} == {"SUCCEEDED"}
    assert len(real.store.launches.scan()) == 4
    assert sum(map(len, real.starts.values())) >= len(jobs)


def test_once_makes_one_tick_and_ends(real: Cluster, tmp_path: Path) -> None:
    real.agent("i-1")
    real.submit("j")
    with process(tmp_path / "manifest.json", "--once", "--id", "s-once") as child:
        assert child.wait(60) == 0
    assert real.state("j") == "ASSIGNED"
    assert real.store.schedulers.get("s-once").value.ticks == 1


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        ("{}", "cluster"),
        (
            '{"cluster": "c", "cloud": "mars", "control_url": "file:///tmp", "data_url": "file:///tmp"}',
            "no adapter for mars",
        ),
        ('{"cluster": "c", "cloud": "folder", "control_url": "file:///nowhere", "data_url": "file:///x"}', "nowhere"),
    ],
)
def test_what_cannot_start_says_why(tmp_path: Path, manifest: str, sentence: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(manifest)
    with process(path) as child:
        assert child.wait(60) == 2
    log = path.with_suffix(".log").read_text()
    assert "the scheduler cannot start" in log
    assert sentence in log


def test_a_misspelt_field_is_told_of_by_its_name_and_stops_nobody(real: Cluster, tmp_path: Path) -> None:
    manifest_path = tmp_path / "manifest.json"
    manifest_path.write_text(manifest_path.read_text().replace('"limits":{', '"limits":{"lease_tll":"90s",'))
    published = real.manifest.to_json().decode().replace('"cloud":', '"standing":{"spot_unit":3},"cloud":')
    real.store.control.put("cluster.json", published.encode())
    with process(manifest_path, "--once") as child:
        assert child.wait(timeout=300) == 0
    log = (tmp_path / "manifest.log").read_text()
    assert f"WARNING __main__: {manifest_path}: limits.lease_tll: unknown field (did you mean lease_ttl?)" in log
    assert "cluster.json: standing.spot_unit: unknown field (did you mean spot_units?)" in log
