"""The interface of a storage backend: one attempt per call, without retries and without policy."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Version:
    """The version of a key, which a conditional write names.

    `etag`: differs between versions of a key. `generation`: Cloud Storage's number of the version, which its
    conditional writes need; empty on other stores, and if the ETag comes from a listing.
    """

    etag: str
    generation: str = field(default="", compare=False)


@dataclass(frozen=True)
class Versioned(Generic[T]):
    """A value with its version. The next conditional write of the value must name that version."""

    value: T
    version: Version

    @property
    def etag(self) -> str:
        """The ETag of the version."""
        return self.version.etag


class WriteOutcome(Enum):
    """The five answers of one conditional write."""

    DONE = "done"
    """Written."""
    LOST = "lost"
    """412: the key does not have the expected version. This attempt wrote nothing."""
    CONFLICT = "conflict"
    """409: another write to the key was under way. Nothing was written; the same attempt may be made again."""
    BUSY = "busy"
    """429: the key, or the bucket, is written too often. Nothing was written; the same attempt may be made again after
    a second or more."""
    UNKNOWN = "unknown"
    """The answer was lost. The write may have been carried out, or may be carried out later. Only a read shows
    which."""


@dataclass(frozen=True)
class WriteResult:
    """The outcome of one conditional write, with the new version if it was done."""

    outcome: WriteOutcome
    version: Version | None = None


@dataclass(frozen=True)
class Entry:
    """One key of a listing. `size`: in bytes. `modified`: by the store's own clock."""

    key: str
    etag: str
    size: int
    modified: datetime


@dataclass(frozen=True)
class Uploaded:
    """A finished upload. `size`: in bytes. `sha256`: computed while the bytes were streamed."""

    key: str
    size: int
    sha256: str


Moved = Callable[[int], None]
"""A function that gets the number of bytes that have arrived since the last call. An exception ends the upload."""

Consume = Callable[[memoryview], None]
"""A function that gets the bytes of a download, piece by piece."""

Guard = Callable[[], bool]
"""A function that returns whether the owner may still write."""


class Backend(Protocol):
    """Raw access to one bucket or folder.

    Every method raises `StoreUnavailable` (`StoreBusy` where the store asks for fewer requests), `StoreDenied` or
    `StoreMissing`; none of them retries. Conditional writes answer `BUSY` or `UNKNOWN` instead of raising
    `StoreUnavailable`.
    """

    def get(self, key: str) -> Versioned[bytes] | None:
        """The bytes under a key, or None."""
        ...

    def list(self, prefix: str) -> list[Entry]:
        """All keys below `prefix`, which is empty or a whole path segment ending in `/`, sorted."""
        ...

    def put(self, key: str, data: bytes) -> Version:
        """Write without a condition. Returns the new version."""
        ...

    def create(self, key: str, data: bytes) -> WriteResult:
        """Write if the key does not exist."""
        ...

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        """Write if the key still has this version."""
        ...

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if it does not exist."""
        ...

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        """Stream a file to a key that does not exist. Raises KeyTaken if it does. `moved` is called at least once for
        each piece of a large file."""
        ...

    def download(self, key: str, path: Path, moved: Moved | None = None) -> str | None:
        """Stream a key into a file and return its SHA-256, or None if there is no such key. `moved`: see `upload`."""
        ...

    def upload_view(self, key: str, view: memoryview, moved: Moved | None = None) -> None:
        """Write memory to a key that does not exist, without a copy on disk. Raises KeyTaken if it does. `moved`: see
        `upload`."""
        ...

    def download_at(self, key: str, file: int, offset: int, consume: Consume) -> int | None:
        """Write the bytes of a key into an open file from `offset` on. Returns their number, or None if there is no
        such key. `consume` is called with each piece, in order."""
        ...
