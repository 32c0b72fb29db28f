"""The image's units: what the agent may do under systemd, and how an instance whose agent never reports ends itself."""

import configparser
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_clouds.registry import CLOUDS, provider
from everspot_core.capacity.market import Market
from everspot_train.agent.cdi import FOLDERS
from everspot_train.agent.main import DEFAULT_HOME, RUNTIME_VARIABLE
from everspot_train.broker.protocol import SOCKET_VARIABLE, StartRequest
from everspot_train.broker.unit import JobUnit

WORK = "/var/lib/everspot/work"
BAKE = Path(__file__).parents[2] / "training_image" / "bake"


UNITS = sorted(path.name for suffix in ("service", "path", "timer", "socket") for path in BAKE.glob(f"*.{suffix}"))


def unit(name: str) -> configparser.RawConfigParser:
    # A key given twice is refused, but where systemd wants a command on each line.
    parser = configparser.RawConfigParser(strict=name != "everspot-gpus.service")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((BAKE / name).read_text())
    return parser


def environment(service: configparser.SectionProxy) -> dict[str, str]:
    assignments = re.findall(r'"([^"]*)"|(\S+)', service["Environment"])
    return dict((quoted or plain).split("=", 1) for quoted, plain in assignments)


def test_the_agent_is_not_root_and_cannot_become_it() -> None:
    service = unit("everspot-agent.service")["Service"]
    assert service["User"] == service["Group"] == "everspot"
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
    assert service["ProtectSystem"] == "strict"
    assert service["RestrictSUIDSGID"] == "yes"
    written = {
        key for key in service if key.startswith(("ReadWritePaths", "SupplementaryGroups", "PermissionsStartOnly"))
    }
    assert written == set()


def test_the_unit_and_the_agent_agree() -> None:
    service = unit("everspot-agent.service")["Service"]
    variables = environment(service)
    assert variables["EVERSPOT_HOME"] == f"/var/lib/{service['StateDirectory']}" == DEFAULT_HOME
    assert "EVERSPOT_STOP_SECONDS" not in variables, "the cloud's rules say how long a stop may take"
    given_up = timedelta(seconds=float(service["TimeoutStopSec"].removesuffix("s")))
    longest = max(provider(cloud).stop_within(market) for cloud in CLOUDS for market in Market)
    assert given_up >= longest + timedelta(seconds=10)
    assert service["ExecStart"] == "/opt/everspot/bin/everspot-agent"
    assert service["KillMode"] == "mixed", "SIGTERM must not reach the training process before its checkpoint"
    assert service["OOMPolicy"] == "continue", "the kernel killing a training process must not stop the agent"
    assert service["Restart"] == "on-failure", "an agent that has left for good must stay away"


