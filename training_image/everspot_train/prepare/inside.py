"""Resolves paths of an image's tree, whose symbolic links lead nowhere else."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

_MOST_LINKS = 40  # symbolic links in one path, as Linux follows


def resolve_inside(root: Path, parts: Sequence[str]) -> Path:
    """Return a folder of the tree by its path in the container.

    Raises:
        OSError: if there are too many symbolic links.
    """
    pending, path, links = list(parts), root, 0
    while pending:
        part = pending.pop(0)
        if part == "..":
            path = path.parent if path != root else path
            continue
        below = path / part
        if not below.is_symlink():
            path = below
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "/".join(parts))
        target = PurePosixPath(below.readlink())
        path = root if target.is_absolute() else path
        pending[:0] = [part for part in target.parts if part not in ("/", ".")]
    return path
