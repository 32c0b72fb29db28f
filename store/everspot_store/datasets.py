"""Datasets: folders of files in the data bucket. Each file is stored once under the digest of its content.

`datasets/{name}/{digest}.json` lists one version of a dataset: path, size and SHA-256 of each file. The version's
digest is that of the list, so the same files are always the same version. The files themselves are under
`datasets/_files/{sha256}`, shared by all versions of all datasets. So a new version costs only the changed files.
"""

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.counting import counted
from everspot_core.documents import Document, Stored, Utc
from everspot_core.federation.data_locality import Inputs, measure_files
from pydantic import Field

from everspot_store.bucket import Bucket
from everspot_store.code import hash_file, refuse_unlisted
from everspot_store.errors import DatasetMissing, DigestMismatch, KeyTaken, StoreDenied, StoreUnavailable, UnsafeArchive
from everspot_store.file_tree import escape_path, unescape_path
from everspot_store.gc_announcements import VOID, GcAnnouncements
from everspot_store.table import Table

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_FILES = "datasets/_files/"
_PARALLEL = 4
_LOOKS, _LOOK_EVERY = 60, timedelta(seconds=2)  # waits for a collector that is about to remove files of a new version
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROUNDS = 4  # the most rounds of listing and uploading until all files exist at the same time


class DatasetFile(Stored):
    """One file of a dataset.

    Attributes:
        path: below the dataset's folder, with `/`.
        size: in bytes.
        sha256: of its content.
        escaped: whether the path is written by `escape_path`, because its bytes are no UTF-8.
    """

    path: str
    size: int
    sha256: str
    escaped: bool = False

    @property
    def name(self) -> str:
        """The path as the file system takes it."""
        return os.fsdecode(unescape_path(self.path)) if self.escaped else self.path

    @property
    def key(self) -> str:
        """The key of its content in the data bucket."""
        return f"{_FILES}{self.sha256}"


