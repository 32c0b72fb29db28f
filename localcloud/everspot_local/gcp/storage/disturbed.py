"""Stands in for a busy Cloud Storage: refuses a share of the requests before anything is carried out.

Cloud Storage documentation, "HTTP status and error codes": a request that changes an object too often is refused with
429, `rateLimitExceeded` in JSON and `SlowDown` in XML; any other with 503, `backendError` and `ServiceUnavailable`.
Requests that change something get the first here, the others the second. Both may be sent again.
"""

import json
from collections.abc import Callable
from typing import Any

from werkzeug.wrappers import Response

from everspot_local.market.disturbances import Disturbances
from everspot_local.market.disturbed import DisturbedApplication, Wsgi

_READS = ("GET", "HEAD")
_MUTATION = (
    "The object exceeded the rate limit for object mutation operations (create, update, and delete). Please reduce "
    "your request rate. See https://cloud.google.com/storage/docs/gcs429."
)
_UNAVAILABLE = "Backend Error"


class DisturbedStorage(DisturbedApplication):
    """Refuses requests of the JSON and the XML API. `xml`: the prefix of the paths of the latter."""

    def __init__(self, application: Wsgi, xml: str, disturbances: Callable[[], Disturbances]) -> None:
        super().__init__(application, disturbances)
        self._xml, self._json = f"{xml}/", ("/storage/v1/", "/upload/storage/v1/", "/download/storage/v1/")

    def _refusal(self, environ: dict[str, Any]) -> Response | None:
        path = environ["PATH_INFO"]
        in_xml = path.startswith(self._xml)
        if not (in_xml or path.startswith(self._json)) or not self._disturbances().occurs("slow_down"):
            return None
        reads = environ["REQUEST_METHOD"] in _READS
        status, message = (503, _UNAVAILABLE) if reads else (429, _MUTATION)
        if in_xml:
            return _xml(status, "ServiceUnavailable" if reads else "SlowDown", message)
        return _json(status, "backendError" if reads else "rateLimitExceeded", message)


def _xml(status: int, code: str, message: str) -> Response:
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Response(text, status=status, content_type="application/xml; charset=UTF-8")


def _json(status: int, reason: str, message: str) -> Response:
    errors = [{"message": message, "domain": "usageLimits" if status == 429 else "global", "reason": reason}]
    body = {"error": {"code": status, "message": message, "errors": errors}}
    return Response(json.dumps(body), status=status, content_type="application/json; charset=UTF-8")
