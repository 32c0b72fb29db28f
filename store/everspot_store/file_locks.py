"""File locks, exclusive among threads and processes. The kernel releases a lock when its process dies."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock

from everspot_store.errors import StoreUnavailable

_LOCKS = 1024
_LOCK_WAIT = timedelta(seconds=5)
_LOCK_STEP = timedelta(milliseconds=5)


class LockBusy(StoreUnavailable):
    """Another process held the lock of a key for too long."""


class FileLocks:
    """Locks of keys, as files in an existing folder. Several keys may share a lock."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    @contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Hold a key's lock. The wait is bounded, because a stopped process may hold the lock for any time.

        Raises:
            LockBusy: if another process holds it for too long.
        """
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) % _LOCKS
        handle = os.open(self._folder / f"{number:04d}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            deadline = self._clock.monotonic() + _LOCK_WAIT
            while not _try_lock(handle):
                if self._clock.monotonic() >= deadline:
                    raise LockBusy(f"{key} is locked by another process")
                self._clock.sleep(_LOCK_STEP)
            yield
        finally:
            os.close(handle)

    def any_locked(self) -> bool:
        """Return whether any process holds a lock at this moment."""
        for path in self._folder.iterdir():
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if not _try_lock(handle):
                    return True
            finally:
                os.close(handle)
        return False


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
