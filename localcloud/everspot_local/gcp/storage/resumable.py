"""Stands in for Cloud Storage's resumable uploads: sessions that take an object's bytes in chunks.

A session's URI is all that it takes to send to it: its requests need no token. It lasts a week. Source: Cloud Storage
documentation, "Resumable uploads" and "Perform resumable uploads".
"""

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from werkzeug.wrappers import Request as HttpRequest
from werkzeug.wrappers import Response

from everspot_local.gcp.answers import ApiError, Reply, to_proto_json
from everspot_local.gcp.refusals import bad

Document = dict[str, Any]
PATH = re.compile(r"/(?:resumable/)?upload/storage/v1/b/([^/]+)/o")
CHUNK = 256 << 10
"""Bytes that every chunk but the last is a multiple of."""
LIFE = timedelta(days=7)
_RANGE = re.compile(r"bytes (?:\*|(\d+)-(\d+))/(?:\*|(\d+))")

Write = Callable[[Mapping[str, Any], Document, bytes], Document]
"""Writes an object, by the parameters that its upload began with, its metadata and its bytes. Raises `ApiError`."""


@dataclass
class _Session:
    params: Mapping[str, Any]
    metadata: Document
    write: Write
    began: datetime
    size: int | None
    data: bytearray = field(default_factory=bytearray)
    document: Document | None = None


class ResumableUploads:
    """The sessions of one Cloud Storage.

    Args:
        now: market time.
        endpoint: URL of the local cloud.
    """

    def __init__(self, now: Callable[[], datetime], endpoint: Callable[[], str]) -> None:
        self._now, self._endpoint = now, endpoint
        self._sessions: dict[str, _Session] = {}

    def begin(self, params: Mapping[str, Any], metadata: Document, headers: Mapping[str, str], write: Write) -> Reply:
        """Begin a session; the answer's header Location is its URI. `write`: what the last chunk does."""
        sent = {key.lower(): value for key, value in headers.items()}
        if kind := sent.get("x-upload-content-type"):
            metadata = {"contentType": kind, **metadata}
        length = sent.get("x-upload-content-length", "")
        name = secrets.token_urlsafe(32)
        self._sessions[name] = _Session(params, metadata, write, self._now(), int(length) if length.isdigit() else None)
        uri = f"{self._endpoint()}/upload/storage/v1/b/{params['bucket']}/o?uploadType=resumable&upload_id={name}"
        return Reply(headers={"Location": uri, "X-GUploader-UploadID": name}, content_type="text/plain")

    def answer(self, http: HttpRequest) -> Response:
        """Answer a request to a session: PUT sends a chunk or asks how much has arrived, DELETE cancels."""
        try:
            return self._answered(http)
        except ApiError as error:
            text = json.dumps(error.document(listed=True))
            return Response(text, error.status, content_type="application/json; charset=UTF-8")

    def _answered(self, http: HttpRequest) -> Response:
        name = http.args.get("upload_id", "")
        session = self._sessions.get(name)
        if session is None or session.began + LIFE < self._now():
            raise ApiError(410 if session else 404, "notFound", "The upload session is not there any more.")
        if http.method == "DELETE":
            del self._sessions[name]
            return Response("Client Closed Request", 499)
        if session.document is None:
            self._take(session, http.headers.get("Content-Range"), http.get_data())
        if session.document is None:
            stored = {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}
            return Response(status=308, headers={"X-GUploader-UploadID": name, **stored})
        text = json.dumps(to_proto_json(session.document, zeros=True))
        return Response(text, content_type="application/json; charset=UTF-8")

    def _take(self, session: _Session, content_range: str | None, data: bytes) -> None:
        """Take a chunk, and make the object of the last one. What has arrived already is not taken twice."""
        first, total, is_query = 0, session.size, False
        if content_range is None:
            total = len(data)  # all of it in one request
        else:
            match = _RANGE.fullmatch(content_range.strip())
            if match is None:
                raise bad(f"Invalid Content-Range: {content_range}")
            is_query = match[1] is None
            first = int(match[1] or 0)
            total = int(match[3]) if match[3] else session.size
            if not is_query and int(match[2]) - first + 1 != len(data):
                raise bad(f"The body has {len(data)} bytes, and Content-Range is {content_range}.")
        if not is_query:
            if first > len(session.data):
                raise ApiError(
                    503, "backendError", "Invalid request. According to the Content-Range header, the upload offset is "
                    f"{first} byte(s), which exceeds already uploaded size of {len(session.data)} byte(s).",
                )  # fmt: skip
            end = first + len(data)
            if len(data) % CHUNK and end != total:
                raise bad(
                    "Invalid request. The number of bytes uploaded is required to be equal or greater than "
                    f"{CHUNK}, except for the final request (it's recommended to be the exact multiple of {CHUNK}). "
                    f"The received request contained {len(data)} bytes, which does not meet this requirement."
                )
            session.data += data[len(session.data) - first :]
        if total is not None and len(session.data) >= total:
            if len(session.data) > total:
                raise bad(f"{len(session.data)} bytes have arrived of an object that has {total}.")
            session.document = session.write(session.params, session.metadata, bytes(session.data))
            session.data.clear()
