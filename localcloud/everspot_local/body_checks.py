"""Checks a request's body against its declared length and checksums."""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from everspot_local.crc32c import crc32c


def length_is_none(environ: Mapping[str, Any]) -> bool:
    """Return whether a Content-Length is present but not a length. RFC 9110, 8.6: a number of digits."""
    stated = str(environ.get("CONTENT_LENGTH") or "").strip()
    return bool(stated) and not (stated.isascii() and stated.isdigit())


def length_is_missing(environ: Mapping[str, Any]) -> bool:
    """Return whether a body has neither a Content-Length nor chunks."""
    return not environ.get("CONTENT_LENGTH") and "chunked" not in str(environ.get("HTTP_TRANSFER_ENCODING", "")).lower()


def is_base64(stated: str, of_bytes: int) -> bool:
    """Return whether a text is the base64 form of so many bytes."""
    try:
        return len(base64.b64decode(stated, validate=True)) == of_bytes
    except (binascii.Error, ValueError):
        return False


def md5_fault(stated: str, data: bytes) -> str:
    """Return what is wrong with an MD5 in base64 (RFC 1864), as S3's error codes name it; empty if it is that of
    `data`."""
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    if not is_base64(stated, of_bytes=len(digest)):
        return "InvalidDigest"
    return "" if base64.b64decode(stated) == digest else "BadDigest"


CHECKSUMS: Mapping[str, Callable[[bytes], str]] = {
    "crc32": lambda data: base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode(),
    "crc32c": crc32c,
    "sha1": lambda data: base64.b64encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode(),
    "sha256": lambda data: base64.b64encode(hashlib.sha256(data).digest()).decode(),
}
"""How the value of S3's header `x-amz-checksum-NAME` is made of a body ("Checking object integrity")."""
