"""Copies files while their program runs, and notices if one of them changed meanwhile."""

# pathlib takes no bytes
# ruff: noqa: PTH118

import fcntl
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from everspot_train.agent.artifacts.contents import Wholeness, check_content
from everspot_train.agent.artifacts.look import Look, Stamp

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


def copy_files(root: bytes, names: Mapping[bytes, str], look: Look, target: Path) -> dict[bytes, Path]:
    """Copy files as `look` saw them.

    Args:
        root: the folder.
        names: the name of each copy, by path.
        look: the folder when it was judged.
        target: the folder for the copies, which is emptied.

    Raises:
        Changed: if a file is no more as it was then.
        UnreadableFile: if a file cannot be read.
        OSError: if the disk cannot take the copies.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    copies = {}
    for path, name in names.items():
        source, copy = Path(os.fsdecode(os.path.join(root, path))), target / name
        try:
            _copy(source, copy)
        except FileNotFoundError as error:
            raise Changed(str(error)) from error
        except PermissionError as error:
            raise UnreadableFile(path, error.strerror or str(error)) from error
        copies[path] = copy
    for path in names:
        if read_stamp(root, path) != look.items[path].stamp:
            raise Changed(os.fsdecode(path))
    return copies


def copy_growing(root: bytes, names: Mapping[bytes, str], target: Path) -> dict[bytes, Path]:
    """Copy logs as they are now. Those that cannot be read are left out."""
    copies = {}
    for path, name in names.items():
        try:
            _copy(Path(os.fsdecode(os.path.join(root, path))), target / name)
        except OSError:
            continue
        copies[path] = target / name
    return copies


def read_stamp(root: bytes, path: bytes) -> Stamp | None:
    """The stamp of a file now; None if it is gone."""
    try:
        status = os.lstat(os.path.join(root, path))
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def find_torn(copies: Mapping[bytes, Path], present: Iterable[bytes], doubtful: Collection[bytes]) -> dict[bytes, str]:
    """Find files that are not whole by their content: the reason by path.

    Args:
        copies: the files to check.
        present: all paths of the publication, among which the shards of an index must be.
        doubtful: files that must show that they are whole.
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


def _copy(source: Path, copy: Path) -> None:
    with source.open("rb") as reader, copy.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:
            shutil.copyfileobj(reader, writer, 1 << 22)
