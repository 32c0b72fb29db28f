"""A bucket in S3 or Google Cloud Storage, through obstore.

obstore's own retries stay off: after a lost answer they would send a conditional write again, and report the 412 that
our own first attempt caused. `Bucket` and `Table` retry instead, and know what they wrote.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError
from obstore.store import GCSStore, S3Store

from everspot_store.backend import Consume, Entry, Moved, Uploaded, Version, Versioned, WriteOutcome, WriteResult
from everspot_store.certificates import read_certificates
from everspot_store.cloud_errors import Refused, short, translated
from everspot_store.copying import write_at
from everspot_store.errors import KeyTaken, StoreBusy, StoreError, StoreMissing, StoreUnavailable
from everspot_store.region import endpoint, regional_endpoint

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSCredentialProvider, RetryConfig, S3CredentialProvider

Piece = TypeVar("Piece", bytes, memoryview)

REQUEST_TIMEOUT = timedelta(seconds=10)  # documents are small; a lease must learn quickly that it cannot renew
TRANSFER_TIMEOUT = timedelta(minutes=2)  # of 16 MiB, not of a whole file: a line of 1.1 Mbit/s is enough
CONNECT_TIMEOUT = timedelta(seconds=5)
_LARGE_DOCUMENT = 4 * 1024 * 1024
"""Larger documents, such as the list of a dataset's files, take longer than `REQUEST_TIMEOUT` on a slow line."""
_PIECE = 16 * 1024 * 1024
_PIECES_IN_FLIGHT = 6
_MOST_PIECES = 10_000
"""Parts of a multipart upload (Amazon S3 User Guide, "Amazon S3 multipart upload limits"; Cloud Storage, "XML API
multipart uploads", has the same)."""
_LARGEST_OBJECT = 5 * 2**40
"""Bytes of one object (the same pages)."""
_UPLOAD_MEMORY = 1 << 30
"""Bytes that the parts of one upload may take in memory."""
_TRANSFER_RETRIES = 4
GCS_ENDPOINT = "GOOGLE_BASE_URL"
"""The variable with the endpoint of Cloud Storage, if it is not Google's."""


def open_cloud(
    url: str, credentials: "S3CredentialProvider | GCSCredentialProvider | None" = None, region: str = ""
) -> "CloudBackend":
    """Return raw access to `s3://bucket[/prefix]` or `gs://bucket[/prefix]`, with the settings of the standard
    environment. The region is the exception: a caller of S3 has to name it.

    `credentials` replaces the environment's credentials, for callers that also read profiles.

    Raises:
        StoreError: if the URL or the environment's settings cannot be used.
    """
    options = dict[str, Any]()
    plain_http = False
    if url.startswith("s3://"):
        options["config"] = _s3_config(endpoint() or regional_endpoint(region), region)
        options["credential_provider"] = credentials
        kind: Callable[..., S3Store | GCSStore] = S3Store.from_url
        backend: type[CloudBackend] = CloudBackend
        plain_http = endpoint().startswith("http://")
    else:
        options["credential_provider"] = credentials
        kind, backend = GCSStore.from_url, GcsBackend
        plain_http = os.environ.get(GCS_ENDPOINT, "").startswith("http://")

    def loads(pem: bytes) -> bool:
        try:
            kind(url, client_options={"root_certificate": pem}, **options)
        except (BaseError, ValueError):
            return False
        return True

    certificates = read_certificates(url, loads)

    def client(timeout: timedelta, retries: int) -> S3Store | GCSStore:
        http: ClientConfig = {"timeout": timeout, "connect_timeout": CONNECT_TIMEOUT}
        if plain_http:
            http["allow_http"] = True
        if certificates:
            http["root_certificate"] = certificates
        retry: RetryConfig = {"max_retries": retries, "retry_timeout": timeout * (retries + 1)}
        return kind(url, client_options=http, retry_config=retry, **options)

    try:
        transfers = cache(lambda pieces: client(TRANSFER_TIMEOUT * pieces, _TRANSFER_RETRIES))
        return backend(url, client(REQUEST_TIMEOUT, 0), lambda size: transfers(_timeout_pieces(size)))
    except (BaseError, ValueError) as error:
        raise StoreError(f"{url} cannot be opened: {short(error)}") from error


