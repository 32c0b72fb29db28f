"""Entries of the audit log, which a logging sink sends to Pub/Sub and a thread pulls from a subscription.

Delivery is at least once: entries come late, twice or out of order, and may be about other clusters of the project. An
entry reports something that has already begun; interruptions are not announced this way. Entries of other methods, and
those of calls that were refused, are acknowledged. Entries that cannot be read are logged and acknowledged, so that
they do not come again for ever. Every other entry stays in the subscription until the scheduler has recorded what it
means.

Sources: Cloud Logging API, LogEntry; Pub/Sub API, subscriptions.pull and acknowledge; "Compute Engine audit logging
information", for the methods and for `operation.first` and `operation.last`.
"""

import base64
import json
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from everspot_core.clock import Clock

from everspot_clouds.base import Message, MessageKind, Trouble
from everspot_clouds.gcp.errors import trouble
from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.rules import HALTED, PREEMPTED, REPAIRED, TRUSTED
from everspot_clouds.listening import QueueListener

LONG_POLL = timedelta(seconds=90)
"""The longest wait for an answer. Pub/Sub holds it back for a bounded time while there is no message."""
_BATCH = 100
_LEAST = timedelta(seconds=1)
"""Between two pulls."""
_BEGIN_AND_END = ("compute.instances.delete", "compute.instances.stop")
"""Calls of people and groups: one entry when such a call begins, one when it is done."""
_log = logging.getLogger(__name__)


class UnreadableEntry(ValueError):
    """A message that is not an entry, or lacks a field that its kind must have."""


def parse(data: str, handle: str, notice: timedelta) -> Message:
    """Return the entry in a message's data (base64). `notice`: the notice that was requested for Spot.

    Raises:
        UnreadableEntry: if it is not a JSON object with the fields that its kind must have.
    """
    try:
        entry = json.loads(base64.b64decode(data, validate=True))
        payload = entry.get("protoPayload") or {}
        kind = _kind(str(payload.get("methodName") or ""), entry.get("operation") or {})
        if kind is MessageKind.IGNORED or (payload.get("status") or {}).get("code"):
            return Message(kind=MessageKind.IGNORED, handle=handle)
        at = datetime.fromisoformat(entry["timestamp"]).astimezone(UTC)
        name = entry["resource"]["labels"]["instance_id"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableEntry(f"{type(error).__name__}: {error}") from error
    if not isinstance(name, str) or not name.isdecimal():
        raise UnreadableEntry(f"instance_id is no number: {name!r}")
    # Not earlier than the deadline that the instance itself expects, so that its time is not cut short.
    deadline = at + notice + TRUSTED if kind is MessageKind.WARNING else None
    return Message(kind=kind, handle=handle, at=at, instance_id=name, deadline=deadline)


def _kind(method: str, operation: Mapping[str, Any]) -> MessageKind:
    """Return the kind of message of a method. Names of called methods begin with the API's version."""
    plain = method.partition(".")[2] if method.startswith(("v1.", "beta.", "alpha.")) else method
    if plain == PREEMPTED:
        return MessageKind.WARNING
    if plain in _BEGIN_AND_END:
        return MessageKind.ENDED if operation.get("last") else MessageKind.ENDING
    if plain in HALTED:
        return MessageKind.ENDED
    return MessageKind.ENDING if plain == REPAIRED else MessageKind.IGNORED


class Subscriber(QueueListener):
    """See `QueueListener`. `notice`: what instances were promised."""

    noun = "subscription"

    def __init__(self, api: Api, subscription: str, notice: timedelta, clock: Clock) -> None:
        super().__init__()
        self._api, self._path, self._notice, self._clock = api, subscription, notice, clock

    def delete(self, messages: Iterable[Message]) -> None:
        """See `QueueListener`. Raises the errors of `Api`."""
        handles = [m.handle for m in messages]
        for start in range(0, len(handles), _BATCH):
            body = {"ackIds": handles[start : start + _BATCH]}
            self._api.call("POST", "pubsub", f"{self._path}:acknowledge", body=body)

    def trouble(self, error: Exception) -> Trouble:
        """See `QueueListener`."""
        return trouble(error)

    def receive(self) -> None:
        """See `QueueListener`. Raises the errors of `Api`."""
        body = {"maxMessages": _BATCH}
        try:
            answer = self._api.call("POST", "pubsub", f"{self._path}:pull", body=body, again=False, time=LONG_POLL)
        except requests.ReadTimeout:
            return  # there was nothing to tell for that long
        self.keep(self._read(raw) for raw in answer.get("receivedMessages") or ())

    def receive_in_turn(self) -> None:
        """See `QueueListener`. Waits after an immediate empty answer, which would otherwise become a busy loop."""
        began = self._clock.monotonic()
        self.receive()
        if self._clock.monotonic() - began < _LEAST:
            self.wait(_LEAST)

    def _read(self, raw: Mapping[str, Any]) -> Message:
        handle, data = str(raw["ackId"]), str((raw.get("message") or {}).get("data") or "")
        try:
            return parse(data, handle, self._notice)
        except UnreadableEntry as error:
            _log.warning("a message that cannot be read is deleted (%s): %.500s", error, data)
            return Message(kind=MessageKind.IGNORED, handle=handle)
