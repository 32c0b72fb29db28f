"""Stands in for the EC2 instance metadata service, version 2: one for each instance, on a port of its own.

It does not simulate the hop limit, IPv6, the listing of folders other than the credentials', or Spot's legacy
`termination-time`. What is not there answers 404, as on the real one.
"""

import json
import secrets
import time
from typing import Any, Protocol

from everspot_local.machines.machine_servers import MachineResponse, MachineServers

TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path
TTL_HEADER, TOKEN_HEADER = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
LONGEST_TTL = 21600


class DocumentSource(Protocol):
    """Provides the contents of the metadata services, by instance."""

    def tokens(self, instance_id: str) -> str | None:
        """Return whether a token is `required` or `optional`; None if the instance has no service."""

    def document(self, instance_id: str, path: str) -> Any:
        """Return a text, or an object to be told as JSON; None where there is nothing."""

    def forget(self) -> None:
        """Forget the documents that were given out before."""


class MetadataServices:
    """The metadata services of all instances."""

    def __init__(self, source: DocumentSource) -> None:
        self.source = source
        self._tokens: dict[tuple[str, str], float] = {}
        self._servers = MachineServers(self._respond, "EC2ws")

    def endpoint(self, instance_id: str) -> str:
        """Return the URL of an instance's service, which is opened on first use; for
        `AWS_EC2_METADATA_SERVICE_ENDPOINT`."""
        return f"http://{self._servers.address(instance_id)}"

    def close(self, instance_id: str) -> None:
        """Close the service of an instance that has ended."""
        self._servers.close(instance_id)

    def reset(self) -> None:
        """Close the services of all instances; new ones may be opened."""
        self._servers.reset()
        self.source.forget()
        self._tokens.clear()

    def close_all(self) -> None:
        """Close all services for good."""
        self.reset()
        self._servers.close_all()

    def _respond(self, instance_id: str, method: str, path: str, headers: Any) -> MachineResponse:
        status, body = self.answer(instance_id, method, path.partition("?")[0], headers)
        response_headers = {"Content-Type": "text/plain"}
        if method == "PUT" and status == 200:
            response_headers[TTL_HEADER] = headers.get(TTL_HEADER, "")
        return MachineResponse(status, body, response_headers)

    def answer(self, instance_id: str, method: str, path: str, headers: Any) -> tuple[int, str]:
        """Return status and body of one answer."""
        tokens = self.source.tokens(instance_id)
        if tokens is None:
            return 403, "Forbidden"
        if path == TOKEN_PATH:
            return self._token(instance_id, method, headers)
        if method != "GET":
            return 405, "Method Not Allowed"
        if not self._permitted(instance_id, tokens, headers):
            return 401, "Unauthorized"
        document = self.source.document(instance_id, path.rstrip("/"))
        if document is None:
            return 404, "Not Found"
        return 200, document if isinstance(document, str) else json.dumps(document)

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
