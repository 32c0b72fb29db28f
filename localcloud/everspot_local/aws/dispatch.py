"""Stands in for the host names of AWS's endpoints: finds the service of a request. It answers nothing itself."""

from collections.abc import Callable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication


class Dispatcher(DomainDispatcherApplication):
    """Finds the service of a host once and caches it. moto searches its folders and all services' patterns for every
    request, while all other requests wait."""

    def __init__(self, create_app: Callable[..., Any]) -> None:
        super().__init__(create_app)
        self._apps_by_host: dict[str | None, Any] = {}

    def get_backend_for_host(self, host: str | None) -> Any:
        """Return the backend that serves a host."""
        if host not in self._apps_by_host:
            self._apps_by_host[host] = super().get_backend_for_host(host)
        return self._apps_by_host[host]
