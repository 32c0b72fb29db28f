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

from everspot_local.gcp.storage.kept import Held, Keeping, Page, StorageRefused, Stored, UnfinishedUpload

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
        clock: Market time for what is told; the pace of writes is kept by its real time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, Held] = {}
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
            self._buckets[name] = Held()

    def drop_bucket(self, name: str) -> None:
        """Delete a bucket, which must be empty. Soft deleted objects do not count."""
        with self._lock:
            there = self._bucket(name)
            if there.objects or there.past:
                raise StorageRefused(409, "BucketNotEmpty", "The bucket you tried to delete is not empty.")
            del self._buckets[name]

    def keep(self, name: str, keeping: Keeping) -> None:
        """Set what a bucket does with replaced or deleted objects from now on."""
        with self._lock:
            self._bucket(name).keeping = keeping

    def has(self, bucket: str, key: str) -> bool:
        """Return whether there is a live object of this name."""
        with self._lock:
            return bucket in self._buckets and key in self._buckets[bucket].objects

    def others(self, bucket: str, *, soft_deleted: bool) -> list[tuple[str, Stored]]:
        """Return the noncurrent versions of a bucket's objects, or with `soft_deleted` the deleted ones that are still
        kept."""
        with self._lock:
            there, now = self._bucket(bucket), self._clock.now()
            there.deleted = [d for d in there.deleted if (d[1].ended or now) + there.keeping.soft > now]
            return list(there.deleted if soft_deleted else there.past)

    def get(self, bucket: str, key: str, generation: int | None = None) -> Stored:
        """Return an object. `generation`: this version of it, live or not; None for the live one."""
        with self._lock:
            there = self._bucket(bucket)
            found = there.objects.get(key)
            if generation is not None:
                versions = [*there.past, (key, found)] if found else there.past
                found = next((s for name, s in versions if name == key and s.generation == generation), None)
        if found is None:
            raise StorageRefused(
                404, "NoSuchKey", "The specified key does not exist.", f"No such object: {bucket}/{key}"
            )
        return found

    def put(self, bucket: str, key: str, data: bytes, wanted: int | None, **told: Any) -> Stored:
        """Write an object.

        `wanted`: the generation that it must have now; 0 if it must not exist, None if either will do. `told`: its type
        and metadata.
        """
        with self._lock:
            self._write(bucket, key, wanted)
            made = self._store(bucket, key, data, hashlib.md5(data, usedforsecurity=False).hexdigest())
            if told:
                made = self._buckets[bucket].objects[key] = replace(made, **told)
            return made

    def delete(self, bucket: str, key: str, wanted: int | None, generation: int | None = None) -> None:
        """Delete an object, which stays as a noncurrent version where versions are kept.

        `generation`: this version alone, which then does not stay. `wanted`: as of `put`.
        """
        with self._lock:
            there, found = self._bucket(bucket), self.get(bucket, key, generation)
            if (key, found) in there.past:
                there.past.remove((key, found))
                self._end(there, key, found, for_good=True)
                return
            self._write(bucket, key, wanted)
            del there.objects[key]
            self._end(there, key, found, for_good=generation is not None)

    def change(self, bucket: str, key: str, **told: Any) -> Stored:
        """Change an object's type or metadata; its generation stays."""
        with self._lock:
            found = self.get(bucket, key)
            self._pace(self._bucket(bucket), bucket, key)
            changed = replace(found, metageneration=found.metageneration + 1, **told)
            self._bucket(bucket).objects[key] = changed
            return changed

    def page(self, bucket: str, prefix: str, delimiter: str, after: str, most: int) -> Page:
        """Return a page of the names that begin with `prefix`, in the order of their bytes."""
        with self._lock:
            objects = dict(self._bucket(bucket).objects)
        names = sorted((n for n in objects if n.startswith(prefix) and n > after), key=str.encode)
        found, prefixes, last = dict[str, Stored](), list[str](), ""
        for name in names:
            folder = _folder(name, prefix, delimiter)
            if folder and (folder in prefixes or folder <= after):
                last = name
                continue
            if len(found) + len(prefixes) >= min(most, PAGE):
                return Page(found, tuple(prefixes), last)
            if folder:
                prefixes.append(folder)
            else:
                found[name] = objects[name]
            last = name
        return Page(found, tuple(prefixes), "")

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
            there = self._upload(upload)
            if not numbers or numbers != sorted(set(numbers)) or not set(numbers) <= set(there.parts):
                raise StorageRefused(400, "InvalidPart", "One or more of the specified parts could not be found.")
            parts = [there.parts[n] for n in numbers]
            if any(len(part) < PART_AT_LEAST for part in parts[:-1]):
                raise StorageRefused(
                    400, "EntityTooSmall", "Your proposed upload is smaller than the minimum object size."
                )
            self._write(there.bucket, there.key, None)
            del self._uploads[upload]
            return there.key, self._store(there.bucket, there.key, b"".join(parts), f"-{self._next():x}")

    def abort(self, upload: str) -> None:
        """Abort a multipart upload."""
        with self._lock:
            self._upload(upload)
            del self._uploads[upload]

    def unfinished(self) -> Iterator[str]:
        """Return the names of uploads in progress."""
        with self._lock:
            return iter([u.key for u in self._uploads.values()])

    def _bucket(self, name: str) -> Held:
        if name not in self._buckets:
            raise StorageRefused(404, "NoSuchBucket", "The specified bucket does not exist.")
        return self._buckets[name]

    def _upload(self, upload: str) -> UnfinishedUpload:
        if upload not in self._uploads:
            raise StorageRefused(404, "NoSuchUpload", "The requested upload was not found.")
        return self._uploads[upload]

    def _write(self, bucket: str, key: str, wanted: int | None) -> None:
        """Refuse a write whose precondition fails, that the retention policy forbids, or that comes too soon after the
        last one."""
        there = self._bucket(bucket)
        _check_key(key)
        held = there.objects.get(key)
        if wanted is not None and wanted != (held.generation if held is not None else 0):
            raise StorageRefused(
                412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.",
                "x-goog-if-generation-match",
            )  # fmt: skip
        if held is not None and held.at + there.keeping.hold > self._clock.now():
            raise StorageRefused(
                403, "RetentionPolicyNotMet", f"Object '{bucket}/{key}' is subject to bucket's retention policy and"
                f" cannot be deleted or overwritten until {held.at + there.keeping.hold:%Y-%m-%dT%H:%M:%SZ}.",
            )  # fmt: skip
        self._pace(there, bucket, key)

    def _pace(self, there: Held, bucket: str, key: str) -> None:
        now = self._clock.monotonic()
        if key in there.written and now - there.written[key] < WRITE_EVERY:
            raise StorageRefused(
                429, "SlowDown", "The object exceeded the rate limit for object mutation operations (create, update,"
                " and delete). Please reduce your request rate.", f"{bucket}/{key}",
            )  # fmt: skip
        there.written[key] = now

    def _store(self, bucket: str, key: str, data: bytes, etag: str) -> Stored:
        made = Stored(data, self._next(), f'"{etag}"', self._clock.now())
        there = self._buckets[bucket]
        before = there.objects.get(key)
        there.objects[key] = made
        if before is not None:
            self._end(there, key, before)
        return made

    def _end(self, there: Held, key: str, stored: Stored, *, for_good: bool = False) -> None:
        """Retain or delete an object that is no longer live."""
        ended = replace(stored, ended=self._clock.now())
        if there.keeping.versions and not for_good:
            there.past.append((key, ended))
        elif there.keeping.soft:
            there.deleted.append((key, ended))

    def _next(self) -> int:
        self._count += 1
        return self._count


def _check_key(key: str) -> None:
    bad = not key or key in (".", "..") or "\r" in key or "\n" in key or len(key.encode()) > KEY_AT_MOST
    if bad or key.startswith(".well-known/acme-challenge/"):
        raise StorageRefused(400, "InvalidArgument", "Invalid argument.", "Disallowed object name.")


def _folder(name: str, prefix: str, delimiter: str) -> str:
    """Return the prefix that a listing with a delimiter shows in place of a name; empty for the name itself."""
    head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
    return f"{prefix}{head}{delimiter}" if found else ""
