"""What uploads have to hold, and what reads answer, by either of Cloud Storage's APIs.

Sources (Cloud Storage documentation): "Request preconditions"; "HTTP status and error codes for XML" (NotModified,
PreconditionFailed, BadDigest, CrcMismatch, MissingContentLength); "Object upload" (Content-Length is required unless
the upload is chunked); "Hashes and ETags". Ranges: RFC 9110, 14.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from werkzeug.datastructures import ETags
from werkzeug.http import parse_range_header

from everspot_local.body_checks import length_is_missing, md5_fault
from everspot_local.crc32c import crc32c
from everspot_local.gcp.storage.object_model import StorageRefused, Stored


@dataclass(frozen=True)
class Conditions:
    """What has to hold of an object that is read; None: anything goes. `not_generation` and `not_metageneration` are
    of the JSON API alone, ETags and times of the XML API."""

    generation: int | None = None
    not_generation: int | None = None
    metageneration: int | None = None
    not_metageneration: int | None = None
    etags: ETags | None = None
    not_etags: ETags | None = None
    modified_since: datetime | None = None
    unmodified_since: datetime | None = None

    def check(self, stored: Stored) -> None:
        """Raise `StorageRefused`: 412 if the object is not what was asked for, 304 if it is what the caller has."""
        etag, at = stored.etag.strip('"'), stored.at.replace(microsecond=0)
        failed = (
            self.generation not in (None, stored.generation),
            self.metageneration not in (None, stored.metageneration),
            bool(self.etags) and not (self.etags or ETags()).contains(etag),
            self.unmodified_since is not None and at > self.unmodified_since and not self.etags,
        )
        if any(failed):
            raise StorageRefused(
                412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold."
            )
        same = (
            self.not_generation == stored.generation,
            self.not_metageneration == stored.metageneration,
            bool(self.not_etags) and (self.not_etags or ETags()).contains(etag),
            self.modified_since is not None and at <= self.modified_since and not self.not_etags,
        )
        if any(same):
            raise StorageRefused(304, "NotModified", "The resource you requested has not been modified.")


@dataclass(frozen=True)
class RangedRead:
    """A read's status, bytes and headers."""

    status: int
    data: bytes
    headers: Mapping[str, str]


def ranged(data: bytes, range_header: str | None) -> RangedRead:
    """Return what a read of `data` with this Range answers. A Range that is not understood is no Range.

    Raises:
        StorageRefused: 416 if there is nothing of it, 501 for several ranges, which this stand-in does not serve.
    """
    whole = RangedRead(200, data, {"Accept-Ranges": "bytes"})
    requested = parse_range_header(range_header) if range_header else None
    if requested is None or requested.units != "bytes":
        return whole
    if len(requested.ranges) > 1:
        raise StorageRefused(501, "NotImplemented", "The requested operation is not implemented.", "several ranges")
    ((begin, end),) = requested.ranges
    begin = max(0, len(data) + begin) if begin < 0 else begin  # of the end; of all that there is, if it is less
    end = len(data) if end is None else min(end, len(data))
    if begin >= end:
        raise StorageRefused(416, "InvalidRange", "The requested range cannot be satisfied.")
    return RangedRead(206, data[begin:end], {**whole.headers, "Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"})


def check_length(environ: Mapping[str, Any]) -> None:
    """Refuse a body without a length."""
    if length_is_missing(environ):
        raise StorageRefused(411, "MissingContentLength", "You must provide the Content-Length HTTP header.")


def check_digests(data: bytes, headers: Mapping[str, str], metadata: Mapping[str, Any] | None = None) -> None:
    """Refuse what is not what its sender says it is, by Content-MD5, x-goog-hash, or the fields `md5Hash` and `crc32c`
    of the object. `headers`: by names in any case."""
    lowered = {name.lower(): value for name, value in headers.items()}
    stated = [("md5", lowered["content-md5"])] if lowered.get("content-md5") else []
    for part in filter(None, (each.strip() for each in lowered.get("x-goog-hash", "").split(","))):
        kind, _, value = part.partition("=")
        stated.append((kind.lower(), value))
    stated += [(kind, str(metadata[name])) for kind, name in (("md5", "md5Hash"), ("crc32c", "crc32c"))
               if metadata and metadata.get(name)]  # fmt: skip
    for kind, value in stated:
        if kind == "md5" and md5_fault(value, data):
            raise StorageRefused(
                400, "BadDigest", "The Content-MD5 or x-goog-hash you specified did not match what we received.", value
            )
        if kind == "crc32c" and value != crc32c(data):
            raise StorageRefused(400, "CrcMismatch", "The CRC32C you specified did not match what we computed.", value)
        if kind not in ("md5", "crc32c"):
            raise StorageRefused(400, "InvalidArgument", "Invalid argument.", f"x-goog-hash: {kind}")
