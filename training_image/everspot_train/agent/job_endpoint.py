"""Serves the jobs of this machine their credentials and secrets, at a loopback address.

The instance's own identity may write documents that the whole cluster relies on, so jobs do not get it. A job gets
credentials that are limited to its own keys, and the values of the secrets that its submission names. Each attempt has
a random token, which every request must contain. After the attempt nothing is served for its token.
"""

import hmac
import ipaddress
import json
import logging
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from everspot_clouds.base import CloudError, JobAnswer, JobCredentials

from everspot_train.prepare.secrets import SECRETS_PATH, SECRETS_VARIABLE

HOST = str(ipaddress.ip_address(socket.INADDR_LOOPBACK))
TOKEN_FILE = "credentials-token"  # noqa: S105  the name of a file of the run directory
MOST_CONNECTIONS = 128
"""The most connections of one user. All processes of a job request credentials at its start, and each is answered
within milliseconds."""
REQUEST_TIMEOUT = timedelta(seconds=10)
"""The time in which a whole request must arrive."""
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1  # linux/netlink.h, linux/sock_diag.h
_ALL_STATES = _NO_COOKIE = 0xFFFFFFFF  # linux/inet_diag.h
_HEADER_BYTES, _USER_OFFSET = 16, 80  # of struct nlmsghdr; of idiag_uid, in struct inet_diag_msg after that header
_log = logging.getLogger(__name__)


class JobGrant:
    """The credentials and secrets of one attempt, until `end`.

    Attributes:
        credentials: credentials that are limited to the job.
        references: the job's secrets, by variable.
        read: returns the value of a reference. Raises `CloudError`.
        secret: the token that each request must contain.
        ended: whether nothing is served any longer.
    """

    def __init__(self, credentials: JobCredentials, references: Mapping[str, str], read: Callable[[str], str]) -> None:
        self._credentials, self._references, self._read = credentials, references, read
        self.secret = secrets.token_urlsafe(32)
        self.ended = False

    def environment(self, inherited: Mapping[str, str], address: str, run_dir: Path) -> dict[str, str]:
        """Return the job's variables: the inherited ones, with the job's credentials in place of the instance's. Writes
        the token into the run directory, for clients that read it only from a file."""
        token_file = run_dir / TOKEN_FILE
        token_file.write_text(self.secret)
        harmless = {name: value for name, value in inherited.items() if name not in self._credentials.hidden}
        own = self._credentials.variables(address, self.secret, token_file)
        return {**harmless, **own, SECRETS_VARIABLE: f"http://{address}/{self.secret}{SECRETS_PATH}"}

    def renew(self) -> None:
        """Renew the credentials if they are due. Raises `CloudError`."""
        self._credentials.renew()

    def end(self) -> None:
        """Stop serving. Credentials that were served stay valid until they expire."""
        self.ended = True

    def answer(self, path: str) -> JobAnswer | None:
        """Return the answer to an authorized request; None if the path does not exist."""
        if self.ended:
            return None
        if path == SECRETS_PATH:
            return self._secrets()
        try:
            return self._credentials.answer(path)
        except CloudError as error:
            _log.warning("no credentials for a job: %s", error)
            return _fault(503, str(error))

    def _secrets(self) -> JobAnswer:
        values = {}
        for variable, reference in self._references.items():
            try:
                values[variable] = self._read(reference)
            except CloudError as error:
                fault = {"variable": variable, "error": str(error), "fix": error.fix}
                return JobAnswer(200, json.dumps({"fault": fault}))
        return JobAnswer(200, json.dumps({"values": values}))


