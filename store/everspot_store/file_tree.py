"""Describes the names, links, modes and times of a folder's files, and restores them.

Linux allows every byte but `/` and NUL in a name, up to 255 of them. Object keys and JSON allow less. So a tree names
its files by escaped text, and the keys of their contents do not depend on their names.
"""

# pathlib takes no bytes
# ruff: noqa: PTH101, PTH103, PTH104, PTH108, PTH115, PTH118, PTH120, PTH208, PTH211

import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from everspot_core.documents import Document, Stored
from pydantic import Field

from everspot_store.errors import UnsafeArchive

_ESCAPED = re.compile(rb"%([0-9A-F]{2})")
_DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
_TEMPORARY = ".everspot-put-back"
_TICK_SECONDS, _TICK_TRIES = 0.002, 25  # 50 ms together; the longest jiffy is 10 ms
_MOST_TICKS = 500  # the most entries that wait for a tick; more would take seconds


class EntryKind(StrEnum):
    """The kind of one entry of a tree."""

    FILE = "file"
    LINK = "link"
    DIRECTORY = "directory"


class TreeEntry(Stored):
    """One name in a folder.

    Attributes:
        path: below the folder, escaped by `escape_path`.
        kind: file, symbolic link or directory.
        mode: permission bits.
        mtime_ns: time of the last change of the content.
        ctime_ns: time of the last change of content or status, by the first machine's clock. Only its order among the
            files counts.
        size: bytes of a file.
        content: the name of the object with the file's content, below the tree's prefix.
        same_as: path (escaped) of an earlier entry that is the same file, by a hard link.
        target: escaped target of a symbolic link.
        inside: whether the target was an absolute path into the folder; `target` is then relative to the folder.
        unit: escaped name of the checkpoint that the entry belongs to; empty if it is in none.
    """

    path: str
    kind: EntryKind = EntryKind.FILE
    mode: int = 0o644
    mtime_ns: int = 0
    ctime_ns: int = 0
    size: int = 0
    content: str = ""
    same_as: str = ""
    target: str = ""
    inside: bool = False
    unit: str = ""


class FileTree(Document):
    """The entries of one folder, sorted by path."""

    entries: list[TreeEntry] = Field(default_factory=list)


def escape_path(path: bytes) -> str:
    """Return a path as text that is safe in JSON and on a terminal: bytes that are not printable UTF-8, and `%` itself,
    become `%XX`."""
    escaped = []
    for character in path.decode("utf-8", "surrogateescape"):
        if character != "%" and (character == " " or character.isprintable()):
            escaped.append(character)
        else:
            escaped += [f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape")]
    return "".join(escaped)


def unescape_path(text: str) -> bytes:
    """Return the bytes of a path that `escape_path` wrote."""
    return _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), text.encode("utf-8", "surrogateescape"))


def describe_entry(root: bytes, path: bytes, status: os.stat_result) -> TreeEntry | None:
    """Describe one name below `root` by its status (`lstat`). Return None if it is neither a file, a folder nor a
    symbolic link.

    Raises:
        OSError: if a link cannot be read.
    """
    kinds = {stat.S_IFREG: EntryKind.FILE, stat.S_IFLNK: EntryKind.LINK, stat.S_IFDIR: EntryKind.DIRECTORY}
    kind = kinds.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return None
    target, inside = b"", False
    if kind is EntryKind.LINK:
        target = os.readlink(os.path.join(root, path))
        if target.startswith(root + b"/"):
            target, inside = target[len(root) + 1 :], True
    return TreeEntry(
        path=escape_path(path),
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        size=status.st_size if kind is EntryKind.FILE else 0,
        target=escape_path(target),
        inside=inside,
    )


