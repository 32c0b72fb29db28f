"""A bucket in a folder, for one machine, for tests and for the local cloud.

This module implements conditional writes itself. The bytes are first written and synced to a temporary file. A new key
is made by linking that file, which the file system refuses if the key exists. An existing key is replaced under a lock,
held for the microseconds in which the ETag is compared and the file renamed into place. A process that is killed at any
instruction leaves either the old or the new object, and at most a temporary file; its lock dies with it. A process that
is stopped in those microseconds keeps its lock. Until it goes on, others get a conflict after a bounded wait.
"""

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TypeVar

from everspot_core.clock import Clock

from everspot_store.backend import Consume, Entry, Moved, Uploaded, Version, Versioned, WriteOutcome, WriteResult
from everspot_store.copying import PIECE, copy_with_digest, write_at, write_new
from everspot_store.errors import KeyTaken, StoreDenied, StoreError, StoreMissing, StoreUnavailable
from everspot_store.file_locks import FileLocks, LockBusy

R = TypeVar("R")

_OWN = ".everspot-store"  # this module's files; keys with a segment that starts with a dot are refused
_LITTER_AGE = timedelta(hours=6)
_PRUNE_RACES = 5
_ANY = "*"  # matches any version


class FolderBackend:
    """Raw access to a folder that holds objects as plain files, readable with any text viewer."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._tmp = root / _OWN / "tmp"
        locks = root / _OWN / "locks"
        self._locks = FileLocks(locks, clock)
        with _as_store_errors(root):
            if not root.is_dir():
                raise StoreMissing(f"folder {root} does not exist")
            self._tmp.mkdir(parents=True, exist_ok=True)
            locks.mkdir(parents=True, exist_ok=True)
        self._sweep()

    def get(self, key: str) -> Versioned[bytes] | None:
        """See `Backend`."""
        with _as_store_errors(self._root):
            try:
                with self._path(key).open("rb") as file:
                    return Versioned(file.read(), Version(_etag(os.fstat(file.fileno()))))
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                self._check_root()
                return None

    def list(self, prefix: str) -> list[Entry]:
        """See `Backend`."""
        with _as_store_errors(self._root):
            self._check_root()
            folder = self._path(prefix.rstrip("/")) if prefix else self._root
            return sorted(_walk(folder, prefix), key=lambda entry: entry.key)

    def put(self, key: str, data: bytes) -> Version:
        """See `Backend`."""
        with _as_store_errors(self._root):
            temporary = self._stage(data)
            try:
                etag = self._into_place(temporary, key, _ANY)
            finally:
                temporary.unlink(missing_ok=True)
            assert etag is not None  # noqa: S101 - without a condition nothing refuses
            return Version(etag)

    def create(self, key: str, data: bytes) -> WriteResult:
        """See `Backend`."""
        return self._conditional(key, data, None)

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        """See `Backend`."""
        return self._conditional(key, data, version.etag)

    def delete(self, key: str) -> None:
        """See `Backend`."""
        with _as_store_errors(self._root):
            path = self._path(key)
            with self._locks.hold(key):
                path.unlink(missing_ok=True)
            if path.parent.is_dir():
                _sync_folder(path.parent)
            self._prune(path.parent)

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        """See `Backend`."""
        with path.open("rb", buffering=0) as reader:
            copy = partial(copy_with_digest, reader, sync=True, moved=moved)
            size, digest = self._create_from(key, copy)
        return Uploaded(key, size, digest)

    def download(self, key: str, path: Path, moved: Moved | None = None) -> str | None:
        """See `Backend`."""
        with _as_store_errors(self._root):
            try:
                with self._path(key).open("rb", buffering=0) as reader:
                    return copy_with_digest(reader, path, sync=False, moved=moved)[1]
            except FileNotFoundError:
                self._check_root()
                if not path.parent.is_dir():  # the caller's folder is missing, not the key
                    raise
                return None

    def upload_view(self, key: str, view: memoryview, moved: Moved | None = None) -> None:
        """See `Backend`."""
        self._create_from(key, lambda temporary: write_new(temporary, view, moved))

    def download_at(self, key: str, file: int, offset: int, consume: Consume) -> int | None:
        """See `Backend`."""
        with _as_store_errors(self._root):
            try:
                with self._path(key).open("rb", buffering=0) as reader:
                    return _copy_at(reader, file, offset, consume)
            except FileNotFoundError:
                self._check_root()
                return None

    def _create_from(self, key: str, write: Callable[[Path], R]) -> R:
        """Have a temporary file written and synced, and make it the object `key`. Returns the result of `write`.

        Raises:
            KeyTaken: if the key exists.
        """
        with _as_store_errors(self._root):
            if _read_etag(self._path(key)) is not None:
                raise KeyTaken(key)
            temporary = self._temporary()
            try:
                result = write(temporary)
                if self._into_place(temporary, key, None) is None:
                    raise KeyTaken(key)
            finally:
                temporary.unlink(missing_ok=True)
            return result

    def _conditional(self, key: str, data: bytes, etag: str | None) -> WriteResult:
        with _as_store_errors(self._root):
            if _read_etag(self._path(key)) != etag:  # saves the write; the check under the lock decides
                self._check_root()
                return WriteResult(WriteOutcome.LOST)
            temporary = self._stage(data)
            try:
                written = self._into_place(temporary, key, etag)
            except LockBusy:
                return WriteResult(WriteOutcome.CONFLICT)
            finally:
                temporary.unlink(missing_ok=True)
            if written is None:
                return WriteResult(WriteOutcome.LOST)
            return WriteResult(WriteOutcome.DONE, Version(written))

    def _path(self, key: str) -> Path:
        segments = key.split("/")
        if any(not segment or segment.startswith(".") or "\0" in segment for segment in segments):
            raise StoreError(f"{key!r} is not a key: empty segments and segments that start with a dot are refused")
        return self._root.joinpath(*segments)

    def _temporary(self) -> Path:
        self._check_root()
        return self._tmp / f"{os.getpid()}-{secrets.token_hex(8)}"

    def _stage(self, data: bytes) -> Path:
        temporary = self._temporary()
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return temporary

    def _into_place(self, temporary: Path, key: str, etag: str | None) -> str | None:
        """Make a synced file the object `key`, durably, if the object's ETag is `etag` (None: it must not exist).
        Returns the new ETag, or None if the condition does not hold."""
        path = self._path(key)
        for _ in range(_PRUNE_RACES):
            self._make_folder(path.parent)
            try:
                written = self._link(temporary, path) if etag is None else self._swap(temporary, path, key, etag)
            except FileNotFoundError:  # the folder was pruned by a delete in between
                continue
            if written is not None:
                _sync_folder(path.parent)
            return written
        raise StoreUnavailable(f"folder {path.parent} was removed by others during every try")

    def _link(self, temporary: Path, path: Path) -> str | None:
        _stamp(temporary, time.time_ns())
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return None
        return _etag(temporary.stat())

    def _swap(self, temporary: Path, path: Path, key: str, etag: str) -> str | None:
        """Rename into place with a time stamp that no earlier version of the key had.

        File systems reuse inodes, and the kernel's time stamps are coarse, so two versions written within a few
        milliseconds could otherwise have the same ETag.
        """
        stamp = _stamp(temporary, time.time_ns())
        with self._locks.hold(key):
            try:
                old = path.stat()
            except FileNotFoundError:
                if etag != _ANY:
                    return None
            else:
                if etag not in (_ANY, _etag(old)):
                    return None
                if old.st_mtime_ns >= stamp:
                    _stamp(temporary, old.st_mtime_ns + 1)
            written = _etag(temporary.stat())
            temporary.replace(path)
        return written

    def _make_folder(self, folder: Path) -> None:
        """Make a folder and its parents durably: the entry of each new folder is synced."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)

    def locked(self) -> bool:
        """Whether any process, perhaps a stopped one, holds a lock at this moment."""
        return self._locks.any_locked()

    def _prune(self, folder: Path) -> None:
        """Remove folders that a delete left empty, so that listings are like those of S3, which has no folders."""
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _check_root(self) -> None:
        if not self._root.is_dir():
            raise StoreMissing(f"folder {self._root} does not exist")

    def _sweep(self) -> None:
        """Remove temporary files of processes that were killed long ago."""
        for path in self._tmp.iterdir():
            try:
                if time.time() - path.stat().st_mtime > _LITTER_AGE.total_seconds():
                    path.unlink()
            except FileNotFoundError:
                continue


