"""A bucket in S3 or Google Cloud Storage, through obstore.

obstore's own retries stay off: after a lost answer they would send a conditional write again, and report the 412 that
our own first attempt caused. `Bucket` and `Table` retry instead, and know what they wrote.
"""

import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import GCSStore, S3Store

from everspot_store.backend import Entry, Moved, Uploaded, Versioned, WriteOutcome, WriteResult
from everspot_store.errors import KeyTaken, StoreDenied, StoreError, StoreMissing, StoreUnavailable
from everspot_store.region import endpoint

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3CredentialProvider

REQUEST_TIMEOUT = timedelta(seconds=10)  # documents are small; a lease must learn quickly that it cannot renew
TRANSFER_TIMEOUT = timedelta(minutes=2)  # of one part or one range, not of the whole file
CONNECT_TIMEOUT = timedelta(seconds=5)
_PIECE = 16 * 1024 * 1024
_PIECES_IN_FLIGHT = 6
_TRANSFER_RETRIES = 4


def open_cloud(url: str, credentials: "S3CredentialProvider | None" = None, region: str = "") -> "CloudBackend":
    """Raw access to `s3://bucket[/prefix]` or `gs://bucket[/prefix]`, with the standard environment's settings but for
    the region, which a caller of S3 has to name.

    `credentials` replaces what the environment says, for callers that know more places than the environment and the
    instance's role, such as profiles.

    Raises:
        StoreError: if the URL or the environment's settings cannot be used.
    """
    options = dict[str, Any]()
    plain_http = False
    if url.startswith("s3://"):
        options["config"] = _s3_config(endpoint(), region)
        options["credential_provider"] = credentials
        kind: Callable[..., S3Store | GCSStore] = S3Store.from_url
        plain_http = endpoint().startswith("http://")
    else:
        kind = GCSStore.from_url

    def client(timeout: timedelta, retries: int) -> S3Store | GCSStore:
        http: ClientConfig = {"timeout": timeout, "connect_timeout": CONNECT_TIMEOUT}
        if plain_http:
            http["allow_http"] = True
        retry: RetryConfig = {"max_retries": retries, "retry_timeout": timeout * (retries + 1)}
        return kind(url, client_options=http, retry_config=retry, **options)

    try:
        return CloudBackend(url, client(REQUEST_TIMEOUT, 0), client(TRANSFER_TIMEOUT, _TRANSFER_RETRIES))
    except (BaseError, ValueError) as error:
        raise StoreError(f"{url} cannot be opened: {_short(error)}") from error


def _s3_config(where: str, region: str) -> dict[str, Any]:
    # Said here, the region wins over AWS_REGION and AWS_DEFAULT_REGION. Deletes one by one need no more permission
    # than s3:DeleteObject on the key.
    config: dict[str, Any] = {"disable_bulk_delete": True, "region": region}
    if where:
        config["endpoint"] = where
    # obstore knows the metadata service by a name of its own; the rest of the world by this one.
    metadata = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    if metadata:
        config["metadata_endpoint"] = metadata.rstrip("/")
    return config


