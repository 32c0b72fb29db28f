"""The transient systemd unit of one job: its properties and its state."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from everspot_clouds.metadata_addresses import METADATA_ADDRESSES

from everspot_train.broker.protocol import HOME, StartRequest

SLICE = "everspot-jobs.slice"
AGENT = "everspot-agent.service"
CONTROL_GROUPS = Path("/sys/fs/cgroup")
START_TIMEOUT = timedelta(seconds=60)
"""The time for systemd to set up the job's mounts and to execute its first process."""
CALL_TIMEOUT = timedelta(seconds=20)
END_TIMEOUT = timedelta(seconds=10)
"""The time for killed processes to end. A process in an uninterruptible wait may take longer."""
SHARED_NICENESS = 5
"""The niceness of jobs that share a machine, so that the agent gets processor time even without other limits."""
_LOOK_SECONDS = 0.02
_PROCESSES, _PROCESSES_PER_VCPU = 1024, 512
"""The limit of a job's processes and threads. In each process torch starts some threads for each processor."""
_EXITED = "1"  # CLD_EXITED (sigaction(2)); other values are CLD_KILLED and CLD_DUMPED

_HIDDEN = (
    "/run/everspot", "/run/everspot-broker", "/run/everspot-broker.socket", "/run/dbus", "/run/cloud-init",
    "/var/lib/cloud", "/run/lock",
)  # fmt: skip
"""Hidden folders and files: the agent's, root's, those in which a cloud's programs store facts about the instance (such
as its user data), and the folder of /run that everybody may write to."""
_SYSTEMD, _RESOLVER = "/run/systemd", "/run/systemd/resolve"
"""Of the sockets of systemd and its journal a job sees only the resolver's. The journal is shown on the instance's
console and trusts the name in a message. The other sockets differ by version."""

_WALLS = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateIPC=yes",
    "ProtectProc=invisible",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "LockPersonality=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "RemoveIPC=yes",
    "KeyringMode=private",
    "SystemCallArchitectures=native",
    "SystemCallErrorNumber=EPERM",
    "UMask=0077",
    "LimitMEMLOCK=infinity",
    "LimitNOFILE=1048576",
    "LimitCORE=0",
)
"""PrivateDevices and DevicePolicy are left out for the GPUs, MemoryDenyWriteExecute for compiled kernels."""


class UnitError(OSError):
    """systemd did not carry out a request. The message contains its error."""


@dataclass(frozen=True)
class UnitState:
    """The state of a unit, as systemd reports it.

    Attributes:
        main: id of the first process; 0 after its end.
        group: its control group; None after the end of all processes.
        code: exit code of the first process, negative for the signal that ended it; None while it runs.
        out_of_memory: whether the kernel has killed it at its memory limit.
    """

    main: int
    group: Path | None
    code: int | None
    out_of_memory: bool


