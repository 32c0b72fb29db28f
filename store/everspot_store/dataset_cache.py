"""The datasets on one machine: one copy of each version, shared by all its users, and removed when room is short."""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock

from everspot_store.datasets import Dataset, Datasets
from everspot_store.errors import NoRoom, StoreUnavailable

PATIENCE = timedelta(hours=1)
"""How long a process waits while another one on this machine fetches the same version."""
RESERVE = 1024**3
"""Bytes that stay free on the disk, because checkpoints and logs are written there too."""
_LOOK_EVERY = timedelta(seconds=1)
_ROUNDS = 5
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class DatasetInUse:
    """A version on this disk that is not removed before `close`, or before the end of this process."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock: int | None = lock

    def close(self) -> None:
        """Release it, so that it may be removed. A second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def outlive(self) -> None:
        """Keep it locked for the program that this process becomes by exec, too."""
        if self._lock is not None:
            os.set_inheritable(self._lock, True)

    def __enter__(self) -> "DatasetInUse":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DatasetCache:
    """Versions under `folder/{digest}/`, each with a lock file beside it.

    A user of a version holds the lock shared. A process that fetches or removes it holds the lock exclusively. A killed
    process holds nothing.

    Args:
        free: returns the free bytes on the disk; by default those of the file system.
    """

    def __init__(self, folder: Path, datasets: Datasets, clock: Clock, free: Callable[[], int] | None = None) -> None:
        self._folder = folder
        self._datasets = datasets
        self._clock = clock
        self._free = free or (lambda: shutil.disk_usage(folder).free)
        folder.mkdir(parents=True, exist_ok=True)

    def use(self, dataset: Dataset) -> DatasetInUse:
        """Return the version on this disk, fetched if it is not there, with every digest checked on arrival.

        Raises:
            NoRoom: if the disk cannot hold it, even without every version that nobody uses. Nothing was fetched.
            DigestMismatch, FileNotFoundError: if the bucket does not hold what was put; see `Datasets.fetch`.
            StoreUnavailable: if the bucket does not answer, or another process fetches for longer than `PATIENCE`.
        """
        path = self._folder / dataset.digest
        lock = os.open(self._folder / f"{dataset.digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._share(dataset, path, lock)
        except BaseException:
            os.close(lock)
            raise
        os.utime(path)
        return DatasetInUse(path, lock)

    def _share(self, dataset: Dataset, path: Path, lock: int) -> None:
        """Get the lock shared, with the version there. The first process to get the lock exclusively fetches it.

        No process waits for the exclusive lock: once another one has fetched the version and uses it, that could take
        days.
        """
        deadline, fetched = self._clock.monotonic() + PATIENCE, 0
        while True:
            if _try_lock(lock, fcntl.LOCK_SH):
                if path.is_dir():
                    return
                fcntl.flock(lock, fcntl.LOCK_UN)  # some kernels would keep it while it is asked for alone
                if _try_lock(lock, fcntl.LOCK_EX):
                    if fetched == _ROUNDS:  # as it is shared again, it may be thrown away
                        raise StoreUnavailable(f"dataset {dataset.id} is thrown away as fast as it is fetched")
                    self._fetch(dataset, path)
                    fetched += 1
                    continue
            if self._clock.monotonic() >= deadline:
                raise StoreUnavailable(f"another process fetches the same dataset for {PATIENCE}")
            self._clock.sleep(_LOOK_EVERY)

    def cached_versions(self) -> list[Path]:
        """Return the complete versions, the longest unused first."""
        whole = [path for path in self._folder.iterdir() if path.is_dir() and "." not in path.name]
        return sorted(whole, key=lambda path: path.stat().st_mtime)

    def make_room(self, size: int) -> None:
        """Make room for `size` bytes.

        First remove the remains of unfinished removals. Then, as far as needed, remove unfinished fetches that nobody
        continues now, and unused versions, the longest unused first.

        Raises:
            NoRoom: if that is not enough.
        """
        for removed in self._leftovers(".gone"):
            remove_tree(removed)
        for path in [*self._leftovers(".part"), *self.cached_versions()]:
            if self._free() >= size + RESERVE:
                return
            self._throw_away(path)
        free = self._free()
        if free < size + RESERVE:
            raise NoRoom(size, max(0, free - RESERVE))

    def _fetch(self, dataset: Dataset, path: Path) -> None:
        if path.is_dir():
            return
        part = path.with_name(f"{path.name}.part")
        done = sum(file.stat().st_size for file in part.rglob("*") if file.is_file()) if part.is_dir() else 0
        self.make_room(max(0, dataset.size - done))
        self._datasets.fetch(dataset, part)
        _set_modes(part, 0o555, 0o444)  # jobs share it, and what one of them changed the others would train on
        part.rename(path)

    def _leftovers(self, ending: str) -> list[Path]:
        """Return the folders with this ending that killed processes have left, in order of names."""
        return sorted(path for path in self._folder.iterdir() if path.name.endswith(ending) and path.is_dir())

    def _throw_away(self, path: Path) -> None:
        """Remove a version, or a part of one, unless a process holds its lock, as one that fetches does."""
        with _lock_alone(self._folder / f"{path.stem}.lock") as alone:
            if alone and path.is_dir():
                renamed = path.with_suffix(".gone")
                remove_tree(renamed)
                path.rename(renamed)  # first the name: what is half removed must not look whole
                remove_tree(renamed)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all its content, read-only or not and however deep, as far as possible. Links are not
    followed."""
    with suppress(OSError):
        _remove_content(folder)
    with suppress(OSError):
        folder.rmdir()


@dataclass
class _Level:
    """A folder that is being emptied.

    Attributes:
        name: its own, in the folder above.
        above: device and inode of that folder.
        remaining: names of the folders in it that are still to be removed.
    """

    name: str
    above: tuple[int, int]
    remaining: list[str]


def _remove_content(folder: Path) -> None:
    """Remove what is in a folder, step by step down and up again: a program may have nested more folders than a path
    can have, or a process can have open. Raises `OSError`."""
    at = _open_folder(str(folder), None)
    try:
        levels = [_Level("", (0, 0), _remove_files(at))]
        while True:
            if levels[-1].remaining:
                name = levels[-1].remaining.pop()
                try:
                    below = _open_folder(name, at)
                except OSError:
                    continue
                above, at = at, below
                try:
                    levels.append(_Level(name, _identity(above), _remove_files(at)))
                finally:
                    os.close(above)
                continue
            level = levels.pop()
            if not levels:
                return
            above, below = os.open("..", _FOLDER_FLAGS, dir_fd=at), at
            at = above
            os.close(below)
            if _identity(at) != level.above:
                raise OSError(errno.ESTALE, "moved while it was removed", str(folder))
            with suppress(OSError):
                os.rmdir(level.name, dir_fd=at)
    finally:
        os.close(at)


def _open_folder(name: str, above: int | None) -> int:
    """Open a folder, whose mode is set so that it can be emptied. Raises `OSError`."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    with suppress(OSError):  # another user's, which may be open anyway
        os.chmod(name, 0o700, dir_fd=above)
    return os.open(name, _FOLDER_FLAGS, dir_fd=above)


def _remove_files(folder: int) -> list[str]:
    """Remove all but folders from an open folder; return the names of the folders in it."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with suppress(OSError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _set_modes(folder: Path, folders: int, files: int | None) -> None:
    """Set the modes of a folder and of all in it, from the top, so that closed folders are opened before they are
    read."""
    folder.chmod(folders)
    for at, inner, names in os.walk(folder):
        for name in (name for name in inner if not (Path(at) / name).is_symlink()):
            (Path(at) / name).chmod(folders)
        if files is not None:
            for name in names:
                (Path(at) / name).chmod(files)


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
