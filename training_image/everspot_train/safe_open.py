"""Opens what a job has written below a folder of its own. No symbolic link is followed, because the job may put one
anywhere in a path at any time."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder_below(root: Path, names: Sequence[str]) -> int:
    """Open a folder below another one, and return the descriptor.

    Raises:
        OSError: if it does not exist, or if a part of the path is no folder.
    """
    folder = os.open(root, _FOLDER)
    for name in names:
        try:
            below = os.open(name, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def open_file_below(root: Path, names: Sequence[str]) -> BinaryIO:
    """Open a regular file below a folder for reading. A pipe in its place is not waited for.

    Raises:
        OSError: if it is no regular file, or cannot be read.
    """
    *folders, name = names
    folder = open_folder_below(root, folders)
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "no regular file", str(root.joinpath(*names)))
    return os.fdopen(handle, "rb")
