"""Stands in for the front ends of Google's APIs: finds a request's method, its caller, and the handler that answers it.

It serves no batches and no other transports than JSON over HTTP. What Google has and this does not, is answered 501 by
name; what Google has not, 404.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import BytesParser
from functools import cache, cached_property
from typing import Any
from urllib.parse import parse_qsl

from werkzeug.wrappers import Request as HttpRequest
from werkzeug.wrappers import Response

from everspot_local.gcp.answers import ApiError, Reply, not_here, to_proto_json
from everspot_local.gcp.callers import NOBODY, ApiCaller
from everspot_local.gcp.discovery import Api, Match
from everspot_local.gcp.partial import select
from everspot_local.gcp.project import Project

log = logging.getLogger(__name__)
Document = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One call.

    Attributes:
        method: its id in the discovery document.
        params: typed parameters of path and query.
        body: with every value in the form of answers.
        media: the uploaded bytes, for a call by an upload path.
    """

    method: str
    params: Mapping[str, Any]
    body: Document
    caller: ApiCaller
    media: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


_SESSION = "upload_id="
"""Part of the query of a request to an upload session. A method opened the session; the request itself is no method of
the API."""
Handler = Callable[[Request], Document | Reply | None]
"""Answers one method; None for an answer without a body. Raises ApiError."""


@dataclass(frozen=True)
class Service:
    """One API under a prefix of the endpoint.

    Args:
        document: name of its discovery document.
        prefix: what its paths begin with here, beside what the document says.
        routes: handlers by method id.
        modern: whether it is younger than Compute and Storage: it tells neither `errors` nor what is false or 0, and in
            its requests what is empty counts as said.
        locked: whether its handlers run with the market's lock held; one that waits must not.
        open: whether it answers who shows no token.
    """

    document: str
    prefix: str
    routes: Mapping[str, Handler]
    modern: bool = True
    locked: bool = False
    open: bool = False

    @cached_property
    def api(self) -> Api:
        """Return the API's methods.

        Raises:
            ValueError: if a handler is for a method that does not exist.
        """
        methods = _api(self.document, self.modern)
        if unknown := sorted(set(self.routes) - methods.ids):
            raise ValueError(f"{self.document} has no methods {', '.join(unknown)}")
        return methods


@cache
def _api(document: str, modern: bool) -> Api:
    """Return the API's methods, which all projects of a process share."""
    return Api(document, empties=modern)


class Router:
    """All services of a project as one WSGI application.

    Args:
        project: whose they are.
        services: in the order in which they are asked; the first whose prefix fits and that knows the path answers.
        otherwise: what answers everything else.
    """

    def __init__(self, project: Project, services: Iterable[Service], otherwise: Callable[..., Any]) -> None:
        self._project = project
        self._services = tuple(services)
        self._otherwise = otherwise
        for service in self._services:
            _ = service.api  # read now, so that the first call does not wait for it

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer one request."""
        path = str(environ.get("REQUEST_URI") or environ["PATH_INFO"]).partition("?")[0]
        for service in self._services:
            match = self._find(service, environ["REQUEST_METHOD"], path)
            if match is not None and not (match.media and _SESSION in environ["QUERY_STRING"]):
                return self._answer(service, match, HttpRequest(environ))(environ, start_response)
        for service in self._services:
            if service.prefix and path.startswith(f"{service.prefix}/"):
                return _refused(ApiError(404, "notFound", f"Method not found: {path}"), service)(
                    environ, start_response
                )
        return self._otherwise(environ, start_response)

    def _find(self, service: Service, verb: str, path: str) -> Match | None:
        if not path.startswith(f"{service.prefix}/"):  # an empty prefix fits everything: the document says the rest
            return None
        own = path.removeprefix(service.prefix)
        # The provider asks for `b/NAME/anywhereCaches/`, and Google answers.
        return service.api.find(verb, own) or service.api.find(verb, own.removesuffix("/"))

    def _answer(self, service: Service, match: Match, http: HttpRequest) -> Response:
        try:
            shown = http.headers.get("Authorization", "")
            nobody = service.open and not shown
            caller = NOBODY if nobody else self._project.sessions.caller(shown, datetime.now(UTC))
            request = self._read(match, http, caller)
            selection = match.selection(http.query_string.decode())
            answer = self._handled(service, request)
        except ApiError as error:
            return _refused(error, service)
        except Exception:
            log.exception("%s failed", match.method.id)
            return _refused(ApiError(500, "backendError", "Internal error encountered."), service)
        if isinstance(answer, Reply):
            return Response(answer.body, answer.status, dict(answer.headers), content_type=answer.content_type)
        if answer is None:
            return Response(status=204)
        return _json(select(to_proto_json(answer, zeros=not service.modern), selection))

    def _read(self, match: Match, http: HttpRequest, caller: ApiCaller) -> Request:
        method, params = match.method, match.query(http.query_string.decode())
        body: Document = _metadata(http) if match.media else {}
        if not match.media and method.body is not None:
            is_form = http.mimetype == "application/x-www-form-urlencoded"
            body = method.body.read(_form(http.get_data()) if is_form else _parsed(http.get_data()))
        return Request(method.id, params, body, caller, http.get_data() if match.media else None, dict(http.headers))

    def _handled(self, service: Service, request: Request) -> Document | Reply | None:
        project = self._project
        handler = service.routes.get(request.method)
        if handler is None:
            raise not_here(request.method)
        project.enter(request.method, request.params, request.body, request.caller)
        if not service.locked:
            return handler(request)
        with project.market.lock:
            return handler(request)


def _form(data: bytes) -> Document:
    """Read a body in the form of OAuth 2.0, as Google's client libraries send it to the Security Token Service."""
    fields = parse_qsl(data.decode(errors="replace"))
    return {re.sub(r"_([a-z])", lambda match: match[1].upper(), name): value for name, value in fields}


def _metadata(http: HttpRequest) -> Document:
    """Return the metadata of an upload, which may have the object's name ("Uploads and downloads"): the body that
    begins a resumable one, and the first part of a multipart one."""
    if http.args.get("uploadType") == "resumable":
        metadata = _parsed(http.get_data())
        return metadata if isinstance(metadata, dict) else {}
    if http.mimetype != "multipart/related":
        return {}
    parts = related_parts(http.headers["Content-Type"], http.get_data())
    metadata = _parsed(parts[0][1]) if parts else {}
    return metadata if isinstance(metadata, dict) else {}


def related_parts(content_type: str, data: bytes) -> list[tuple[str, bytes]]:
    """Return type and content of each part of a multipart body. The boundary may be in single quotes, as gcloud sends
    it."""
    header = re.sub(r"boundary='([^']*)'", r'boundary="\1"', content_type)
    parts = BytesParser().parsebytes(f"Content-Type: {header}\r\n\r\n".encode() + data).get_payload()
    if not isinstance(parts, list):
        return []
    return [(part.get_content_type(), part.get_payload(decode=True) or b"") for part in parts]  # type: ignore[union-attr,misc]


def _parsed(data: bytes) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError as error:
        raise ApiError(400, "parseError", f"Invalid JSON payload received. {error}") from None


def _refused(error: ApiError, service: Service) -> Response:
    return _json(error.document(listed=not service.modern), error.status)


def _json(document: Any, status: int = 200) -> Response:
    return Response(json.dumps(document), status=status, content_type="application/json; charset=UTF-8")
