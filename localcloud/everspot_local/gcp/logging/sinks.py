"""Stands in for log sinks: each entry that a sink's filter takes is published to its topic, if its writer may.

There are topics as destinations, and no others; no exclusions. A sink whose writer may not publish loses its entries,
as in the cloud, which tells it by mail. Sources: "Route logs to supported destinations" (writer identities; entries in
Pub/Sub with the attribute logging.googleapis.com/timestamp), LogSink in logging.v2.json, "Quotas and limits" (200).
"""

import base64
import json
import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from everspot_local.gcp.answers import ApiError, not_here
from everspot_local.gcp.logging.filters import parsed
from everspot_local.gcp.refusals import absent, bad, exhausted, exists_already
from everspot_local.market.clock import stamp

log = logging.getLogger(__name__)
AT_MOST = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}")
_TOPIC = re.compile(r"pubsub\.googleapis\.com/(projects/[^/]+/topics/[^/]+)")
_SHARED = "serviceAccount:cloud-logs@system.gserviceaccount.com"
_KNOWN = {"name", "destination", "filter", "description", "disabled", "writerIdentity", "createTime", "updateTime",
          "resourceName"}  # fmt: skip
_UPDATED = {"destination", "filter", "includeChildren"}
"""What an update without a mask changes."""
Document = dict[str, Any]


class Sinks:
    """The sinks of a project. Methods raise `ApiError` in Logging's words.

    Args:
        now: market time.
        project: its id.
        number: its number.
        may_publish: whether a member may publish to a topic.
        publish: publishes messages to a topic.
        used: is told the writer of a sink, which Google makes with the first one.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        project: str,
        number: str,
        may_publish: Callable[[str, str], bool],
        publish: Callable[[str, list[Mapping[str, Any]]], Any],
        used: Callable[[str], None],
    ) -> None:
        self._now, self._project = now, project
        self._own = f"serviceAccount:service-{number}@gcp-sa-logging.iam.gserviceaccount.com"
        self._may_publish, self._publish, self._used = may_publish, publish, used
        self._sinks: dict[str, Document] = {}

    def create(self, body: Mapping[str, Any], *, unique: bool) -> Document:
        """Create a sink. `unique`: with its own writer account."""
        name = str(body.get("name") or "")
        if not _NAME.fullmatch(name):
            raise bad(
                f"Sink identifiers are 1 to 100 letters, digits, underscores, hyphens and full stops, not {name!r}."
            )
        if name in self._sinks:
            raise exists_already(f"Sink {name} already exists")
        if len(self._sinks) >= AT_MOST:
            raise exhausted(f"The project has the {AT_MOST} sinks that it may have.")
        _check(body)
        now = stamp(self._now())
        fields = {key: value for key, value in body.items() if value not in (None, "") and key in _KNOWN}
        sink = {
            **fields, "writerIdentity": self._own if unique else _SHARED, "createTime": now, "updateTime": now,
            "resourceName": f"projects/{self._project}/sinks/{name}",
        }  # fmt: skip
        self._sinks[name] = sink
        self._used(str(sink["writerIdentity"]).removeprefix("serviceAccount:"))
        return sink

    def get(self, name: str) -> Document:
        """Return a sink."""
        if name not in self._sinks:
            raise absent(f"Sink {name} does not exist")
        return self._sinks[name]

    def all(self) -> list[Document]:
        """Return all sinks by name."""
        return [self._sinks[name] for name in sorted(self._sinks)]

    def update(self, name: str, body: Mapping[str, Any], mask: set[str], *, unique: bool) -> Document:
        """Change a sink."""
        current = self.get(name)
        fields = mask or _UPDATED
        changed = {key: value for key, value in current.items() if key not in fields}
        changed |= {key: body[key] for key in fields if body.get(key) not in (None, "") and key in _KNOWN}
        _check({**changed, "exclusions": body.get("exclusions"), "includeChildren": body.get("includeChildren")})
        if current["writerIdentity"] != _SHARED and not unique:
            raise bad("The uniqueWriterIdentity of a sink cannot be changed from true to false.")
        changed["writerIdentity"] = self._own if unique else current["writerIdentity"]
        changed["updateTime"] = stamp(self._now())
        self._sinks[name] = changed
        self._used(str(changed["writerIdentity"]).removeprefix("serviceAccount:"))
        return changed

    def delete(self, name: str) -> None:
        """Delete a sink."""
        self.get(name)
        del self._sinks[name]

    def route(self, entry: Mapping[str, Any]) -> None:
        """Offer an entry to every sink."""
        for sink in self.all():
            if not sink.get("disabled") and parsed(sink.get("filter", ""))(entry):
                self._send(sink, entry)

    def _send(self, sink: Document, entry: Mapping[str, Any]) -> None:
        match = _TOPIC.fullmatch(sink["destination"])
        topic = match[1] if match else ""
        if not self._may_publish(sink["writerIdentity"], topic):
            log.warning("sink %s: %s may not publish to %s", sink["name"], sink["writerIdentity"], topic)
            return
        data = base64.b64encode(json.dumps(entry, separators=(",", ":")).encode()).decode()
        attributes = {"logging.googleapis.com/timestamp": entry["timestamp"]}
        try:
            self._publish(topic, [{"data": data, "attributes": attributes}])
        except ApiError as error:
            log.warning("sink %s: %s", sink["name"], error)


def _check(body: Mapping[str, Any]) -> None:
    unknown = sorted(key for key, value in body.items() if key not in _KNOWN and value)
    if unknown:
        raise not_here(f"{', '.join(unknown)} of sinks")
    destination = str(body.get("destination") or "")
    if not _TOPIC.fullmatch(destination):
        is_google_product = destination.partition("/")[0] in (
            "storage.googleapis.com",
            "bigquery.googleapis.com",
            "logging.googleapis.com",
        )
        raise (
            not_here(f"the destination {destination} of sinks")
            if is_google_product
            else bad(f"Invalid destination: {destination!r}")
        )
    if len(str(body.get("description") or "")) > 8000:
        raise bad("The description of a sink is at most 8000 characters.")
    parsed(str(body.get("filter") or ""))
