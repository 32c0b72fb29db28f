"""One bucket, opened by its URL: a backend with bounded retries, and the outcomes of conditional writes."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from everspot_core.clock import Clock
from xxhash import xxh3_128

from everspot_store.backend import Backend, Entry, Moved, Uploaded, Version, Versioned, WriteOutcome, WriteResult
from everspot_store.clock import SystemClock
from everspot_store.cloud import open_cloud
from everspot_store.errors import DigestMismatch, KeyTaken, StoreBusy, StoreError, StoreUnavailable
from everspot_store.folder import FolderBackend
from everspot_store.region import region_of_bucket, split_region

if TYPE_CHECKING:
    from obstore.store import GCSCredentialProvider, S3CredentialProvider

R = TypeVar("R")

ATTEMPTS = 4
BACKOFF = timedelta(milliseconds=200)  # before the second attempt; doubles
BUSY_BACKOFF = timedelta(seconds=1.1)
"""The wait before the second attempt after a 429; it doubles. Cloud Storage takes one write a second to the same key
(Cloud Storage quotas, "Maximum rate of writes to the same object name")."""


class Bucket:
    """Bytes under keys. Thread-safe.

    Reads and unconditional writes are tried up to `ATTEMPTS` times when the store is busy or does not answer. A
    conditional write is one attempt, because the right reaction to its outcome depends on what was written: see
    `Table`.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`.

    Attributes:
        moved_at: the monotonic time at which the last piece of a file or of memory was transferred.
    """

    def __init__(self, url: str, backend: Backend, clock: Clock) -> None:
        self.url = url
        self._backend = backend
        self._clock = clock
        self.moved_at = clock.monotonic()

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        credentials: "S3CredentialProvider | GCSCredentialProvider | None" = None,
    ) -> "Bucket":
        """The bucket at `s3://…?region=…`, `gs://…` or `file:///…`. Credentials come from the standard environment:
        variables or the instance's role. `credentials` replaces them, for callers that also read profiles. The region
        comes from the URL. If the URL has none, S3 is asked; the environment's region is never used.

        Raises:
            StoreError: if the URL has another form. StoreMissing: if the folder does not exist, or the bucket, if S3 is
                asked for its region.
        """
        clock = clock or SystemClock.from_environment()
        parts = urlsplit(url)
        if parts.scheme == "file" and not parts.netloc:
            return cls(url, FolderBackend(Path(unquote(parts.path)), clock), clock)
        if parts.scheme == "gs" and parts.netloc and not parts.query:
            return cls(url, open_cloud(url, credentials), clock)
        if parts.scheme == "s3" and parts.netloc:
            plain, region = split_region(url)
            region = region or _call_with_retries(clock, lambda: region_of_bucket(parts.netloc))
            return cls(plain, open_cloud(plain, credentials, region), clock)
        raise StoreError(f"{url!r} is no store: write s3://bucket?region=…, gs://bucket or file:///folder")

    def get(self, key: str) -> Versioned[bytes] | None:
        """The bytes under a key with their version, or None."""
        return self._retrying(lambda: self._backend.get(key))

    def list(self, prefix: str = "") -> list[Entry]:
        """All keys below `prefix` (empty, or whole segments ending in `/`), sorted."""
        if prefix and not prefix.endswith("/"):
            raise ValueError(f"a prefix ends in '/', {prefix!r} does not")
        return self._retrying(lambda: self._backend.list(prefix))

    def put(self, key: str, data: bytes) -> Version:
        """Write without a condition. Returns the new version."""
        return self._retrying(lambda: self._backend.put(key, data))

    def create(self, key: str, data: bytes) -> WriteResult:
        """One attempt to write a key that must not exist."""
        return self._backend.create(key, data)

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        """One attempt to write a key that must still have `version`."""
        return self._backend.replace(key, data, version)

    def delete(self, key: str) -> bool:
        """Remove a key, if it exists. Return False if an earlier attempt got no answer, because that attempt may still
        be carried out later."""
        tries = []

        def once() -> None:
            tries.append(key)
            self._backend.delete(key)

        self._retrying(once)
        return len(tries) == 1

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        """Stream a file to a key that does not exist yet. `moved` is called with the bytes that have arrived. If it
        raises, the upload ends, and nothing is left of it.

        Raises:
            KeyTaken: if it exists with other content, or with any content if the file is large. After a lost answer the
                content may be this process's own upload, so callers choose another key.
        """
        return self._retrying(lambda: self._backend.upload(key, path, self._timed(moved)))

    def download(self, key: str, path: Path, sha256: str | None = None) -> str:
        """Stream a key into a file. Returns its SHA-256.

        Raises:
            FileNotFoundError: if there is no such key.
            DigestMismatch: if the bytes do not have the digest `sha256`. The file is removed.
        """
        digest = self._retrying(lambda: self._backend.download(key, path, self._timed(None)))
        if digest is None:
            raise FileNotFoundError(f"{self.url}/{key}")
        if sha256 is not None and digest != sha256:
            path.unlink()
            raise DigestMismatch(key, sha256, digest)
        return digest

    def upload_view(self, key: str, view: memoryview, moved: Moved | None = None) -> None:
        """Write memory to a key that does not exist yet. See `upload`.

        Raises:
            KeyTaken: as `upload` does.
        """
        self._retrying(lambda: self._backend.upload_view(key, view, self._timed(moved)))

    def download_at(self, key: str, file: int, offset: int, xxh3: str) -> None:
        """Write the bytes of a key into an open file from `offset` on.

        Raises:
            FileNotFoundError: if there is no such key.
            DigestMismatch: if `xxh3` is not the XXH3-128 of the bytes.
        """

        def attempt() -> str | None:
            digest = xxh3_128()

            def consume(piece: memoryview) -> None:
                digest.update(piece)
                self._record_move(len(piece))

            size = self._backend.download_at(key, file, offset, consume)
            return None if size is None else digest.hexdigest()

        digest = self._retrying(attempt)
        if digest is None:
            raise FileNotFoundError(f"{self.url}/{key}")
        if digest != xxh3:
            raise DigestMismatch(key, xxh3, digest)

    def _timed(self, moved: Moved | None) -> Moved:
        """Return a callback that notes the time of each transferred piece, and calls `moved`."""

        def note(size: int) -> None:
            self._record_move(size)
            if moved is not None:
                moved(size)

        return note

    def _record_move(self, size: int) -> None:
        if size:
            self.moved_at = self._clock.monotonic()

    def download_existing(self, key: str, path: Path, refused: StoreError) -> str:
        """Download the object under a key that could not be created, and return its SHA-256.

        `refused`: the error of the upload, which this method raises if there is no object. Cloud Storage may answer
        "denied" where an object exists, to a caller that may create objects and not delete them (Cloud Storage
        documentation, "IAM permissions for XML requests").
        """
        try:
            return self.download(key, path)
        except FileNotFoundError:
            raise refused from None

    def ensure(self, key: str, data: bytes) -> None:
        """Make a write-once key hold `data`. Idempotent, for keys that have one writer or are named by their content.

        Raises:
            KeyTaken: if the key holds something else.
        """

        def attempt() -> None:
            outcome = self.create(key, data).outcome
            if outcome is WriteOutcome.DONE:
                return
            if outcome is WriteOutcome.BUSY:
                raise StoreBusy(f"{self.url}/{key} could not be created: too many writes")
            existing = self._backend.get(key)
            if existing is None:
                raise StoreUnavailable(f"{self.url}/{key} could not be created")
            if hashlib.sha256(existing.value).digest() != hashlib.sha256(data).digest():
                raise KeyTaken(key)

        self._retrying(attempt)

    def pause(self, attempt: int, *, busy: bool = False) -> None:
        """Wait before attempt number `attempt` (0, the first, does not wait). `busy`: whether the attempt before got a
        429."""
        if attempt > 0:
            self._clock.sleep(_backoff(attempt, busy=busy))

    def _retrying(self, call: Callable[[], R]) -> R:
        return _call_with_retries(self._clock, call)


def _backoff(attempt: int, *, busy: bool) -> timedelta:
    """The wait before attempt number `attempt`; the first is 0. `busy`: whether the attempt before got a 429."""
    return (BUSY_BACKOFF if busy else BACKOFF) * (1 << (attempt - 1))


def _call_with_retries(clock: Clock, call: Callable[[], R]) -> R:
    for attempt in range(ATTEMPTS - 1):
        try:
            return call()
        except StoreUnavailable as error:
            clock.sleep(_backoff(attempt + 1, busy=isinstance(error, StoreBusy)))
    return call()
