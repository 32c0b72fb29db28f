"""A loopback server between a client and an API server, which answers wrongly where a test asks for it.

Without an API server behind it, it gives recorded answers.
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from everspot_local.kubernetes.control_plane import ControlPlane

RESET = -1
"""A status: the connection is reset."""


@dataclass
class Fault:
    """A wrong answer.

    Attributes:
        status: Of the answer; `RESET` for none.
        method: Of the requests that get it; empty for all.
        path: A part of the paths that get it.
        headers: Of the answer.
        message: Of the answer's document.
        reason: Of the answer's document, where the status has several.
        lines: Of the body in place of a document, as a watch has them. The connection is reset after the last one.
        times: How many requests get it.
        forwards: Whether the request is carried out before its answer is lost.
        wait: Called before the answer.
    """

    status: int
    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "recorded"
    reason: str = ""
    lines: tuple[str, ...] = ()
    times: int = 10_000
    forwards: bool = False
    wait: Callable[[], object] = bool

    def concerns(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in ("", method) and self.path in path


class ApiServerProxy(ThreadingHTTPServer):
    """See the module. `plane`: the API server behind it; `recorded`: documents by path, without one."""

    daemon_threads = True

    def __init__(self, plane: ControlPlane | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plane = plane
        self.recorded: dict[str, Any] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.sent: list[tuple[str, bytes]] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, method: str, path: str = "") -> int:
        return sum(request.startswith(method) and path in request for request in self.requests)

    def bodies(self, method: str) -> list[Any]:
        """The documents of all requests of a method."""
        return [json.loads(body) for name, body in self.sent if name == method and body]

    def fault(self, method: str, path: str) -> Fault | None:
        """The fault that a request meets, which is one of its times."""
        with self.lock:
            self.requests.append(f"{method} {path}")
            fault = next((fault for fault in self.faults if fault.concerns(method, path)), None)
            if fault is not None:
                fault.times -= 1
            return fault

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that has gone, or of an API server that was stopped."""

    def write_kubeconfig(self, folder: Path, namespace: str, token: str = "recorded") -> Path:
        """A kubeconfig that leads here."""
        context = {"cluster": "c", "user": "c", "namespace": namespace}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "contexts": [{"name": "c", "context": context}],
            "users": [{"name": "c", "user": {"token": token}}],
        }  # fmt: skip
        file = folder / "proxied"
        file.write_text(json.dumps(config))
        return file


@contextmanager
def proxied(plane: ControlPlane | None = None) -> Iterator[ApiServerProxy]:
    """Run a proxy until the block ends."""
    proxy = ApiServerProxy(plane)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


def status_document(code: int, message: str, reason: str = "") -> bytes:
    """An answer of the API server that is an error."""
    reasons = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired", 429: "TooManyRequests"}
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
    return json.dumps({**status, "reason": reason or reasons.get(code, "InternalError")}).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServerProxy

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.sent.append((self.command, body))
        fault = self.server.fault(self.command, self.path)
        if fault is None:
            self._forward(body)
            return
        fault.wait()
        if fault.forwards:
            connection = self._send(body)
            connection.getresponse().read()
            connection.close()
        if fault.lines:
            self._begin(200, {"Transfer-Encoding": "chunked"})
            for line in fault.lines:
                self._chunk(line.encode())
            self._reset()
        elif fault.status == RESET:
            self._reset()
        else:
            self._answer(fault.status, status_document(fault.status, fault.message, fault.reason), fault.headers)

    do_GET = do_POST = do_PATCH = do_DELETE = do_any

    def _forward(self, body: bytes) -> None:
        if self.server.plane is None:
            document = self.server.recorded.get(urlsplit(self.path).path)
            code = 404 if document is None else 200
            self._answer(code, status_document(404, "recorded") if document is None else json.dumps(document).encode())
            return
        connection = self._send(body)
        try:
            answer = connection.getresponse()
            if "watch=True" not in self.path:
                self._answer(answer.status, answer.read())
                return
            self._begin(answer.status, {"Transfer-Encoding": "chunked"})
            while line := answer.readline():
                self._chunk(line)
            self._chunk(b"")
        finally:
            connection.close()

    def _send(self, body: bytes) -> HTTPConnection:
        plane = self.server.plane
        assert plane is not None
        where = urlsplit(plane.admin().server)
        assert where.hostname is not None
        context = ssl.create_default_context(cafile=str(plane.certificate))
        connection = HTTPSConnection(where.hostname, where.port, context=context, timeout=120)
        passed_on = {k: v for k, v in self.headers.items() if k.lower() in ("authorization", "content-type", "accept")}
        connection.request(self.command, self.path, body or None, passed_on)
        return connection

    def _answer(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._begin(code, {"Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body)

    def _begin(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _reset(self) -> None:
        """End the connection by RST, as a machine on the way does."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.close_connection = True
        self.connection.close()

    def finish(self) -> None:
        with suppress(OSError, ValueError):  # the connection was reset
            super().finish()

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
