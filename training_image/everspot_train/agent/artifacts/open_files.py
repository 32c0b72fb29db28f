"""Finds the files below a folder that processes may be writing to, in /proc (proc_pid_fd(5), proc_pid_maps(5))."""

# pathlib takes no bytes
# ruff: noqa: PTH115

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol

_FLAGS = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
_OCTAL = re.compile(rb"\\([0-7]{3})")


class OpenFiles(Protocol):
    """Finds the files that processes may be writing to. Processes that this user may not inspect are ignored."""

    def opened(self, root: bytes) -> tuple[set[bytes], set[bytes]]:
        """Return the paths below a folder that other processes have open for writing, and for appending."""
        ...

    def mapped(self, root: bytes) -> set[bytes]:
        """Return the paths below a folder that other processes have mapped for writing."""
        ...


class OwnOpenFiles:
    """The files of all processes of this user but this one."""

    def opened(self, root: bytes) -> tuple[set[bytes], set[bytes]]:
        """See `OpenFiles`."""
        return find_open_files(_other_processes(), os.path.realpath(root))

    def mapped(self, root: bytes) -> set[bytes]:
        """See `OpenFiles`."""
        return find_mapped_files(_other_processes(), os.path.realpath(root))


def find_open_files(pids: Iterable[int], root: bytes) -> tuple[set[bytes], set[bytes]]:
    """Return the paths below a folder that processes have open for writing, and for appending. `root`: without symbolic
    links."""
    opened, appending = set[bytes](), set[bytes]()
    for pid in pids:
        for path, flags in _open_files(pid, root + b"/"):
            if flags & os.O_ACCMODE != os.O_RDONLY:
                (appending if flags & os.O_APPEND else opened).add(path)
    return opened, appending


def find_mapped_files(pids: Iterable[int], root: bytes) -> set[bytes]:
    """Return the paths below a folder that processes have mapped for writing. `root`: without symbolic links."""
    return {path for pid in pids for path in _mapped_files(pid, root + b"/")}


def _other_processes() -> Iterator[int]:
    own = os.getpid()
    with suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and int(entry.name) != own:
                yield int(entry.name)


def _open_files(pid: int, real: bytes) -> Iterator[tuple[bytes, int]]:
    process = b"/proc/%d" % pid
    with suppress(OSError):
        for entry in os.scandir(process + b"/fd"):
            with suppress(OSError):
                place = os.readlink(entry.path)
                if place.startswith(real):
                    with open(process + b"/fdinfo/" + entry.name, "rb") as info:  # noqa: PTH123
                        flags = _FLAGS.search(info.read())
                    yield place[len(real) :], int(flags[1], 8) if flags else os.O_RDWR


def _mapped_files(pid: int, real: bytes) -> Iterator[bytes]:
    with suppress(OSError), open(b"/proc/%d/maps" % pid, "rb") as maps:  # noqa: PTH123
        for line in maps:
            if real in line and b" rw-s " in line:
                place = _OCTAL.sub(lambda code: bytes([int(code[1], 8)]), line.split(None, 5)[5].rstrip(b"\n"))
                yield place[len(real) :]
