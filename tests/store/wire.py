"""A scripted proxy for real S3 requests that injects faults of a network and of a busy S3."""

import http.client
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from loopback import Loopback

ERROR = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>scripted</Message></Error>'


class Wire(Loopback):
    """Passes requests on to `target` unless a line of the script says otherwise. Each line strikes once.

    A line is (method, part of the path, what): an HTTP status with its S3 code; "cut" (passed on, answer never sent),
    "drop" (not passed on, connection closed), "late" (answered after a second), or "stall" (the answer stops in its
    middle until the client closes the connection).
    """

    def __init__(self, target: str) -> None:
        self._target = urlsplit(target).netloc
        self._script: list[tuple[str, str, tuple[int, str] | str]] = []
        self.requests: list[tuple[str, str]] = []
        self.authorizations: list[str] = []
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                wire.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    def on(self, method: str, path: str, disturbance: tuple[int, str] | str, times: int = 1) -> "Wire":
        self._script += [(method, path, disturbance)] * times
        return self

    @property
    def spent(self) -> bool:
        return not self._script

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.requests.append((request.command, request.path))
        self.authorizations.append(request.headers.get("Authorization", ""))
        disturbance = self._next(request.command, request.path)
        if disturbance == "drop":
            request.close_connection = True
            return
        if isinstance(disturbance, tuple):
            self._answer(
                request, disturbance[0], {"Content-Type": "application/xml"}, ERROR.format(code=disturbance[1]).encode()
            )
            return
        connection = http.client.HTTPConnection(self._target)
        connection.request(request.command, request.path, body, dict(request.headers))
        answer = connection.getresponse()
        data, headers = answer.read(), dict(answer.getheaders())
        connection.close()
        if disturbance == "cut":
            request.close_connection = True
            return
        if disturbance == "late":
            time.sleep(1)
        if disturbance == "stall":
            request.close_connection = True
            request.send_response(answer.status)
            for name, value in headers.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(data[: len(data) // 2])
            request.rfile.read(1)  # returns once the client has closed the connection
            return
        self._answer(request, answer.status, headers, data)

    def _answer(self, request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], data: bytes) -> None:
        request.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "server", "date"):
                request.send_header(name, value)
        length = headers.get("Content-Length", headers.get("content-length")) if request.command == "HEAD" else None
        request.send_header("Content-Length", length or str(len(data)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)

    def _next(self, method: str, path: str) -> tuple[int, str] | str | None:
        for line in self._script:
            if line[0] == method and line[1] in path:
                self._script.remove(line)
                return line[2]
        return None