class CloudBackend:
    """Raw access to one cloud bucket. `small` is for documents and never retries, `large` is for files."""

    def __init__(self, url: str, small: S3Store | GCSStore, large: S3Store | GCSStore) -> None:
        self._url = url
        self._small = small
        self._large = large

    def get(self, key: str) -> Versioned[bytes] | None:
        """See `Backend`."""
        with self._errors(key):
            try:
                answer = obstore.get(self._small, key)
            except FileNotFoundError as error:
                self._absent(error)
                return None
            return Versioned(bytes(answer.bytes()), _tag(answer.meta["e_tag"]))

    def list(self, prefix: str) -> list[Entry]:
        """See `Backend`."""
        with self._errors(prefix):
            found = obstore.list(self._small, prefix.rstrip("/") or None, chunk_size=1000)
            entries = [
                Entry(meta["path"], _tag(meta["e_tag"]), meta["size"], meta["last_modified"])
                for chunk in found
                for meta in chunk
            ]
        return sorted(entries, key=lambda entry: entry.key)

    def put(self, key: str, data: bytes) -> str:
        """See `Backend`."""
        with self._errors(key):
            return _tag(obstore.put(self._small, key, data, use_multipart=False)["e_tag"])

    def create(self, key: str, data: bytes) -> WriteResult:
        """See `Backend`."""
        return self._conditional(key, data, "create")

    def replace(self, key: str, data: bytes, etag: str) -> WriteResult:
        """See `Backend`."""
        return self._conditional(key, data, {"e_tag": etag})

    def delete(self, key: str) -> None:
        """See `Backend`."""
        with self._errors(key):
            try:
                obstore.delete(self._small, key)
            except FileNotFoundError as error:
                self._absent(error)

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        """See `Backend`. Above one piece (16 MiB) a multipart upload, several pieces at a time.

        A multipart upload cannot be conditional here, so the key is looked at first. Only one process may ever write
        under such a key; keys of checkpoint parts carry the epoch for that.
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
            try:
                obstore.head(self._small, key)
            except FileNotFoundError as error:
                self._absent(error)
            else:
                raise KeyTaken(key)
            digest = hashlib.sha256()
            pieces = _pieces(path, digest.update, moved or (lambda size: None))
            obstore.put(self._large, key, pieces, chunk_size=_PIECE, max_concurrency=_PIECES_IN_FLIGHT)
        return Uploaded(key, size, digest.hexdigest())

    def download(self, key: str, path: Path) -> str | None:
        """See `Backend`. Several ranges at a time; memory stays at a few pieces."""
        with self._errors(key):
            try:
                size = obstore.head(self._small, key)["size"]
            except FileNotFoundError as error:
                self._absent(error)
                return None
            digest = hashlib.sha256()
            with path.open("wb") as file:
                for piece in self._ranges(key, size):
                    file.write(piece)
                    digest.update(piece)
        return digest.hexdigest()

    def _upload_small(self, key: str, path: Path) -> Uploaded:
        data = path.read_bytes()
        result = self._conditional(key, data, "create", self._large)
        digest = hashlib.sha256(data).hexdigest()
        if result.outcome is not WriteOutcome.DONE:
            # Lost may be the answer to a retry of our own write, so it is the content that decides.
            there = self.get(key)
            if there is None:
                raise StoreUnavailable(f"{self._url}/{key}: upload ended as {result.outcome.value}")
            if there.value != data:
                raise KeyTaken(key)
        return Uploaded(key, len(data), digest)

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
                answer = obstore.put(store or self._small, key, data, mode=mode)
                return WriteResult(WriteOutcome.DONE, _tag(answer["e_tag"]))
        except _Refused as refused:
            return WriteResult(refused.outcome)
        except StoreUnavailable:
            return WriteResult(WriteOutcome.UNKNOWN)

    def _absent(self, error: FileNotFoundError) -> None:
        """A missing bucket and a missing key are the same exception; only the text of the answer tells them apart."""
        if "<Code>NoSuchBucket" in str(error):
            raise StoreMissing(f"bucket {self._url} does not exist") from error

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise self._translate(key, error) from error

    def _translate(self, key: str, error: Exception) -> Exception:
        text = str(error)
        where = f"{self._url}/{key}: {_short(error)}"
        if "<Code>NoSuchBucket" in text:
            return StoreMissing(f"bucket {self._url} does not exist")
        if "409 Conflict" in text:  # obstore reports it as AlreadyExistsError: the one case where the text must decide
            return _Refused(WriteOutcome.CONFLICT, where)
        if isinstance(error, AlreadyExistsError | PreconditionError):
            return _Refused(WriteOutcome.LOST, where)
        if isinstance(error, PermissionDeniedError | UnauthenticatedError) or any(code in text for code in _DENIED):
            return StoreDenied(where)
        if any(code in text for code in _ELSEWHERE):
            return StoreError(f"{self._url} lies in {_named(text)}: its URL has to say so, {self._url}?region=…")
        if isinstance(error, FileNotFoundError) or any(code in text for code in _WRONG):
            return StoreError(where)
        return StoreUnavailable(where)


_DENIED = ("<Code>ExpiredToken", "<Code>InvalidToken", "<Code>InvalidAccessKeyId", "<Code>SignatureDoesNotMatch")
# A signature for another region than the bucket's, and a bucket asked for at another region's endpoint.
_ELSEWHERE = ("<Code>AuthorizationHeaderMalformed", "<Code>PermanentRedirect", "incorrectly configured region")
_WRONG = ("301 Moved Permanently", "405 Method Not Allowed", "InvalidPath")


class _Refused(StoreUnavailable):
    """A conditional write that was answered with 409 or 412."""

    def __init__(self, outcome: WriteOutcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def _pieces(path: Path, see: Callable[[bytes], None], moved: Moved) -> Iterator[bytes]:
    """What `moved` raises ends the upload: obstore aborts it and hands the exception on. Pieces that are asked for
    ahead of those that have arrived do not count."""
    ahead: deque[int] = deque()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            see(piece)
            ahead.append(len(piece))
            moved(ahead.popleft() if len(ahead) > _PIECES_IN_FLIGHT else 0)
            yield piece
    moved(sum(ahead))


def _tag(etag: str | None) -> str:
    if etag is None:
        raise StoreError("the store gave no ETag; conditional writes are impossible there")
    return etag


def _named(text: str) -> str:
    """The region that S3's refusal names."""
    found = re.search(r"<Region>([a-z0-9-]+)</Region>", text)
    return f"region {found[1]}" if found else "another region"


def _short(error: BaseException) -> str:
    """obstore appends a page of Rust debug output to the sentence that matters."""
    return str(error).split("\n\nDebug source:")[0]
