"""The metadata server of Compute Engine, and the deletion of an instance by itself.

It uses only the standard library: see `everspot_clouds.base`. Sources: Compute Engine documentation, "View and query VM
metadata" (`wait_for_change`, `last_etag`, `timeout_sec`, the header `Metadata-Flavor`) and "Spot VMs" (`preempted`).
"""

import http.client
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from everspot_core.capacity.market import Market
from everspot_core.clock import Clock

from everspot_clouds.base import Identity, MetadataError, MetadataUnavailable
from everspot_clouds.gcp import endpoints
from everspot_clouds.gcp.boot_rules import MANIFEST_KEY, TRUSTED
from everspot_clouds.gcp.machines import described

FLAVOR = {"Metadata-Flavor": "Google"}
TIMEOUT = timedelta(seconds=2)
HANG = timedelta(seconds=5)
"""How long the server holds back the answer on an unchanged value. A change is answered immediately."""
ATTEMPTS = 5
FIRST_WAIT = timedelta(milliseconds=100)
_API_TIMEOUT = timedelta(seconds=15)
_log = logging.getLogger(__name__)


class MetadataServer:
    """Reads values by their paths. Thread-safe.

    A path that does not exist gives None. Time-outs, refused connections, 5xx and 429 are retried a bounded number of
    times with doubling waits. Proxies are never used, because the address is link-local.
    """

    def __init__(self, base: str, clock: Clock, *, timeout: timedelta = TIMEOUT) -> None:
        self._base, self._clock, self._timeout = base, clock, timeout
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, *, attempts: int = ATTEMPTS) -> str | None:
        """Return the text at `path`; None if it does not exist (404).

        Raises:
            MetadataUnavailable: if `attempts` attempts failed.
        """
        answer = self.look(path, attempts=attempts)
        return answer[0] if answer is not None else None

    def look(self, path: str, *, attempts: int = ATTEMPTS, last: str | None = None) -> tuple[str, str] | None:
        """Return the text at `path` and its ETag. With the ETag of the `last` answer the server holds its own back
        until the value has changed since, or `HANG` is over.

        Raises:
            MetadataUnavailable: as for `get`.
        """
        wait = FIRST_WAIT
        query = f"?wait_for_change=true&last_etag={last}&timeout_sec={HANG.total_seconds():.0f}" if last else ""
        patience = self._timeout + (HANG if last else timedelta(0))
        for remaining in range(attempts - 1, -1, -1):
            try:
                return self._once(f"{path}{query}", patience)
            except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
                _log.debug("metadata server, %s: %s", path, error)
                if not remaining:
                    raise MetadataUnavailable(f"{path}: {error}") from error
            self._clock.sleep(wait)
            wait *= 2
        raise ValueError("attempts must be at least 1")

    def _once(self, path: str, patience: timedelta) -> tuple[str, str] | None:
        request = urllib.request.Request(f"{self._base}/{path}", headers=FLAVOR)  # noqa: S310  link-local
        try:
            with self._opener.open(request, timeout=patience.total_seconds()) as response:
                if response.headers.get("Metadata-Flavor") != "Google":
                    raise http.client.HTTPException("the answer is not the metadata server's")
                return response.read().decode(), response.headers.get("ETag") or ""
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise http.client.HTTPException(f"answered {error.code}") from None


class GcpMetadata:
    """See `everspot_clouds.base.Metadata`."""

    where = f"instance metadata {MANIFEST_KEY}"

    def __init__(self, server: MetadataServer, clock: Clock, getenv: Callable[[str], str | None]) -> None:
        self._server, self._clock, self._getenv = server, clock, getenv
        self._etag: str | None = None
        self._taken_at: datetime | None = None

    def manifest(self) -> str:
        """Return the value of the instance metadata's key."""
        text = self._server.get(f"instance/attributes/{MANIFEST_KEY}")
        if text is None:
            raise MetadataError(f"this instance has no {self.where}: it was not launched by an Everspot cluster")
        return text

    def identity(self) -> Identity:
        """Return the identity, with the numeric id, which no other instance ever has. A name may belong to another
        instance after a repair."""
        spot = self._required("instance/scheduling/preemptible") == "TRUE"
        return Identity(
            instance_id=self._required("instance/id"),
            instance_type=self._type(),
            zone=_last(self._required("instance/zone")),
            market=Market.SPOT if spot else Market.ON_DEMAND,
        )

    def interruption(self) -> datetime | None:
        """See `Metadata`. `instance/preempted` becomes TRUE and contains no time. So the end is the moment of the
        change, plus the notice in the manifest, plus the guest's shutdown time as far as it is `TRUSTED`.

        The first call answers immediately; each later one waits for a change for as long as `HANG`.
        """
        if self._taken_at is not None:
            return self._taken_at
        answer = self._server.look("instance/preempted", attempts=1, last=self._etag)
        if answer is None:
            raise MetadataError("the metadata server has no instance/preempted")
        text, self._etag = answer[0].strip(), answer[1]
        if text not in ("TRUE", "FALSE"):
            raise MetadataError(f"instance/preempted is not understood: {text[:200]!r}")
        if text == "TRUE":
            self._taken_at = self._clock.now() + self._notice() + TRUSTED
        return self._taken_at

    def rebalance(self) -> datetime | None:
        """Never: Google recommends nothing."""
        return None

    def end(self) -> bool:
        """Delete this instance by the API, because an instance that only switches itself off stays and costs its
        disks."""
        project, zone = self._required("project/project-id"), _last(self._required("instance/zone"))
        name = self._required("instance/name")
        token = self._server.get("instance/service-accounts/default/token")
        try:
            headers = {"Authorization": f"Bearer {json.loads(token or '')['access_token']}"}
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataError("this instance's service account has no token") from error
        path = f"projects/{project}/zones/{zone}/instances/{name}"
        _delete(f"{endpoints.base('compute', self._getenv)}/{path}", headers)
        _log.info("%s is being deleted", name)
        return True

    def _notice(self) -> timedelta:
        """Return the requested notice, by the manifest; if it names none, the shortest."""
        try:
            return timedelta(seconds=float(json.loads(self.manifest()).get("notice") or 0))
        except (MetadataError, ValueError, TypeError, AttributeError) as error:
            _log.error("what notice was asked for cannot be read, so none is counted on: %s", error)
            return timedelta(0)

    def _type(self) -> str:
        machine = _last(self._required("instance/machine-type"))
        return described(self._server.get("instance/description") or "", machine)

    def _required(self, path: str) -> str:
        value = self._server.get(path)
        if not value:
            raise MetadataError(f"the metadata server has no {path}")
        return value.strip()


def _last(path: str) -> str:
    """Return the last segment of a resource path such as `projects/NUMBER/zones/NAME`."""
    return path.rsplit("/", 1)[-1]


def _delete(url: str, headers: Mapping[str, str]) -> None:
    """Delete an instance. Raises only `MetadataError`."""
    request = urllib.request.Request(url, method="DELETE", headers=dict(headers))  # noqa: S310  Google's, or the local cloud's
    try:
        with urllib.request.urlopen(request, timeout=_API_TIMEOUT.total_seconds()):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return  # somebody else was faster
            raise MetadataError(
                f"{url} was answered {error.code}: {error.read(500).decode(errors='replace')}"
            ) from None
    except (OSError, http.client.HTTPException) as error:
        raise MetadataError(f"{url} cannot be reached: {error}") from error
