"""Stands in for the EC2 instance metadata service, version 2: one for each instance, on a port of its own.

It does not simulate the hop limit, IPv6, the listing of folders other than the credentials', or Spot's legacy
`termination-time`. What is not there answers 404, as on the real one.
"""

import contextlib
import json
import logging
import secrets
import selectors
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

log = logging.getLogger(__name__)
TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path
TTL_HEADER, TOKEN_HEADER = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
LONGEST_TTL = 21600


class DocumentSource(Protocol):
    """What the services tell, by instance."""

    def tokens(self, instance_id: str) -> str | None:
        """Return whether a token is `required` or `optional`; None if the instance has no service."""

    def document(self, instance_id: str, path: str) -> Any:
        """Return a text, or an object to be told as JSON; None where there is nothing."""

    def forget(self) -> None:
        """Forget what was told before."""


class MetadataServices:
    """The metadata services of all instances: one thread waits for all of them, one more serves each request."""

    def __init__(self, source: DocumentSource) -> None:
        self.source = source
        self._sockets: dict[str, socket.socket] = {}
        self._tokens: dict[tuple[str, str], float] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="everspot-metadata", daemon=True)
        self._thread.start()

    def endpoint(self, instance_id: str) -> str:
        """The URL of an instance's service, opened on first use; for `AWS_EC2_METADATA_SERVICE_ENDPOINT`."""
        with self._lock:
            if instance_id not in self._sockets:
                listener = socket.create_server(("127.0.0.1", 0))
                listener.setblocking(False)
                self._sockets[instance_id] = listener
                self._selector.register(listener, selectors.EVENT_READ, instance_id)
                self._waker.send(b".")
            return f"http://127.0.0.1:{self._sockets[instance_id].getsockname()[1]}"

    def close(self, instance_id: str) -> None:
        """An instance's service ends with it."""
        with self._lock:
            listener = self._sockets.pop(instance_id, None)
            if listener is not None:
                self._selector.unregister(listener)
                listener.close()
                self._waker.send(b".")

    def reset(self) -> None:
        """End the services of all instances; new ones may begin."""
        for instance_id in list(self._sockets):
            self.close(instance_id)
        self.source.forget()
        self._tokens.clear()

    def close_all(self) -> None:
        """End them all for good."""
        self.reset()
        self._stopped = True
        self._waker.send(b".")
        self._thread.join()
        self._selector.close()
        self._wake.close()
        self._waker.close()

    def answer(self, instance_id: str, method: str, path: str, headers: Any) -> tuple[int, str]:
        """Return the status and the body of one answer."""
        tokens = self.source.tokens(instance_id)
        if tokens is None:
            return 403, "Forbidden"
        if path == TOKEN_PATH:
            return self._token(instance_id, method, headers)
        if method != "GET":
            return 405, "Method Not Allowed"
        if not self._permitted(instance_id, tokens, headers):
            return 401, "Unauthorized"
        found = self.source.document(instance_id, path.rstrip("/"))
        if found is None:
            return 404, "Not Found"
        return 200, found if isinstance(found, str) else json.dumps(found)

    def _token(self, instance_id: str, method: str, headers: Any) -> tuple[int, str]:
        if method != "PUT":
            return 405, "Method Not Allowed"
        ttl = headers.get(TTL_HEADER) or ""
        if not ttl.isdigit() or not 1 <= int(ttl) <= LONGEST_TTL:
            return 400, "Bad Request"
        token = secrets.token_urlsafe(40)
        self._tokens[(instance_id, token)] = time.monotonic() + int(ttl)
        return 200, token

    def _permitted(self, instance_id: str, tokens: str, headers: Any) -> bool:
        token = headers.get(TOKEN_HEADER)
        if token is None:
            return tokens == "optional"
        return self._tokens.get((instance_id, token), 0.0) > time.monotonic()

    def _run(self) -> None:
        while not self._stopped:
            with contextlib.suppress(OSError):
                for key, _ in self._selector.select():
                    self._serve(key)

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            with contextlib.suppress(BlockingIOError):
                self._wake.recv(4096)
            return
        try:
            connection, address = key.fileobj.accept()  # type: ignore[union-attr]
        except OSError:
            return
        threading.Thread(target=self._handle, args=(key.data, connection, address), daemon=True).start()

    def _handle(self, instance_id: str, connection: socket.socket, address: Any) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            _Request(self, instance_id, connection, address)


class _Request(BaseHTTPRequestHandler):
    """One connection, one request."""

    server_version, sys_version = "EC2ws", ""

    def __init__(self, services: MetadataServices, instance_id: str, connection: socket.socket, address: Any) -> None:
        self._services = services
        self._instance_id = instance_id
        super().__init__(connection, address, None)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Read."""
        self._do("GET")

    def do_PUT(self) -> None:
        """Ask for a token."""
        self._do("PUT")

    def _do(self, method: str) -> None:
        status, body = self._services.answer(self._instance_id, method, self.path.partition("?")[0], self.headers)
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(data)))
        if method == "PUT" and status == 200:
            self.send_header(TTL_HEADER, self.headers.get(TTL_HEADER, ""))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""
