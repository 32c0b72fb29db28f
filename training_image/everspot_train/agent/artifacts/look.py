"""Scans a folder: its names with their stamps, and the files that processes may be writing to now."""

# pathlib takes no bytes
# ruff: noqa: PTH115, PTH118

import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from everspot_store.file_tree import EntryKind, walk_folder

from everspot_train.agent.artifacts.open_files import OpenFiles, OwnOpenFiles

UNFINISHED = b".tmp"
"""The ending of files and folders that are never kept."""
_KINDS = {stat.S_IFREG: EntryKind.FILE, stat.S_IFLNK: EntryKind.LINK, stat.S_IFDIR: EntryKind.DIRECTORY}
_ASK_EVERY = timedelta(seconds=10)

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Item:
    """One name in the folder.

    Attributes:
        kind: None if it is neither file, folder nor symbolic link.
        size: in bytes.
        mtime_ns: time of the last change of the content, which programs may set.
        ctime_ns: time of the last change of content or status, by this machine's kernel.
        inode: of the file.
        mode: permission bits.
        target: of a symbolic link.
        inside: whether the target was an absolute path into the folder; then `target` is relative to the folder.
    """

    kind: EntryKind | None
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int = 0o644
    target: bytes = b""
    inside: bool = False

    @property
    def stamp(self) -> Stamp:
        """A value that changes with the file, except for writes through a memory map."""
        return self.size, self.mtime_ns, self.ctime_ns, self.inode


@dataclass(frozen=True)
class Look:
    """The scan of a folder at one moment.

    Attributes:
        at: monotonic time.
        items: by path, without unfinished ones.
        unfinished: paths with a part that ends in `.tmp`.
        writing: files that a process has open or mapped for writing, or that changed during the look. A file that was
            replaced during the look, by a rename, is complete.
        appending: the files of `writing` that are open only for appending.
        mapped: the files of `writing` that are mapped, so that their stamps are not reliable.
        wall_ns: when the files were listed, by the clock of their times of change.
    """

    at: timedelta
    items: Mapping[bytes, Item] = field(default_factory=dict)
    unfinished: frozenset[bytes] = frozenset()
    writing: frozenset[bytes] = frozenset()
    appending: frozenset[bytes] = frozenset()
    mapped: frozenset[bytes] = frozenset()
    wall_ns: int = 0


class FolderWatch:
    """Scans one folder repeatedly.

    Finding the processes that write to it costs milliseconds of processor time, so this is done only if something has
    changed, or once in a while.

    Args:
        root: the folder, which need not exist.
        open_files: finds the files that are being written to; None: searches the processes of this user.
    """

    def __init__(self, root: bytes, open_files: OpenFiles | None = None) -> None:
        self._root = root
        self._open_files = open_files if open_files is not None else OwnOpenFiles()
        self._last: Look | None = None
        self._asked_at = timedelta()
        self._mapped: set[bytes] = set()

    def look(self, at: timedelta, *, thorough: bool = False) -> Look:
        """Scan the folder. `thorough`: find the files that are being written to in any case."""
        wall_ns = time.time_ns()
        items, unfinished = _list(self._root)
        last = self._last
        same = last is not None and not last.writing and items.keys() == last.items.keys()
        same = same and last is not None and all(item.stamp == last.items[path].stamp for path, item in items.items())
        if (same and not thorough and at - self._asked_at < _ASK_EVERY) or not items:
            self._last = Look(at, items, unfinished, wall_ns=wall_ns)
            return self._last
        if thorough or at - self._asked_at >= _ASK_EVERY:
            self._asked_at, self._mapped = at, self._open_files.mapped(self._root)
        opened, appending = self._open_files.opened(self._root)
        mapped, before = self._mapped, items
        wall_ns = time.time_ns()
        items, unfinished = _list(self._root)
        changing = {path for path, item in items.items() if path in before and before[path].stamp != item.stamp}
        replaced = {path for path in changing if before[path].inode != items[path].inode}
        if replaced:  # renamed into place, and so complete, unless removed and being written again
            again = self._open_files.opened(self._root)
            opened, appending = opened | again[0], appending | again[1]
            changing -= replaced
        files = {path for path, item in items.items() if item.kind is EntryKind.FILE}
        only_appending = frozenset((appending - opened - mapped) & files)
        writing = frozenset((opened | mapped | appending | changing) & files)
        self._last = Look(at, items, unfinished, writing, only_appending, frozenset(mapped & files), wall_ns)
        return self._last


def is_unfinished(path: bytes) -> bool:
    """Return whether a part of the path ends in `.tmp`."""
    return any(part.endswith(UNFINISHED) for part in path.split(b"/"))


def _list(root: bytes) -> tuple[dict[bytes, Item], frozenset[bytes]]:
    items, unfinished = dict[bytes, Item](), set[bytes]()
    roots = {root + b"/", os.path.realpath(root) + b"/"}
    for path, status in walk_folder(root):
        if is_unfinished(path):
            unfinished.add(path)
            continue
        kind, target, inside = _KINDS.get(stat.S_IFMT(status.st_mode)), b"", False
        if kind is EntryKind.LINK:
            with suppress(OSError):
                target = os.readlink(os.path.join(root, path))
            prefix = next((prefix for prefix in roots if target.startswith(prefix)), b"")
            target, inside = target[len(prefix) :], bool(prefix)
        items[path] = Item(
            kind=kind,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
            inode=status.st_ino,
            mode=stat.S_IMODE(status.st_mode),
            target=target,
            inside=inside,
        )
    return items, frozenset(unfinished)
