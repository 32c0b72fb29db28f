"""An HTTP server for each machine, on its own port, opened on first use. Only the machine gets the address.

A server takes one request per connection and does not interpret it. Any process that connects to a machine's port gets
that machine's answers.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

SECONDS = 10.0
"""How long a connection may stay silent."""


@dataclass(frozen=True)
class MachineResponse:
    """One answer."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[str, str, str, Any], MachineResponse]
"""By machine, method, path with its query, and headers."""


class MachineServers:
    """The servers of all machines: one thread waits for connections to all of them, one more serves each request.

    Args:
        answer: gives every answer; it may take its time.
        server: what the answers say of the server.
    """

    def __init__(self, answer: Answer, server: str) -> None:
        self._answer = answer
        self._server = server
        self._sockets: dict[str, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="everspot-machine-servers", daemon=True)
        self._thread.start()

    def address(self, machine_id: str) -> str:
        """Return host and port of a machine's server, which is opened on first use."""
        with self._lock:
            if machine_id not in self._sockets:
                listener = socket.create_server(("127.0.0.1", 0))
                listener.setblocking(False)
                self._sockets[machine_id] = listener
                self._selector.register(listener, selectors.EVENT_READ, machine_id)
                self._waker.send(b".")
            return f"127.0.0.1:{self._sockets[machine_id].getsockname()[1]}"

    def close(self, machine_id: str) -> None:
        """Close a machine's server."""
        with self._lock:
            listener = self._sockets.pop(machine_id, None)
            if listener is not None:
                self._selector.unregister(listener)
                listener.close()
                self._waker.send(b".")

    def reset(self) -> None:
        """Close all servers; new ones may be opened."""
        for machine_id in list(self._sockets):
            self.close(machine_id)

    def close_all(self) -> None:
        """Close all servers for good."""
        self.reset()
        self._stopped = True
        self._waker.send(b".")
        self._thread.join()
        self._selector.close()
        self._wake.close()
        self._waker.close()

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

    def _handle(self, machine_id: str, connection: socket.socket, address: Any) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(SECONDS)
            _MachineRequest(self._answer, self._server, machine_id, connection, address)


class _MachineRequest(BaseHTTPRequestHandler):
    """One connection, one request."""

    sys_version = ""

    def __init__(self, answer: Answer, server: str, machine_id: str, connection: socket.socket, address: Any) -> None:
        self._answer = answer
        self.server_version = server
        self._machine_id = machine_id
        super().__init__(connection, address, None)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer a GET request."""
        self._do("GET")

    def do_PUT(self) -> None:
        """Answer a PUT request."""
        self._do("PUT")

    def do_POST(self) -> None:
        """Answer a POST request."""
        self._do("POST")

    def _do(self, method: str) -> None:
        response = self._answer(self._machine_id, method, self.path, self.headers)
        data = response.body.encode()
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_args: Any) -> None:
        """Do nothing: requests are not logged."""
