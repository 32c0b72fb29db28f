"""Folders on one machine that its jobs share. Each is made once, locked while it is used, and removed when the disk is
full."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock

from everspot_store.errors import NoRoom, StoreUnavailable
from everspot_store.tree_removal import remove_tree

PATIENCE = timedelta(hours=1)
"""How long a process waits while another one on this machine makes the same tree."""
RESERVE = 1024**3
"""Bytes that stay free on the disk, because checkpoints and logs are written there too."""
_LOOK_EVERY = timedelta(seconds=1)
_ROUNDS = 5


class TreeInUse:
    """A tree on this disk that is in use until `close` or the end of this process, and not removed before."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock

    def close(self) -> None:
        """Release the tree, so that it may be removed. A second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def outlive(self) -> None:
        """Keep the lock when this process executes another program."""
        if self._lock is not None:
            os.set_inheritable(self._lock, True)

    def __enter__(self) -> "TreeInUse":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TreeCache:
    """Trees under `folder/{name}/`, each with a lock file beside it.

    A user of a tree holds the lock shared. A process that makes or removes it holds the lock exclusively. The kernel
    releases the locks of a killed process.

    Args:
        free: returns the free bytes on the disk; by default those of the file system.
    """

    def __init__(self, folder: Path, clock: Clock, free: Callable[[], int] | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._free = free or (lambda: shutil.disk_usage(folder).free)
        folder.mkdir(parents=True, exist_ok=True)

    def use(self, name: str, subject: str, make: Callable[[Path], None]) -> TreeInUse:
        """Return the tree on this disk. Make it if it does not exist.

        Args:
            name: of its folder, without a dot.
            subject: its description, for errors.
            make: makes the whole tree at a path. A killed process may have left a part of the tree there.

        Raises:
            StoreUnavailable: if another process makes it for longer than `PATIENCE`.
            Exception: any that `make` raises.
        """
        path = self._folder / name
        lock = os.open(self._folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._share(path, lock, subject, make)
        except BaseException:
            os.close(lock)
            raise
        os.utime(path)
        return TreeInUse(path, lock)

    def _share(self, path: Path, lock: int, subject: str, make: Callable[[Path], None]) -> None:
        """Get the shared lock of an existing tree. If it does not exist, the first process to get the exclusive lock
        makes it.

        No process waits for the exclusive lock: once another one has made the tree and uses it, that could take days.
        """
        deadline, attempts = self._clock.monotonic() + PATIENCE, 0
        while True:
            if _try_lock(lock, fcntl.LOCK_SH):
                if path.is_dir():
                    return
                fcntl.flock(lock, fcntl.LOCK_UN)  # some kernels keep it while the exclusive one is requested
                if _try_lock(lock, fcntl.LOCK_EX):
                    if attempts == _ROUNDS:  # between the two locks another process may remove the tree
                        raise StoreUnavailable(f"{subject} was removed by others as often as it was made")
                    if not path.is_dir():
                        part = path.with_name(f"{path.name}.part")
                        make(part)
                        part.rename(path)
                    attempts += 1
                    continue
            if self._clock.monotonic() >= deadline:
                raise StoreUnavailable(f"another process has been making {subject} for {PATIENCE}")
            self._clock.sleep(_LOOK_EVERY)

    def trees(self) -> list[Path]:
        """Return the complete trees, the least recently used first."""
        whole = [path for path in self._folder.iterdir() if path.is_dir() and "." not in path.name]
        return sorted(whole, key=lambda path: path.stat().st_mtime)

    def limit(self, count: int) -> None:
        """Remove all unused trees but the `count` most recently used ones."""
        for path in self.trees()[:-count]:
            self._throw_away(path)

    def make_room(self, size: int) -> None:
        """Free space for `size` bytes.

        The remains of unfinished removals go first. Then, as far as needed, unfinished trees that no process is making,
        and unused ones, the least recently used first.


        Raises:
            NoRoom: if that is not enough.
        """
        for removed in self._leftovers(".gone"):
            remove_tree(removed)
        for path in [*self._leftovers(".part"), *self.trees()]:
            if self._free() >= size + RESERVE:
                return
            self._throw_away(path)
        free = self._free()
        if free < size + RESERVE:
            raise NoRoom(size, max(0, free - RESERVE))

    def _leftovers(self, ending: str) -> list[Path]:
        """Return the folders with this ending that killed processes have left, in order of names."""
        return sorted(path for path in self._folder.iterdir() if path.name.endswith(ending) and path.is_dir())

    def _throw_away(self, path: Path) -> None:
        """Remove a tree, or a part of one, unless a process holds its lock, as one that makes it does."""
        with _lock_alone(self._folder / f"{path.stem}.lock") as alone:
            if alone and path.is_dir():
                renamed = path.with_suffix(".gone")
                remove_tree(renamed)
                path.rename(renamed)  # rename first: a half removed tree must not look complete
                remove_tree(renamed)


@contextmanager
def _lock_alone(path: Path) -> Iterator[bool]:
    """Try to hold the lock exclusively while the block runs. Yield whether it is held; never wait."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield _try_lock(handle, fcntl.LOCK_EX)
    finally:
        os.close(handle)


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
