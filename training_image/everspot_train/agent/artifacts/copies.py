"""Copies files while their program runs, and detects changes during the copy."""

# pathlib takes no bytes
# ruff: noqa: PTH118

import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from everspot_train.agent.artifacts.contents import Wholeness, check_content
from everspot_train.agent.artifacts.look import Look, Stamp

_SMALL_BYTES = 256 << 10
"""The size up to which a file is read into memory first."""
_MEMORY_BYTES = 64 << 20
"""The most bytes of one folder that are held in memory."""
_MOST_OPEN = 256
"""The most files that are held open. A process may have 1,024 open by default."""
_TICK_NS = 20_000_000
"""Longer than a tick of the kernel's clock for file times: 10 ms at the slowest (CONFIG_HZ=100)."""
_OTHER_KIND = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL)
"""Errors of opening a path whose file is gone, or was replaced by a link, a socket or a pipe."""
_FICLONE = 0x40049409  # linux/fs.h: shares the blocks of a file with a new one, on btrfs and xfs


class Changed(Exception):
    """A file changed while it was copied."""


class UnreadableFile(Exception):
    """A file cannot be read.

    Attributes:
        path: of the file.
        reason: why.
    """

    def __init__(self, path: bytes, reason: str) -> None:
        super().__init__(f"{os.fsdecode(path)}: {reason}")
        self.path = path
        self.reason = reason


class FolderCopier:
    """Copies files of one folder as they were at one scan, while their program runs.

    The files have to be read while none of them changes, and a program may pause for less time than a copy of thousands
    of files takes. So little work is done in the pause: small files are read into memory, and larger ones are opened.
    An open file keeps its content when another file is renamed to its path, so it can be copied afterwards. If a file
    changes, the files that were read before stay for the next try, which reads only changed files.

    Args:
        root: the folder.
        target: the folder for the copies.
    """

    def __init__(self, root: bytes, target: Path) -> None:
        self._root = root
        self._target = target
        self._memory: dict[bytes, tuple[Stamp, bytes]] = {}
        self._files: dict[bytes, tuple[Stamp, Path]] = {}
        self._memory_bytes = 0
        self._number = 0

    def copy(self, paths: Collection[bytes], look: Look) -> dict[bytes, Path]:
        """Copy files as they were at the scan `look`. Returns the copies, which stay until `clear`.

        Raises:
            Changed: if a file has changed since the scan.
            UnreadableFile: if a file cannot be read.
            OSError: if the disk cannot take the copies.
        """
        self._target.mkdir(parents=True, exist_ok=True)
        stamps = {path: look.items[path].stamp for path in paths}
        self._forget_others(stamps)
        opened: dict[bytes, FileIO] = {}
        try:
            changed: Changed | None = None
            for path, stamp in stamps.items():
                if path not in self._memory and path not in self._files:
                    try:
                        self._capture(path, stamp, opened)
                    except Changed as error:  # the other files are still read, for the next try
                        changed = changed or error
            if changed is not None:
                raise changed
            for path, stamp in stamps.items():
                if read_stamp(self._root, path) != stamp:
                    raise Changed(os.fsdecode(path))
            for path, reader in opened.items():
                self._copy_open(path, stamps[path], reader)
        except Changed:
            self._forget_unsettled()
            raise
        finally:
            for reader in opened.values():
                reader.close()
        for path in list(self._memory):
            stamp, content = self._memory[path]
            with self._new_copy() as copy:
                copy.write_bytes(content)
            self._files[path] = stamp, copy
            self._drop_memory(path)
        return {path: self._files[path][1] for path in paths}

    def clear(self) -> None:
        """Remove all copies."""
        self._memory.clear()
        self._memory_bytes = 0
        self._files.clear()
        shutil.rmtree(self._target, ignore_errors=True)

    def _capture(self, path: bytes, stamp: Stamp, opened: dict[bytes, FileIO]) -> None:
        """Read a small file, or open a larger one for later. Beyond the limits of both the file is copied
        immediately."""
        try:
            reader = open_regular(os.path.join(self._root, path))
        except PermissionError as error:
            raise UnreadableFile(path, error.strerror or str(error)) from error
        except OSError as error:
            if error.errno not in _OTHER_KIND:
                raise
            raise Changed(os.fsdecode(path)) from error
        keep_open = False
        try:
            if _stamp(os.fstat(reader.fileno())) != stamp:
                raise Changed(os.fsdecode(path))
            size = stamp[0]
            if size <= _SMALL_BYTES and size + self._memory_bytes <= _MEMORY_BYTES:
                content = reader.read(size)
                self._memory[path] = stamp, content
                self._memory_bytes += len(content)
            elif len(opened) < _MOST_OPEN:
                opened[path], keep_open = reader, True
            else:
                self._copy_open(path, stamp, reader)
        finally:
            if not keep_open:
                reader.close()

    def _copy_open(self, path: bytes, stamp: Stamp, reader: FileIO) -> None:
        with self._new_copy() as copy:
            with copy.open("xb") as writer:
                try:
                    fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
                except OSError:
                    shutil.copyfileobj(reader, writer, 1 << 22)
            status = os.fstat(reader.fileno())
            size, mtime_ns, ctime_ns, _ = stamp
            # Removing the path, or renaming another file to it, changes only ctime.
            is_same = (status.st_size, status.st_mtime_ns) == (size, mtime_ns)
            if not is_same or (status.st_nlink > 0 and status.st_ctime_ns != ctime_ns):
                raise Changed(os.fsdecode(path))
        self._files[path] = stamp, copy

    def _forget_others(self, stamps: Mapping[bytes, Stamp]) -> None:
        """Forget files that are not requested, or have changed since they were read."""
        for path in [path for path, (stamp, _) in self._memory.items() if stamps.get(path) != stamp]:
            self._drop_memory(path)
        for path, (stamp, copy) in list(self._files.items()):
            if stamps.get(path) != stamp:
                copy.unlink(missing_ok=True)
                del self._files[path]

    def _forget_unsettled(self) -> None:
        """Forget files that were read within a tick of the kernel's clock after their last change, because a further
        change within the tick would not change the stamp."""
        latest = time.time_ns() - _TICK_NS
        stamps = {path: stamp for path, (stamp, _) in (*self._memory.items(), *self._files.items())}
        self._forget_others({path: stamp for path, stamp in stamps.items() if stamp[2] < latest})

    def _drop_memory(self, path: bytes) -> None:
        _, content = self._memory.pop(path)
        self._memory_bytes -= len(content)

    @contextmanager
    def _new_copy(self) -> Iterator[Path]:
        """Return the path of a new copy, which is removed if writing it fails."""
        self._number += 1
        copy = self._target / f"copy-{self._number}"
        try:
            yield copy
        except BaseException:
            copy.unlink(missing_ok=True)
            raise


