"""Stands in for CloudWatch's newer protocol, RPC v2 CBOR, which moto does not speak and newer clients speak first.

A request is handed on in the older one, JSON, and its answer is put into CBOR by the service's own model
(https://smithy.io/2.0/additional-specs/protocols/smithy-rpc-v2.html). Compressed requests are not read.
"""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

from botocore.parsers import RpcV2CBORParser
from botocore.serialize import RpcV2CBORSerializer
from moto.core.utils import get_service_model

TARGET = "GraniteServiceVersion20100801"
_PATH = re.compile(rf"^/service/{TARGET}/operation/(\w+)$")
_Application = Callable[..., Iterable[bytes]]


def uses_cbor(environ: dict[str, Any]) -> bool:
    """Return whether a request uses this protocol."""
    return (
        environ.get("HTTP_SMITHY_PROTOCOL") == "rpc-v2-cbor" and _PATH.match(environ.get("PATH_INFO", "")) is not None
    )


class CborTranslator:
    """A WSGI application that answers CBOR requests through one that speaks JSON."""

    def __init__(self, application: _Application) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        """Answer one request (WSGI)."""
        path_match = _PATH.match(environ["PATH_INFO"])
        assert path_match is not None  # noqa: S101 - asked only for what `wants` this
        status, headers, answer = self._forward_as_json(environ, path_match[1])
        if status.startswith("2"):
            body = _encoded(answer, get_service_model("cloudwatch").operation_model(path_match[1]).output_shape)
        else:
            code = str(answer.get("__type", "InternalFailure")).rpartition("#")[2]
            # CloudWatch's codes are those of its oldest protocol; clients read them in this header.
            headers["x-amzn-query-error"] = f"{code};{'Sender' if status.startswith('4') else 'Receiver'}"
            body = _text_map({"__type": code, "message": str(answer.get("message") or answer.get("Message") or code)})
        headers |= {
            "Content-Type": "application/cbor",
            "smithy-protocol": "rpc-v2-cbor",
            "Content-Length": str(len(body)),
        }
        start_response(status, list(headers.items()))
        return [body]

    def _forward_as_json(self, environ: dict[str, Any], operation: str) -> tuple[str, dict[str, str], dict[str, Any]]:
        """Send the same request as JSON and return its status, headers and answer."""
        json_body = json.dumps(
            _decoded(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))), default=_epoch
        )
        own = {
            "PATH_INFO": "/",
            "RAW_URI": "/",
            "REQUEST_URI": "/",
            "CONTENT_TYPE": "application/x-amz-json-1.0",
            "CONTENT_LENGTH": str(len(json_body)),
            "HTTP_X_AMZ_TARGET": f"{TARGET}.{operation}",
            "wsgi.input": BytesIO(json_body.encode()),
        }
        forwarded = {key: value for key, value in environ.items() if key not in ("HTTP_SMITHY_PROTOCOL", "HTTP_ACCEPT")}
        response_start: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
            response_start[:] = [status, headers]
            return lambda data: None

        body = b"".join(self._application({**forwarded, **own}, start))
        status, headers = response_start
        passed = {name: value for name, value in headers if name.lower().startswith("x-amzn-")}
        return status, passed, json.loads(body) if body.strip() else {}


def _decoded(body: bytes) -> Any:
    parser = RpcV2CBORParser()
    return parser.parse_data_item(parser.get_peekable_stream_from_bytes(body)) if body else {}


def _encoded(answer: dict[str, Any], shape: Any) -> bytes:
    """Encode an answer by its shape; in JSON its times are numbers or texts."""
    written = bytearray()
    if shape is None:
        return _text_map({})
    RpcV2CBORSerializer()._serialize_data_item(written, _shaped(answer, shape), shape)
    return bytes(written)


def _shaped(value: Any, shape: Any) -> Any:
    if shape.type_name == "structure":
        members = {name: member for name, member in value.items() if name in shape.members and member is not None}
        return {name: _shaped(member, shape.members[name]) for name, member in members.items()}
    if shape.type_name == "list":
        return [_shaped(member, shape.member) for member in value]
    if shape.type_name == "timestamp":
        return datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else datetime.fromisoformat(value)
    if shape.type_name in ("double", "float"):
        return float(value)
    return value


def _text_map(texts: dict[str, str]) -> bytes:
    """Encode a small map of texts: fewer than 24 entries, whose texts are shorter than 65,536 bytes."""

    def text(item: str) -> bytes:
        data = item.encode()
        return (bytes([0x60 + len(data)]) if len(data) < 24 else b"\x79" + len(data).to_bytes(2, "big")) + data

    return bytes([0xA0 + len(texts)]) + b"".join(text(name) + text(value) for name, value in texts.items())


def _epoch(value: Any) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} has no place in a request")
