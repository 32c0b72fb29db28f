"""Removes folders with arbitrary content."""

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
    """Remove the content of a folder, one level at a time: folders may be nested deeper than a path can name, or than a
    process can have open. Raises `OSError`."""
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
    with suppress(OSError):  # another user's folder, which may be accessible anyway
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
