"""Instances as process trees: their environment, their shutdown, and no leftover processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from everspot_local.address import alive
from everspot_local.cloud import LocalCloud
from everspot_local.machines import keeper
from everspot_local.options import Options

SCRIPT = Path(__file__).with_name("local_machine.py")


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    state = Path(tmp_path_factory.mktemp("machines"))
    return Options(state_dir=state, scale=120, boot_command=(sys.executable, str(SCRIPT)), data_dir=state / "data")


def start(kit: Any, helpers: Any, **order: Any) -> tuple[str, list[int], Path]:
    """An instance whose processes are up: its id, their ids, its folder."""
    instance_id = kit.run(UserData=json.dumps({"do": "run", **order}))
    home = kit.cloud.machines.processes.folder(instance_id)
    helpers.until((home / "ready").exists)
    processes = kit.cloud.machines.processes.processes
    pids = helpers.until(lambda: [running for running in [processes(instance_id)] if len(running) == 3])[0]
    return instance_id, pids, home


def ended(pids: list[int]) -> bool:
    return not any(alive(pid) for pid in pids)


def test_the_environment_is_made_from_scratch(kit: Any, helpers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_LAPTOP", "1")
    instance_id, _, home = start(kit, helpers)
    environment = json.loads((home / "environment.json").read_text())
    environment.pop("LC_CTYPE", None)  # Python's own doing
    assert set(environment) == {
        "PATH", "HOME", "LANG", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_EC2_METADATA_DISABLED",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT", "EVERSPOT_CLOCK", "EVERSPOT_HOME", "EVERSPOT_WORK", "EVERSPOT_INSTANCE_ID",
        "EVERSPOT_DATA", "EVERSPOT_MACHINE_DISK",
    }  # fmt: skip
    assert environment["HOME"] == environment["EVERSPOT_HOME"] == str(home)
    assert (environment["AWS_ENDPOINT_URL"], environment["AWS_EC2_METADATA_DISABLED"]) == (kit.cloud.endpoint, "false")
    assert (environment["EVERSPOT_INSTANCE_ID"], environment["EVERSPOT_CLOCK"]) == (
        instance_id,
        kit.cloud.market.clock.variable,
    )
    assert (home / "console.log").read_text() == "up\n"


def test_the_console_shows_what_the_instance_wrote(kit: Any, helpers: Any) -> None:
    instance_id, _, home = start(kit, helpers)
    answer = kit.ec2.get_console_output(InstanceId=instance_id)
    assert (answer["InstanceId"], answer["Output"]) == (instance_id, "up\n")
    with (home / "console.log").open("a") as console:
        console.write("x" * 70_000)
    assert kit.ec2.get_console_output(InstanceId=instance_id)["Output"] == "x" * 65_536


def test_terminating_leaves_no_process_not_even_a_daemon_that_forgot_its_mark(kit: Any, helpers: Any) -> None:
    instance_id, pids, _ = start(kit, helpers)
    assert all(alive(pid) for pid in pids)
    kit.ec2.terminate_instances(InstanceIds=[instance_id])
    kit.reaches(instance_id, "terminated")
    assert ended(pids)


def test_a_user_termination_asks_first_and_an_interruption_does_not(kit: Any, helpers: Any) -> None:
    terminated, _, asked_home = start(kit, helpers, tidy=True)
    interrupted, _, taken_home = start(kit, helpers, tidy=True)
    with kit.still():  # or a busy machine kills them before they have done what they were asked
        kit.ec2.terminate_instances(InstanceIds=[terminated])
        kit.do("interrupt", instance=interrupted, notice=False)
        helpers.until((asked_home / "tidied").exists)
    for instance_id in (terminated, interrupted):
        kit.reaches(instance_id, "terminated")
    assert not (taken_home / "tidied").exists()


PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (open("child", "w").close(), sys.exit(0)))
open("ready", "w").close()
time.sleep(600)
"""
"""The program of a job, which reports a request to end."""


def test_a_machine_that_is_asked_to_end_asks_its_programs_itself(tmp_path: Path, helpers: Any) -> None:
    """The agent's systemd unit does the same: a training process that got SIGTERM immediately would end before it
    saves."""
    boot = f"import signal, subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {PROGRAM!r}])\n"
    boot += "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nchild.wait()"
    words = [sys.executable, keeper.__file__, sys.executable, "-c", boot]
    with subprocess.Popen(words, stdin=subprocess.PIPE, cwd=tmp_path) as machine:
        helpers.until((tmp_path / "ready").exists)
        machine.stdin.write(b"T")
        machine.stdin.flush()
        assert machine.wait() == 7
    assert not (tmp_path / "child").exists()


def test_one_that_ignores_the_request_is_killed_after_the_grace(kit: Any, helpers: Any) -> None:
    instance_id, pids, _ = start(kit, helpers, stubborn=True)
    with kit.still():
        kit.ec2.terminate_instances(InstanceIds=[instance_id])
        assert kit.instance(instance_id)["State"]["Name"] == "shutting-down"
    kit.reaches(instance_id, "terminated")
    assert ended(pids)


def test_a_stopped_process_tree_dies_as_well(kit: Any, helpers: Any) -> None:
    instance_id, pids, _ = start(kit, helpers)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    kit.do("interrupt", instance=instance_id, notice=False)
    kit.reaches(instance_id, "terminated")
    assert ended(pids)


def test_the_end_of_the_boot_command_is_the_end_of_the_instance(kit: Any) -> None:
    instance_id = kit.run(UserData=json.dumps({"do": "exit", "code": 3}))
    instance = kit.reaches(instance_id, "terminated")
    assert instance["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert [(e["id"], e["interrupted"]) for e in kit.log("end")] == [(instance_id, False)]


def test_a_killed_keeper_takes_its_instance_along(kit: Any, helpers: Any) -> None:
    instance_id, pids, _ = start(kit, helpers)
    marked = keeper.marked(instance_id)
    os.kill(kit.cloud.machines.processes.pid(instance_id), signal.SIGKILL)
    kit.reaches(instance_id, "terminated")
    assert ended([p for p in pids if p in marked]), "all but the daemon that scrubbed its environment"
    for pid in pids:
        keeper.signal_all([pid], signal.SIGKILL)


def test_an_instance_that_ends_before_it_boots_never_runs(kit: Any) -> None:
    with kit.still():
        instance_id = kit.run(UserData=json.dumps({"do": "run"}))
        kit.ec2.terminate_instances(InstanceIds=[instance_id])
    kit.reaches(instance_id, "terminated")
    time.sleep(kit.cloud.market.delays.boot.total_seconds() / 120 * 2)
    assert not (kit.cloud.machines.processes.folder(instance_id) / "environment.json").exists()


def test_closing_the_cloud_ends_everything(tmp_path: Path, kit: Any, helpers: Any) -> None:
    _, pids, _ = start(kit, helpers, stubborn=True)
    kit.cloud.reset()
    assert ended(pids)
    assert kit.cloud.machines.living() == []


def test_one_cloud_at_a_time_in_a_process(module_cloud: LocalCloud, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="one local cloud"):
        LocalCloud(Options(state_dir=tmp_path))
