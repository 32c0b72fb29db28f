"""Ends every process that a job started, even detached ones. Each job has a control group if the machine has them;
otherwise the agent adopts orphans. On the image jobs have their own systemd units instead (`brokered`).

A child that changed its session, its environment and its parent stays in its control group (version 2), and
`cgroup.kill` kills all processes of a group together (Linux, Documentation/admin-guide/cgroup-v2.rst). A unit may
delegate a group to the agent. Elsewhere the agent is a subreaper (prctl(2), PR_SET_CHILD_SUBREAPER): orphans of its
descendants become its own children, so that every descendant is the job's.
"""

import ctypes
import hashlib
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from everspot_train.rundir import RUN_DIR_VARIABLE

PR_SET_CHILD_SUBREAPER = 36
PROC = Path("/proc")
ROUNDS = 50
PATIENCE_SECONDS = 10.0
"""The longest wait for the end of a killed group. A process in an uninterruptible wait may take longer."""

DELEGATED = "agent"
"""The subgroup of the agent (DelegateSubgroup) below the group that its unit delegates. Only a group without processes
may limit its subgroups. So without this subgroup jobs get groups, but no limits."""
PERIOD = 100_000
"""The period of a processor limit in microseconds."""
_GIB = 2**30

_log = logging.getLogger(__name__)


def become_subreaper() -> bool:
    """Adopt the orphans of this process's descendants from now on. Return False if the kernel refuses."""
    return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


class ControlGroup:
    """One job's group. Made by `ControlGroups.make`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def limit_hit(self) -> float | None:
        """Return the memory limit in GiB, if the kernel has killed processes because of it; else None."""
        events = dict(line.split() for line in _read(self.path / "memory.events").splitlines() if line.count(" ") == 1)
        most = _read(self.path / "memory.max").strip()
        return int(most) / _GIB if events.get("oom_kill", "0") != "0" and most.isdigit() else None

    def processes(self) -> Iterator[int]:
        """Yield the processes in it, and in groups inside it."""
        for file in [self.path / "cgroup.procs", *self.path.rglob("*/cgroup.procs")]:
            yield from map(int, _read(file).split())

    def end(self) -> None:
        """SIGKILL every process in it, wait until they are gone, and remove it."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self.path.is_dir():
            self._kill()
            try:
                _remove(self.path)
            except OSError as error:  # busy while it has a process
                if time.monotonic() >= end:
                    _log.error("%s outlasts its end: %s", self.path, error)
                    return
                time.sleep(0.01)

    def _kill(self) -> None:
        try:
            (self.path / "cgroup.kill").write_text("1")
        except OSError:  # Linux before 5.14 has no cgroup.kill
            for line in _read(self.path / "cgroup.procs").split():
                _kill(int(line))


class ControlGroups:
    """The groups of one agent, below its own group. `runs`: the folder of the run directories, which distinguishes the
    groups of different agents."""

    def __init__(self, own: Path | None, runs: Path) -> None:
        inside = own is not None and own.name == DELEGATED
        self._own = own.parent if own is not None and inside else own
        self._limits = inside
        self._prefix = f"everspot-{hashlib.sha256(str(runs).encode()).hexdigest()[:12]}-"

    def make(self, name: str) -> ControlGroup | None:
        """Return a group for a job; None on a machine without control groups."""
        if self._own is None:
            return None
        path = self._own / f"{self._prefix}{name}"
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            _log.info("no control groups (%s): orphans are adopted instead", error)
            self._own = None
            return None
        return ControlGroup(path)

    def limit(self, group: ControlGroup, vcpus: int, memory_gib: float) -> bool:
        """Limit the group's processors and memory. If it exceeds the memory, all its processes are killed. Return
        whether the machine can set such limits."""
        if not self._limits or self._own is None:
            return False
        try:
            (self._own / "cgroup.subtree_control").write_text("+cpu +memory")
            (group.path / "cpu.max").write_text(f"{vcpus * PERIOD} {PERIOD}")
            (group.path / "memory.max").write_text(str(int(memory_gib * _GIB)))
            (group.path / "memory.oom.group").write_text("1")
        except OSError as error:
            _log.info("no limits (%s)", error)
            self._limits = False
        return self._limits

    def end_all(self) -> None:
        """End the groups that an earlier agent of this machine left."""
        for path in self._own.glob(f"{self._prefix}*") if self._own is not None else ():
            ControlGroup(path).end()


