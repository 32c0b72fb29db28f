"""Stands in for a busy S3: refuses a share of the requests before anything is carried out.

S3 API Reference, "PutObject": 409 `ConditionalRequestConflict` where another request to the same key is under way; the
request may be sent again. The same, "Error responses": 503 `SlowDown`, "Please reduce your request rate".
"""

import re
from collections.abc import Callable
from typing import Any

from werkzeug.wrappers import Request, Response

from everspot_local.market.disturbances import Disturbances

_SCOPE = re.compile(r"/s3/aws4_request")
_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")
_WRITES = ("PUT", "POST", "DELETE")
CONFLICT = (
    409,
    "ConditionalRequestConflict",
    "The conditional request cannot succeed due to a conflicting operation against this resource.",
)
SLOW_DOWN = (503, "SlowDown", "Please reduce your request rate.")

Wsgi = Callable[[dict[str, Any], Any], Any]


class DisturbedS3:
    """A WSGI application in front of another one.

    Args:
        application: answers every request that is not refused here.
        disturbances: returns what decides whether a request is refused.
    """

    def __init__(self, application: Wsgi, disturbances: Callable[[], Disturbances]) -> None:
        self._application = application
        self._disturbances = disturbances

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer one request."""
        refusal = self._refusal(environ) if _is_s3(environ) else None
        if refusal is None:
            return self._application(environ, start_response)
        Request(environ).get_data()  # a caller that is still sending would see a broken connection, not the refusal
        status, code, message = refusal
        body = f"<Code>{code}</Code><Message>{message}</Message><RequestId>local</RequestId>"
        text = "" if environ["REQUEST_METHOD"] == "HEAD" else f'<?xml version="1.0"?>\n<Error>{body}</Error>'
        return Response(text, status=status, content_type="application/xml")(environ, start_response)

    def _refusal(self, environ: dict[str, Any]) -> tuple[int, str, str] | None:
        disturbances = self._disturbances()
        if _is_conditional_write(environ) and disturbances.occurs("conflict"):
            return CONFLICT
        return SLOW_DOWN if disturbances.occurs("slow_down") else None


def _is_s3(environ: dict[str, Any]) -> bool:
    query = environ.get("QUERY_STRING", "").replace("%2F", "/")
    return bool(_SCOPE.search(environ.get("HTTP_AUTHORIZATION", "")) or _SCOPE.search(query))


def _is_conditional_write(environ: dict[str, Any]) -> bool:
    return environ["REQUEST_METHOD"] in _WRITES and any(environ.get(name) for name in _CONDITIONS)
