"""Buckets and objects as Cloud Storage keeps them: generations, preconditions, one write a second to a name.

Sources (Cloud Storage documentation): "Request preconditions"; "Quotas and limits" (one write a second to the same
object name; names of objects; parts); "Object naming"; "Bucket naming"; "XML API multipart uploads"; "HTTP status and
error codes for XML".
"""

import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from everspot_core.clock import Clock

from everspot_local.gcp.storage.object_model import (
    BucketContents,
    Page,
    RetentionSettings,
    StorageRefused,
    Stored,
    UnfinishedUpload,
)

WRITE_EVERY = timedelta(seconds=1)
"""Between two writes to the same name."""
PART_AT_LEAST = 5 * 1024 * 1024
"""Bytes of every part of a multipart upload but the last."""
PARTS_AT_MOST = 10_000
KEY_AT_MOST = 1024
"""Bytes of an object's name."""
PAGE = 1000
"""Names in one page of a listing."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")


class Objects:
    """All buckets of one Cloud Storage. Thread-safe. Every method raises `StorageRefused`.

    Args:
        clock: Its market time is for timestamps, its real time for the rate limit of writes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, BucketContents] = {}
        self._uploads: dict[str, UnfinishedUpload] = {}
        self._count = int(clock.now().timestamp() * 1_000_000)
        self._lock = threading.RLock()

    def make_bucket(self, name: str) -> None:
        """Create a bucket."""
        if not _BUCKET.fullmatch(name) or name.startswith("goog") or "google" in name:
            raise StorageRefused(400, "InvalidBucketName", "The specified bucket is not valid.", name)
        with self._lock:
            if name in self._buckets:
                raise StorageRefused(409, "BucketAlreadyOwnedByYou", "Your previous request to create the named bucket"
                              " succeeded and you already own it.")  # fmt: skip
            self._buckets[name] = BucketContents()

    def drop_bucket(self, name: str) -> None:
        """Delete a bucket, which must be empty. Soft deleted objects do not count."""
        with self._lock:
            bucket = self._bucket(name)
            if bucket.objects or bucket.past:
                raise StorageRefused(409, "BucketNotEmpty", "The bucket you tried to delete is not empty.")
            del self._buckets[name]

    def set_retention(self, name: str, retention: RetentionSettings) -> None:
        """Set what a bucket does with replaced or deleted objects from now on."""
        with self._lock:
            self._bucket(name).retention = retention

    def has(self, bucket: str, key: str) -> bool:
        """Return whether there is a live object of this name."""
        with self._lock:
            return bucket in self._buckets and key in self._buckets[bucket].objects

    def others(self, bucket: str, *, soft_deleted: bool) -> list[tuple[str, Stored]]:
        """Return the noncurrent versions of a bucket's objects, or with `soft_deleted` the deleted ones that are still
        kept."""
        with self._lock:
            contents, now = self._bucket(bucket), self._clock.now()
            contents.deleted = [d for d in contents.deleted if (d[1].ended or now) + contents.retention.soft > now]
            return list(contents.deleted if soft_deleted else contents.past)

    def get(self, bucket: str, key: str, generation: int | None = None) -> Stored:
        """Return an object. `generation`: this version of it, live or not; None for the live one."""
        with self._lock:
            contents = self._bucket(bucket)
            stored = contents.objects.get(key)
            if generation is not None:
                versions = [*contents.past, (key, stored)] if stored else contents.past
                stored = next((s for name, s in versions if name == key and s.generation == generation), None)
        if stored is None:
            raise StorageRefused(
                404, "NoSuchKey", "The specified key does not exist.", f"No such object: {bucket}/{key}"
            )
        return stored

    def put(self, bucket: str, key: str, data: bytes, if_generation: int | None, **attributes: Any) -> Stored:
        """Write an object.

        Args:
            bucket: name of the bucket.
            key: name of the object.
            data: contents.
            if_generation: the required current generation; 0 if the object must not exist, None for any state.
            attributes: content type and metadata.
        """
        with self._lock:
            self._write(bucket, key, if_generation)
            stored = self._store(bucket, key, data, hashlib.md5(data, usedforsecurity=False).hexdigest())
            if attributes:
                stored = self._buckets[bucket].objects[key] = replace(stored, **attributes)
            return stored

    def delete(self, bucket: str, key: str, if_generation: int | None, generation: int | None = None) -> None:
        """Delete an object, which stays as a noncurrent version where versions are kept.

        `generation`: this version alone, which then does not stay. `if_generation`: as of `put`.
        """
        with self._lock:
            contents, stored = self._bucket(bucket), self.get(bucket, key, generation)
            if (key, stored) in contents.past:
                contents.past.remove((key, stored))
                self._end(contents, key, stored, for_good=True)
                return
            self._write(bucket, key, if_generation)
            del contents.objects[key]
            self._end(contents, key, stored, for_good=generation is not None)

    def change(self, bucket: str, key: str, **attributes: Any) -> Stored:
        """Change an object's type or metadata; its generation stays."""
        with self._lock:
            stored = self.get(bucket, key)
            self._pace(self._bucket(bucket), bucket, key)
            changed = replace(stored, metageneration=stored.metageneration + 1, **attributes)
            self._bucket(bucket).objects[key] = changed
            return changed

    def page(self, bucket: str, prefix: str, delimiter: str, after: str, most: int) -> Page:
        """Return a page of the names that begin with `prefix`, in the order of their bytes."""
        with self._lock:
            objects = dict(self._bucket(bucket).objects)
        names = sorted((n for n in objects if n.startswith(prefix) and n > after), key=str.encode)
        objects_in_page, prefixes, last = dict[str, Stored](), list[str](), ""
        for name in names:
            folder = _folder(name, prefix, delimiter)
            if folder and (folder in prefixes or folder <= after):
                last = name
                continue
            if len(objects_in_page) + len(prefixes) >= min(most, PAGE):
                return Page(objects_in_page, tuple(prefixes), last)
            if folder:
                prefixes.append(folder)
            else:
                objects_in_page[name] = objects[name]
            last = name
        return Page(objects_in_page, tuple(prefixes), "")

    def begin(self, bucket: str, key: str) -> str:
        """Begin a multipart upload; return its id."""
        with self._lock:
            self._bucket(bucket)
            _check_key(key)
            name = f"upload-{self._next()}"
            self._uploads[name] = UnfinishedUpload(bucket, key)
            return name

    def part(self, upload: str, number: int, data: bytes) -> str:
        """Add a part; return its ETag."""
        if not 1 <= number <= PARTS_AT_MOST:
            raise StorageRefused(
                400, "InvalidArgument", "Invalid argument.", f"Part number must be 1 to {PARTS_AT_MOST}."
            )
        with self._lock:
            self._upload(upload).parts[number] = data
        return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'

    def complete(self, upload: str, numbers: list[int]) -> tuple[str, Stored]:
        """Make an object of these parts, replacing any object of its name; return name and object."""
        with self._lock:
            parts_upload = self._upload(upload)
            if not numbers or numbers != sorted(set(numbers)) or not set(numbers) <= set(parts_upload.parts):
                raise StorageRefused(400, "InvalidPart", "One or more of the specified parts could not be found.")
            parts = [parts_upload.parts[n] for n in numbers]
            if any(len(part) < PART_AT_LEAST for part in parts[:-1]):
                raise StorageRefused(
                    400, "EntityTooSmall", "Your proposed upload is smaller than the minimum object size."
                )
            self._write(parts_upload.bucket, parts_upload.key, None)
            del self._uploads[upload]
            return parts_upload.key, self._store(
                parts_upload.bucket, parts_upload.key, b"".join(parts), f"-{self._next():x}"
            )

    def abort(self, upload: str) -> None:
        """Abort a multipart upload."""
        with self._lock:
            self._upload(upload)
            del self._uploads[upload]

    def check_upload(self, upload: str, bucket: str, key: str) -> None:
        """Refuse a multipart upload that is not of this object."""
        with self._lock:
            of_upload = self._upload(upload)
            if (of_upload.bucket, of_upload.key) != (bucket, key):
                raise StorageRefused(404, "NoSuchUpload", "The requested upload was not found.")

    def unfinished(self) -> Iterator[str]:
        """Return the names of uploads in progress."""
        with self._lock:
            return iter([u.key for u in self._uploads.values()])

    def _bucket(self, name: str) -> BucketContents:
        if name not in self._buckets:
            raise StorageRefused(404, "NoSuchBucket", "The specified bucket does not exist.")
        return self._buckets[name]

    def _upload(self, upload: str) -> UnfinishedUpload:
        if upload not in self._uploads:
            raise StorageRefused(404, "NoSuchUpload", "The requested upload was not found.")
        return self._uploads[upload]

    def _write(self, bucket: str, key: str, if_generation: int | None) -> None:
        """Refuse a write whose precondition fails, that the retention policy forbids, or that comes too soon after the
        last one."""
        contents = self._bucket(bucket)
        _check_key(key)
        current = contents.objects.get(key)
        if if_generation is not None and if_generation != (current.generation if current is not None else 0):
            raise StorageRefused(
                412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.",
                "x-goog-if-generation-match",
            )  # fmt: skip
        if current is not None and current.at + contents.retention.hold > self._clock.now():
            raise StorageRefused(
                403, "RetentionPolicyNotMet", f"Object '{bucket}/{key}' is subject to bucket's retention policy and"
                f" cannot be deleted or overwritten until {current.at + contents.retention.hold:%Y-%m-%dT%H:%M:%SZ}.",
            )  # fmt: skip
        self._pace(contents, bucket, key)

    def _pace(self, contents: BucketContents, bucket: str, key: str) -> None:
        now = self._clock.monotonic()
        if key in contents.written and now - contents.written[key] < WRITE_EVERY:
            raise StorageRefused(
                429, "SlowDown", "The object exceeded the rate limit for object mutation operations (create, update,"
                " and delete). Please reduce your request rate.", f"{bucket}/{key}",
            )  # fmt: skip
        contents.written[key] = now

    def _store(self, bucket: str, key: str, data: bytes, etag: str) -> Stored:
        stored = Stored(data, self._next(), f'"{etag}"', self._clock.now())
        contents = self._buckets[bucket]
        before = contents.objects.get(key)
        contents.objects[key] = stored
        if before is not None:
            self._end(contents, key, before)
        return stored

    def _end(self, contents: BucketContents, key: str, stored: Stored, *, for_good: bool = False) -> None:
        """Retain or delete an object that is no longer live."""
        ended = replace(stored, ended=self._clock.now())
        if contents.retention.versions and not for_good:
            contents.past.append((key, ended))
        elif contents.retention.soft:
            contents.deleted.append((key, ended))

    def _next(self) -> int:
        self._count += 1
        return self._count


def _check_key(key: str) -> None:
    bad = not key or key in (".", "..") or "\r" in key or "\n" in key or len(key.encode()) > KEY_AT_MOST
    if bad or key.startswith(".well-known/acme-challenge/"):
        raise StorageRefused(400, "InvalidArgument", "Invalid argument.", "Disallowed object name.")


def _folder(name: str, prefix: str, delimiter: str) -> str:
    """Return the prefix that a listing with a delimiter shows in place of a name; empty for the name itself."""
    head, separator, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
    return f"{prefix}{head}{delimiter}" if separator else ""
