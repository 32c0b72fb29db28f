"""Credentials that are limited to one job, as the agent serves them to the job's processes on the loopback address."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class JobAnswer:
    """The answer to a request of a client library. `kind`: the content type."""

    status: int
    body: str
    kind: str = "application/json"
    headers: Mapping[str, str] | None = None


class JobCredentials(Protocol):
    """The credentials of one attempt of a job, in the form that the cloud's client libraries ask for."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """The variables of the instance that the job must not inherit, because they lead to wider credentials."""
        ...

    def variables(self, address: str, secret: str, secret_file: Path) -> dict[str, str]:
        """Return the environment variables that point client libraries to the credentials.

        Args:
            address: HOST:PORT of the agent's endpoint.
            secret: it has to come with each request, as the first part of the path or in the header Authorization.
            secret_file: a file that holds the secret.
        """
        ...

    def renew(self) -> None:
        """Obtain credentials, if those at hand are about to expire.

        Raises:
            CloudError: if the cloud issued no credentials.
        """
        ...

    def answer(self, path: str) -> JobAnswer | None:
        """Return the answer to a GET of a path below the secret; None if there is nothing. Raises `CloudError` if there
        are no credentials."""
        ...