def walk_folder(
    root: bytes, on_error: Callable[[bytes, OSError], None] = lambda path, error: None
) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield every name below `root` with its status, parents first. Links are not followed. Names that vanish during
    the walk are left out.

    `on_error`: called with each folder that cannot be listed, and each name without a status, `b"."` for `root`.
    """

    def note(path: bytes, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            on_error(path or b".", error)

    folders = [b""]
    while folders:
        folder = folders.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, folder)))
        except OSError as error:
            note(folder, error)
            continue
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.lstat(os.path.join(root, path))
            except OSError as error:
                note(path, error)
                continue
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)


def put_back(tree: Iterable[TreeEntry], folder: Path, content_of: Callable[[TreeEntry], Path | None]) -> dict[str, str]:
    """Put the entries of a tree into a folder, with their modes, times and links. Files that are there already are
    replaced.

    Args:
        tree: the entries.
        folder: the folder, which is created.
        content_of: returns the file with an entry's content, which is moved; None if it does not exist.

    Returns:
        The entries that could not be put back, by path, each with the reason.

    Raises:
        OSError: if the disk is full or fails, because no further entry could be written.
    """
    root = os.fsencode(os.path.realpath(folder))
    os.makedirs(root, exist_ok=True)
    entries, problems = list(tree), dict[str, str]()
    ticking = _Changes(patient=len(entries) <= _MOST_TICKS)
    for entry in sorted(entries, key=lambda entry: (_rank(entry), entry.ctime_ns, entry.path)):
        try:
            ticking.follow(_put_entry(root, entry, content_of, foreign=False), entry)
        except (OSError, UnsafeArchive) as error:
            if isinstance(error, OSError) and error.errno in _DISK_TROUBLE:
                raise
            problems[entry.path] = str(error)
    for entry in sorted(entries, key=lambda entry: (entry.ctime_ns, entry.path)):
        if entry.kind is EntryKind.DIRECTORY and entry.path not in problems:  # last: new files change its time
            with suppress(OSError):
                place = os.path.join(root, unescape_path(entry.path))
                os.chmod(place, entry.mode)
                os.utime(place, ns=(entry.mtime_ns, entry.mtime_ns))
                ticking.follow(place, entry)
    return problems


def put_foreign_entry(entry: TreeEntry, folder: Path, content_of: Callable[[TreeEntry], Path | None]) -> None:
    """Put an entry of another machine's folder into a folder of this machine. Links that lead out of it are refused.

    Raises:
        UnsafeArchive: if the path, or the target of a link, would lead out of the folder.
        OSError: if it cannot be written.
    """
    _put_entry(os.fsencode(os.path.realpath(folder)), entry, content_of, foreign=True)


class _Changes:
    """Keeps the order of the times of the last change (`st_ctime`), because some programs use it to find their newest
    checkpoint. Nothing can set these times, and the kernel's clock for them is coarse (a jiffy, up to 10 ms)."""

    def __init__(self, *, patient: bool) -> None:
        self._patient = patient
        self._original = self._here = 0

    def follow(self, place: bytes, entry: TreeEntry) -> None:
        """Give a file a later time of change than the file before it, if it had one in the original folder."""
        later = entry.ctime_ns > self._original
        self._original = max(self._original, entry.ctime_ns)
        changed = os.lstat(place).st_ctime_ns
        for _ in range(_TICK_TRIES if later and self._patient and entry.mtime_ns else 0):
            if changed > self._here:
                break
            time.sleep(_TICK_SECONDS)
            os.utime(place, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)
            changed = os.lstat(place).st_ctime_ns
        self._here = max(self._here, changed)


def is_inside(path: bytes, target: bytes) -> bool:
    """Return whether a relative link target of the entry `path` stays inside the folder."""
    joined = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return not target.startswith(b"/") and joined != b".." and not joined.startswith(b"../")


def _rank(entry: TreeEntry) -> int:
    """Directories first, then files, then hard links, and symbolic links last, so that nothing is written through
    one."""
    if entry.kind is EntryKind.DIRECTORY:
        return 0
    if entry.kind is EntryKind.LINK:
        return 3
    return 2 if entry.same_as else 1


def _place_below(root: bytes, entry: TreeEntry) -> bytes:
    """Return the place of an entry.

    Raises:
        UnsafeArchive: if it is not below the folder, by its name or by a link among its parents.
    """
    path = unescape_path(entry.path)
    parts = path.split(b"/")
    if not path or path.startswith(b"/") or any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        raise UnsafeArchive(f"{entry.path!r} must not be written")
    place = os.path.join(root, path)
    parent = os.path.dirname(place)
    if not (os.path.realpath(parent) + b"/").startswith(root + b"/"):
        raise UnsafeArchive(f"{entry.path!r} must not be written: a link among its parents leads out of the folder")
    return place


def _put_entry(
    root: bytes, entry: TreeEntry, content_of: Callable[[TreeEntry], Path | None], *, foreign: bool
) -> bytes:
    place = _place_below(root, entry)
    if entry.kind is EntryKind.DIRECTORY:
        os.makedirs(place, exist_ok=True)
        return place
    os.makedirs(os.path.dirname(place), exist_ok=True)
    temporary = os.path.join(os.path.dirname(place), os.fsencode(f"{_TEMPORARY}-{os.getpid()}"))
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    if entry.kind is EntryKind.LINK:
        _make_link(root, temporary, entry, foreign=foreign)
        os.utime(temporary, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)
    elif entry.same_as:
        os.link(os.path.join(root, unescape_path(entry.same_as)), temporary, follow_symlinks=False)
    else:
        source = content_of(entry)
        if source is None:
            raise FileNotFoundError(f"the content of {entry.path!r} is missing")
        shutil.move(source, os.fsdecode(temporary))
        os.chmod(temporary, entry.mode & 0o777 if foreign else entry.mode)
        if entry.mtime_ns:
            os.utime(temporary, ns=(entry.mtime_ns, entry.mtime_ns))
    os.rename(temporary, place)
    with suppress(FileNotFoundError):  # rename does nothing between two names of the same file
        os.unlink(temporary)
    return place


def _make_link(root: bytes, temporary: bytes, entry: TreeEntry, *, foreign: bool) -> None:
    target, path = unescape_path(entry.target), unescape_path(entry.path)
    if foreign and entry.inside:  # an absolute target would name this machine's folder
        target = os.path.relpath(target, os.path.dirname(path) or b".")
    if foreign and not is_inside(path, target):
        raise UnsafeArchive(f"{entry.path!r} is a link that leads out of the folder, to {entry.target!r}")
    os.symlink(os.path.join(root, target) if entry.inside and not foreign else target, temporary)
