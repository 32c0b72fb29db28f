"""Watches when a running program begins and ends to write in its folder `checkpoints/`."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from everspot_train.agent.containment import find_processes

QUIET_SECONDS = 0.25
"""A save has ended when nothing has changed for this time, or for a shorter time in a short program."""
LEAST_QUIET = 0.03

Signature = dict[str, tuple[int, int, int]]


def read_signature(folder: Path) -> Signature:
    """Return size, mtime and inode of each file below a folder, without files whose names mark them as unfinished."""
    signature: Signature = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                status = os.stat(os.path.join(parent, name))  # noqa: PTH116, PTH118  many times a second
                path = os.path.relpath(os.path.join(parent, name), folder)  # noqa: PTH118
                if ".tmp" not in path and not path.rpartition("/")[2].startswith("."):
                    signature[path] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return signature


@dataclass
class SaveWatcher:
    """Counts saves. `quiet`: seconds without a change that end a save.

    Attributes:
        written: the paths in the order of their first writes by the program.
        saves: the number of ended saves.
        began: the time of the first change.
    """

    folder: Path
    quiet: float = QUIET_SECONDS
    written: list[str] = field(default_factory=list)
    saves: int = 0
    began: float | None = None
    _last: Signature | None = None
    _changed: float | None = None

    @property
    def total(self) -> int:
        """The number of begun saves."""
        return self.saves + (self._changed is not None)

    def look(self) -> None:
        """Check the folder once. The first check sees the restored files, which are no save."""
        now, signature = time.monotonic(), read_signature(self.folder)
        if self._last is None:
            self._last = signature
            return
        changed = [path for path, stamp in signature.items() if self._last.get(path) != stamp]
        if changed:
            self.began = self.began or now
            self._changed = now
            self.written += [path for path in changed if path not in self.written]
        elif self._changed is not None and now - self._changed >= self.quiet:
            self.saves += 1
            self._changed = None
        self._last = signature


@contextmanager
def frozen(run_dir: Path) -> Iterator[None]:
    """Stop all processes of a job (SIGSTOP), so that a fast program does not end before it is interrupted."""
    pids = list(find_processes(run_dir))
    _signal(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
