"""Answers the cloud's health checks, if the manifest names a port. A group replaces instances that do not answer.

An agent is healthy while its main loop runs, or waits for a transfer that progresses. A store that hangs delays the
loop, but is no reason to lose an instance and its job. So the limit is the time after which an agent without a store
leaves by itself.
"""

import logging
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from everspot_core.clock import Clock

PATH = "/healthz"
ADDRESS_VARIABLE = "EVERSPOT_HEALTH"
"""The variable with HOST:PORT to answer at, in place of the manifest's port on all addresses, for machines that emulate
many instances."""

_log = logging.getLogger(__name__)


class Health:
    """Answers at one address until `close`. `alive_at`: returns the monotonic time of the main loop's last
    sign of life."""

    def __init__(self, host: str, port: int, alive_at: Callable[[], timedelta], limit: timedelta, clock: Clock) -> None:
        """Bind the address. Raises OSError if it is taken."""
        self._alive_at, self._limit, self._clock = alive_at, limit, clock
        self._server = ThreadingHTTPServer((host, port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self._server.server_address[1])

    def healthy(self) -> bool:
        """Return whether the agent's main loop has shown a sign of life within the limit."""
        return self._clock.monotonic() - self._alive_at() < self._limit

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        health = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5  # connections without a request are closed

            def do_GET(self) -> None:
                is_health_path = self.path.partition("?")[0] == PATH
                status = (200 if health.healthy() else 503) if is_health_path else 404
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: health checks come every few seconds."""

        return Handler


def health_at(port: int | None, alive_at: Callable[[], timedelta], limit: timedelta, clock: Clock) -> Health | None:
    """Answer health checks at the manifest's port. Return None if the manifest names no port, or the address is taken.
    An agent without health checks works until its group replaces it."""
    stated = os.environ.get(ADDRESS_VARIABLE)
    if port is None:
        return None
    host, _, own = (stated or f":{port}").rpartition(":")
    try:
        return Health(host or "0.0.0.0", int(own), alive_at, limit, clock)  # noqa: S104  the network's firewall decides
    except (OSError, ValueError) as error:
        _log.error("no health checks are answered at %s: %s", stated or port, error)
        return None
