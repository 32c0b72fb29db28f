"""A service that is busy at times: refuses a share of its requests before anything is carried out."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from werkzeug.wrappers import Request, Response

from everspot_local.market.disturbances import Disturbances

Wsgi = Callable[[dict[str, Any], Any], Any]


class DisturbedApplication(ABC):
    """A WSGI application in front of another one.

    Args:
        application: answers every request that is not refused here.
        disturbances: returns what decides whether a request is refused.
    """

    def __init__(self, application: Wsgi, disturbances: Callable[[], Disturbances]) -> None:
        self._application = application
        self._disturbances = disturbances

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer one request."""
        refusal = self._refusal(environ)
        if refusal is None:
            return self._application(environ, start_response)
        Request(environ).get_data()  # a caller that is still sending would see a broken connection, not the refusal
        return refusal(environ, start_response)

    @abstractmethod
    def _refusal(self, environ: dict[str, Any]) -> Response | None:
        """Return the answer that refuses a request; None if it is not refused."""
