"""The calls to an API server that the local Kubernetes makes itself, by the standard library: a node has to start
quickly, and the generated client takes seconds to be imported."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

Document = dict[str, Any]
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
TIMEOUT = timedelta(seconds=10)


class KubeApiError(Exception):
    """The API server's refusal. `status`: of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


@dataclass(frozen=True)
class KubeApi:
    """An API server and somebody who may use it. Methods raise `KubeApiError`, and `OSError` without an answer.

    Attributes:
        server: The server's URL.
        token: The bearer token.
        certificate: The file by which the server is verified.
    """

    server: str
    token: str
    certificate: Path

    def get(self, path: str) -> Document:
        """Return a document."""
        return self._call("GET", path)

    def create(self, path: str, document: Document) -> Document:
        """Create a document in a collection."""
        return self._call("POST", path, document)

    def patch(self, path: str, change: Document, kind: str = MERGE) -> Document:
        """Change a document. `kind`: the media type of the patch."""
        return self._call("PATCH", path, change, kind)

    def delete(self, path: str, options: Document | None = None) -> Document:
        """Delete a document."""
        return self._call("DELETE", path, options)

    def watch(self, path: str, version: str, span: timedelta) -> Iterator[Document]:
        """Yield the changes of a collection after a version, each with its type and object, for `span` of real time."""
        separator = "&" if "?" in path else "?"
        query = f"watch=1&resourceVersion={version}&timeoutSeconds={span.total_seconds():.0f}"
        with self._open("GET", f"{path}{separator}{query}", timeout=span + TIMEOUT) as lines:
            for line in lines:
                yield json.loads(line)

    def _call(self, method: str, path: str, body: Document | None = None, kind: str = "application/json") -> Document:
        with self._open(method, path, body, kind) as answer:
            return dict(json.load(answer))

    def _open(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        kind: str = "application/json",
        timeout: timedelta = TIMEOUT,
    ) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.server + path, data, headers, method=method)  # noqa: S310
        try:
            return self._opener.open(request, timeout=timeout.total_seconds())
        except urllib.error.HTTPError as error:
            with error:
                raise KubeApiError(error.code, error.read().decode(errors="replace")) from error

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
