"""Reads the kernel's counters of a job's processes and of the machine.

A control group counts all processes that were ever in it (Linux, Documentation/admin-guide/cgroup-v2.rst: cpu.stat,
io.stat, io.pressure). Without one the same counters of each process are added up: proc_pid_stat(5), proc_pid_io(5). The
counters of a process that was waited for are then in its parent's, so the sum falls only if a process ends that nobody
waits for.

A file that cannot be read is no error: its figure is None.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from everspot_train.agent import memory
from everspot_train.agent.process_table import cpu_seconds

PROC = Path("/proc")
_MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class JobCounters:
    """The counters of a job's processes, as far as they could be read.

    Attributes:
        cpu_seconds: processor time since the job began.
        memory_gib: memory that they hold now, without file cache.
        read_bytes: bytes from disks since the job began.
        written_bytes: bytes to disks since the job began.
        io_wait_seconds: time in which at least one thread waited for a disk. Of the whole machine if no control group
            counts it.
    """

    cpu_seconds: float | None = None
    memory_gib: float | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None
    io_wait_seconds: float | None = None


def read_job(group: Path | None, find_processes: Callable[[], Iterable[int]]) -> JobCounters:
    """Return the counters of a control group. Counters that it lacks are read from the processes, which are searched
    only then."""
    cpu_micros = _numbers(group / "cpu.stat").get("usage_usec") if group is not None else None
    memory_gib = memory.of_group(group) if group is not None else None
    io_bytes = _group_bytes(group) if group is not None else None
    io_wait = _pressure_seconds(group / "io.pressure") if group is not None else None
    processes = [] if None not in (cpu_micros, memory_gib, io_bytes) else list(find_processes())
    read_bytes, written_bytes = io_bytes if io_bytes is not None else _process_bytes(processes)
    return JobCounters(
        cpu_seconds=cpu_micros / _MICROSECONDS if cpu_micros is not None else cpu_seconds(processes),
        memory_gib=memory_gib if memory_gib is not None else memory.of_processes(processes),
        read_bytes=read_bytes,
        written_bytes=written_bytes,
        io_wait_seconds=io_wait if io_wait is not None else _pressure_seconds(PROC / "pressure/io"),
    )


def read_network() -> tuple[float, float] | None:
    """Return the bytes that the machine has received and sent, without its loopback interface (proc_net_dev(5))."""
    received, sent, any_interface = 0, 0, False
    for line in _lines(PROC / "net/dev"):
        name, colon, figures = line.partition(":")
        fields = figures.split()
        if colon and name.strip() != "lo" and len(fields) >= 9 and fields[0].isdigit() and fields[8].isdigit():
            received, sent, any_interface = received + int(fields[0]), sent + int(fields[8]), True
    return (received, sent) if any_interface else None


def _group_bytes(group: Path) -> tuple[float, float] | None:
    """Return the bytes that a group has read and written; None if it does not count them."""
    lines = _lines(group / "io.stat")
    fields = [dict(entry.partition("=")[::2] for entry in line.split()[1:]) for line in lines]
    counted = [(f["rbytes"], f["wbytes"]) for f in fields if f.get("rbytes", "").isdigit() and "wbytes" in f]
    return (sum(int(r) for r, _ in counted), sum(int(w) for _, w in counted)) if counted else None


def _process_bytes(pids: Iterable[int]) -> tuple[float | None, float | None]:
    counted = [numbers for pid in pids if "read_bytes" in (numbers := _numbers(PROC / str(pid) / "io"))]
    if not counted:
        return None, None
    return sum(n["read_bytes"] for n in counted), sum(n.get("write_bytes", 0) for n in counted)


def _pressure_seconds(path: Path) -> float | None:
    """Return the `some` total of a pressure file (Linux, Documentation/accounting/psi.rst)."""
    for line in _lines(path):
        total = line.rpartition("total=")[2]
        if line.startswith("some ") and total.isdigit():
            return int(total) / _MICROSECONDS
    return None


def _numbers(path: Path) -> dict[str, int]:
    """Return the numbers in lines such as `usage_usec 4096` or `read_bytes: 4096`."""
    split = [line.replace(":", " ").split() for line in _lines(path)]
    return {words[0]: int(words[1]) for words in split if len(words) > 1 and words[1].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
