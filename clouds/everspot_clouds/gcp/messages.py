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
import queue
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from everspot_core.clock import Clock

from everspot_clouds.base import Message, MessageKind, Trouble
from everspot_clouds.gcp.errors import trouble
from everspot_clouds.gcp.rest import Api
from everspot_clouds.gcp.rules import PREEMPTED, TRUSTED

LONG_POLL = timedelta(seconds=90)
"""The longest wait for an answer. Pub/Sub holds it back for a bounded time while there is no message."""
_BATCH = 100
_BACK_OFF = (timedelta(seconds=1), timedelta(seconds=30))
_BEGIN_AND_END = ("compute.instances.delete", "compute.instances.stop")
"""Calls of people and groups: one entry when such a call begins, one when it is done."""
_OVER = (
    "compute.instances.guestTerminate",
    "compute.instances.hostError",
    "compute.instances.terminateOnHostMaintenance",
    "compute.instances.instanceManagerHaltForRestart",
)
"""System events after which the instance no longer runs."""
_REPAIR = "compute.instances.repair.recreateInstance"
_log = logging.getLogger(__name__)


class UnreadableEntry(ValueError):
    """A message that is not an entry, or lacks a field that its kind must have."""


def parse(data: str, handle: str, notice: timedelta) -> Message:
    """The entry in a message's data (base64). `notice`: the notice that was requested for Spot.

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
    # Never sooner than the instance itself has to reckon with: what it was told must not be cut short.
    deadline = at + notice + TRUSTED if kind is MessageKind.WARNING else None
    return Message(kind=kind, handle=handle, at=at, instance_id=name, deadline=deadline)


def _kind(method: str, operation: Mapping[str, Any]) -> MessageKind:
    """The kind of message of a method. Names of called methods begin with the API's version."""
    plain = method.partition(".")[2] if method.startswith(("v1.", "beta.", "alpha.")) else method
    if plain == PREEMPTED:
        return MessageKind.WARNING
    if plain in _BEGIN_AND_END:
        return MessageKind.ENDED if operation.get("last") else MessageKind.ENDING
    if plain in _OVER:
        return MessageKind.ENDED
    return MessageKind.ENDING if plain == _REPAIR else MessageKind.IGNORED


class Subscriber:
    """Pulls from the subscription in a thread and keeps the messages for the scheduler's loop. `close` ends it."""

    def __init__(self, api: Api, subscription: str, notice: timedelta, clock: Clock) -> None:
        self._api, self._path, self._notice, self._clock = api, subscription, notice, clock
        self._received: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._closed = threading.Event()
        # A daemon: nobody should wait for the end of a long poll.
        self._thread = threading.Thread(target=self._run, name="everspot-events", daemon=True)

    def start(self) -> "Subscriber":
        """Begin to listen."""
        self._thread.start()
        return self

    def drain(self) -> list[Message]:
        """The messages received since the last call, without waiting."""
        received = []
        while not self._received.empty():
            received.append(self._received.get())
        return received

    def delete(self, messages: Iterable[Message]) -> None:
        """Acknowledge messages.

        Raises:
            The errors of `Api`. The messages come again then, which does no harm.
        """
        handles = [m.handle for m in messages]
        for start in range(0, len(handles), _BATCH):
            body = {"ackIds": handles[start : start + _BATCH]}
            self._api.call("POST", "pubsub", f"{self._path}:acknowledge", body=body)

    def close(self, patience: timedelta = timedelta(seconds=1)) -> None:
        """Stop listening; waits no longer than `patience` for a pull under way."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(patience.total_seconds())

    def receive(self) -> None:
        """Pull once: keep messages of known methods, acknowledge all others.

        Raises:
            The errors of `Api`.
        """
        body = {"maxMessages": _BATCH}
        try:
            answer = self._api.call("POST", "pubsub", f"{self._path}:pull", body=body, again=False, time=LONG_POLL)
        except requests.ReadTimeout:
            return  # there was nothing to tell for that long
        done: list[Message] = []
        for raw in answer.get("receivedMessages") or ():
            handle, data = str(raw["ackId"]), str((raw.get("message") or {}).get("data") or "")
            try:
                message = parse(data, handle, self._notice)
            except UnreadableEntry as error:
                _log.warning("a message that cannot be read is deleted (%s): %.500s", error, data)
                message = Message(kind=MessageKind.IGNORED, handle=handle)
            if message.kind is MessageKind.IGNORED:
                done.append(message)
            else:
                self._received.put(message)
        self.delete(done)

    def _run(self) -> None:
        pause = _BACK_OFF[0]
        while not self._closed.is_set():
            began = self._clock.monotonic()
            try:
                self.receive()
                pause = _BACK_OFF[0]
                # An answer that is empty at once must not become a loop without rest.
                if self._clock.monotonic() - began < _BACK_OFF[0]:
                    self._closed.wait(_BACK_OFF[0].total_seconds())
            except Exception as error:
                if self._closed.is_set():
                    return
                loud = _log.critical if trouble(error) is Trouble.CREDENTIALS else _log.warning
                loud("the subscription of interruption events could not be read: %s", error)
                self._closed.wait(pause.total_seconds())
                pause = min(pause * 2, _BACK_OFF[1])