class Dataset(Document):
    """One version of a dataset."""

    name: str
    digest: str = Field(description="SHA-256 of the list of its files.")
    created_at: Utc
    files: list[DatasetFile]
    region: str | None = Field(
        default=None,
        description="Of the cluster in whose bucket this copy lies; None: not recorded.",
    )
    visit: str | None = Field(
        default=None,
        description="The visit for which it was copied from another cluster. Jobs of this one get it only by digest.",
    )

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of its files, by digest."""
        return {file.sha256: file.size for file in self.files}

    @property
    def id(self) -> str:
        """The name of exactly this version in a job: `name@digest`."""
        return f"{self.name}@{self.digest}"


class Datasets:
    """The datasets of a cluster. Thread-safe.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`.
    """

    def __init__(self, data: Bucket, sweeps: GcAnnouncements, clock: Clock) -> None:
        self._data = data
        self._clock = clock
        self._table = Table(data, "datasets", Dataset)
        self._sweeps = sweeps

    def put(
        self,
        name: str,
        folder: Path,
        *,
        region: str | None = None,
        on_file: Callable[[DatasetFile, bool], None] | None = None,
    ) -> Dataset:
        """Upload a folder as a version of the dataset `name`.

        Files that the bucket has already are not sent again. The list that makes the version is written when all files
        exist at the same time. A collector may remove files that no version names yet during a long upload; they are
        then sent again. Afterwards the version is the newest one, also if it was there before.

        Args:
            name: of the dataset.
            folder: with its files.
            region: of this cluster.
            on_file: is called for each file, from several threads, with whether the file was sent.

        Raises:
            ValueError: if the name is wrong: lower-case letters, digits, `.`, `_` and `-`, at most 63.
            NotADirectoryError: if `folder` is no folder, or has no file.
            UnsafeArchive: if a link leads to a folder or out of the folder, an entry is neither file nor folder, or a
                folder cannot be listed.
            DigestMismatch: if a file changed while it was read.
            StoreUnavailable: also if files disappear as fast as they are sent.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a dataset: 1 to 63 of a-z, 0-9, '.', '_' and '-', no sign first")
        root = folder.resolve()
        files = [_described(root, path) for path in sorted(_walk_files(root))] if root.is_dir() else []
        if not files:
            raise NotADirectoryError(f"{folder} is no folder with files in it")
        unique = list({file.sha256: file for file in files}.values())
        present = self._present_keys()

        def upload(file: DatasetFile) -> None:
            self._send(file, root / file.name)

        def send(file: DatasetFile) -> None:
            if file.key not in present:
                upload(file)
            if on_file is not None:
                on_file(file, file.key not in present)

        _each(send, unique)
        self._complete(upload, unique)
        digest, versions = _digest(files), self.versions(name)
        if versions and versions[0].digest == digest and versions[0].visit is None:
            dataset = self.find(name, digest)
        else:
            dataset = Dataset(
                name=name, digest=digest, created_at=self._time_after(versions), files=files, region=region or None
            )
            if self._table.create(f"{name}/{digest}", dataset) is None:
                self.find(name, digest)  # refuse a list that somebody overwrote
                self._table.put(f"{name}/{digest}", dataset)
        self._secure(upload, unique, dataset)  # send files again that were removed just before the version named them
        return dataset

    def _time_after(self, versions: Sequence[Dataset]) -> datetime:
        """Return the time of a new version. It is later than those of all other versions of its name, whose uploaders
        may have had clocks that were ahead."""
        latest = [version.created_at + timedelta(microseconds=1) for version in versions if version.visit is None]
        return max([self._clock.now(), *latest])

    def take_over(
        self,
        dataset: Dataset,
        other: "Datasets",
        *,
        visit: str,
        region: str | None = None,
        on_sent: Callable[[int], None] = lambda size: None,
    ) -> int:
        """Copy a version of a dataset from another cluster, file by file. A copy that was cut off is continued by the
        next call. Return the bytes that were sent for the visit, by all calls together.

        Args:
            dataset: the version.
            other: the datasets of its cluster.
            visit: the id of the job for which it is copied.
            region: of this cluster.
            on_sent: is called with the size of each file that this call has sent, from several threads.

        Raises:
            FileNotFoundError: if the content of a file is gone there.
            DigestMismatch: if the bytes of a file are others.
            StoreUnavailable: also if files disappear as fast as they are sent.
        """
        unique = list({file.sha256: file for file in dataset.files}.values())
        present = self._present_keys()
        missing = [file for file in unique if file.key not in present]
        versions = [version for version in self.versions() if version.visit != visit]
        earlier = {file.sha256 for version in versions for file in version.files}

        def send(file: DatasetFile) -> None:
            with tempfile.TemporaryDirectory(prefix="everspot-dataset-") as scratch:
                other._data.download(file.key, Path(scratch, "file"), file.sha256)
                self._send(file, Path(scratch, "file"))
            on_sent(file.size)

        _each(send, missing)
        self._complete(send, unique)
        if self._table.get(f"{dataset.name}/{dataset.digest}") is None:
            copy = dataset.model_copy(update={"region": region or None, "visit": visit})
            self._table.create(f"{dataset.name}/{dataset.digest}", copy)
        self._secure(send, unique, dataset)
        return sum(file.size for file in unique if file.sha256 not in earlier)

    def scan_with_unreadable(self) -> tuple[list[Dataset], list[str]]:
        """Return all versions of all datasets, and the keys of documents that cannot be read."""
        documents, unreadable = self._table.scan_with_unreadable(_is_version)
        return [doc.value for doc in documents.values()], unreadable

    def versions(self, name: str = "") -> list[Dataset]:
        """Return all versions of the dataset `name`, or of all datasets; the newest of each name first, and copies for
        jobs of other clusters last."""
        under = f"{name}/" if name else ""
        documents = self._table.scan(under, _is_version)
        return sorted(
            (doc.value for doc in documents.values()),
            key=lambda d: (d.name, d.visit is not None, -_microseconds(d.created_at)),
        )

    def find_reference(self, reference: str) -> Dataset:
        """Return the version that a job names, as `name@digest`, or as `name` for the newest one. Raises as `find`."""
        name, _, digest = reference.partition("@")
        return self.find(name, digest or None)

    def find(self, name: str, digest: str | None = None) -> Dataset:
        """Return a version by its digest or the beginning of it; without a digest the newest version.

        Raises:
            DatasetMissing: if no version matches, or several match the beginning.
            DigestMismatch: if its list of files does not match its digest, because somebody overwrote it.
        """
        exactly = digest is not None and len(digest) == hashlib.sha256().digest_size * 2
        if exactly:
            exact = self._table.get(f"{name}/{digest}")
            versions = [exact.value] if exact is not None else []
        else:
            versions = [
                version
                for version in self.versions(name)
                if (version.visit is None if digest is None else version.digest.startswith(digest))
            ]
        if not versions:
            raise DatasetMissing(name, digest, "does not exist")
        if digest is not None and len(versions) > 1:
            raise DatasetMissing(name, digest, f"is the beginning of {len(versions)} versions")
        dataset = versions[0]
        actual, expected = _digest(dataset.files), digest if exactly else dataset.digest
        if dataset.name != name or (dataset.digest, actual) != (expected, expected):
            raise DigestMismatch(f"the list of dataset {name}@{expected}", str(expected), actual)
        return dataset

    def present_files(self, dataset: Dataset) -> set[str]:
        """Return the digests of those files of a dataset that this cluster has, by the lists of its versions of the
        same name. `take_over` sends the others. It reads one document if exactly this version is here."""
        digests = {file.sha256 for file in dataset.files}
        if self._table.get(f"{dataset.name}/{dataset.digest}") is not None:
            return digests
        return digests & {file.sha256 for version in self.versions(dataset.name) for file in version.files}

    def measure(self, datasets: Sequence[Dataset]) -> Inputs:
        """Return the bytes of some datasets, and how many of them this cluster has."""
        present = set[str]().union(*(self.present_files(dataset) for dataset in datasets))
        return measure_files([dataset.sizes for dataset in datasets], present)

    def fetch(self, dataset: Dataset, folder: Path) -> None:
        """Fetch the files that are not in `folder` yet, and check every digest. The folder is created; a fetch that was
        cut off is continued. `DatasetCache` keeps one copy per machine.

        Raises:
            FileNotFoundError: if a file's content is gone from the bucket.
            DigestMismatch: if the bytes of a file are others.
            UnsafeArchive: if a path would lead out of `folder`.
        """
        root = folder.resolve()
        for file in dataset.files:
            if not (root / file.name).resolve().is_relative_to(root):
                raise UnsafeArchive(f"dataset {dataset.id}: {file.path!r} must not be written")
        _each(lambda file: self._receive(file, root / file.name), dataset.files)

    def download(self, sha256: str, path: Path) -> None:
        """Download one file by the digest of its content, and check it.

        Raises:
            FileNotFoundError: if the content is gone from the bucket.
            DigestMismatch: if the bytes are others.
        """
        self._data.download(f"{_FILES}{sha256}", path, sha256)

    def _complete(self, send: Callable[[DatasetFile], None], files: Sequence[DatasetFile]) -> None:
        """Send missing files until a listing shows all of them."""
        for _ in range(_ROUNDS):
            present = self._present_keys()
            missing = [file for file in files if file.key not in present]
            if not missing:
                return
            _each(send, missing)
        raise StoreUnavailable(f"files below {self._data.url}/{_FILES} vanish as fast as they are sent")

    def _secure(self, send: Callable[[DatasetFile], None], files: Sequence[DatasetFile], dataset: Dataset) -> None:
        """Wait until no file of the written version is announced for removal, and send files again that were
        removed."""
        keys, now = {file.key for file in files}, None
        if keys & self._sweeps.announced_keys():
            now = self._store_time(dataset)
        for _ in range(_LOOKS):
            if not keys & self._sweeps.announced_keys(now):
                self._complete(send, files)
                return
            self._clock.sleep(_LOOK_EVERY)
        raise StoreUnavailable(
            "some of its files are marked for removal as garbage; if the removal was cut off, put the dataset again"
            f" after {counted(int(VOID / timedelta(hours=1)), 'hour')}"
        )

    def _store_time(self, dataset: Dataset) -> datetime:
        """Return the store's time, from writing the same version once more."""
        id = f"{dataset.name}/{dataset.digest}"
        current = self._table.get(id)
        self._table.put(id, current.value if current is not None else dataset)
        return next(e.modified for e in self._data.list(f"datasets/{dataset.name}/") if e.key == self._table.key(id))

    def _present_keys(self) -> set[str]:
        return {entry.key for entry in self._data.list(_FILES)}

    def _send(self, file: DatasetFile, path: Path) -> None:
        try:
            stored = self._data.upload(file.key, path)
        except KeyTaken:  # uploaded meanwhile, or an answer was lost; the key is the digest, so the content is right
            return
        except StoreDenied:  # Cloud Storage also answers so if the object exists and may not be replaced
            if file.key in self._present_keys():
                return
            raise
        if stored.sha256 != file.sha256:
            with suppress(StoreDenied):
                self._data.delete(file.key)
            raise DigestMismatch(str(path), file.sha256, stored.sha256)

    def _receive(self, file: DatasetFile, path: Path) -> None:
        if path.is_file() and path.stat().st_size == file.size and hash_file(path) == file.sha256:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._data.download(file.key, path, file.sha256)


def _described(root: Path, path: Path) -> DatasetFile:
    name = path.relative_to(root).as_posix()
    escaped = not _is_text(name)
    shown = escape_path(os.fsencode(name)) if escaped else name
    return DatasetFile(path=shown, size=path.stat().st_size, sha256=hash_file(path), escaped=escaped)


def _is_text(name: str) -> bool:
    """Return whether a name's bytes are UTF-8. Other bytes are surrogates in Python, which JSON refuses."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _each(handle: Callable[[DatasetFile], None], files: Sequence[DatasetFile]) -> None:
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="everspot-dataset") as pool:
        list(pool.map(handle, files))


def _is_version(id: str) -> bool:
    return not id.startswith("_")


def _digest(files: list[DatasetFile]) -> str:
    listed = [[file.path, file.size, file.sha256] for file in files]
    return hashlib.sha256(json.dumps(listed, separators=(",", ":")).encode()).hexdigest()


def _walk_files(root: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(root, onerror=partial(refuse_unlisted, root)):
        for path in (Path(parent, name) for name in (*folders, *names)):
            inside = path.relative_to(root)
            if path.is_symlink() and not (path.is_file() and path.resolve().is_relative_to(root)):
                raise UnsafeArchive(f"{inside} is a link to a folder, to nothing, or out of the dataset")
            if not path.is_dir() and not path.is_file():
                raise UnsafeArchive(f"{inside} is neither a file nor a folder")
        yield from (Path(parent, name) for name in names)
