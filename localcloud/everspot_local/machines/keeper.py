"""Supervises a machine's processes: runs its boot command, and ends every process that is left of it.

It is a program of its own (`python keeper.py COMMAND …`) and imports nothing of Everspot. It adopts whatever its
descendants leave behind, daemons included, so that all of them can be found and killed. It does not isolate
machines from one another: no containers, no cgroups, one user.

Its standard input controls the machine. `T` sends SIGTERM to the boot command alone, as systemd does with the unit of
Everspot's image (`KillMode=mixed`). `K` or the end of input kills all processes immediately, which also happens when
the local cloud itself dies. When the boot command ends, the machine is off.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MARK = "EVERSPOT_INSTANCE_ID"


def prctl(option: int, value: int) -> None:
    """Call the system call of that name."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def processes() -> dict[int, tuple[int, str]]:
    """Return parent and state of every process of this machine that is not a zombie."""
    parents_and_states = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - hot loop
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - hot loop
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    parents_and_states[int(name)] = (int(parent), state.decode())
    return parents_and_states


def descendants(root: int) -> list[int]:
    """Return every living process below one."""
    table = processes()
    family = {root}
    grown = True
    while grown:
        new = {pid for pid, (parent, _) in table.items() if parent in family and pid not in family}
        family |= new
        grown = bool(new)
    return sorted(family - {root})


def marked(machine_id: str) -> list[int]:
    """Return every process whose environment, at its start, contained a machine's mark."""
    mark = f"{MARK}={machine_id}".encode()
    pids = []
    for pid in processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - hot loop
            if mark in file.read().split(b"\0"):
                pids.append(pid)
    return pids


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to each that still exists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _start(command: list[str]) -> int:
    keeper = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.execvp(command[0], command)  # noqa: S606 - a machine has no shell
    except BaseException as error:
        os.write(2, f"cannot run {command[0]}: {error}\n".encode())
    os._exit(127)


def _reap(main: int, status: int | None) -> int | None:
    """Collect ended children; return the boot command's exit status once it is among them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, raw = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == main:
                status = os.waitstatus_to_exitcode(raw)
    return status


def _kill_all(main: int, status: int | None) -> int | None:
    while pids := descendants(os.getpid()):
        signal_all(pids, signal.SIGKILL)
        select.select([], [], [], 0.005)
        status = _reap(main, status)
    return _reap(main, status)


def keep(command: list[str]) -> int:
    """Run a command until it ends or the control pipe says so; return its exit status, negative for a signal."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    main = _start(command)
    status: int | None = None
    while status is None:
        ready = select.select([0, wake], [], [])[0]
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            status = _reap(main, status)
        if 0 in ready:
            order = os.read(0, 1)
            if order == b"T":
                signal_all([main], signal.SIGTERM)
            elif order in (b"K", b""):
                break
    status = _kill_all(main, status)
    return 0 if status is None else status


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]) & 0xFF)
