"""A job's outputs: the files of its folder `outputs/`, kept under the epoch that wrote them.

The key of a file is `jobs/{job}/outputs/{epoch:06d}/{path}` if its path is plain. Otherwise it is
`jobs/{job}/outputs/{epoch:06d}/~/{digest of the path}`: for dot files, spaces, and all other names that Linux allows
and a bucket does not, and for a file that changed after an upload. `~/tree-{n}.json` has the names, modes, times and
links of all files; the highest n counts. An owner writes under its
own epoch only, so an owner that was presumed dead cannot overwrite the outputs of its successor. If several epochs
wrote a path, the highest counts.
"""

# pathlib takes no bytes
# ruff: noqa: PTH118

import hashlib
import logging
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from everspot_store.bucket import Bucket
from everspot_store.errors import KeyTaken, StoreDenied, StoreError, StoreMissing
from everspot_store.file_tree import (
    EntryKind,
    FileTree,
    TreeEntry,
    describe_entry,
    escape_path,
    is_inside,
    put_foreign_entry,
    unescape_path,
    walk_folder,
)

_PLAIN = re.compile(r"(?!~)[A-Za-z0-9_~-][A-Za-z0-9._~-]*(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
_LONGEST_KEY = 600  # characters of a plain path; S3 allows keys of 1,024 bytes with the prefix
_LONGEST_NAME = 200  # characters of a plain name; a file system takes 255 bytes
_SPECIAL = "~/"
_TREES = f"{_SPECIAL}tree-"
_TREE_TRIES = 100
NEITHER = "it is neither a file, a folder nor a symbolic link"
LEADS_OUT = "it is a link that leads out of the folder"
NO_TIME = "no time was left"
NO_ANSWER = "the store did not answer"
DENIED = "the store refuses it: a permission is missing"
NO_BUCKET = "the bucket does not exist"
GIVEN_UP = "the store took none of the files before it"
_MOST_FAILURES = 3
"""Uploading stops after this many consecutive failures. Each file has had the store's own retries."""
_SEQUENTIAL_FILES, _PARALLEL_FILES = 8, 8
"""The files that are uploaded one after the other, which shows whether the store takes any; then as many at a time."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Output:
    """One kept file or symbolic link.

    Attributes:
        path: below the folder, with `/`, escaped (`escape_path`).
        epoch: of the attempt that wrote it.
        size: in bytes.
        key: of its content; empty for a link.
        entry: its mode, times and links.
    """

    path: str
    epoch: int
    size: int
    key: str
    entry: TreeEntry


class Outputs:
    """The outputs of one job.

    All methods but `keep` raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`.
    """

    def __init__(self, data: Bucket, job_id: str) -> None:
        self._data = data
        self._prefix = f"jobs/{job_id}/outputs/"

    def keep(
        self,
        epoch: int,
        folder: Path,
        go_on: Callable[[], bool],
        on_progress: Callable[[], None] = lambda: None,
    ) -> tuple[int, dict[str, str]]:
        """Upload the folder's files, the smallest first, while `go_on` returns True. A missing folder counts as empty.

        Several files are uploaded at a time, and several threads call both functions. `on_progress` is called whenever
        bytes have arrived.

        After a failed upload the next file is tried, until `_MOST_FAILURES` have failed in a row. The store's errors
        are not raised, because the caller has to know which files were uploaded.

        Returns:
            The number of uploaded files and links, and for each of the others the reason, by (escaped) path.
        """
        root = os.fsencode(folder.absolute())
        entries, skipped = _describe_entries(root) if folder.is_dir() else ([], {})
        if not entries:
            return 0, skipped
        place = f"{self._prefix}{epoch:06d}/"
        try:
            present = {entry.key for entry in self._data.list(place)}
            described = self._read_trees(f"{epoch:06d}", {key.removeprefix(place): 0 for key in present})
            entries = _rename_changed(entries, described, {key.removeprefix(place) for key in present})
            self._write_tree(place, FileTree(entries=entries), present)
        except StoreError as error:
            _log.warning("no output of epoch %d is kept: %s", epoch, error)
            return 0, skipped | {entry.path: _store_failure(error) for entry in entries}
        files = [entry for entry in entries if entry.kind is EntryKind.FILE and not entry.same_as]
        skipped |= self._upload_files(
            place, root, [entry for entry in files if place + entry.content not in present], go_on, on_progress
        )
        skipped |= {entry.path: skipped[entry.same_as] for entry in entries if entry.same_as in skipped}
        return sum(entry.path not in skipped for entry in entries), skipped

    def _upload_files(
        self,
        place: str,
        root: bytes,
        files: list[TreeEntry],
        go_on: Callable[[], bool],
        on_progress: Callable[[], None],
    ) -> dict[str, str]:
        """Upload files. Return the reason for each file that was not uploaded, by path."""
        failures = 0
        lock = threading.Lock()

        def upload(entry: TreeEntry) -> str | None:
            nonlocal failures
            if failures >= _MOST_FAILURES:
                return GIVEN_UP
            if not go_on():
                return NO_TIME
            path = Path(os.fsdecode(os.path.join(root, unescape_path(entry.path))))
            try:
                reason = self._upload(place + entry.content, path, on_progress)
            except StoreError as error:
                _log.warning("output %s is not kept: %s", entry.path, error)
                with lock:
                    failures += 1
                return _store_failure(error)
            with lock:
                failures = 0
            return reason

        files = sorted(files, key=lambda entry: (entry.size, entry.path))
        reasons = [upload(entry) for entry in files[:_SEQUENTIAL_FILES]]
        with ThreadPoolExecutor(_PARALLEL_FILES, "everspot-outputs") as pool:
            reasons += pool.map(upload, files[_SEQUENTIAL_FILES:])
        return {entry.path: reason for entry, reason in zip(files, reasons, strict=True) if reason is not None}

    def put(self, epoch: int, path: str, data: bytes) -> None:
        """Write one output before `keep` uploads the others of its attempt. `path`: a plain path. An existing output of
        that path is not changed."""
        with suppress(KeyTaken):
            self._data.upload_view(f"{self._prefix}{epoch:06d}/{path}", memoryview(data))

    def list(self, under: str = "") -> list[Output]:
        """Return the newest output of each path at or below `under` (plain or escaped), sorted. Links come last, so
        that no file is written through a link."""
        epochs = self._read_epochs()
        newest: dict[str, Output] = {}
        for epoch in sorted(epochs, key=int):
            sizes = epochs[epoch]
            described = self._read_trees(epoch, sizes)
            newest |= {output.path: output for output in self._list_epoch(epoch, sizes, described)}
        names = {name.rstrip("/") for name in (under, escape_path(os.fsencode(under)))}
        chosen = {
            path: output
            for path, output in newest.items()
            if not under or any(path == name or path.startswith(f"{name}/") for name in names)
        }
        outputs = [_alone_if(chosen, output) for output in chosen.values()]
        return sorted(outputs, key=lambda output: (output.entry.kind is EntryKind.LINK, output.path))

    def is_complete(self) -> bool:
        """Return whether there are outputs and the content of each one's newest version exists."""
        newest: dict[str, bool] = {}
        for epoch, sizes in sorted(self._read_epochs().items(), key=lambda item: int(item[0])):
            described = self._read_trees(epoch, sizes)
            present = {output.path for output in self._list_epoch(epoch, sizes, described)}
            newest |= {entry.path: entry.path in present for entry in described}
            newest |= dict.fromkeys(present, True)
        return bool(newest) and all(newest.values())

    def fetch(self, output: Output, folder: Path) -> Path:
        """Download one output to its path below `folder`, with mode, time and links. Returns the local path.

        Raises:
            UnsafeArchive: if the path, or the target of a link, would lead out of the folder.
            FileNotFoundError: if its content is gone.
            OSError: if it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".everspot-pull-", dir=folder) as scratch:

            def download(entry: TreeEntry) -> Path:
                content = Path(scratch, "content")
                self._data.download(output.key, content)
                return content

            put_foreign_entry(output.entry, folder, download)
        return Path(os.fsdecode(os.path.join(os.fsencode(folder), unescape_path(output.path))))

    def key_for(self, epoch: int, output: Output) -> str:
        """Return the key in this store for the content of another store's output."""
        return f"{self._prefix}{epoch:06d}/{_content_name(unescape_path(output.path))}"

    def describe(self, epoch: int, outputs: "Iterable[Output]") -> None:
        """Write the names, modes, times and links of outputs whose contents were copied here (`key_for`)."""
        entries = [
            output.entry.model_copy(update={"content": _content_name(unescape_path(output.path)), "same_as": ""})
            for output in outputs
        ]
        if entries:
            place = f"{self._prefix}{epoch:06d}/"
            self._write_tree(place, FileTree(entries=entries), {stored.key for stored in self._data.list(place)})

    def _read_epochs(self) -> dict[str, dict[str, int]]:
        """Return the sizes of all objects by epoch, and by the part of their keys behind the epoch."""
        epochs: dict[str, dict[str, int]] = {}
        for stored in self._data.list(self._prefix):
            epoch, _, content = stored.key.removeprefix(self._prefix).partition("/")
            if epoch.isdigit() and content:
                epochs.setdefault(epoch, {})[content] = stored.size
        return epochs

    def _read_trees(self, epoch: str, sizes: dict[str, int]) -> tuple[TreeEntry, ...]:
        """Return the entries of the trees of one epoch."""
        entries: tuple[TreeEntry, ...] = ()
        for name in sorted(name for name in sizes if name.startswith(_TREES)):
            stored = self._data.get(f"{self._prefix}{epoch}/{name}")
            with suppress(ValidationError):
                entries += tuple(FileTree.read(stored.value).entries) if stored is not None else ()
        return entries

    def _list_epoch(self, epoch: str, sizes: dict[str, int], described: tuple[TreeEntry, ...]) -> Iterator[Output]:
        """Yield the outputs of one epoch. `sizes`: of its objects, by the part of their keys behind the epoch.
        `described`: the entries of its trees."""
        place = f"{self._prefix}{epoch}/"
        entries = {name: TreeEntry(path=escape_path(name.encode()), content=name) for name in sizes if name[:1] != "~"}
        entries = {entry.path: entry for entry in entries.values()}
        entries |= {entry.path: entry for entry in described}
        for entry in entries.values():
            if entry.kind is EntryKind.LINK:
                yield Output(entry.path, int(epoch), 0, "", entry)
            elif entry.kind is EntryKind.FILE and entry.content in sizes:
                yield Output(entry.path, int(epoch), sizes[entry.content], place + entry.content, entry)

    def _write_tree(self, place: str, tree: FileTree, present: set[str]) -> None:
        first = sum(1 for key in present if key.startswith(place + _TREES))
        for number in range(first, first + _TREE_TRIES):
            try:
                self._data.ensure(f"{place}{_TREES}{number:03d}.json", tree.to_json())
            except KeyTaken:
                continue
            return

    def _upload(self, key: str, path: Path, on_progress: Callable[[], None]) -> str | None:
        """Upload a file. Return None, or the reason for a failure."""
        try:
            self._data.upload(key, path, lambda _: on_progress())
        except KeyTaken:  # this process's own upload, whose answer was lost
            return None
        except (OSError, ValueError) as error:  # removed meanwhile, unreadable, or refused by the store's client
            return str(getattr(error, "strerror", None) or error)
        return None


def _store_failure(error: StoreError) -> str:
    """Return why the store did not take a file, without the file's name."""
    if isinstance(error, StoreDenied):
        return DENIED
    return NO_BUCKET if isinstance(error, StoreMissing) else NO_ANSWER


def _describe_entries(root: bytes) -> tuple[list[TreeEntry], dict[str, str]]:
    """Return the files and links below a folder, and the reason for each entry that cannot be uploaded, by path."""
    entries, skipped, first_names = list[TreeEntry](), dict[str, str](), dict[tuple[int, int], TreeEntry]()

    def skip(path: bytes, error: OSError) -> None:
        skipped[escape_path(path)] = error.strerror or str(error)

    for path, status in sorted(walk_folder(root, skip)):
        if stat.S_ISDIR(status.st_mode):
            continue
        try:
            entry = describe_entry(root, path, status)
        except OSError as error:
            skip(path, error)
            continue
        if entry is None:
            skipped[escape_path(path)] = NEITHER
            continue
        if entry.kind is EntryKind.LINK and not entry.inside and not is_inside(path, unescape_path(entry.target)):
            skipped[entry.path] = LEADS_OUT
            continue
        first = first_names.setdefault((status.st_dev, status.st_ino), entry) if status.st_nlink > 1 else entry
        if entry.kind is EntryKind.FILE and first is not entry:
            content = _content_name(unescape_path(first.path))
            entries.append(entry.model_copy(update={"same_as": first.path, "content": content}))
        else:
            entries.append(entry.model_copy(update={"content": _content_name(path)}))
    return entries, skipped


def _rename_changed(entries: list[TreeEntry], described: Iterable[TreeEntry], present: set[str]) -> list[TreeEntry]:
    """Return the entries with other content names for files that have changed since an earlier process uploaded them:
    an agent may start again under the same epoch, and an object is written once.

    Args:
        entries: of the folder as it is now.
        described: the entries of the trees of this epoch, in order.
        present: the content names of this epoch.
    """
    earlier_entries = {entry.path: entry for entry in described}
    contents: dict[str, str] = {}
    for entry in entries:
        earlier = earlier_entries.get(entry.path)
        if entry.kind is not EntryKind.FILE or entry.same_as or entry.content not in present:
            continue
        if earlier is not None and _version(earlier) == _version(entry):
            contents[entry.path] = earlier.content
        else:
            name = unescape_path(entry.path) + repr(_version(entry)).encode()
            contents[entry.path] = f"{_SPECIAL}{hashlib.sha256(name).hexdigest()}"
    return [
        entry.model_copy(update={"content": contents.get(entry.same_as or entry.path, entry.content)})
        for entry in entries
    ]


def _version(entry: TreeEntry) -> tuple[int, int, int]:
    """Return a value that changes with a file's content."""
    return entry.size, entry.mtime_ns, entry.ctime_ns


def _content_name(path: bytes) -> str:
    """Return the part of the key behind the epoch: a plain path itself, otherwise a digest of the path."""
    text = path.decode("utf-8", "replace")
    plain = _PLAIN.fullmatch(text) and len(text) <= _LONGEST_KEY
    if plain and all(len(name) <= _LONGEST_NAME for name in text.split("/")):
        return text
    return f"{_SPECIAL}{hashlib.sha256(path).hexdigest()}"


def _alone_if(chosen: dict[str, Output], output: Output) -> Output:
    """Return the output as an independent file, unless the file that it is hard-linked to is among `chosen`."""
    same = output.entry.same_as
    if not same or (same in chosen and chosen[same].key == output.key and same < output.path):
        return output
    return replace(output, entry=output.entry.model_copy(update={"same_as": ""}))