def own_group() -> Path | None:
    """Return the folder of the control group that this process is in; None without version 2."""
    place = next((line[3:] for line in _read(PROC / "self/cgroup").splitlines() if line.startswith("0::")), None)
    for line in _read(PROC / "self/mountinfo").splitlines():
        fields, _, kind = line.partition(" - ")
        if place is not None and kind.startswith("cgroup2 "):
            root, mounted = fields.split()[3:5]
            inside = place.removeprefix(root if root != "/" else "")
            return Path(mounted) / inside.lstrip("/")
    return None


def kill_processes(path: Path) -> int:
    """SIGKILL every process of this user whose run directory is `path` or lies under it, until none is left.

    Return the number of processes found. A process in an uninterruptible wait may remain.
    """
    return _kill_until_gone(lambda: find_processes(path))


def kill_by_pid(pids: Collection[int]) -> None:
    """SIGKILL the given processes, until none is left, and reap them. Processes that do not descend from this one are
    spared, because the id of an ended process may have been reused."""
    _kill_until_gone(lambda: iter(set(pids) & set(descendants(os.getpid()))))
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def kill_descendants(spared: int) -> int:
    """SIGKILL every process that descends from this one, orphans included, and reap the dead ones. Return the number of
    processes found. `spared`: the child whose exit code another thread waits for; it is killed, but not reaped."""
    count = _kill_until_gone(lambda: descendants(os.getpid()))
    reap_orphans({spared})
    return count


def reap_orphans(spared: Collection[int]) -> None:
    """Reap the dead processes that this one has adopted: each holds a process id until then. Processes in its own
    session are commands of its own, whose exit codes others wait for. `spared`: further children of this kind."""
    session = os.getsid(0)
    for pid in _children():
        fields = _read(PROC / str(pid) / "stat").rpartition(")")[2].split()  # state, parent, group, session
        if fields and fields[0] == "Z" and int(fields[3]) != session and pid not in spared:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    """Return the children of this process. A kernel may be built without the file that lists them
    (CONFIG_PROC_CHILDREN)."""
    files = [task / "children" for task in (PROC / "self/task").iterdir()]
    if (PROC / "thread-self/children").exists():
        return [int(pid) for file in files for pid in _read(file).split()]
    return [pid for pid, (parent, _) in _table().items() if parent == os.getpid()]


def _kill_until_gone(alive_now: Callable[[], Iterator[int]]) -> int:
    killed: set[int] = set()
    for _ in range(ROUNDS):
        alive = [pid for pid in alive_now() if pid != os.getpid()]
        if not alive:
            break
        for pid in alive:
            killed.add(pid)
            _kill(pid)
    return len(killed)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def find_processes(path: Path, variable: str = RUN_DIR_VARIABLE) -> Iterator[int]:
    """Yield the living processes of this user whose run directory is `path` or below it. `variable`: the environment
    variable with the directory."""
    own = f"{variable}={path}".encode()
    for pid, (_, state) in _table().items():
        try:
            environment = (PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        if state not in "ZX" and any(
            value == own or value.startswith(own + b"/") for value in environment.split(b"\0")
        ):
            yield pid


def descendants(ancestor: int) -> Iterator[int]:
    """Return the living processes that descend from this one."""
    table = _table()
    family = {ancestor}
    while grown := {pid for pid, (parent, _) in table.items() if parent in family} - family:
        family |= grown
    return (pid for pid in family - {ancestor} if table[pid][1] not in "ZX")


def _table() -> dict[int, tuple[int, str]]:
    """Parent and state of every process."""
    processes = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            fields = _read(entry / "stat").rpartition(")")[2].split()
            if fields:
                processes[int(entry.name)] = (int(fields[1]), fields[0])
    return processes


def _remove(group: Path) -> None:
    """Remove a group with the groups inside it."""
    for inside in [path for path in group.iterdir() if path.is_dir()]:
        _remove(inside)
    group.rmdir()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
