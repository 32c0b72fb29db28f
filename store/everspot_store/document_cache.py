"""Caches documents by ETag in a file of the user, for short-lived programs such as the CLI.

A listing of the bucket names the current ETag, and the cache only provides the bytes of that ETag. So the cache is
never stale, and its file may be deleted at any moment. Several processes may use one file. A file that cannot be used
counts as empty.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

LIMIT = 256 * 1024 * 1024
"""The most bytes of cached documents. Beyond it the least recently used documents are removed."""
_RETAINED_SHARE = 0.8  # of the limit, after clearing
_BUSY = timedelta(seconds=2)  # for another process that writes
_DAY = 86400
_MANY = 500  # parameters of one statement; SQLite takes 999 at the least
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS documents (bucket TEXT, key TEXT, etag TEXT, body BLOB, size INTEGER, day INTEGER, "
    "PRIMARY KEY (bucket, key)) WITHOUT ROWID"
)


class DocumentCache:
    """The documents of one bucket. Thread-safe; no method raises.

    Args:
        path: The file. It is created if it is missing, for this user alone. A file that others may read or write is
            not used.
        bucket: The URL of the bucket. One file holds documents of many buckets.
        limit: The most bytes, over all buckets.
    """

    def __init__(self, path: Path, bucket: str, limit: int = LIMIT) -> None:
        self._path = path
        self._bucket = bucket
        self._limit = limit

    def get(self, etags: Mapping[str, str]) -> dict[str, bytes]:
        """Return the bytes of the keys that are cached under exactly these ETags."""
        cached: dict[str, bytes] = {}
        with self._open() as database:
            keys = list(etags)
            for start in range(0, len(keys), _MANY):
                some = keys[start : start + _MANY]
                marks = ",".join("?" * len(some))
                rows = database.execute(
                    f"SELECT key, etag, body FROM documents WHERE bucket = ? AND key IN ({marks})",  # noqa: S608 - marks
                    [self._bucket, *some],
                )
                cached.update((key, body) for key, etag, body in rows if etags[key] == etag)
                database.execute(
                    f"UPDATE documents SET day = ? WHERE bucket = ? AND day < ? AND key IN ({marks})",  # noqa: S608
                    [_today(), self._bucket, _today(), *some],
                )
        return cached

    def put(self, documents: Mapping[str, tuple[str, bytes]]) -> None:
        """Keep these documents: ETag and bytes by key."""
        if not documents:
            return
        with self._open() as database:
            database.executemany(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?)",
                [(self._bucket, key, etag, body, len(body), _today()) for key, (etag, body) in documents.items()],
            )
            self._clear(database)

    def _clear(self, database: sqlite3.Connection) -> None:
        (total,) = database.execute("SELECT total(size) FROM documents").fetchone()
        if total <= self._limit:
            return
        excess = total - self._limit * _RETAINED_SHARE
        oldest = database.execute("SELECT bucket, key, size FROM documents ORDER BY day, key").fetchall()
        for bucket, key, size in oldest:
            if excess <= 0:
                break
            database.execute("DELETE FROM documents WHERE bucket = ? AND key = ?", (bucket, key))
            excess -= size

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database in one transaction; an empty one in memory if the file cannot be used."""
        try:
            database = self._connect()
        except (sqlite3.Error, OSError):
            database = sqlite3.connect(":memory:")
            database.execute(_SCHEMA)
        with closing(database), suppress(sqlite3.Error), database:
            yield database  # the cache is optional: documents that are not cached are read again

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        status = self._path.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise OSError(f"{self._path} belongs to others too")
        database = sqlite3.connect(self._path, timeout=_BUSY.total_seconds())
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")  # documents that a crash loses are read again
        database.execute(_SCHEMA)
        return database


def _today() -> int:
    return int(time.time() // _DAY)
