"""Reads from /proc what the termination of a job needs to know of its processes."""

import signal
from collections.abc import Iterable
from pathlib import Path

from everspot_train.agent.termination import ProcessInfo

PROC = Path("/proc")
DATA_WORKER = "pt_data_worker"
"""The name that torch gives a DataLoader worker (since 2.6)."""


def read_processes(pids: Iterable[int]) -> dict[int, ProcessInfo]:
    """The living ones of these processes, by number."""
    return {pid: process for pid in pids if (process := _read(pid)) is not None}


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
    """Whether the handlers are those that torch sets in each DataLoader worker, whatever its release. A program that
    has them from elsewhere (faulthandler, Go's runtime) catches SIGABRT or SIGILL as well."""
    of_torch = (signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGTERM)
    others = (signal.SIGABRT, signal.SIGILL)
    return all(_has(caught, number) for number in of_torch) and not any(_has(caught, number) for number in others)


def _has(mask: int, number: signal.Signals) -> bool:
    return bool(mask >> (number - 1) & 1)