def test_poweroff_is_one_file_that_only_the_agent_can_write() -> None:
    agent, path = unit("everspot-agent.service")["Service"], unit("everspot-poweroff.path")
    command = environment(agent)["EVERSPOT_POWEROFF"].split()
    assert command == ["/usr/bin/touch", path["Path"]["PathExists"]]
    assert path["Path"]["PathExists"].startswith(f"/run/{agent['RuntimeDirectory']}/")
    assert agent["RuntimeDirectoryPreserve"] == "yes", "else the file is gone before anybody looks"
    off = unit("everspot-poweroff.service")["Service"]
    assert (off["Type"], off["ExecStart"]) == ("oneshot", "/usr/bin/systemctl --no-block poweroff")
    assert path["Path"]["Unit"] == "everspot-poweroff.service"
    assert path["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.parametrize(
    ("uptime", "files", "machine", "called"),
    [
        (599.9, {}, "amazon", ""),
        (600.0, {}, "amazon", "--no-block poweroff"),
        (600.0, {"boot-deadline": "1200\n"}, "amazon", ""),
        (1200.0, {"boot-deadline": "1200\n"}, "amazon", "--no-block poweroff"),
        (601.0, {"boot-deadline": "soon; reboot"}, "amazon", "--no-block poweroff"),
        (9999.0, {"reported": ""}, "amazon", "stop everspot-boot-deadline.timer"),
        # Before the agent has read its manifest, the machine itself says how long it may take.
        (1199.0, {}, "nvswitch", ""),
        (1200.0, {}, "nvswitch", "--no-block poweroff"),
        (1799.0, {}, "none", ""),
        (1800.0, {}, "none", "--no-block poweroff"),
        (600.0, {"boot-deadline": "600\n"}, "none", "--no-block poweroff"),
    ],
)
def test_an_instance_whose_agent_never_reports_ends_itself(
    tmp_path: Path, uptime: float, files: dict[str, str], machine: str, called: str
) -> None:
    """`machine`: as systemd-detect-virt says; with NVSwitch: the driver lists one."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "uptime").write_text(f"{uptime} 77.0\n")
    switches = tmp_path / "switches"
    if machine == "nvswitch":
        (switches / "0000:c4:00.0").mkdir(parents=True)
    for name, line in (("systemctl", f'echo "$@" > {tmp_path}/called'), ("systemd-detect-virt", f"echo {machine}")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    command = ["bash", BAKE / "boot-deadline.sh", tmp_path, tmp_path / "uptime"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "EVERSPOT_NVSWITCHES": str(switches)}
    answer = subprocess.run(command, env=env, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert ((tmp_path / "called").read_text().strip() if (tmp_path / "called").exists() else "") == called


def test_the_boot_deadline_looks_where_the_agent_writes() -> None:
    agent, deadline = unit("everspot-agent.service")["Service"], unit("everspot-boot-deadline.service")["Service"]
    command = deadline["ExecStart"].split()
    assert command[0] == "/opt/everspot/sbin/boot-deadline.sh"
    assert command[1] == environment(agent)[RUNTIME_VARIABLE] == f"/run/{agent['RuntimeDirectory']}"
    assert unit("everspot-boot-deadline.timer")["Install"]["WantedBy"] == "timers.target"


def test_the_agent_and_jobs_have_gpus_under_the_hardened_units(job_unit: dict[str, list[str]]) -> None:
    agent, gpus = unit("everspot-agent.service"), unit("everspot-gpus.service")
    service = agent["Service"]
    # Each of these takes devices away, the last one by the DeviceAllow that it implies.
    shut = {"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock"}
    assert not shut & set(service)
    assert not shut & set(job_unit)
    assert "everspot-gpus.service" in agent["Unit"]["After"]
    assert "User" not in gpus["Service"], "loading a module is root's"
    writer, folder = gpus["Service"]["ExecStart"].split("--output="), FOLDERS[-1]
    assert writer[0].startswith("-/usr/bin/nvidia-ctk cdi generate ") and Path(writer[1]).parent == folder
    assert folder == Path("/var/run") / gpus["Service"]["RuntimeDirectory"]
    assert gpus["Unit"]["Before"] == "everspot-agent.service"
    assert set(environment(service)["EVERSPOT_SWEEP"].split(":")) == {"/tmp", "/var/tmp", "/dev/shm"}
    assert service["PrivateTmp"] == "yes", "else what is swept is not the agent's alone"


def test_the_agent_does_not_start_where_it_would_follow_links_of_jobs() -> None:
    agent = unit("everspot-agent.service")["Unit"]
    assert agent["Requires"] == "everspot-folders.service"
    assert "everspot-folders.service" in agent["After"].split()
    assert "nosymfollow" in (BAKE / "folders.sh").read_text()


def test_a_job_ends_with_the_broker_and_after_the_agent(job_unit: dict[str, list[str]]) -> None:
    assert job_unit["BindsTo"] == ["everspot-broker@7.service"]
    assert job_unit["Before"] == ["everspot-agent.service"], (
        "on a shutdown the agent lets it write its checkpoint first"
    )
    assert job_unit["KillSignal"] == ["SIGKILL"]
    broker, listener = unit("everspot-broker@.service"), unit("everspot-broker.socket")
    assert broker["Unit"]["Before"] == listener["Unit"]["Before"] == "everspot-agent.service"
    agent = unit("everspot-agent.service")
    assert "everspot-broker.socket" in agent["Unit"]["After"].split()
    assert environment(agent["Service"])[SOCKET_VARIABLE] == listener["Socket"]["ListenStream"]
    assert (listener["Socket"]["SocketGroup"], listener["Socket"]["SocketMode"]) == ("everspot", "0660")


def test_a_job_that_shares_the_machine_gets_the_limits_of_its_seat(job_unit: dict[str, list[str]]) -> None:
    limits = ("CPUQuota", "MemoryMax", "OOMPolicy", "Nice", "LimitNPROC")
    assert [job_unit[name] for name in limits] == [["200%"], ["1536M"], ["kill"], ["5"], ["2048"]]


def test_a_job_sees_of_the_agents_folder_its_own_alone(job_unit: dict[str, list[str]]) -> None:
    home, systemd, memory = job_unit["TemporaryFileSystem"][0].split()
    assert systemd == "/run/systemd:ro" and job_unit["BindReadOnlyPaths"] == ["-/run/systemd/resolve"]
    assert (home, memory) == ("/var/lib/everspot:ro", "/dev/shm:mode=1777,size=1536M")
    assert sorted(entry.partition(":")[2] for entry in job_unit["BindPaths"]) == [
        "/dev/shm/everspot-a/b", "/var/lib/everspot/cache/c", "/var/lib/everspot/runs/r", "/var/lib/everspot/tmp/t",
        f"{WORK}/w",
    ]  # fmt: skip
    hidden = {entry.removeprefix("-") for entry in job_unit["InaccessiblePaths"]}
    assert {"/run/everspot", "/run/everspot-broker.socket"} <= hidden
    assert "169.254.169.254" in job_unit["IPAddressDeny"][0].split()


def start_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, container: bool) -> dict[str, list[str]]:
    """What systemd is told of a job that shares its machine, by property."""
    program = tmp_path / "programs" / "systemd-run"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    request = StartRequest("r", "w", "t", "c", ("everspot-a", "b"), 2, 1536, metadata=False, container=container)
    staged = {kind: Path("/run/staged", kind) for kind in request.folders()}
    JobUnit("everspot-job-3.service", "everspot-job-3", "everspot-broker@7.service").start(request, staged)
    properties: dict[str, list[str]] = {}
    for argument in (tmp_path / "called").read_text().splitlines():
        if argument.startswith("--property="):
            name, _, value = argument.removeprefix("--property=").partition("=")
            properties.setdefault(name, []).append(value)
    return properties


@pytest.fixture
def job_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    return start_unit(tmp_path, monkeypatch, container=False)


def test_a_container_differs_by_two_namespaces_and_the_calls_to_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job_unit: dict[str, list[str]]
) -> None:
    with_container = start_unit(tmp_path, monkeypatch, container=True)
    differing = {name for name in job_unit if job_unit[name] != with_container[name]}
    assert differing == {"RestrictNamespaces", "SystemCallFilter"}
    assert (job_unit["RestrictNamespaces"], with_container["RestrictNamespaces"]) == (["yes"], ["user mnt"])
    (calls,), (container_calls,) = job_unit["SystemCallFilter"], with_container["SystemCallFilter"]
    assert set(calls.split()) - set(container_calls.split()) == {"@mount"}


@pytest.mark.parametrize(
    ("files", "has_switch"),
    [
        ({}, False),
        ({"switches/0000:c4:00.0": ""}, True),
        ({"infiniband/mlx5_0/device/vpd": "SMDL=NIC"}, False),
        ({"infiniband/mlx5_0/device/vpd": "SMDL=NIC", "infiniband/mlx5_1/device/vpd": "x\0SMDL=SW_MNG"}, True),
    ],
)
def test_the_fabric_manager_starts_only_where_gpus_are_joined_by_a_switch(
    tmp_path: Path, files: dict[str, str], has_switch: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    env = {
        "PATH": "/usr/bin:/bin",
        "EVERSPOT_NVSWITCHES": f"{tmp_path}/switches",
        "EVERSPOT_INFINIBAND": f"{tmp_path}/infiniband",
    }
    answer = subprocess.run(["bash", BAKE / "nvswitch.sh"], env=env, capture_output=True, text=True)
    assert (answer.returncode == 0, answer.stderr) == (has_switch, "")
    fabric = unit("nvidia-fabricmanager-everspot.conf")
    assert fabric["Service"]["ExecCondition"] == "/opt/everspot/sbin/nvswitch.sh"
    assert (fabric["Unit"]["After"], fabric["Unit"]["Before"]) == ("everspot-gpus.service", "everspot-agent.service")


def test_no_unit_waits_for_every_device_of_the_machine() -> None:
    """The agent starts behind them: systemd-udev-settle held one for longer than its boot deadline leaves."""
    for name in UNITS:
        lines = [line for line in (BAKE / name).read_text().splitlines() if not line.startswith("#")]
        assert "udev-settle" not in "\n".join(lines), name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_understands_the_units_and_finds_them_hardened(tmp_path: Path) -> None:
    # The user and the program exist on the image only.
    timer, gpus = tmp_path / "everspot-boot-deadline.timer", tmp_path / "everspot-gpus.service"
    for name in UNITS:
        text = (BAKE / name).read_text().replace("/opt/everspot/bin/everspot-agent", "/bin/true")
        text = text.replace("/opt/everspot/sbin/boot-deadline.sh", "/bin/true")
        text = text.replace("/opt/everspot/sbin/folders.sh", "/bin/true").replace(
            "/opt/everspot/bin/python", "/bin/true"
        )
        text = text.replace("-/usr/bin/nvidia", "-/bin/true /usr/bin/nvidia")  # there on machines with GPUs only
        (tmp_path / name).write_text(text.replace("=everspot\nGroup=everspot", "=daemon\nGroup=daemon"))
    service, path = tmp_path / "everspot-agent.service", tmp_path / "everspot-poweroff.path"
    units = [service, path, timer, gpus, tmp_path / "everspot-broker.socket"]
    verdict = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (verdict.returncode, verdict.stderr.strip()) == (0, "")
    for unit_file, most in (
        (service, 30),
        (tmp_path / "everspot-broker@.service", 50),
        (tmp_path / "everspot-folders.service", 50),
    ):
        command = ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", unit_file]
        exposure = subprocess.run(command, capture_output=True, text=True)
        assert exposure.returncode == 0, exposure.stdout[-300:]
