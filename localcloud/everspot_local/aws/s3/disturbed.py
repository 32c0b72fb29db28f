"""Stands in for a busy S3: refuses a share of the requests before anything is carried out.

S3 API Reference, "PutObject": 409 `ConditionalRequestConflict` where another request to the same key is under way; the
request may be sent again. The same, "Error responses": 503 `SlowDown`, "Please reduce your request rate".
"""

import re
from typing import Any

from werkzeug.wrappers import Response

from everspot_local.market.disturbed import DisturbedApplication

_SCOPE = re.compile(r"/s3/aws4_request")
_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")
_WRITES = ("PUT", "POST", "DELETE")
CONFLICT = (
    409,
    "ConditionalRequestConflict",
    "The conditional request cannot succeed due to a conflicting operation against this resource.",
)
SLOW_DOWN = (503, "SlowDown", "Please reduce your request rate.")


class DisturbedS3(DisturbedApplication):
    """Refuses what is signed for S3."""

    def _refusal(self, environ: dict[str, Any]) -> Response | None:
        disturbances = self._disturbances()
        if not _is_s3(environ):
            return None
        if _is_conditional_write(environ) and disturbances.occurs("conflict"):
            return _refuse(environ, *CONFLICT)
        return _refuse(environ, *SLOW_DOWN) if disturbances.occurs("slow_down") else None


def _refuse(environ: dict[str, Any], status: int, code: str, message: str) -> Response:
    body = f"<Code>{code}</Code><Message>{message}</Message><RequestId>local</RequestId>"
    text = "" if environ["REQUEST_METHOD"] == "HEAD" else f'<?xml version="1.0"?>\n<Error>{body}</Error>'
    return Response(text, status=status, content_type="application/xml")


def _is_s3(environ: dict[str, Any]) -> bool:
    query = environ.get("QUERY_STRING", "").replace("%2F", "/")
    return bool(_SCOPE.search(environ.get("HTTP_AUTHORIZATION", "")) or _SCOPE.search(query))


def _is_conditional_write(environ: dict[str, Any]) -> bool:
    return environ["REQUEST_METHOD"] in _WRITES and any(environ.get(name) for name in _CONDITIONS)
