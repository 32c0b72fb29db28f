"""Stands in for Google's front end where answers are concerned: errors in their two forms, and JSON as proto-JSON has
it.

It does not tell `details` of its own accord, nor translate messages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# google.rpc.Code by HTTP status: https://cloud.google.com/apis/design/errors
_STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
}  # fmt: skip


class ApiError(Exception):
    """A call that is refused.

    Args:
        status: of HTTP.
        reason: the short word of APIs that tell `errors`, such as `notFound`.
        message: for people.
        domain: of the reason.
        code: of google.rpc, where it is not the usual one of the HTTP status.
        details: with their types, as google.rpc has them.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        domain: str = "global",
        code: str = "",
        details: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.domain = status, reason, message, domain
        self.code = code or _STATUS.get(status, "UNKNOWN")
        self.details = [dict(detail) for detail in details]

    def document(self, *, listed: bool) -> dict[str, Any]:
        """Return the error as JSON. `listed`: with `errors`, as the older APIs (Compute, Storage) have it; else with
        `status` alone."""
        error: dict[str, Any] = {"code": self.status, "message": self.message}
        if listed:
            error["errors"] = [{"message": self.message, "domain": self.domain, "reason": self.reason}]
        if not listed or self.details:
            error["status"] = self.code
        if self.details:
            error["details"] = self.details
        return {"error": error}


@dataclass(frozen=True)
class Reply:
    """An answer that is not JSON, or has another status than 200."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


class Present(dict[str, Any]):
    """A message that is written even if it is empty, because its presence has a meaning."""


def to_proto_json(value: Any, *, zeros: bool) -> Any:
    """Return a document as proto-JSON writes it, without unset or empty fields. `zeros`: false and 0 are written."""
    if isinstance(value, dict):
        parts = {key: to_proto_json(part, zeros=zeros) for key, part in value.items()}
        present = {key: part for key, part in parts.items() if not _unset(part, zeros=zeros)}
        return Present(present) if isinstance(value, Present) else present
    if isinstance(value, list | tuple):
        return [to_proto_json(part, zeros=zeros) for part in value]
    return value


def _unset(value: Any, *, zeros: bool) -> bool:
    if isinstance(value, Present):
        return False
    if value is None or value in ([], {}) or value == ():
        return True
    return not zeros and (value == "" or value is False or (value == 0 and not isinstance(value, str)))


def missing(path: str) -> ApiError:
    """Return Compute's error for a resource that does not exist."""
    return ApiError(404, "notFound", f"The resource '{path}' was not found")


def invalid(field_name: str, value: Any, message: str, *, reason: str = "invalid") -> ApiError:
    """Return Compute's error for an invalid field."""
    shown = value if isinstance(value, str) else _shown(value)
    return ApiError(400, reason, f"Invalid value for field '{field_name}': '{shown}'. {message}")


def required(field_name: str) -> ApiError:
    """Return Compute's error for a missing field."""
    return ApiError(400, "required", f"Required field '{field_name}' not specified")


def not_here(feature: str) -> ApiError:
    """Return an error, not one of Google's, that names what the local cloud does not support."""
    return ApiError(501, "notImplemented", f"The local cloud does not offer {feature}.")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
