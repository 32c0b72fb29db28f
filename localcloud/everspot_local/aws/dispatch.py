"""Stands in for the names of AWS's endpoints: finds the service that a request is for. It answers nothing itself."""

from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication


class Dispatcher(DomainDispatcherApplication):
    """moto's, which looks through its own folders and through the patterns of all services at every request, while all
    other requests wait. A host belongs to the same service as long as a process lives."""

    def __init__(self, create_app: Callable[..., Any]) -> None:
        super().__init__(create_app)
        self._known: dict[str | None, Any] = {}

    def get_backend_for_host(self, host: str | None) -> Any:
        """Return what serves a host."""
        if host not in self._known:
            self._known[host] = super().get_backend_for_host(host)
        return self._known[host]
