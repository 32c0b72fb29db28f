"""Stands in for how S3 writes a list of objects: the same text as moto's, in a fraction of the time.

A cluster's scheduler lists its store several times a second, and moto parses and formats every object's time each
time, with a parser that accepts any date format.
"""

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult
from moto.s3.responses import S3Response

_serialized = S3Response.serialized
_AFTER = "</IsTruncated>"
"""S3's objects follow it."""


def serialized(handler: S3Response, action_result: ActionResult) -> TYPE_RESPONSE:
    """Write an answer as moto does; the objects of ListObjectsV2 are written here."""
    result = action_result.result
    if handler.data.get("Action") != "ListObjectsV2" or not isinstance(result, dict) or not result.get("Contents"):
        return _serialized(handler, action_result)
    fields = {name: value for name, value in result.items() if name != "Contents"}
    status, headers, body = _serialized(handler, ActionResult(fields))
    text = body.decode() if isinstance(body, bytes) else body
    objects = "".join(_written(summary) for summary in result["Contents"])
    return status, headers, text.replace(_AFTER, f"{_AFTER}{objects}", 1)


def _written(summary: Mapping[str, Any]) -> str:
    """Write one object, with its fields in the order of S3's model."""
    fields = [("Key", summary["Key"]), ("LastModified", summary["LastModified"]), ("ETag", summary["ETag"])]
    fields += [("ChecksumAlgorithm", algorithm) for algorithm in summary.get("ChecksumAlgorithm", ())]
    fields += [("Size", summary["Size"]), ("StorageClass", summary["StorageClass"])]
    owner = summary.get("Owner")
    text = "".join(_element(name, escape(str(value))) for name, value in fields)
    if owner is not None:
        text += _element("Owner", "".join(_element(name, escape(owner[name])) for name in ("DisplayName", "ID")))
    return _element("Contents", text)


def _element(name: str, text: str) -> str:
    return f"<{name}>{text}</{name}>" if text else f"<{name}/>"
