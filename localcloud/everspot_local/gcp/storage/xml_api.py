"""Stands in for Cloud Storage's XML API, as far as obstore and the product use it; the rest is refused with 501.

It asks for a bearer token, and believes any if nobody is there to ask about it. It knows no ACLs, no customer keys, no
conditions on the source of a copy, no resumable uploads, no versions of the past, no ranges of several pieces and no
signed URLs. Source: Cloud Storage, "XML API reference" and "HTTP status and error codes for XML".
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from werkzeug.datastructures import Headers
from werkzeug.http import http_date
from werkzeug.wrappers import Request, Response

from everspot_local.gcp.answers import ApiError
from everspot_local.gcp.storage.object_model import StorageRefused, Stored
from everspot_local.gcp.storage.objects import PAGE, Objects
from everspot_local.gcp.storage.transfers import Conditions, check_digests, check_length, ranged

_CONDITION = "x-goog-if-generation-match"
_LISTING = {"list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after", "encoding-type"}
_NOT_FOR_WRITES = ("If-Match", "If-None-Match")
"""Cloud Storage, "Request preconditions": these apply to requests that read."""
_NOT_HERE = ("x-goog-resumable", "x-goog-acl", "x-goog-copy-source-generation")
"""What would make another request of a write: the beginning of a resumable upload, access for others, a copy of what an
object was."""
_COPY = "x-goog-copy-source"

Enter = Callable[[str, str, Mapping[str, Any]], None]


class XmlApi:
    """A WSGI application over the objects of one Cloud Storage.

    Args:
        objects: what it serves.
        enter: lets a call in or raises `ApiError`, by the Authorization header, the method of the JSON API that does
            the same, and what it is done to; any token is believed without it.
    """

    def __init__(self, objects: Objects, enter: Enter | None = None) -> None:
        self._objects, self._enter = objects, enter

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        try:
            self._let_in(request)
            response = self._answer(request)
        except StorageRefused as refused:
            response = _refusal(self._unseen(request) if refused.code == "NoSuchKey" else refused)
        except ApiError as error:
            response = _refusal(_denied(error))
        return response(environ, start_response)

    def _let_in(self, request: Request) -> None:
        authorization = request.headers.get("Authorization", "")
        if not authorization.startswith("Bearer "):
            raise StorageRefused(401, "AuthenticationRequired", "Authentication required.")
        bucket, _, key = request.path.lstrip("/").partition("/")
        if self._enter is not None and bucket:
            parameters = {"object": key} if key else {"prefix": request.args.get("prefix", "")}
            self._enter(authorization, _method(request, key), {"bucket": bucket, **parameters})
            if key and request.method == "PUT" and _COPY in request.headers:
                source_bucket, source_key = _source(request)
                self._enter(authorization, "storage.objects.get", {"bucket": source_bucket, "object": source_key})

    def _unseen(self, request: Request) -> StorageRefused:
        """Return the error for an object that is missing. Who may not list is not told that it is, but denied access
        ("IAM permissions for XML requests")."""
        bucket, _, key = request.path.lstrip("/").partition("/")
        try:
            if self._enter is not None:
                self._enter(request.headers["Authorization"], "storage.objects.list", {"bucket": bucket})
        except ApiError as error:
            return _denied(error)
        return StorageRefused(404, "NoSuchKey", "The specified key does not exist.", f"No such object: {bucket}/{key}")

    def _answer(self, request: Request) -> Response:
        bucket, _, key = request.path.lstrip("/").partition("/")
        if not key:
            return self._of_bucket(request, bucket)
        if "uploads" in request.args or "uploadId" in request.args:
            return self._of_upload(request, bucket, key)
        _refuse_unknown(request, {"generation"} if request.method in ("GET", "HEAD") else set())
        answers: Mapping[str, Callable[[Request, str, str], Response]] = {
            "GET": self._read, "HEAD": self._read, "PUT": self._write, "DELETE": self._delete,
        }  # fmt: skip
        if request.method not in answers:
            raise StorageRefused(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
        return answers[request.method](request, bucket, key)

    def _of_bucket(self, request: Request, bucket: str) -> Response:
        if request.method == "PUT":
            _refuse_unknown(request, set())
            if self._enter is not None:  # a project's buckets are made by the JSON API, with all that they are
                raise StorageRefused(501, "NotImplemented", "The requested operation is not implemented.")
            self._objects.make_bucket(bucket)
            return Response(status=200)
        if request.method != "GET":
            raise StorageRefused(501, "NotImplemented", "The requested operation is not implemented.")
        _refuse_unknown(request, _LISTING)
        page = self._objects.page(
            bucket,
            request.args.get("prefix", ""),
            request.args.get("delimiter", ""),
            request.args.get("continuation-token") or request.args.get("start-after", ""),
            request.args.get("max-keys", PAGE, type=int),
        )
        body = [f"<Name>{escape(bucket)}</Name><Prefix>{escape(request.args.get('prefix', ''))}</Prefix>"]
        body += [f"<KeyCount>{len(page.objects)}</KeyCount><IsTruncated>{str(bool(page.more)).lower()}</IsTruncated>"]
        if page.more:
            body.append(f"<NextContinuationToken>{escape(page.more)}</NextContinuationToken>")
        body += [_content(name, stored) for name, stored in page.objects.items()]
        body += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in page.prefixes]
        return _xml("ListBucketResult", "".join(body))

    def _read(self, request: Request, bucket: str, key: str) -> Response:
        stored = self._objects.get(bucket, key, request.args.get("generation", type=int))
        _conditions(request).check(stored)
        ranged_read = ranged(stored.data, request.headers.get("Range"))
        headers = _headers(stored)
        headers.extend(ranged_read.headers)
        return Response(
            ranged_read.data, status=ranged_read.status, headers=headers, mimetype="application/octet-stream"
        )

    def _write(self, request: Request, bucket: str, key: str) -> Response:
        if any(name in request.headers for name in (*_NOT_FOR_WRITES, *_NOT_HERE)):
            raise StorageRefused(
                501, "NotImplemented", "A header you provided implies functionality that is not implemented."
            )
        if _COPY in request.headers:
            copied = self._objects.put(bucket, key, self._objects.get(*_source(request)).data, _condition(request))
            return _xml("CopyObjectResult", f"<ETag>{escape(copied.etag)}</ETag>", _headers(copied))
        stored = self._objects.put(bucket, key, _body(request), _condition(request))
        return Response(status=200, headers=_headers(stored))

    def _delete(self, request: Request, bucket: str, key: str) -> Response:
        self._objects.delete(bucket, key, _condition(request))
        return Response(status=204)

    def _of_upload(self, request: Request, bucket: str, key: str) -> Response:
        if _CONDITION in request.headers:
            raise StorageRefused(
                400, "InvalidArgument", "Preconditions are not supported for XML API multipart uploads."
            )
        if "uploads" in request.args and request.method == "POST":
            upload = self._objects.begin(bucket, key)
            location = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key>"
            return _xml("InitiateMultipartUploadResult", f"{location}<UploadId>{upload}</UploadId>")
        upload = request.args.get("uploadId", "")
        self._objects.check_upload(upload, bucket, key)
        if request.method == "PUT":
            etag = self._objects.part(upload, request.args.get("partNumber", 0, type=int), _body(request))
            return Response(status=200, headers={"ETag": etag})
        if request.method == "DELETE":
            self._objects.abort(upload)
            return Response(status=204)
        if request.method != "POST":
            raise StorageRefused(501, "NotImplemented", "The requested operation is not implemented.")
        name, stored = self._objects.complete(upload, _part_numbers(request.get_data()))
        location = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(name)}</Key><ETag>{escape(stored.etag)}</ETag>"
        return _xml("CompleteMultipartUploadResult", location, _headers(stored))


def _denied(error: ApiError) -> StorageRefused:
    """Return a denial in the form of the XML API ("HTTP status and error codes for XML")."""
    code = "AuthenticationRequired" if error.status == 401 else "AccessDenied"
    return StorageRefused(error.status, code, "Access denied.", error.message)


def _method(request: Request, key: str) -> str:
    """Return the equivalent method of the JSON API ("IAM permissions for XML requests")."""
    if not key:
        return "storage.buckets.insert" if request.method == "PUT" else "storage.objects.list"
    if "uploads" in request.args or "uploadId" in request.args:
        return f"storage.multipartUploads.{'abort' if request.method == 'DELETE' else 'create'}"
    verbs = {"PUT": "insert", "DELETE": "delete"}
    return f"storage.objects.{verbs.get(request.method, 'get')}"


def _source(request: Request) -> tuple[str, str]:
    """Return bucket and key of what is copied ("Copy an object": a slash, and the name with its codes)."""
    bucket, _, key = unquote(request.headers[_COPY]).lstrip("/").partition("/")
    return bucket, key


def _condition(request: Request, name: str = _CONDITION) -> int | None:
    text = request.headers.get(name)
    if text is None:
        return None
    if not text.isdigit():
        raise StorageRefused(400, "InvalidArgument", "Invalid argument.", f"{name} must be a number.")
    return int(text)


def _conditions(request: Request) -> Conditions:
    return Conditions(
        generation=_condition(request), metageneration=_condition(request, "x-goog-if-metageneration-match"),
        etags=request.if_match, not_etags=request.if_none_match,
        modified_since=request.if_modified_since, unmodified_since=request.if_unmodified_since,
    )  # fmt: skip


def _body(request: Request) -> bytes:
    check_length(request.environ)
    data = request.get_data()
    check_digests(data, dict(request.headers))
    return data


def _refuse_unknown(request: Request, supported: set[str]) -> None:
    unknown = sorted(set(request.args) - supported)
    if unknown:
        raise StorageRefused(501, "NotImplemented", "The requested operation is not implemented.", ", ".join(unknown))


def _part_numbers(body: bytes) -> list[int]:
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - of a client on this machine
        return [int(e.text or "") for e in root.iter() if e.tag.rpartition("}")[2] == "PartNumber"]
    except (ElementTree.ParseError, ValueError):
        raise StorageRefused(
            400, "MalformedCompleteMultipartUploadRequest", "The XML you provided is not valid."
        ) from None


def _headers(stored: Stored) -> Headers:
    return Headers({
        "ETag": stored.etag, "x-goog-generation": str(stored.generation), "x-goog-metageneration": "1",
        "Last-Modified": http_date(stored.at),
    })  # fmt: skip


def _content(name: str, stored: Stored) -> str:
    at = f"{stored.at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{stored.at.microsecond // 1000:03d}Z"
    return (
        f"<Contents><Key>{escape(name)}</Key><Generation>{stored.generation}</Generation>"
        f"<MetaGeneration>1</MetaGeneration><LastModified>{at}</LastModified>"
        f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.data)}</Size></Contents>"
    )


def _xml(root: str, body: str, headers: Headers | None = None, status: int = 200) -> Response:
    text = f"<?xml version='1.0' encoding='UTF-8'?><{root}>{body}</{root}>"
    return Response(text, status=status, headers=headers, content_type="application/xml; charset=UTF-8")


def _refusal(refused: StorageRefused) -> Response:
    elements = f"<Code>{refused.code}</Code><Message>{escape(refused.message)}</Message>"
    if refused.details:
        elements += f"<Details>{escape(refused.details)}</Details>"
    return _xml("Error", elements, status=refused.status)
