"""Reads the facts about a job's processes that its termination needs from /proc."""

import os
import signal
from collections.abc import Iterable
from pathlib import Path

from everspot_train.agent.termination import ProcessInfo

PROC = Path("/proc")
DATA_WORKER = "pt_data_worker"
"""The name that torch gives a DataLoader worker (since 2.6)."""


def read_processes(pids: Iterable[int]) -> dict[int, ProcessInfo]:
    """Return the living processes among the given ones, by id."""
    return {pid: process for pid in pids if (process := _read(pid)) is not None}


def cpu_seconds(pids: Iterable[int]) -> float | None:
    """Return the processor time of these processes and of the children that they have waited for; None if no process is
    found."""
    ticks = [process_ticks for pid in pids if (process_ticks := _ticks(pid)) is not None]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def _ticks(pid: int) -> int | None:
    """Return the sum of utime, stime, cutime and cstime (proc_pid_stat(5)), in clock ticks."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return sum(map(int, fields[11:15]))
    except (OSError, ValueError):
        return None


def _read(pid: int) -> ProcessInfo | None:
    try:
        status = (PROC / str(pid) / "status").read_text(errors="replace")
        line = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    fields = dict(entry.partition(":\t")[::2] for entry in status.splitlines())
    if fields.get("State", "Z")[:1] in "ZX":
        return None
    caught, blocked = (int(fields.get(name, "0"), 16) for name in ("SigCgt", "SigBlk"))
    return ProcessInfo(
        pid=pid,
        parent=int(fields.get("PPid", "0")),
        arguments=tuple(part.decode(errors="replace") for part in line.rstrip(b"\0").split(b"\0")),
        handles=_has(caught | blocked, signal.SIGTERM),
        data_worker=fields.get("Name") == DATA_WORKER or _is_data_worker(caught),
    )


def _is_data_worker(caught: int) -> bool:
    """Return whether the handlers are those that every release of torch sets in DataLoader workers. Programs with such
    handlers from another source (faulthandler, Go's runtime) also catch SIGABRT or SIGILL."""
    of_torch = (signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGTERM)
    others = (signal.SIGABRT, signal.SIGILL)
    return all(_has(caught, number) for number in of_torch) and not any(_has(caught, number) for number in others)


def _has(mask: int, number: signal.Signals) -> bool:
    return bool(mask >> (number - 1) & 1)
