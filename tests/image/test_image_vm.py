"""A cluster whose agents are virtual machines: their boot, a job that a notice moves to the next one, and their ends.

An emulated machine is some thirty times as slow as a contained one. All of a cloud's times are longer by the market's
scale, as `everspot-local up --machines vm` has it.
"""

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from everspot_core.cluster.manifest import Limits
from everspot_local.machines.vm import Kernel
from everspot_local.options import DELAYS, DOORS, EMULATED_SCALE, emulated_delays
from image_cluster import ImageCluster, check_out_of_memory, check_resumption, check_shutdown

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]
PATIENCE = timedelta(minutes=40)
LAUNCHER = {"EVERSPOT_LAUNCHER": "/opt/everspot/bin/python"}
"""The job needs no torchrun, which takes minutes to import on an emulated processor."""
BY_ROLE = Path(__file__).with_name("boot_by_role.py")
T = TypeVar("T")


class EmulatedCluster(ImageCluster):
    """Two agents, emulated, and the scheduler, a process. Both boot at once, and the second takes over."""

    scale = EMULATED_SCALE
    target = 2
    limits = Limits(
        lease_ttl="5m",
        beat_every="30s",
        poll_every="10s",
        notice_poll="5s",
        boot_deadline="1h",  # type: ignore[arg-type]
    )
    # The notice's two minutes are of real time here, for the test's sake: it waits for the end of them.
    delays = DELAYS["aws"].changed({**emulated_delays("aws"), "notice": "30s"})

    def until(self, condition: Callable[[], T | None], limit: timedelta = PATIENCE) -> T:
        return super().until(condition, limit)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, image: Path, kernel: Kernel) -> Iterator[EmulatedCluster]:
    program = (
        sys.executable,
        "-m",
        "everspot_local.machines.vm",
        "--image",
        str(image),
        "--kernel",
        str(kernel.folder),
    )
    boot = (sys.executable, str(BY_ROLE), *program, *DOORS["aws"])
    with EmulatedCluster(tmp_path_factory.mktemp("vm"), agent_env=LAUNCHER, boot=boot) as cluster:
        yield cluster


def test_a_job_that_takes_too_much_memory_ends_and_its_agent_lives(live: EmulatedCluster) -> None:
    """Its kernel counts the memory of control groups, whatever that of this machine does."""
    live.until(lambda: len(live.store.instances.names()) == 2 or None)
    check_out_of_memory(live)


def test_a_job_on_a_virtual_machine_meets_its_notice_and_goes_on_in_another(live: EmulatedCluster) -> None:
    live.until(lambda: len(live.store.instances.names()) == 2 or None)
    job = live.submit_toy("emulated", steps=1_000_000, seconds=1)
    first = live.until(lambda: live.trains(job, steps=2))
    console = live.console(first)
    assert "Started everspot-agent.service" in console
    assert f"agent {first}" in console
    step = live.step(job)
    live.cloud.do("interrupt", instance=first)
    second = check_resumption(live, job, first, step)

    # The power button of the second: an ordered shutdown, in which the job writes its checkpoint.
    check_shutdown(live, job, second)
    text = (live.folder / "instances" / second / "console.log").read_text()
    assert "Stopped everspot-agent.service" in text and f"{second} was switched off" in text