class _Server(ThreadingHTTPServer):
    """A server in which one job cannot block others: each user has a limit of connections, and a connection is closed
    if its request does not arrive in time."""

    daemon_threads = True
    request_queue_size = 1024  # the kernel's limit is 4096 (net.core.somaxconn)

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._users: dict[socket.socket, int | None] = {}
        self._deadlines: dict[socket.socket, float] = {}
        self._state = threading.Lock()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether the user of a new connection is below the limit of connections."""
        user = find_user(client_address, self.server_address)
        with self._state:
            # A connection whose other end is closed has no user, and ends by itself.
            if user is None or sum(other == user for other in self._users.values()) < MOST_CONNECTIONS:
                self._users[request] = user
                self._deadlines[request] = time.monotonic() + REQUEST_TIMEOUT.total_seconds()
                return True
        with suppress(OSError):  # closed by a reset, which leaves no state in the kernel
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def mark_received(self, request: socket.socket) -> None:
        """Exempt a connection from the time limit, because its request has arrived. The cloud's answer may be slow."""
        with self._state:
            self._deadlines.pop(request, None)

    def service_actions(self) -> None:
        """Close connections whose requests are late."""
        now = time.monotonic()
        with self._state:
            for request in [request for request, deadline in self._deadlines.items() if deadline <= now]:
                del self._deadlines[request]
                with suppress(OSError):  # its thread then ends and removes it
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._state:
            self._users.pop(request, None)
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log connections that a job has broken off, because they could fill the log."""
        _log.debug("a job's request failed", exc_info=True)


class JobEndpoint:
    """The endpoint of one agent. Its threads answer until the process ends."""

    def __init__(self) -> None:
        """Bind a free port of the loopback address. Raises OSError if no port is free."""
        self._grants: list[JobGrant] = []
        self._lock = threading.Lock()
        self._server = _Server((HOST, 0), self._handler())
        threading.Thread(target=self._server.serve_forever, name="job-endpoint", daemon=True).start()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self._server.server_address[1]}"

    def serve(self, grant: JobGrant) -> None:
        """Serve a grant until it ends."""
        with self._lock:
            self._grants = [*(each for each in self._grants if not each.ended), grant]

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _find(self, secret: str) -> JobGrant | None:
        with self._lock:
            grants = list(self._grants)
        sent = secret.encode(errors="replace")
        return next((grant for grant in grants if hmac.compare_digest(grant.secret.encode(), sent)), None)

    def _respond(self, path: str, authorization: str) -> JobAnswer:
        """Answer a request. Its token is the header Authorization, or the first part of its path."""
        place = path.partition("?")[0]
        first, _, place_below = place.lstrip("/").partition("/")
        grant = self._find(authorization) if authorization else None
        if grant is None and (grant := self._find(first)) is not None:
            place = f"/{place_below}"
        if grant is None:
            return _fault(403, "the secret of a running job is missing")
        return grant.answer(place) or _fault(404, f"nothing at {place}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint._server.mark_received(self.connection)
                answer = endpoint._respond(self.path, self.headers.get("Authorization") or "")
                body = answer.body.encode()
                self.send_response(answer.status)
                for name, value in {"Content-Type": answer.kind, **(answer.headers or {})}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: paths contain secrets."""

        return Handler


def _fault(status: int, message: str) -> JobAnswer:
    """Return a refusal as JSON with a code and a message, which client libraries show."""
    return JobAnswer(status, json.dumps({"code": str(status), "message": message}))


def find_user(client: tuple[str, int], server: tuple[Any, ...]) -> int | None:
    """Return the user of a loopback connection's other end, by sock_diag(7); None if unknown."""
    ends = struct.pack("!HH", client[1], server[1])
    ends += b"".join(socket.inet_aton(host).ljust(16, b"\0") for host in (client[0], server[0]))
    ends += struct.pack("=III", 0, _NO_COOKIE, _NO_COOKIE)
    body = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + ends
    header = struct.pack("=IHHII", _HEADER_BYTES + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            kernel.send(header + body)
            answer = kernel.recv(4096)
    except OSError:
        return None
    if len(answer) < _USER_OFFSET + 4 or struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return None
    return int(struct.unpack_from("=I", answer, _USER_OFFSET)[0])
