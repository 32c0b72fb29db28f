"""Watches the folder `checkpoints/` of a running program: when it begins and ends to write there."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from everspot_train.agent.containment import find_processes

QUIET_SECONDS = 0.25
"""A save is over when nothing has changed for so long, or for a shorter time in a program that is over soon."""
LEAST_QUIET = 0.03

Signature = dict[str, tuple[int, int, int]]


def read_signature(folder: Path) -> Signature:
    """Return size, time and number of each file below a folder, without those that are named as unfinished."""
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
        written: the paths in the order in which they were first written by the program.
        saves: how many saves are over.
        began: moment of the first change.
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
        """How many saves were begun."""
        return self.saves + (self._changed is not None)

    def look(self) -> None:
        """Look once. The first look sees the restored files, which are no save."""
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
    """Hold all processes of a job, so that a fast program is not over before it is interrupted."""
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