def copy_growing(root: bytes, names: Mapping[bytes, str], target: Path) -> dict[bytes, Path]:
    """Copy logs as they are now. Unreadable ones are left out."""
    target.mkdir(parents=True, exist_ok=True)
    copies = {}
    for path, name in names.items():
        try:
            _copy(os.path.join(root, path), target / name)
        except OSError:
            continue
        copies[path] = target / name
    return copies


def read_stamp(root: bytes, path: bytes) -> Stamp | None:
    """Return the stamp of a file now; None if it is gone."""
    try:
        return _stamp(os.lstat(os.path.join(root, path)))
    except OSError:
        return None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def find_torn(copies: Mapping[bytes, Path], present: Iterable[bytes], doubtful: Collection[bytes]) -> dict[bytes, str]:
    """Return the files whose content shows that they are not whole, each with the reason.

    Args:
        copies: the files to check.
        present: all paths of the publication, which must include the shards of an index.
        doubtful: files that count as torn unless their content shows that they are whole.
    """
    names_by_folder: dict[bytes, set[bytes]] = {}
    for path in present:
        folder, _, name = path.rpartition(b"/")
        names_by_folder.setdefault(folder, set()).add(name)
    torn = {}
    for path, copy in copies.items():
        folder, _, name = path.rpartition(b"/")
        try:
            wholeness = check_content(copy, name, names_by_folder.get(folder, ()))
        except OSError as error:
            torn[path] = error.strerror or str(error)
            continue
        if wholeness is Wholeness.TORN:
            torn[path] = "its content is not whole"
        elif wholeness is Wholeness.UNKNOWN and path in doubtful:
            torn[path] = "it was being written when the program ended"
    return torn


def open_regular(path: bytes) -> FileIO:
    """Open a regular file for reading. The program may have replaced it by a pipe or a link: pipes are not waited for,
    and links not followed.

    Raises:
        OSError: if it is no regular file or cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no regular file", os.fsdecode(path))
    return FileIO(handle)


def _copy(source: bytes, copy: Path) -> None:
    with open_regular(source) as reader, copy.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:
            shutil.copyfileobj(reader, writer, 1 << 22)
