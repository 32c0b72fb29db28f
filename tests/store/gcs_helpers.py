"""Cloud Storage's XML API on loopback, over objects that keep a test's own clock."""

from collections.abc import Iterable
from typing import Any

from everspot_core.clock import Clock
from everspot_local.gcp.storage.objects import Objects
from everspot_local.gcp.storage.xml_api import XmlApi
from loopback import Loopback
from werkzeug.serving import WSGIRequestHandler, make_server


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        """Nothing."""


class Door(Loopback):
    """One server for many tests. `objects`: what it serves now; `requests`: method and path of every request
    since then."""

    def __init__(self) -> None:
        super().__init__(make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Quiet))
        self.requests: list[tuple[str, str]] = []

    @property
    def environment(self) -> dict[str, str]:
        """The environment that leads obstore to this server."""
        return {"GOOGLE_BASE_URL": self.url, "GOOGLE_BEARER_TOKEN": "token"}

    def open(self, clock: Clock) -> None:
        """Serve a new, empty Cloud Storage."""
        self.objects = Objects(clock)
        self._app, self.requests = XmlApi(self.objects), []

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        return self._app(environ, start_response)
