"""Requests to Google's APIs: JSON with a token, a time limit for each, and a bounded number of attempts.

The token comes from the environment: GOOGLE_OAUTH_ACCESS_TOKEN or CLOUDSDK_AUTH_ACCESS_TOKEN if one is set, the
metadata server if GCE_METADATA_HOST names it, else Application Default Credentials (google.auth.default).
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import google.auth
import google.auth.compute_engine
import google.auth.transport.requests
import google.oauth2.credentials
import requests
from everspot_core.clock import Clock
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

from everspot_clouds.base import CloudError, Trouble
from everspot_clouds.gcp import endpoints
from everspot_clouds.gcp.errors import ApiError, ApiRefusal, refills_by_the_minute, refused, trouble
from everspot_clouds.gcp.rules import SCOPE

TOKEN_VARIABLES = ("GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN")
"""Variables of the Terraform provider and of gcloud that hold an access token."""
PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
TRIES = 3
FIRST_WAIT = timedelta(milliseconds=500)
TIME = timedelta(seconds=15)
_CONNECT = timedelta(seconds=5)
_SERVICE = "the service"
WAYS = (
    "log in (`gcloud auth application-default login`), set GOOGLE_APPLICATION_CREDENTIALS, or set "
    "GOOGLE_OAUTH_ACCESS_TOKEN"
)


def credentials() -> tuple[Any, str]:
    """google-auth's credentials of the environment, and their project; empty if they have none.

    Raises:
        google-auth's errors, if no credentials exist.
    """
    project = next((os.environ[name] for name in PROJECT_VARIABLES if os.environ.get(name)), "")
    token = next((os.environ[name] for name in TOKEN_VARIABLES if os.environ.get(name)), None)
    if token is not None:
        return google.oauth2.credentials.Credentials(token=token), project
    if os.environ.get(endpoints.METADATA_VARIABLE):  # google.auth.default would look for it at its link-local address
        return google.auth.compute_engine.Credentials(scopes=[SCOPE]), project or _own_project()
    default_credentials, stated = google.auth.default(scopes=[SCOPE])
    return default_credentials, project or stated or ""


def list_unreachable(page: Mapping[str, Any]) -> list[str]:
    """Return the parts of Google Cloud whose resources a page of a list lacks (Compute API, `instances.aggregatedList`:
    `unreachables`, and the warning UNREACHABLE of the list or of a scope). It is the whole service if the list names no
    part."""
    scopes = page.get("items")
    warned = scopes if isinstance(scopes, Mapping) else {}
    lacking = [name for name, part in warned.items() if _is_unreachable(part)]
    parts = list(dict.fromkeys([*map(str, page.get("unreachables") or ()), *lacking]))
    return parts or ([_SERVICE] if _is_unreachable(page) else [])


def _is_unreachable(part: Mapping[str, Any]) -> bool:
    return (part.get("warning") or {}).get("code") == "UNREACHABLE"


def _concerns(part: str, region: str) -> bool:
    """Return whether a part of Google Cloud may hold resources of a region: the part is the region itself, one of its
    zones, or no other place."""
    *_, kind, name = ("", *part.split("/"))
    return kind not in ("zones", "regions") or f"{name}-".startswith(f"{region}-")


def _own_project() -> str:
    answer = requests.get(
        f"{endpoints.metadata_base()}/project/project-id", headers={"Metadata-Flavor": "Google"},
        timeout=_CONNECT.total_seconds(),
    )  # fmt: skip
    return answer.text.strip() if answer.ok else ""


class Unreachable(ApiError):
    """A part of Google Cloud is out of reach, and a list lacks its resources."""

    def __init__(self, path: str, parts: Iterable[str]) -> None:
        message = f"{', '.join(dict.fromkeys(parts))} cannot be reached, and the list of {path} lacks what is there"
        super().__init__(ApiRefusal(503, ("UNAVAILABLE",), message))


class Api:
    """Calls of one process with the same credentials. Thread-safe. `project`: for paths that do not name one."""

    def __init__(self, clock: Clock, project: str = "", *, time: timedelta = TIME) -> None:
        """Raises google-auth's errors, if there are no credentials, and `CloudError` if no project is known."""
        self._credentials, own = credentials()
        self.project = project or own
        if not self.project:
            words = "set GOOGLE_CLOUD_PROJECT, or `gcloud config set project`"
            raise CloudError("no project is known", Trouble.CREDENTIALS, words)
        self._clock, self._time = clock, time
        # One for all threads, as Google's own clients have it. It renews the token by itself, and its connections are a
        # pool, so that nothing is left behind by threads that come and go.
        self._session: requests.Session = google.auth.transport.requests.AuthorizedSession(self._credentials)
        self.date = ""
        """The service's time at the last answer, from its `Date` header."""

    def get(self, product: str, path: str, **query: Any) -> dict[str, Any]:
        """Read a path. Raises `ApiError`, and the errors of requests and google-auth, as all calls do."""
        return self.call("GET", product, path, query=query)

    def post(self, product: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> dict[str, Any]:
        """Send a body. It is sent again after a passing failure only if `query` has a `requestId`."""
        again = bool(query.get("requestId"))
        return self.call("POST", product, path, body=body or {}, query=query, again=again)

    def pages(self, product: str, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield every page of a list. Raises `Unreachable` for a page that lacks what a part of Google Cloud has, so
        that nobody takes it for a page of all that there is."""
        for page in self._pages(product, path, query):
            if parts := list_unreachable(page):
                raise Unreachable(path, parts)
            yield page

    def aggregated(self, product: str, path: str, region: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield every page of an aggregated list, which lists all places. Raises `Unreachable` after the last page if
        the list lacks what the region has. Other places may be out of reach (Compute API, `instances.aggregatedList`:
        without `returnPartialSuccess` the whole list fails then)."""
        lacking: list[str] = []
        for page in self._pages(product, path, {**query, "returnPartialSuccess": "true"}):
            lacking += [part for part in list_unreachable(page) if _concerns(part, region)]
            yield page
        if lacking:
            raise Unreachable(path, lacking)

    def _pages(self, product: str, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            more = {"pageToken": token} if token else {}
            page = self.get(product, path, **query, **more)
            yield page
            token = page.get("nextPageToken") or ""
            if not token:
                return

    def call(
        self,
        method: str,
        product: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        again: bool = True,
        time: timedelta | None = None,
    ) -> dict[str, Any]:
        """Return the JSON of an answer. `again`: whether transient failures are retried. An exhausted per-minute quota
        of Compute is not retried: the periodic caller backs off, and its next call falls into a new minute. Other
        products' quotas are per second and are retried (Cloud Storage, "HTTP status and error codes": 429, retry with
        exponential backoff)."""
        tries, wait = TRIES if again else 1, FIRST_WAIT
        for remaining in range(tries - 1, -1, -1):
            try:
                return self._once(method, f"{endpoints.base(product)}/{path}", body, query, time or self._time)
            except (ApiError, requests.RequestException, GoogleAuthError) as error:
                passing = trouble(error) in (Trouble.TRANSIENT, Trouble.THROTTLED)
                if not remaining or not passing or (product == "compute" and refills_by_the_minute(error)):
                    raise
            self._clock.sleep(wait)
            wait *= 2
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _once(
        self, method: str, url: str, body: Mapping[str, Any] | None, query: Mapping[str, Any] | None, time: timedelta
    ) -> dict[str, Any]:
        limits = (_CONNECT.total_seconds(), time.total_seconds())
        answer = self._session.request(method, url, json=body, params=dict(query or {}), timeout=limits)
        self.date = answer.headers.get("Date", "")
        try:
            content = answer.json() if answer.content else {}
        except ValueError:
            content = {}
        if answer.status_code >= 400:
            raise refused(answer.status_code, content)
        return content if isinstance(content, dict) else {}

    def identity(self) -> str:
        """Return the account of the credentials, if they name it."""
        for name in ("signer_email", "service_account_email"):
            value = getattr(self._credentials, name, None)
            if isinstance(value, str) and value and value != "default":
                return value
        return ""

    def close(self) -> None:
        """Close all connections."""
        self._session.close()


def open_api(clock: Clock, project: str = "", *, time: timedelta = TIME) -> Api:
    """Calls with the environment's credentials, for people's tools.

    Raises:
        CloudError: if no credentials exist.
    """
    try:
        return Api(clock, project, time=time)
    except DefaultCredentialsError as error:
        raise CloudError(f"there are no Google Cloud credentials: {error}", Trouble.CREDENTIALS, WAYS) from None
    except (GoogleAuthError, requests.RequestException) as error:
        words = f"the Google Cloud credentials cannot be obtained: {error}"
        raise CloudError(words, Trouble.CREDENTIALS, WAYS) from None
