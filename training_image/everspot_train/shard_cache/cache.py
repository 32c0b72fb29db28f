"""The files of streamed datasets on one machine: at most so many bytes, shared by all of its jobs and processes, and
fewer where the disk has less.

A file lies under its digest. Its mark of use is its modification time, and the longest unused ones are removed first:
a process that reads one has it open, and reads on. A download is `{digest}.{size}.part` until every byte is checked,
and holds the lock of its digest, so that a part without a lock was left by a killed process.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_store import NoRoom, StoreUnavailable
from everspot_store.tree_cache import RESERVE

_LOCK_DIGITS = 2  # of a digest: 256 locks, however many files there are
_DIGEST_DIGITS = 64
_LOOK_EVERY = timedelta(seconds=0.2)
_PATIENCE = timedelta(hours=1)
"""How long a download waits for the space of others."""
_OUTAGE_PATIENCE = timedelta(minutes=5)
"""How long a download is tried again while the store is unavailable."""
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(seconds=30)


class ShardCache:
    """The cache, for one process at a time.

    Args:
        limit: bytes of all files, downloads included. While other processes use the folder, the largest of their
            limits counts: a small one does not remove what others read.
        download: writes the file of a digest to a path, and checks its bytes.
        free: returns the free bytes of the disk. `RESERVE` of them stay free for checkpoints and logs.
    """

    def __init__(
        self,
        folder: Path,
        limit: int,
        download: Callable[[str, Path], object],
        clock: Clock,
        free: Callable[[], int] | None = None,
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._download = download
        self._clock = clock
        self._free = free or (lambda: shutil.disk_usage(folder).free)
        folder.mkdir(parents=True, exist_ok=True)
        with self._locked("all"):
            self._limit_handle = os.open(folder / f"limit-{limit}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._limit_handle, fcntl.LOCK_SH)  # until this process ends

    def __del__(self) -> None:
        if hasattr(self, "_limit_handle"):
            os.close(self._limit_handle)

    def fetch(self, digest: str, length: int) -> bool:
        """Make sure that a file is there. Returns whether it had to be downloaded.

        Raises:
            NoRoom: if the file alone is larger than the cache, or no space is left for an hour.
            StoreUnavailable: if the store was unavailable for five minutes.
            DigestMismatch, FileNotFoundError, StoreError: as of the download.
        """
        deadline, pause = self._clock.monotonic() + _OUTAGE_PATIENCE, _FIRST_PAUSE
        while True:
            try:
                return self._fetch(digest, length)
            except StoreUnavailable:
                if self._clock.monotonic() >= deadline:
                    raise
            self._clock.sleep(pause)  # without the lock, which other processes need
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _fetch(self, digest: str, length: int) -> bool:
        if length > self._limit:
            raise NoRoom(length, self._limit)
        path = self._folder / digest
        with self._locked(digest[:_LOCK_DIGITS]):
            if path.exists():
                return False
            part = self._reserve(digest, length)
            try:
                self._download(digest, part)
                part.rename(path)
            finally:
                part.unlink(missing_ok=True)
        return True

    def _reserve(self, digest: str, length: int) -> Path:
        """Make space for a download. Its part counts with its whole length from now on."""
        deadline = self._clock.monotonic() + _PATIENCE
        while True:
            with self._locked("all"):
                self._remove_stale_parts(digest)
                free = self._evict(length, self._shared_limit())
                if free >= length:
                    part = self._folder / f"{digest}.{length}.part"
                    part.touch()
                    return part
            if self._clock.monotonic() >= deadline:
                raise NoRoom(length, max(0, free))
            self._clock.sleep(_LOOK_EVERY)

    def _shared_limit(self) -> int:
        """Return the largest limit of the processes that use the folder, and remove the files of limits without any."""
        limits = [self._limit]
        for path in self._folder.glob("limit-*.lock"):
            if int(path.stem.removeprefix("limit-")) == self._limit:
                continue
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            except BlockingIOError:
                limits.append(int(path.stem.removeprefix("limit-")))
            finally:
                os.close(handle)
        return max(limits)

    def _evict(self, length: int, limit: int) -> int:
        """Remove the longest unused files as far as needed. Returns the bytes that a download may have."""
        used, written, files = 0, 0, []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                if path.suffix == ".part":
                    used += int(path.name.split(".")[1])
                    written += path.stat().st_size
                elif len(path.name) == _DIGEST_DIGITS:
                    status = path.stat()
                    used += status.st_size
                    written += status.st_size
                    files.append((status.st_mtime_ns, status.st_size, path))
        limit = min(limit, written + self._free() - RESERVE)  # the rest of each download has yet to be written
        for _, freed, path in sorted(files):
            if used + length <= limit:
                break
            path.unlink(missing_ok=True)
            used -= freed
        return limit - used

    def _remove_stale_parts(self, own_digest: str) -> None:
        own = own_digest[:_LOCK_DIGITS]
        for part in self._folder.glob("*.part"):
            name = part.name[:_LOCK_DIGITS]
            if name == own:  # its lock is held here
                part.unlink(missing_ok=True)
                continue
            with suppress(BlockingIOError), self._locked(name, wait=False):
                part.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, name: str, *, wait: bool = True) -> Iterator[None]:
        handle = os.open(self._folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield
        finally:
            os.close(handle)


def open_cached(folder: Path, digest: str) -> int | None:
    """Open a file of the cache and mark it as used. None: it is not there."""
    try:
        handle = os.open(folder / digest, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with suppress(OSError):
        os.utime(handle)
    return handle