def _copy_at(reader: FileIO, file: int, offset: int, consume: Consume) -> int:
    """Copy a file into another one at `offset`. The piece is read into memory that is used again for the next one."""
    buffer, size = memoryview(bytearray(PIECE)), 0
    while count := reader.readinto(buffer):
        write_at(file, buffer[:count], offset + size)
        consume(buffer[:count])
        size += count
    return size


def _stamp(path: Path, nanoseconds: int) -> int:
    os.utime(path, ns=(nanoseconds, nanoseconds))
    return nanoseconds


def _etag(stat: os.stat_result) -> str:
    return f"{stat.st_mtime_ns:x}-{stat.st_size:x}-{stat.st_ino:x}"


def _read_etag(path: Path) -> str | None:
    try:
        return _etag(path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _walk(folder: Path, prefix: str) -> Iterator[Entry]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(folder / entry.name, f"{prefix}{entry.name}/")
            continue
        try:
            stat = (folder / entry.name).stat()
        except FileNotFoundError:  # deleted meanwhile
            continue
        modified = datetime.fromtimestamp(stat.st_mtime, UTC)
        yield Entry(f"{prefix}{entry.name}", _etag(stat), stat.st_size, modified)


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # pruned meanwhile, together with what was deleted from it
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _as_store_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StoreDenied(f"folder {root}: {error}") from error
        raise StoreUnavailable(f"folder {root}: {error}") from error
