"""Serves the jobs of this machine their credentials and secrets, at a loopback address.

The instance's own identity may write what the whole cluster relies on, so a job does not get it. It gets credentials
that are limited to its own keys, and the values of the secrets that its submission names; both are served here. Each
attempt has a random secret that comes with every request. It ends with the attempt: from then on nothing is served.
"""

import hmac
import ipaddress
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from everspot_clouds.base import CloudError, JobAnswer, JobCredentials

from everspot_train.prepare.secrets import SECRETS_PATH, SECRETS_VARIABLE

HOST = str(ipaddress.ip_address(socket.INADDR_LOOPBACK))
TOKEN_FILE = "credentials-token"  # noqa: S105  the name of a file of the run directory
_log = logging.getLogger(__name__)


class JobGrant:
    """What one attempt of a job is served, until `end`.

    Attributes:
        credentials: limited to the job.
        references: the job's secrets, by variable.
        read: reads the value of a reference. Raises `CloudError`.
        secret: comes with each request.
        ended: whether nothing is served any more.
    """

    def __init__(self, credentials: JobCredentials, references: Mapping[str, str], read: Callable[[str], str]) -> None:
        self._credentials, self._references, self._read = credentials, references, read
        self.secret = secrets.token_urlsafe(32)
        self.ended = False

    def environment(self, inherited: Mapping[str, str], address: str, run_dir: Path) -> dict[str, str]:
        """Return the job's variables: the inherited ones without those of the instance's credentials, and with its own.
        Writes the secret into the run directory, for clients that read it from a file only."""
        token_file = run_dir / TOKEN_FILE
        token_file.write_text(self.secret)
        harmless = {name: value for name, value in inherited.items() if name not in self._credentials.hidden}
        own = self._credentials.variables(address, self.secret, token_file)
        return {**harmless, **own, SECRETS_VARIABLE: f"http://{address}/{self.secret}{SECRETS_PATH}"}

    def renew(self) -> None:
        """Obtain the credentials, if they are due. Raises `CloudError`."""
        self._credentials.renew()

    def end(self) -> None:
        """Serve nothing more. Credentials that were served keep until their own end, by the cloud's rules."""
        self.ended = True

    def answer(self, path: str) -> JobAnswer | None:
        """Return the answer to a request that has the secret; None if there is nothing at the path."""
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


class JobEndpoint:
    """The endpoint of one agent. Its threads answer until the process ends."""

    def __init__(self) -> None:
        """Bind a free port of the loopback address. Raises OSError if there is none."""
        self._grants: list[JobGrant] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="job-endpoint", daemon=True).start()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self._server.server_address[1]}"

    def serve(self, grant: JobGrant) -> None:
        """Serve what is granted, until the grant ends."""
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
        """Answer a request. The secret is its header Authorization, or the first part of its path."""
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
            timeout = 5  # a silent connection is closed

            def do_GET(self) -> None:
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
