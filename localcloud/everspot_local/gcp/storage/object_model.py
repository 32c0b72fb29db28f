"""Cloud Storage's values: objects, buckets' contents and refusals, without rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from everspot_local.crc32c import crc32c


class StorageRefused(Exception):
    """An error answer of Cloud Storage."""

    def __init__(self, status: int, code: str, message: str, details: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.details = status, code, message, details


@dataclass(frozen=True)
class Stored:
    """One object. `etag` is quoted, as headers have it."""

    data: bytes
    generation: int
    etag: str
    at: datetime
    content_type: str = "application/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)
    metageneration: int = 1
    ended: datetime | None = None
    """Since when it is noncurrent or soft deleted, if it is."""

    @cached_property
    def crc32c(self) -> str:
        """Return its checksum, which it takes time to compute."""
        return crc32c(self.data)


@dataclass(frozen=True)
class RetentionSettings:
    """What a bucket does with replaced or deleted objects. `soft`, `hold`: zero for none of it."""

    versions: bool = False
    soft: timedelta = timedelta()
    hold: timedelta = timedelta()


@dataclass
class BucketContents:
    """A bucket: live objects by name, when each was last written, and objects that are no longer live."""

    objects: dict[str, Stored] = field(default_factory=dict)
    written: dict[str, timedelta] = field(default_factory=dict)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    past: list[tuple[str, Stored]] = field(default_factory=list)
    """Noncurrent versions."""
    deleted: list[tuple[str, Stored]] = field(default_factory=list)
    """Soft deleted objects within their retention, which cost money."""


@dataclass
class UnfinishedUpload:
    """A multipart upload in progress."""

    bucket: str
    key: str
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """Part of a listing. `more`: the name after which the next one begins; empty after the last."""

    objects: Mapping[str, Stored]
    prefixes: tuple[str, ...]
    more: str