def _timeout_pieces(size: int) -> int:
    """Return how many times `TRANSFER_TIMEOUT` one request for so many bytes may take: a power of two, so that few
    clients do for all sizes."""
    return 1 << max(0, -(-size // _PIECE) - 1).bit_length()


def is_local(url: str) -> bool:
    """Return whether a store is a folder, or a bucket of a local cloud that this machine serves."""
    if url.startswith("file:"):
        return True
    where = endpoint() if url.startswith("s3://") else os.environ.get(GCS_ENDPOINT, "")
    try:
        return ip_address(urlsplit(where).hostname or "").is_loopback
    except ValueError:
        return False


def _s3_config(where: str, region: str) -> dict[str, Any]:
    # An explicit region wins over AWS_REGION and AWS_DEFAULT_REGION. Deletes one by one need only s3:DeleteObject on
    # the key.
    config: dict[str, Any] = {"disable_bulk_delete": True, "region": region}
    if where:
        config["endpoint"] = where
    # obstore has its own name for this setting; all other clients use AWS's.
    metadata = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    if metadata:
        config["metadata_endpoint"] = metadata.rstrip("/")
    return config


@dataclass(frozen=True)
class Parts:
    """How an object is cut for a multipart upload: the bytes of each part but the last, and the number of parallel
    uploads."""

    bytes: int
    in_flight: int

    @classmethod
    def for_object(cls, key: str, size: int) -> "Parts":
        """Return the parts for an object of `size` bytes: of 16 MiB, or larger if there would be too many.

        Raises:
            StoreError: if the clouds hold no object of that size.
        """
        if size > _LARGEST_OBJECT:
            raise StoreError(f"{key} has {size:,} bytes; an object holds {_LARGEST_OBJECT:,} at the most: cut it")
        smallest = -(-size // _MOST_PIECES)
        part = max(_PIECE, -(-smallest // 2**20) * 2**20)
        return cls(part, max(1, min(_PIECES_IN_FLIGHT, _UPLOAD_MEMORY // part)))


class CloudBackend:
    """Raw access to one cloud bucket.

    Args:
        url: of the bucket.
        small: the client for documents; it never retries.
        transfer: returns the client for a request of so many bytes, for files and large documents.
    """

    def __init__(self, url: str, small: S3Store | GCSStore, transfer: Callable[[int], S3Store | GCSStore]) -> None:
        self._url = url
        self._small = small
        self._transfer = transfer
        self._large = transfer(_PIECE)

    def get(self, key: str) -> Versioned[bytes] | None:
        """See `Backend`."""
        with self._errors(key):
            try:
                answer = obstore.get(self._small, key)
            except (FileNotFoundError, PermissionDeniedError) as error:
                self._absent(key, error)
                return None
            size = int(answer.meta["size"])
            if size > _LARGE_DOCUMENT:
                del answer  # this closes its connection
                return self._get_large(key, size)
            return Versioned(bytes(answer.bytes()), _version(answer.meta))

    def _get_large(self, key: str, size: int) -> Versioned[bytes] | None:
        try:
            answer = obstore.get(self._transfer(size), key)
        except FileNotFoundError:  # it existed a moment ago
            return None
        return Versioned(bytes(answer.bytes()), _version(answer.meta))

    def list(self, prefix: str) -> list[Entry]:
        """See `Backend`."""
        with self._errors(prefix):
            chunks = obstore.list(self._small, prefix.rstrip("/") or None, chunk_size=1000)
            entries = [
                Entry(meta["path"], _version(meta).etag, meta["size"], meta["last_modified"])
                for chunk in chunks
                for meta in chunk
            ]
        return sorted(entries, key=lambda entry: entry.key)

    def put(self, key: str, data: bytes) -> Version:
        """See `Backend`."""
        with self._errors(key):
            return _version(obstore.put(self._client_for(data), key, data, use_multipart=False))

    def create(self, key: str, data: bytes) -> WriteResult:
        """See `Backend`."""
        return self._conditional(key, data, "create")

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        """See `Backend`."""
        return self._conditional(key, data, {"e_tag": version.etag})

    def delete(self, key: str) -> None:
        """See `Backend`."""
        with self._errors(key):
            try:
                obstore.delete(self._small, key)
            except FileNotFoundError as error:
                self._absent(key, error)

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        """See `Backend`. A file of more than 16 MiB is a multipart upload, several parts at a time.

        A multipart upload cannot be conditional here, so the key is looked at first. Only one process may ever write
        under such a key, which is why keys of checkpoint parts carry the epoch.
        """
        size = path.stat().st_size
        if size <= _PIECE:
            if moved is not None:
                moved(0)
            stored = self._upload_small(key, path)
            if moved is not None:
                moved(size)
            return stored
        with self._errors(key):
            if self._find_size(key) is not None:
                raise KeyTaken(key)
            digest, parts = hashlib.sha256(), Parts.for_object(key, size)
            self._upload_pieces(key, _pieces(path, parts.bytes, digest.update), parts, moved or (lambda size: None))
        return Uploaded(key, size, digest.hexdigest())

    def download(self, key: str, path: Path, moved: Moved | None = None) -> str | None:
        """See `Backend`. Several ranges at a time; memory stays at a few pieces."""
        with self._errors(key):
            size = self._find_size(key)
            if size is None:
                return None
            digest = hashlib.sha256()
            with path.open("wb") as file:
                for piece in self._ranges(key, size):
                    file.write(piece)
                    digest.update(piece)
                    if moved is not None:
                        moved(len(piece))
        return digest.hexdigest()

    def upload_view(self, key: str, view: memoryview, moved: Moved | None = None) -> None:
        """See `Backend`. See `upload` for the size and the condition."""
        moved = moved or (lambda size: None)
        if len(view) <= _PIECE:
            moved(0)
            self._create(key, bytes(view))
            moved(len(view))
            return
        with self._errors(key):
            if self._find_size(key) is not None:
                raise KeyTaken(key)
            parts = Parts.for_object(key, len(view))
            cut = (view[at : at + parts.bytes] for at in range(0, len(view), parts.bytes))
            self._upload_pieces(key, cut, parts, moved)

    def _upload_pieces(self, key: str, pieces: Iterable[Piece], parts: Parts, moved: Moved) -> None:
        """Upload an object in parts. `moved` is called with the bytes that have arrived. Its exception ends the upload:
        obstore aborts it and passes the exception on."""
        in_flight: deque[int] = deque()

        def paced() -> Iterator[Piece]:
            for piece in pieces:
                in_flight.append(len(piece))
                moved(in_flight.popleft() if len(in_flight) > parts.in_flight else 0)
                yield piece

        client = self._transfer(parts.bytes)
        obstore.put(client, key, paced(), chunk_size=parts.bytes, max_concurrency=parts.in_flight)
        moved(sum(in_flight))

    def download_at(self, key: str, file: int, offset: int, consume: Consume) -> int | None:
        """See `Backend`. Several ranges at a time; memory stays at a few pieces."""
        with self._errors(key):
            size = self._find_size(key)
            if size is None:
                return None
            for piece in self._ranges(key, size):
                write_at(file, piece, offset)
                consume(piece)
                offset += len(piece)
        return size

    def _find_size(self, key: str) -> int | None:
        """Return the bytes under a key, or None if there is no such key."""
        try:
            return int(obstore.head(self._small, key)["size"])
        except (FileNotFoundError, PermissionDeniedError) as error:
            self._absent(key, error)
            return None

    def _upload_small(self, key: str, path: Path) -> Uploaded:
        data = path.read_bytes()
        self._create(key, data)
        return Uploaded(key, len(data), hashlib.sha256(data).hexdigest())

    def _create(self, key: str, data: bytes) -> None:
        result = self._conditional(key, data, "create", self._large)
        if result.outcome is not WriteOutcome.DONE:
            # `LOST` may answer a retry of this process's own write, so compare the content.
            existing = self.get(key)
            if existing is None:
                error = StoreBusy if result.outcome is WriteOutcome.BUSY else StoreUnavailable
                raise error(f"{self._url}/{key}: upload ended as {result.outcome.value}")
            if existing.value != data:
                raise KeyTaken(key)

    def _ranges(self, key: str, size: int) -> Iterator[memoryview]:
        starts = iter(range(0, size, _PIECE))
        with ThreadPoolExecutor(_PIECES_IN_FLIGHT, thread_name_prefix="everspot-download") as pool:
            waiting: deque[Future[Any]] = deque()

            def fetch_next() -> None:
                start = next(starts, None)
                if start is not None:
                    end = min(start + _PIECE, size)
                    waiting.append(pool.submit(obstore.get_range, self._large, key, start=start, end=end))

            for _ in range(_PIECES_IN_FLIGHT):
                fetch_next()
            while waiting:
                piece = waiting.popleft().result()
                fetch_next()
                yield memoryview(piece)

    def _conditional(self, key: str, data: bytes, mode: Any, store: S3Store | GCSStore | None = None) -> WriteResult:
        try:
            with self._errors(key):
                answer = obstore.put(store or self._client_for(data), key, data, mode=mode)
                return WriteResult(WriteOutcome.DONE, _version(answer))
        except Refused as refused:
            return WriteResult(refused.outcome)
        except StoreBusy:
            return WriteResult(WriteOutcome.BUSY)
        except StoreUnavailable:
            return WriteResult(WriteOutcome.UNKNOWN)

    def _client_for(self, data: bytes) -> S3Store | GCSStore:
        """Return the client that writes a document. `large` may repeat a conditional write and then report `LOST` after
        its own success, so the caller of a write compares the content."""
        return self._transfer(len(data)) if len(data) > _LARGE_DOCUMENT else self._small

    def _absent(self, key: str, error: Exception) -> None:
        """Handle an answer that may mean a missing key. Returns if the key is missing.

        A missing bucket raises the same exception as a missing key, and only the answer's text differs. To a caller
        that may not list the whole bucket the clouds answer 403 for a missing key (Amazon S3 API Reference,
        "GetObject"; Cloud Storage documentation, "IAM permissions for XML requests"). A job's credentials may list the
        key's own folder only, and that listing decides.
        """
        if "<Code>NoSuchBucket" in str(error):
            raise StoreMissing(f"bucket {self._url} does not exist") from error
        if isinstance(error, PermissionDeniedError):
            folder = key.rpartition("/")[0]
            if not folder or self._lists(folder, key):
                raise error

    def _lists(self, folder: str, key: str) -> bool:
        """Return whether a listing of the folder has the key, or is refused. obstore has no class for such a refusal.

        Raises:
            BaseError: if the listing fails in another way.
        """
        try:
            return any(meta["path"] == key for chunk in obstore.list(self._small, folder) for meta in chunk)
        except BaseError as error:
            if "403 Forbidden" in str(error):
                return True
            raise

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise translated(self._url, key, error) from error


class GcsBackend(CloudBackend):
    """A bucket in Cloud Storage. Its conditional writes use generations, because it refuses a PUT with If-Match (Cloud
    Storage, "Request preconditions")."""

    def replace(self, key: str, data: bytes, version: Version) -> WriteResult:
        """See `Backend`. If only the ETag of a version is known, from a listing, its generation is looked up first.
        Every write of a table has its own ETag, so an equal ETag means the same version."""
        try:
            generation = version.generation or self._generation(key, version.etag)
        except StoreUnavailable as error:  # nothing was sent that could be written
            return WriteResult(WriteOutcome.BUSY if isinstance(error, StoreBusy) else WriteOutcome.CONFLICT)
        if generation is None:
            return WriteResult(WriteOutcome.LOST)
        return self._conditional(key, data, {"version": generation})

    def _generation(self, key: str, etag: str) -> str | None:
        """The generation of the key if it still has this ETag."""
        with self._errors(key):
            try:
                current = _version(obstore.head(self._small, key))
            except (FileNotFoundError, PermissionDeniedError) as error:
                self._absent(key, error)
                return None
        return current.generation if current.etag == etag else None


def _pieces(path: Path, size: int, consume: Callable[[bytes], None]) -> Iterator[bytes]:
    """The pieces of a file, of `size` bytes each but the last."""
    with path.open("rb") as file:  # buffered: a raw read of 2 GiB or more returns fewer bytes than asked for
        while piece := file.read(size):
            consume(piece)
            yield piece


def _version(meta: Any) -> Version:
    """Return the version from obstore's metadata of an object, or from its answer to a write."""
    if meta["e_tag"] is None:
        raise StoreError("the store gave no ETag; conditional writes are impossible there")
    return Version(meta["e_tag"], meta.get("version") or "")