class JobUnit:
    """The unit of one job.

    Args:
        name: of the unit.
        user: of its processes.
        owner: the broker's unit, with which the job's unit ends; None outside of a unit.
    """

    def __init__(self, name: str, user: str, owner: str | None) -> None:
        self._name = name
        self._user = user
        self._owner = owner

    def start(self, request: StartRequest, staged: dict[str, Path]) -> None:
        """Start the job. `staged`: the present mount points of its folders, by kind.

        Raises:
            UnitError: if systemd refuses, or cannot execute its first process.
        """
        places = {kind: place.joinpath(*names) for kind, (place, names) in request.folders().items()}
        properties = [
            *self._relations(),
            *_limits(request),
            *_WALLS,
            *_namespace_walls(request),
            f"TemporaryFileSystem={HOME}:ro {_SYSTEMD}:ro /dev/shm:mode=1777{_memory_size(request)}",
            f"BindReadOnlyPaths=-{_RESOLVER}",
            *(f"BindPaths={staged[kind]}:{path}" for kind, path in places.items()),
            *(f"InaccessiblePaths=-{path}" for path in _HIDDEN),
            *([] if request.metadata else [f"IPAddressDeny={' '.join(METADATA_ADDRESSES)}"]),
        ]
        starter = Path(__file__).with_name("start.py")
        command = ["systemd-run", "--quiet", "--no-ask-password", f"--unit={self._name}"]
        command += [f"--property={entry}" for entry in properties]
        refused = [] if request.metadata else METADATA_ADDRESSES
        command += ["--", sys.executable, "-I", str(starter), str(places["run"]), *refused]
        self._call(command, START_TIMEOUT)

    def _relations(self) -> Iterator[str]:
        yield from (
            "Description=Everspot: a job",
            f"Slice={SLICE}",
            "Type=exec",
            f"User={self._user}",
            f"Group={self._user}",
            # The first process may end before the others, which still get their time to end.
            "ExitType=cgroup",
            # Keeps the unit's result in systemd.
            "RemainAfterExit=yes",
            # Kill immediately: the agent has asked the job to stop before the unit is ended.
            "KillSignal=SIGKILL",
            # At a shutdown the agent is stopped first, and waits for the job's checkpoint.
            f"Before={AGENT}",
        )
        if self._owner is not None:
            yield from (f"BindsTo={self._owner}", f"After={self._owner}")

    def state(self) -> UnitState:
        """Ask systemd. Raises `UnitError`."""
        names = ("MainPID", "ControlGroup", "ExecMainPID", "ExecMainCode", "ExecMainStatus", "Result")
        answer = self._call(["systemctl", "show", f"--property={','.join(names)}", self._name], CALL_TIMEOUT)
        fields = dict(line.partition("=")[::2] for line in answer.splitlines())
        group, main = fields.get("ControlGroup", ""), int(fields.get("MainPID") or 0)
        code = None
        if main == 0 and fields.get("ExecMainPID", "0") != "0":
            status = int(fields["ExecMainStatus"])
            code = status if fields["ExecMainCode"] == _EXITED else -status
        return UnitState(
            main=main,
            group=CONTROL_GROUPS / group.lstrip("/") if group else None,
            code=code,
            out_of_memory=fields.get("Result") == "oom-kill",
        )

    def end(self) -> None:
        """Kill all its processes, wait until they are gone, and remove the unit with its private folders.

        Raises:
            UnitError: if a process does not end in time.
        """
        group = self.state().group
        end = time.monotonic() + END_TIMEOUT.total_seconds()
        while group is not None and _is_populated(group):
            with suppress(OSError):  # it has just ended
                (group / "cgroup.kill").write_text("1")
            if time.monotonic() >= end:
                raise UnitError(f"processes of {self._name} outlast their end")
            time.sleep(_LOOK_SECONDS)
        # Ignore dependencies: during a shutdown the stop would wait for the agent, which waits for this call.
        with suppress(UnitError):  # it is no longer loaded
            self._call(["systemctl", "stop", "--job-mode=ignore-dependencies", self._name], CALL_TIMEOUT)
        with suppress(UnitError):
            self._call(["systemctl", "reset-failed", self._name], CALL_TIMEOUT)

    def _call(self, command: list[str], timeout: timedelta) -> str:
        try:
            answer = subprocess.run(  # noqa: S603  systemd's own programs
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout.total_seconds(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnitError(f"{command[0]} did not answer within {timeout.total_seconds():.0f} s") from None
        if answer.returncode != 0:
            raise UnitError(f"{command[0]}: {answer.stderr.strip() or answer.returncode}")
        return answer.stdout


def processes(group: Path) -> set[int]:
    """Return the processes of a control group and its subgroups."""
    pids: set[int] = set()
    for file in (group / "cgroup.procs", *group.rglob("*/cgroup.procs")):
        with suppress(OSError):
            pids.update(map(int, file.read_text().split()))
    return pids


def own_unit() -> str | None:
    """Return the unit of this process; None if it has no own unit."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    place = next((line[3:] for line in lines if line.startswith("0::")), "")
    name = os.path.basename(place)  # noqa: PTH119  no path of this machine
    return name if name.endswith(".service") else None


def _is_populated(group: Path) -> bool:
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:
        return False


def _limits(request: StartRequest) -> Iterator[str]:
    yield from ("CPUAccounting=yes", "MemoryAccounting=yes", "IOAccounting=yes")
    # If memory is exhausted, the kernel kills the job and not the agent.
    yield "OOMScoreAdjust=300"
    # Limits of the user, which no other job has. They stop a fork bomb.
    yield from ("TasksMax=infinity", f"LimitNPROC={_PROCESSES + _PROCESSES_PER_VCPU * request.vcpus}")
    if request.memory_mib is None:
        yield "OOMPolicy=continue"
        return
    yield from (
        f"CPUQuota={request.vcpus * 100}%",
        f"MemoryMax={request.memory_mib}M",
        "OOMPolicy=kill",
        f"Nice={SHARED_NICENESS}",
    )


def _namespace_walls(request: StartRequest) -> Iterator[str]:
    """Yield the properties that prevent a job from creating namespaces, except the two of a container. In these it has
    capabilities only over objects that it created there."""
    yield f"RestrictNamespaces={'user mnt' if request.container else 'yes'}"
    calls = "@clock @cpu-emulation @keyring @module @obsolete @raw-io @reboot @swap"
    calls += " io_uring_setup io_uring_enter io_uring_register"
    # Kernel keys of a user outlive its processes. Operations of an io_uring bypass the filter (io_uring(7)). The others
    # as in the agent's unit.
    yield f"SystemCallFilter=~{calls}{'' if request.container else ' @mount'}"


def _memory_size(request: StartRequest) -> str:
    """Return the mount option with the size of the job's /dev/shm: the memory limit of a job that shares the machine,
    otherwise half of the machine's memory, the kernel's default."""
    return f",size={request.memory_mib}M" if request.memory_mib is not None else ",size=50%"
