"""Ends every process that the demonstration starts: it adopts orphans and ends them, also after Ctrl-C."""

import contextlib
import ctypes
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType

_PR_SET_CHILD_SUBREAPER = 36


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: everything is shut down, then the process exits with 128 plus the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def listen() -> None:
    """Make Ctrl-C and SIGTERM raise `Interrupted`."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent died, daemons included."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int | None = None) -> dict[int, str]:
    """Return the command line of every living descendant of `root` (default: this process), by process id."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)] = int(fields[1])
    family, growing = {root or os.getpid()}, True
    while growing:
        grown = {pid for pid, parent in parents.items() if parent in family and pid not in family}
        growing = bool(grown)
        family |= grown
    family.discard(root or os.getpid())
    return {pid: _command(pid) for pid in sorted(family)}


def end_descendants(grace: timedelta = timedelta(seconds=5)) -> dict[int, str]:
    """Terminate every descendant, then kill the remaining ones; return the killed ones."""
    _signal_all(signal.SIGTERM)
    until = time.monotonic() + grace.total_seconds()
    while descendants() and time.monotonic() < until:
        _reap()
        time.sleep(0.1)
    stubborn = descendants()
    for _ in range(50):
        if not descendants():
            break
        _signal_all(signal.SIGKILL)
        _reap()
        time.sleep(0.1)
    _reap()
    return stubborn


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


def _signal_all(number: signal.Signals) -> None:
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _command(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
