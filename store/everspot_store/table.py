"""A table: typed documents below one prefix. It handles every outcome of a conditional write."""

import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Generic, TypeVar

from everspot_core.documents import Document
from everspot_core.validation.problems import shown
from pydantic import ValidationError

from everspot_store.backend import Version, Versioned, WriteOutcome, WriteResult
from everspot_store.bucket import ATTEMPTS, Bucket
from everspot_store.document_cache import DocumentCache
from everspot_store.errors import BadDocument, StoreUnavailable

D = TypeVar("D", bound=Document)

READERS = 64
"""The most documents that are read at the same time. A read waits for the network, not for a processor."""

_log = logging.getLogger(__name__)


class Table(Generic[D]):
    """Documents of one type under `prefix/<id>.json`; an empty prefix is the root. Thread-safe.

    Every write contains a random mark. So no two versions of a document have the same bytes or ETag, and after a lost
    answer a read shows whether the write took effect.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`. Methods that write raise `BadDocument` for a
    document that could not be read back, such as one with a NaN.
    """

    def __init__(
        self,
        bucket: Bucket,
        prefix: str,
        model: type[D],
        cache: DocumentCache | None = None,
        *,
        id_field: str | None = None,
    ) -> None:
        """Build a table of the documents below a prefix.

        `id_field`: the field that repeats the id. A document with another id in the field counts as unreadable, so that
        no caller acts on the wrong document.
        """
        self.bucket, self._id_field = bucket, id_field
        self.prefix = f"{prefix}/" if prefix else ""
        self._model = model
        self._document_cache = cache
        self._cache: dict[str, Versioned[D]] = {}
        self._unreadable: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def key(self, id: str) -> str:
        """Return the key of a document in the bucket."""
        return f"{self.prefix}{id}.json"

    def get(self, id: str) -> Versioned[D] | None:
        """Return the document, or None.

        Raises:
            BadDocument: if it cannot be read as its type.
        """
        content = self.bucket.get(self.key(id))
        return None if content is None else Versioned(self._parse(self.key(id), content.value), content.version)

    def scan(self, under: str = "", include: Callable[[str], bool] | None = None) -> dict[str, Versioned[D]]:
        """Return all documents by id, or those whose id begins with `under` (whole segments, such as `job/`) and that
        `include` accepts.

        It costs one listing, and one read for each document that changed since this table's last scan. A document that
        cannot be read is logged, left out, and named by `unreadable`, so that one bad document does not stop a
        scheduler.
        """
        return self.documents(self._list(under, include), whole=not under and include is None)

    def scan_with_unreadable(
        self, include: Callable[[str], bool] | None = None
    ) -> tuple[dict[str, Versioned[D]], list[str]]:
        """Return the same as `scan`, for the whole table or for the ids that `include` accepts, with the keys of
        documents that cannot be read. It is for callers that must not treat unreadable documents as absent."""
        documents, unreadable = self._current(self._list("", include))
        with self._lock:
            self._cache.update(documents)
        return documents, [self.key(id) for id in unreadable]

    def etags(self, under: str = "") -> dict[str, str]:
        """Return the ETags of the documents by id, by one listing. `under`: only ids that begin with it."""
        return self._list(under, None)

    def documents(
        self, listed: Mapping[str, str], *, keep: Callable[[str], bool] | None = None, whole: bool = True
    ) -> dict[str, Versioned[D]]:
        """Return the documents of a listing. Documents that changed since this table last read them are read.

        `keep`: selects changed documents that are not read again, but returned as last read, with their old ETag.
        `whole`: whether `listed` is the whole table; the table then forgets documents that it lacks.
        """
        current, unreadable = self._current(listed, keep)
        with self._lock:
            if whole:
                self._cache, self._unreadable = dict(current), frozenset(unreadable)
            else:
                self._cache.update(current)
        return current

    def scan_all(
        self, under: Sequence[str], include: Callable[[str], bool] | None = None
    ) -> dict[str, dict[str, Versioned[D]]]:
        """Like `scan`, for many prefixes: their listings in parallel, then the documents of all. Returns them by
        prefix."""
        with _readers(len(under)) as pool:
            listings = dict(zip(under, pool.map(lambda prefix: self._list(prefix, include), under), strict=True))
        documents, _ = self._current({id: etag for listed in listings.values() for id, etag in listed.items()})
        with self._lock:
            self._cache.update(documents)
        return {prefix: {id: documents[id] for id in listed if id in documents} for prefix, listed in listings.items()}

    def _list(self, under: str, include: Callable[[str], bool] | None) -> dict[str, str]:
        """Return the ETags of documents by id."""
        listed = {
            entry.key[len(self.prefix) : -len(".json")]: entry.etag
            for entry in self.bucket.list(f"{self.prefix}{under}")
            if entry.key.endswith(".json")
        }
        return {id: etag for id, etag in listed.items() if include is None or include(id)}

    def _current(
        self, listed: Mapping[str, str], keep: Callable[[str], bool] | None = None
    ) -> tuple[dict[str, Versioned[D]], list[str]]:
        """Return the documents of a listing, and the ids of unreadable documents. Documents with an unknown ETag are
        read."""
        with self._lock:
            cached = [(id, self._cache.get(id)) for id in listed]
        current = {
            id: doc
            for id, doc in cached
            if doc is not None and (doc.etag == listed[id] or (keep is not None and keep(id)))
        }
        current |= self._remembered({id: etag for id, etag in listed.items() if id not in current})
        read, unreadable = self._read([id for id in listed if id not in current])
        return {id: current.get(id) or read[id] for id in listed if id in current or id in read}, unreadable

    def _remembered(self, listed: Mapping[str, str]) -> dict[str, Versioned[D]]:
        if self._document_cache is None or not listed:
            return {}
        documents = {}
        bodies = self._document_cache.get({self.key(id): etag for id, etag in listed.items()})
        for id, etag in listed.items():
            body = bodies.get(self.key(id))
            if body is not None:
                with suppress(BadDocument):  # otherwise the bucket's bytes are read, and logged if they are bad, too
                    documents[id] = Versioned(self._parse(self.key(id), body), Version(etag))
        return documents

    @property
    def unreadable(self) -> frozenset[str]:
        """The documents that the last scan of the whole table could not read."""
        return self._unreadable

    def names(self, under: str = "") -> list[str]:
        """Return the ids of all documents, or the ids that begin with `under` (whole segments), in order, by one
        listing."""
        return list(self.etags(under))

    def modified(self, ids: Sequence[str]) -> dict[str, datetime]:
        """Return when these documents were written last, by the store's own clock, from one listing. Missing ones are
        left out."""
        keys = {self.key(id): id for id in ids}
        return {keys[e.key]: e.modified for e in self.bucket.list(self.prefix) if e.key in keys} if ids else {}

    def read(self, ids: Sequence[str]) -> dict[str, Versioned[D]]:
        """Return these documents, read in parallel and not remembered. Missing documents are left out, and so are
        unreadable ones, with an error in the log."""
        return self._read(list(ids))[0]

    def create(self, id: str, doc: D) -> Versioned[D] | None:
        """Write a document that must not exist. Return None if somebody else was first."""
        return self._conditional(id, doc, None)

    def replace(self, id: str, old: Versioned[D], new: D) -> Versioned[D] | None:
        """Write `new` if the document is still `old`. Return None if somebody else has changed it; nothing is written
        then."""
        return self._conditional(id, new, old.version)

    def put(self, id: str, doc: D) -> Versioned[D]:
        """Write without a condition, for documents with a single writer."""
        key = self.key(id)
        return Versioned(doc, self.bucket.put(key, self._bytes(key, doc)))

    def delete(self, id: str) -> None:
        """Remove a document, if it exists."""
        self.bucket.delete(self.key(id))

    def _conditional(self, id: str, doc: D, old: Version | None) -> Versioned[D] | None:
        """Write under a condition, in a few attempts. Every attempt sends the same bytes under the same condition, so
        at most one of them takes effect, no matter which."""
        key = self.key(id)
        data = self._bytes(key, doc)
        result = WriteResult(WriteOutcome.UNKNOWN)
        for attempt in range(ATTEMPTS):
            self.bucket.pause(attempt, busy=result.outcome is WriteOutcome.BUSY)
            result = self.bucket.create(key, data) if old is None else self.bucket.replace(key, data, old)
            if result.outcome is WriteOutcome.DONE:
                assert result.version is not None  # noqa: S101 - by the contract of a backend
                return self._remember(id, Versioned(doc, result.version))
            if result.outcome in (WriteOutcome.CONFLICT, WriteOutcome.BUSY):
                continue
            # `LOST` may be caused by an earlier attempt that was carried out, so the document is read back.
            existing = self.bucket.get(key)
            if existing is not None and existing.value == data:
                return Versioned(doc, existing.version)
            if (existing.version if existing is not None else None) != old:
                return None
        raise StoreUnavailable(f"{self.bucket.url}/{key}: a conditional write ended as {result.outcome.value}")

    def _remember(self, id: str, written: Versioned[D]) -> Versioned[D]:
        """Remember a written document if an earlier version of it is remembered. This saves a read."""
        with self._lock:
            if id in self._cache:
                self._cache[id] = written
        return written

    def _read(self, ids: list[str]) -> tuple[dict[str, Versioned[D]], list[str]]:
        """Return the documents that still exist, and the ids of unreadable documents."""
        raw: dict[str, tuple[str, bytes]] = {}
        if len(ids) > 1:
            with _readers(len(ids)) as pool:
                results = list(pool.map(lambda id: self._get_or_error(id, raw), ids))
        else:
            results = [self._get_or_error(id, raw) for id in ids]
        if self._document_cache is not None:
            self._document_cache.put(raw)
        read = {id: doc for id, doc in zip(ids, results, strict=True) if isinstance(doc, Versioned)}
        return read, [id for id, doc in zip(ids, results, strict=True) if isinstance(doc, BadDocument)]

    def _get_or_error(self, id: str, raw: dict[str, tuple[str, bytes]]) -> Versioned[D] | BadDocument | None:
        """Return the document. If it can be read, its bytes go into `raw`."""
        key = self.key(id)
        content = self.bucket.get(key)
        if content is None:
            return None
        try:
            document = self._parse(key, content.value)
        except BadDocument as error:
            _log.error("%s", error)
            return error
        raw[key] = (content.etag, content.value)
        return Versioned(document, content.version)

    def _bytes(self, key: str, doc: D) -> bytes:
        """Return the bytes to write. They are parsed once before the write, because an unreadable document would stay
        for ever."""
        data = _marked(doc)
        self._parse(key, data)
        return data

    def _parse(self, key: str, data: bytes) -> D:
        try:
            document = self._model.read(data)
        except ValidationError as error:
            raise BadDocument(key, str(error)) from error
        if self._id_field is not None and self.key(named_id := getattr(document, self._id_field)) != key:
            raise BadDocument(key, f"its {self._id_field} is {shown(named_id)}")
        return document


def _readers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, min(READERS, count)), thread_name_prefix="everspot-scan")


def _marked(doc: Document) -> bytes:
    """Return the document as JSON with a unique mark. Readers ignore fields that they do not know."""
    return json.dumps({**json.loads(doc.to_json()), "written": secrets.token_hex(8)}, indent=1).encode()
