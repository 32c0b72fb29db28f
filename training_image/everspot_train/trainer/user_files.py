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
from everspot_store.file_tree import EntryKind, FileTree, TreeEntry, describe_entry, unescape_path, walk_folder

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
        self._copies = 0
        self._pending: dict[int, dict[bytes, TreeEntry]] = {}
        self._published: dict[bytes, TreeEntry] = {}
        self._parts: dict[str, tuple[Part, timedelta]] = {}

    def resume(self, tree: Path, parts: Iterable[Part]) -> None:
        """Take over the files of the restored checkpoint, so that they stay published until they are copied again.

        Args:
            tree: the file that describes them, which is removed. It does not exist if there are none.
            parts: of the checkpoint.
        """
        if not tree.is_file():
            return
        entries = FileTree.read(tree.read_bytes()).entries
        self._published = {unescape_path(entry.path): entry for entry in entries}
        long_ago = self._clock.monotonic() - FRESH
        self._parts = {part.name: (part, long_ago) for part in parts if part.name.startswith(USER_FILE)}
        tree.unlink()

    def add_to(self, directory: Path, step: int, limit: int | None) -> dict[str, Part]:
        """Copy new files into a snapshot's directory, and describe all files. Return the parts that are stored already.

        A file that cannot be copied now keeps its last published content.

        Args:
            directory: the snapshot's.
            step: of the snapshot.
            limit: bytes that may be added; a file that does not fit is not copied. None: as many as there are.
        """
        if self._root is None or not os.path.isdir(self._root):  # noqa: PTH112
            return {}
        entries, stored, firsts = dict[bytes, TreeEntry](), dict[str, Part](), dict[tuple[int, int], TreeEntry]()
        names: dict[bytes, tuple[_Stamp, str]] = {}
        for path, status in sorted(walk_folder(self._root, _warn_of_unreadable)):
            if any(part.endswith(_UNFINISHED) for part in path.split(b"/")):
                continue
            stamp, inode = _stamp(status), (status.st_dev, status.st_ino)
            try:
                entry = describe_entry(self._root, path, status)
                if entry is not None and entry.kind is EntryKind.FILE:
                    part = self._unchanged(path, stamp)
                    if inode in firsts:
                        first = firsts[inode]
                        entry = entry.model_copy(update={"same_as": first.path, "content": first.content})
                    elif part is not None:
                        stored[part.name] = part
                        entry = entry.model_copy(update={"content": part.name})
                    elif limit is not None and status.st_size > limit:
                        raise OSError("the notice leaves no time for it")
                    else:
                        name = self._new_name(step)
                        self._copy(path, stamp, directory / name)
                        limit = limit - status.st_size if limit is not None else None
                        entry = entry.model_copy(update={"content": name})
                    firsts.setdefault(inode, entry)
                    names[path] = (stamp, entry.content)
            except OSError as error:
                entry = self._carry(path, entries.values(), stored)
                state = "stays as it was published before" if entry is not None else "is not kept"
                log.warning("%s in the folder checkpoints %s: %s", os.fsdecode(path), state, error)
            if entry is not None:
                entries[path] = entry
        if entries:
            (directory / USER_TREE).write_bytes(FileTree(entries=list(entries.values())).to_json())
        self._names = names
        self._pending[step] = entries
        return stored

    def _new_name(self, step: int) -> str:
        """Return a name for a new part. An earlier attempt may have published parts of the same step."""
        while True:
            self._copies += 1
            name = f"{USER_FILE}{step}-{self._copies}"
            if name not in self._parts:
                return name

    def _carry(self, path: bytes, entries: Iterable[TreeEntry], stored: dict[str, Part]) -> TreeEntry | None:
        """Return the last published entry of a path, and add its part to `stored`. Return None without one.

        An entry of `entries` with the same content becomes the first of a hard link, because each content is put back
        once.
        """
        entry = self._published.get(path)
        if entry is None or not entry.content:
            return entry
        if entry.content not in self._parts:
            return None
        stored[entry.content] = self._parts[entry.content][0]
        first = next((other.path for other in entries if other.content == entry.content and not other.same_as), "")
        return entry.model_copy(update={"same_as": first})

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

    def published(self, step: int, parts: Iterable[Part]) -> None:
        """Note that the snapshot of a step is durable, with its parts."""
        now = self._clock.monotonic()
        uploaded = {part.name: part for part in parts if part.name.startswith(USER_FILE)}
        self._parts = {name: self._parts.get(name, (part, now)) for name, part in uploaded.items()}
        self._published = self._pending.get(step, self._published)
        for earlier in [pending for pending in list(self._pending) if pending < step]:
            del self._pending[earlier]

    def _unchanged(self, path: bytes, stamp: _Stamp) -> Part | None:
        before, name = self._names.get(path, (None, ""))
        part, at = self._parts.get(name, (None, timedelta()))
        return part if before == stamp and self._clock.monotonic() - at < FRESH else None


def _warn_of_unreadable(path: bytes, error: OSError) -> None:
    log.warning("%s in the folder checkpoints is not kept: %s", os.fsdecode(path), error)


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
