"""Stands in for the internet between two clouds: another local cloud, in a process of its own.

Two local clouds do not know each other until `everspot-local meet` introduces them; real clouds find each other by DNS
names. Only requests of one cloud to the other pass here; machines send their own requests directly.
"""

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

SECONDS = 10.0
_LOOPBACK = ("127.0.0.1", "localhost")


class SecondCloudUnavailable(RuntimeError):
    """There is no other cloud, or it does not answer."""


@dataclass
class SecondCloud:
    """The other cloud.

    Attributes:
        endpoint: URL of all of its services; empty without another cloud.
        variables: environment that points machines here to those services.
    """

    endpoint: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def meet(self, endpoint: str, variables: Mapping[str, str]) -> None:
        """Set the other cloud. Machines that are running already do not learn of it.

        Raises:
            ValueError: if that is no URL of this machine.
        """
        parts = urlsplit(endpoint)
        if parts.scheme != "http" or parts.hostname not in _LOOPBACK or parts.port is None:
            raise ValueError(f"{endpoint!r} is not the endpoint of a local cloud, such as http://127.0.0.1:4566")
        self.endpoint, self.variables = endpoint.rstrip("/"), dict(variables)

    def send(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        """Send a request without a body; return the answer's status and body. `path`: with its query.

        Raises:
            SecondCloudUnavailable: without another cloud, or if it does not answer.
        """
        if not self.endpoint:
            raise SecondCloudUnavailable("no other local cloud was introduced: everspot-local meet")
        url = f"{self.endpoint}/{path.lstrip('/')}"
        data = b"" if method == "POST" else None
        request = urllib.request.Request(url, method=method, data=data, headers=dict(headers or {}))  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - loopback, see `meet`
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError as error:
            raise SecondCloudUnavailable(f"{self.endpoint} does not answer: {error}") from None
