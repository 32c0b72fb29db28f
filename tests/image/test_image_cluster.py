"""A cluster whose instances boot the image: its units, a job on it, and every way in which such a machine ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from everspot_core.jobs.records import EventKind
from everspot_local.options import DOORS
from image_cluster import SCALE, ImageCluster, check_resumption, find_events
from image_machine import BOOT, until

pytestmark = pytest.mark.timeout(1800)
ENABLED = (
    "everspot-agent.service", "everspot-gpus.service", "everspot-poweroff.path", "everspot-boot-deadline.timer",
    "everspot-scratch.service", "everspot-broker.socket", "everspot-folders.service",
)  # fmt: skip
SERVICES = ("agent", "gpus", "poweroff", "boot-deadline", "scratch", "folders", "broker@")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, image: Path) -> Iterator[ImageCluster]:
    """One cluster, which the tests below lead from one state to the next."""
    boot = (*BOOT, "--image", str(image), *DOORS["aws"])
    with ImageCluster(tmp_path_factory.mktemp("image"), boot=boot) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def first(live: ImageCluster) -> str:
    """The first agent's instance."""
    return str(live.until(lambda: next(iter(live.store.instances.names()), None)))


def test_its_agent_reports_and_no_unit_has_failed(live: ImageCluster, first: str) -> None:
    machine = live.machine(first)
    assert machine.await_boot() == "running", machine.run("systemctl", "--failed", "--no-legend")
    for unit in ENABLED:
        assert machine.run("systemctl", "is-enabled", unit).strip() == "enabled"
    assert machine.show("everspot-agent.service", "NRestarts") == "0"
    assert machine.show("everspot-agent.service", "User") == "everspot"
    order = set(machine.show("everspot-agent.service", "After").split())
    assert {
        "everspot-scratch.service",
        "everspot-folders.service",
        "everspot-gpus.service",
        "network-online.target",
    } <= order
    assert machine.run("cat", "/run/everspot/boot-deadline").strip().isdigit()
    # The timer has nothing to do any more.
    timer = "everspot-boot-deadline.timer"
    until(lambda: machine.show(timer, "ActiveState") == "inactive", "the boot deadline is over")


def test_its_units_have_walls(live: ImageCluster, first: str) -> None:
    machine = live.machine(first)
    exposure = {}
    for name in SERVICES:
        text = machine.run("systemd-analyze", "security", "--no-pager", f"everspot-{name}.service")
        exposure[name] = float(text.strip().splitlines()[-1].rpartition(": ")[2].split()[0])
    assert exposure["agent"] <= 3.0
    assert {name: figure for name, figure in exposure.items() if figure > 5.0} == {}


def test_ec2_shows_its_console(live: ImageCluster, first: str) -> None:
    console = live.console(first)
    assert "Started everspot-agent.service" in console
    assert f"agent {first}" in console


def test_a_job_runs_on_it_as_its_own_user_and_goes_on_after_the_agent_was_killed(
    live: ImageCluster, first: str
) -> None:
    job = live.submit_toy("walked", steps=1_000_000, seconds=SCALE / 2)
    assert live.until(lambda: live.trains(job, steps=2)) == first
    machine = live.machine(first)
    find = "for p in /proc/[0-9]*; do grep -qa toy_train $p/cmdline && stat --format=%U $p; done; true"
    assert set(machine.run("sh", "-c", find).split()) - {"root"} == {"everspot-job-0"}
    before = live.step(job)
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", "everspot-agent.service")
    until(lambda: machine.show("everspot-agent.service", "NRestarts") == "1", "the agent is started again")
    live.until(lambda: live.step(job) > before + 2 or None)
    assert live.trains(job) == first


def test_a_notice_reaches_it_and_the_job_goes_on_elsewhere_from_its_last_step(live: ImageCluster, first: str) -> None:
    step = live.step("walked")
    live.cloud.do("interrupt", instance=first)
    second = check_resumption(live, "walked", first, step)
    assert live.machine(second).await_boot() == "running"


def test_terminating_it_lets_the_job_write_its_checkpoint_first(live: ImageCluster) -> None:
    second = live.await_owner("walked")
    step = live.step("walked")
    live.client("ec2").terminate_instances(InstanceIds=[second])
    check_resumption(live, "walked", second, step)
    assert live.await_end(second)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    console = (live.folder / "instances" / second / "console.log").read_text()
    assert "Stopped everspot-agent.service" in console and f"{second} was switched off" in console


def test_a_full_disk_ends_the_attempt_and_not_the_agent(live: ImageCluster) -> None:
    third = live.await_owner("walked")
    machine = live.machine(third)
    machine.run("sh", "-c", "dd if=/dev/zero of=/var/tmp/fill bs=1M 2>/dev/null || true")
    interrupted = live.until(lambda: find_events(live, "walked", EventKind.INTERRUPTED, third))[0]
    assert interrupted.data["message"] == "the machine's disk is full"
    assert machine.show("everspot-agent.service", "ActiveState") == "active"
    assert machine.show("everspot-agent.service", "NRestarts") == "0"


def test_its_agent_switches_it_off_without_being_root(live: ImageCluster) -> None:
    def running_agent() -> str | None:
        living = [machine.id for machine in live.cloud.machines.living()]
        return next((name for name in live.store.instances.names() if name in living), None)

    last = live.until(running_agent)
    live.machine(last).run("setpriv", "--reuid=everspot", "--clear-groups", "touch", "/run/everspot/poweroff")
    assert live.await_end(last)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
