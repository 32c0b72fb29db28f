"""Stands in for the metadata server of Compute Engine: one for each instance, on a port of its own.

It serves `/computeMetadata/v1/` alone: with the header `Metadata-Flavor`, never to what was forwarded, as text or JSON,
immediately or when something has changed since an ETag. Waits are of real seconds. It sets no attributes of guests.
Source: Compute Engine documentation, "View and query VM metadata".
"""

import hashlib
import json
import threading
import time
from typing import Any
from urllib.parse import parse_qs, unquote

from everspot_local.gcp.metadata.documents import Identity, Secret, Values, find, recursive, text
from everspot_local.machines.machine_servers import MachineResponse, MachineServers
from everspot_local.market.market import LocalMarket

ROOT = "/computeMetadata/v1"
_SERVER = "Metadata Server for VM"
_FLAVOR = {"Metadata-Flavor": "Google"}
_LONGEST_WAIT = 3600.0
"""Seconds. Without `timeout_sec` the real one waits for ever; who waited so long asks again."""


class MetadataServers:
    """The metadata servers of all instances.

    Args:
        values: what they tell.
        market: whose lock is held while that is read.
    """

    def __init__(self, values: Values, market: LocalMarket) -> None:
        self._values, self._market = values, market
        self._servers = MachineServers(self._respond, _SERVER)
        self._change = threading.Condition()
        self._changes = 0

    def address(self, instance_id: str) -> str:
        """Return host and port of an instance's server, which is opened on first use; for `GCE_METADATA_HOST`."""
        return self._servers.address(instance_id)

    def changed(self, instance_id: str) -> None:
        """Wake requests that wait for a change."""
        with self._change:
            self._changes += 1
            self._change.notify_all()

    def close(self, instance_id: str) -> None:
        """Close the server of an instance that has ended."""
        self._servers.close(instance_id)
        self.changed(instance_id)

    def reset(self) -> None:
        """Close the servers of all instances; new ones may be opened."""
        self._servers.reset()
        self.changed("")

    def close_all(self) -> None:
        """Close all servers for good."""
        self.reset()
        self._servers.close_all()

    def _respond(self, instance_id: str, method: str, path: str, headers: Any) -> MachineResponse:
        if headers.get("Metadata-Flavor", "").lower() != "google" or headers.get("X-Forwarded-For"):
            if path.partition("?")[0] == "/":  # by this programs find out whether there is a server at all
                return MachineResponse(200, "computeMetadata/\n", {**_FLAVOR, "Content-Type": "application/text"})
            return MachineResponse(403, "Your client does not have permission to get this URL.", {**_FLAVOR, **_HTML})
        if method != "GET":
            return MachineResponse(405, "Method Not Allowed", {**_FLAVOR, **_HTML})
        place, _, query = path.partition("?")
        if place.rstrip("/") == "" or place.rstrip("/") == "/computeMetadata":
            return MachineResponse(200, "computeMetadata/\n" if place == "/" else "v1/\n", {**_FLAVOR, **_TEXT})
        if place != ROOT and not place.startswith(f"{ROOT}/"):
            return _nothing(place)
        return self._read(instance_id, unquote(place.removeprefix(ROOT)), parse_qs(query, keep_blank_values=True))

    def _read(self, instance_id: str, place: str, query: dict[str, list[str]]) -> MachineResponse:
        wait = query.get("wait_for_change", ["false"])[0].lower() == "true"
        response = self._look(instance_id, place, query)
        if not wait or response.status != 200:
            return response
        last = query.get("last_etag", [response.headers["ETag"]])[0]
        patience = min(float(query.get("timeout_sec", [_LONGEST_WAIT])[0]), _LONGEST_WAIT)
        return self._wait(instance_id, place, query, last, patience)

    def _wait(
        self, instance_id: str, place: str, query: dict[str, list[str]], last: str, patience: float
    ) -> MachineResponse:
        """Return the value once it differs from the last one, or as it is when the timeout is over."""
        # Not while holding the condition: who changes something holds the market's lock, which looking needs.
        end = time.monotonic() + patience
        while True:
            version = self._changes
            response = self._look(instance_id, place, query)
            if response.status != 200 or response.headers["ETag"] != last or time.monotonic() >= end:
                return response
            with self._change:
                if self._changes == version:
                    self._change.wait(end - time.monotonic())

    def _look(self, instance_id: str, place: str, query: dict[str, list[str]]) -> MachineResponse:
        with self._market.lock:
            tree = self._values.tree(instance_id)
            value = None if tree is None else find(tree, place)
            if isinstance(value, Identity):
                audience = query.get("audience", [""])[0]
                if not audience:
                    return MachineResponse(400, "non-empty audience parameter required\n", {**_FLAVOR, **_TEXT})
                full = query.get("format", [""])[0] == "full"
                return _ok(self._values.identity(value, audience, full=full), _TEXT)
            if isinstance(value, Secret):
                return _ok(self._values.token(value.caller), _JSON)
        if value is None:
            return _nothing(place)
        deep = query.get("recursive", ["false"])[0].lower() == "true"
        form = query.get("alt", ["json" if deep else "text"])[0]
        if isinstance(value, dict) and not deep and not place.endswith("/"):
            # As the real one: a folder without a slash at its end is redirected to where it is.
            return MachineResponse(301, "", {**_FLAVOR, "Location": f"{ROOT}{place}/"})
        if form == "json":
            return _ok(json.dumps(recursive(value, place.rstrip("/").rpartition("/")[2])), _JSON)
        return _ok(text(value), _TEXT)


_TEXT = {"Content-Type": "application/text"}
_JSON = {"Content-Type": "application/json"}
_HTML = {"Content-Type": "text/html; charset=UTF-8"}


def _ok(body: str, kind: dict[str, str]) -> MachineResponse:
    etag = hashlib.sha256(body.encode()).hexdigest()[:16]
    return MachineResponse(200, body, {**_FLAVOR, **kind, "ETag": etag})


def _nothing(place: str) -> MachineResponse:
    return MachineResponse(404, f"The requested URL {place} was not found on this server.", {**_FLAVOR, **_HTML})
