"""The EC2 instance metadata service, version 2: a session token, then GETs that carry it.

It uses only the standard library: see `everspot_clouds.base`.
"""

import http.client
import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime, timedelta

from everspot_core.capacity.market import Market
from everspot_core.clock import Clock

from everspot_clouds.base import Identity, MetadataError, MetadataUnavailable

ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
DEFAULT_ENDPOINT = "http://169.254.169.254"
PREFIX = "latest/meta-data"
TOKEN_TTL = timedelta(hours=6)
TIMEOUT = timedelta(seconds=2)
ATTEMPTS = 5
FIRST_WAIT = timedelta(milliseconds=100)

_log = logging.getLogger(__name__)
_TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105  the name of a header


class ImdsClient:
    """Reads paths of the service. Thread-safe.

    A path that does not exist gives None. Time-outs, refused connections, 5xx and 429 are retried a bounded number of
    times with doubling waits; 401 is retried once with a new token. Proxies are never used, because the address is
    link-local.
    """

    def __init__(self, endpoint: str, clock: Clock, *, timeout: timedelta = TIMEOUT) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._clock = clock
        self._timeout = timeout.total_seconds()
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._lock = threading.Lock()
        self._token: str | None = None
        self._renew_at = timedelta()

    def get(self, path: str, *, attempts: int = ATTEMPTS) -> str | None:
        """Return the text at `path`; None if it does not exist (404).

        Raises:
            MetadataUnavailable: if `attempts` attempts failed.
        """
        wait = FIRST_WAIT
        for remaining in range(attempts - 1, -1, -1):
            try:
                return self._get_once(path)
            except (OSError, http.client.HTTPException, _Flaky) as error:
                _log.debug("metadata service, %s: %s", path, error)
                if not remaining:
                    raise MetadataUnavailable(f"{path}: {error}") from error
            self._clock.sleep(wait)
            wait *= 2
        raise ValueError("attempts must be at least 1")

    def _get_once(self, path: str) -> str | None:
        status, text = self._call("GET", path, {_TOKEN_HEADER: self._session_token(fresh=False)})
        if status == 401:
            status, text = self._call("GET", path, {_TOKEN_HEADER: self._session_token(fresh=True)})
        if status == 404:
            return None
        if status != 200:
            raise _Flaky(f"answered {status}")
        return text

    def _session_token(self, *, fresh: bool) -> str:
        with self._lock:
            now = self._clock.monotonic()
            if self._token is None or fresh or now >= self._renew_at:
                ttl = str(int(TOKEN_TTL.total_seconds()))
                status, text = self._call("PUT", "latest/api/token", {f"{_TOKEN_HEADER}-ttl-seconds": ttl})
                if status != 200 or not text:
                    raise _Flaky(f"the token request was answered {status}")
                self._token, self._renew_at = text, now + TOKEN_TTL / 2
            return self._token

    def _call(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        request = urllib.request.Request(f"{self._endpoint}/{path}", method=method, headers=headers)  # noqa: S310
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except UnicodeDecodeError as error:
            raise _Flaky(f"answered with bytes that are no text: {error}") from error


class ImdsMetadata:
    """See `everspot_clouds.base.Metadata`."""

    where = "user data"

    def __init__(self, client: ImdsClient) -> None:
        self._client = client

    def manifest(self) -> str:
        """Return the instance's user data."""
        text = self._client.get("latest/user-data")
        if text is None:
            raise MetadataError("this instance has no user data: it was not launched by an Everspot cluster")
        return text

    def identity(self) -> Identity:
        """Id, type, zone and market, as EC2 states them."""
        return Identity(
            instance_id=self._required("instance-id"),
            instance_type=self._required("instance-type"),
            zone=self._required("placement/availability-zone"),
            market=Market.SPOT if self._required("instance-life-cycle") == "spot" else Market.ON_DEMAND,
        )

    def interruption(self) -> datetime | None:
        """Return the time in `spot/instance-action`, which is absent until about two minutes before the
        interruption."""
        return self._moment("spot/instance-action", "time")

    def rebalance(self) -> datetime | None:
        """`events/recommendations/rebalance`: the moment of the recommendation itself."""
        return self._moment("events/recommendations/rebalance", "noticeTime")

    def end(self) -> bool:
        """Does nothing: by the launch templates an instance that is switched off is terminated."""
        return False

    def _required(self, path: str) -> str:
        value = self._client.get(f"{PREFIX}/{path}")
        if not value:
            raise MetadataError(f"the metadata service has no {path}")
        return value.strip()

    def _moment(self, path: str, field: str) -> datetime | None:
        text = self._client.get(f"{PREFIX}/{path}", attempts=1)
        if text is None:
            return None
        try:
            moment = datetime.fromisoformat(json.loads(text)[field])
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataError(f"{path} is not understood: {text[:200]!r}") from error
        if moment.tzinfo is None:
            raise MetadataError(f"{path} has a time without a zone: {text[:200]!r}")
        return moment


class _Flaky(Exception):
    """A failure that may pass: the request is tried again."""


def endpoint_from(getenv: Callable[[str], str | None]) -> str:
    """Return the service's address: the standard variable of the AWS SDKs, otherwise the link-local address."""
    return getenv(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT
