"""Linux namespaces and mounts, by the system calls themselves: Python has `unshare` from 3.12 on only."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

# linux/sched.h
NEWTIME, NEWNS, NEWCGROUP, NEWUTS = 0x80, 0x20000, 0x2000000, 0x4000000
NEWIPC, NEWPID, NEWNET = 0x8000000, 0x20000000, 0x40000000
ALL = NEWTIME | NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWPID | NEWNET
# sys/mount.h
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, MOVE, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 8192, 16384, 1 << 18
# sys/prctl.h
SET_PDEATHSIG, CAPBSET_DROP = 1, 24

_OFFSET_CLOCKS = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give the calling process namespaces of its own. NEWPID and NEWTIME are those of its next children.

    Raises:
        OSError: without the right to, or if the kernel has no such namespace.
    """
    _call("unshare", flags)


def start_uptime() -> None:
    """Start the uptime clocks of the next child process at zero (time_namespaces(7)), as /proc/uptime shows.

    Raises:
        OSError: if the kernel has no such namespace.
    """
    unshare(NEWTIME)
    lines = (f"{name} {-int(time.clock_gettime(clock))} 0\n" for name, clock in _OFFSET_CLOCKS.items())
    Path("/proc/self/timens_offsets").write_text("".join(lines))


def enter(descriptor: int, kind: int) -> None:
    """Enter the namespace of an open file such as /proc/self/ns/net.

    Raises:
        OSError: if it is no namespace of that kind.
    """
    _call("setns", descriptor, kind)


def prctl(option: int, value: int) -> None:
    """Call the system call of that name.

    Raises:
        OSError: for an option or value that the kernel refuses.
    """
    _call("prctl", option, value, 0, 0, 0)


def mount(source: str | Path, target: str | Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system. A read-only bind takes a second mount of its own, which this makes.

    Raises:
        OSError: if the kernel refuses.
    """
    words = [str(part).encode() or None for part in (source, target, kind)]
    binds_read_only = flags & BIND and flags & RDONLY
    _call("mount", *words, ctypes.c_ulong(flags & ~RDONLY if binds_read_only else flags), data.encode() or None)
    if binds_read_only:
        _call("mount", None, words[1], None, ctypes.c_ulong(flags | REMOUNT), None)


def private_mounts() -> None:
    """Keep the mounts of this process's namespace out of all others."""
    mount("", "/", flags=REC | PRIVATE)


def overlay(layers: list[Path], upper: Path, work: Path, target: Path) -> None:
    """Mount layers, the lowest first, with a folder above them that takes what is written.

    Raises:
        OSError: if the kernel refuses.
        ValueError: for a path that the mount's options cannot hold.
    """
    _check_paths([*layers, upper, work])
    mount("overlay", target, "overlay", data=f"lowerdir={_lower(layers)},upperdir={upper},workdir={work}")


def overlay_read_only(layers: list[Path], target: Path) -> None:
    """Mount two layers or more, the lowest first; nothing can be written there.

    Raises:
        OSError: if the kernel refuses.
        ValueError: for a path that the mount's options cannot hold.
    """
    _check_paths(layers)
    mount("overlay", target, "overlay", RDONLY, f"lowerdir={_lower(layers)}")


def _lower(layers: list[Path]) -> str:
    return ":".join(str(layer) for layer in reversed(layers))


def _check_paths(paths: list[Path]) -> None:
    for path in paths:
        if any(sign in str(path) for sign in ",:\\"):
            raise ValueError(f"{path}: a layer's path has no comma, colon or backslash")


def control_groups() -> Path | None:
    """Return where the control groups of version 2 are mounted; None if they are not."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return Path(fields.split()[4])
    return None


_TRIAL = """
import sys
import time
sys.path[:0] = [sys.argv[1]]
from everspot_local.machines import namespaces
namespaces.unshare(namespaces.ALL)
namespaces.private_mounts()
namespaces.mount("tmpfs", "/mnt", "tmpfs")
from pathlib import Path
for name in ("lower", "upper", "work", "root"):
    Path("/mnt", name).mkdir()
namespaces.overlay([Path("/mnt/lower")], Path("/mnt/upper"), Path("/mnt/work"), Path("/mnt/root"))
"""


def why_not() -> str:
    """Return why machines cannot have namespaces of their own here; empty if they can."""
    if sys.platform != "linux":
        return f"{sys.platform} has no namespaces: this takes Linux"
    if os.geteuid() != 0:
        return "namespaces and mounts take root"
    if control_groups() is None:
        return "no control groups of version 2 are mounted here"
    command = [sys.executable, "-c", _TRIAL, str(Path(__file__).parents[2])]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    if answer.returncode != 0:
        return f"the kernel does not allow it: {answer.stderr.strip().splitlines()[-1]}"
    return ""
