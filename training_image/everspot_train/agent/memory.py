"""Measures the memory of a job that the kernel cannot reclaim. The file cache does not count.

This is the anonymous and shared memory in a control group's `memory.stat` (Linux,
Documentation/admin-guide/cgroup-v2.rst); `memory.peak` would also count the cache of every dataset that was read. If no
group counts memory, the same values of each process are added up (proc_pid_status(5): RssAnon, RssShmem). Common pages
of forked workers are then counted several times, so the result is never too small.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from everspot_core.jobs.records import Progress

from everspot_train.rundir import Status

PROC = Path("/proc")
_GIB = 2**30
_DIGITS = 3


def of_group(group: Path) -> float | None:
    """Return the memory of a control group in GiB; None if it does not count memory."""
    statistics = _fields(group / "memory.stat")
    if "anon" not in statistics:
        return None
    return (statistics["anon"] + statistics.get("shmem", 0)) / _GIB


def of_processes(pids: Iterable[int]) -> float | None:
    """Return the memory of these processes in GiB; None if none is alive. Shared memory counts once, as much as the
    process with the most has."""
    private, shared, any_alive = 0, 0, False
    for pid in pids:
        status = _fields(PROC / str(pid) / "status")
        if "RssAnon" in status:
            any_alive = True
            private += status["RssAnon"]
            shared = max(shared, status.get("RssShmem", 0))
    return (private + shared) * 1024 / _GIB if any_alive else None


def most(last: Progress, memory_gib: float | None, status: Status | None) -> dict[str, Any]:
    """Return the memory fields of the next progress: the largest values so far, in this attempt or an earlier one."""
    gpu = status.gpu_memory_gib if status is not None else None
    if status is not None and status.mixed and last.mixed is False:
        last = last.model_copy(
            update={"gpu_memory_gib": None}
        )  # measured in fp32, before the change to mixed precision
    return {
        "memory_gib": _more(last.memory_gib, memory_gib),
        "gpu_memory_gib": _more(last.gpu_memory_gib, gpu),
        "mixed": last.mixed if status is None or status.mixed is None else status.mixed,
    }


def _more(before: float | None, now: float | None) -> float | None:
    known_values = [value for value in (before, now) if value is not None]
    return round(max(known_values), _DIGITS) if known_values else None


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers in a file with lines such as `anon 4096` or `RssAnon: 4 kB`."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    split = [line.replace(":", " ").split() for line in lines]
    return {words[0]: int(words[1]) for words in split if len(words) > 1 and words[1].isdigit()}
