"""Keeps the program's own files in the folder `checkpoints`, such as a best model, with each checkpoint.

The files are copied between two steps, so they belong to the state of that step. The agent puts them back before the
program is started again.
"""

# pathlib takes no bytes
# ruff: noqa: PTH118

import logging
import os
import shutil
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.checkpoint import Part
from everspot_store.checkpoints import FRESH
from everspot_store.file_tree import EntryKind, FileTree, TreeEntry, describe_entry, walk_folder

from everspot_train.rundir import USER_FILE, USER_TREE

_UNFINISHED = b".tmp"

log = logging.getLogger("everspot.trainer")

_Stamp = tuple[int, int, int, int]


class UserFiles:
    """The files of one folder, over the checkpoints of one process. `folder`: None without a folder to keep."""

    def __init__(self, folder: Path | None, clock: Clock) -> None:
        self._root = os.fsencode(folder.absolute()) if folder is not None else None
        self._clock = clock
        self._names: dict[bytes, tuple[_Stamp, str]] = {}
        self._parts: dict[str, tuple[Part, timedelta]] = {}

    def add_to(self, directory: Path, step: int, limit: int | None) -> dict[str, Part]:
        """Copy new files into a snapshot's directory, and describe all files. Return the unchanged parts.

        Args:
            directory: the snapshot's.
            step: of the snapshot.
            limit: bytes that may be added; what does not fit is left out. None: as many as there are.
        """
        if self._root is None or not os.path.isdir(self._root):  # noqa: PTH112
            return {}
        entries, unchanged, firsts = list[TreeEntry](), dict[str, Part](), dict[tuple[int, int], TreeEntry]()
        names: dict[bytes, tuple[_Stamp, str]] = {}
        for path, status in sorted(walk_folder(self._root)):
            if any(part.endswith(_UNFINISHED) for part in path.split(b"/")):
                continue
            stamp = _stamp(status)
            try:
                entry = describe_entry(self._root, path, status)
                if entry is not None and entry.kind is EntryKind.FILE:
                    first = firsts.setdefault((status.st_dev, status.st_ino), entry)
                    part = self._unchanged(path, stamp)
                    if first is not entry:
                        entry = entry.model_copy(update={"same_as": first.path, "content": first.content})
                    elif part is not None:
                        unchanged[part.name] = part
                        entry = entry.model_copy(update={"content": part.name})
                    elif limit is not None and status.st_size > limit:
                        log.warning("the notice leaves no time for %s, which stays as it was kept before", entry.path)
                        continue
                    else:
                        name = f"{USER_FILE}{step}-{len(names)}"
                        self._copy(path, stamp, directory / name)
                        limit = limit - status.st_size if limit is not None else None
                        entry = entry.model_copy(update={"content": name})
                    firsts[status.st_dev, status.st_ino] = first if entry.same_as else entry
                    names[path] = (stamp, entry.content)
            except OSError as error:
                log.warning("%s in the folder checkpoints is not kept: %s", os.fsdecode(path), error)
                continue
            entries += [entry] if entry is not None else []
        if entries:
            (directory / USER_TREE).write_bytes(FileTree(entries=entries).to_json())
        self._names = names
        return unchanged

    def _copy(self, path: bytes, stamp: _Stamp, copy: Path) -> None:
        """Copy a file that nothing writes to meanwhile.

        Raises:
            OSError: if it cannot be copied, or changes.
        """
        source = os.path.join(self._root or b"", path)
        try:
            shutil.copyfile(source, copy)
            if _stamp(os.lstat(source)) != stamp:
                raise OSError("it is being written to")
        except OSError:
            copy.unlink(missing_ok=True)
            raise

    def published(self, parts: Iterable[Part]) -> None:
        """Note that a snapshot is durable."""
        now = self._clock.monotonic()
        uploaded = {part.name: part for part in parts if part.name.startswith(USER_FILE)}
        self._parts = {name: self._parts.get(name, (part, now)) for name, part in uploaded.items()}

    def _unchanged(self, path: bytes, stamp: _Stamp) -> Part | None:
        before, name = self._names.get(path, (None, ""))
        part, at = self._parts.get(name, (None, timedelta()))
        return part if before == stamp and self._clock.monotonic() - at < FRESH else None


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
