"""Messages of EventBridge, which a thread receives from SQS.

Delivery is best-effort: messages come late, twice, out of order or not at all, and may be about other clusters. A table
holds a parser for each event pattern of the rules. Messages of other patterns are deleted. Messages that cannot be read
are logged and deleted, so that they do not block the queue. Every other message stays in the queue until the scheduler
has recorded what it means.
"""

import json
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_core.clock import Clock

from everspot_clouds.aws import rules
from everspot_clouds.aws.errors import trouble
from everspot_clouds.base import Message, MessageKind, Trouble

LONG_POLL = timedelta(seconds=20)
_BATCH = 10
_BACK_OFF = (timedelta(seconds=1), timedelta(seconds=30))
_STATES = {
    "pending": MessageKind.LAUNCHED,
    "running": MessageKind.LAUNCHED,
    "shutting-down": MessageKind.ENDING,
    "stopping": MessageKind.ENDING,
    "terminated": MessageKind.ENDED,
    "stopped": MessageKind.ENDED,
}
_log = logging.getLogger(__name__)


class UnreadableMessage(ValueError):
    """A message that is not an event, or lacks a field that its kind must have."""


def _warning(event: dict[str, Any], at: datetime) -> dict[str, Any]:
    return {"kind": MessageKind.WARNING, "instance_id": event["detail"]["instance-id"], "deadline": at + rules.NOTICE}


def _rebalance(event: dict[str, Any], at: datetime) -> dict[str, Any]:
    return {"kind": MessageKind.REBALANCE, "instance_id": event["detail"]["instance-id"]}


def _state_change(event: dict[str, Any], at: datetime) -> dict[str, Any]:
    kind = _STATES.get(event["detail"]["state"], MessageKind.IGNORED)
    return {"kind": kind, "instance_id": event["detail"]["instance-id"]}


def _fleet_error(event: dict[str, Any], at: datetime) -> dict[str, Any]:
    detail = event["detail"]
    return {"kind": MessageKind.CAPACITY, "text": f"{detail.get('sub-type', '')}: {detail.get('description', '')}"}


PARSERS: dict[rules.EventPattern, Callable[[dict[str, Any], datetime], dict[str, Any]]] = {
    rules.INTERRUPTION: _warning,
    rules.REBALANCE: _rebalance,
    rules.STATE: _state_change,
    rules.FLEET_ERROR: _fleet_error,
}


def parse(body: str, handle: str) -> Message:
    """The event in a message's body.

    Raises:
        UnreadableMessage: if it is not a JSON object with the fields that its kind must have.
    """
    try:
        event = json.loads(body)
        parser = PARSERS.get(rules.EventPattern(event.get("source", ""), event.get("detail-type", "")))
        if parser is None:
            return Message(kind=MessageKind.IGNORED, handle=handle)
        at = datetime.fromisoformat(event["time"])
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        message = Message(handle=handle, at=at, **parser(event, at))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableMessage(f"{type(error).__name__}: {error}") from error
    if not isinstance(message.instance_id, str):
        raise UnreadableMessage("instance-id is not a text")
    return message


class Listener:
    """Polls the queue in a thread and keeps the messages for the scheduler's loop. `close` ends it."""

    def __init__(self, sqs: Any, queue_url: str, clock: Clock, *, long_poll: timedelta = LONG_POLL) -> None:
        self._sqs, self._url, self._clock = sqs, queue_url, clock
        self._wait = int(long_poll.total_seconds())
        self._received: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._closed = threading.Event()
        # A daemon: nobody should wait for the end of a long poll.
        self._thread = threading.Thread(target=self._run, name="everspot-events", daemon=True)

    def start(self) -> "Listener":
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
        """Remove messages from the queue.

        Raises:
            botocore's errors. The messages come again then, which does no harm.
        """
        handles = [m.handle for m in messages]
        for start in range(0, len(handles), _BATCH):
            entries = [{"Id": str(n), "ReceiptHandle": h} for n, h in enumerate(handles[start : start + _BATCH])]
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)

    def close(self, patience: timedelta = timedelta(seconds=1)) -> None:
        """Stop listening; waits no longer than `patience` for a poll under way."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(patience.total_seconds())

    def receive(self) -> None:
        """Poll once: keep messages of known patterns, delete all others.

        Raises:
            botocore's errors.
        """
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=self._wait)
        done: list[Message] = []
        for raw in answer.get("Messages", []):
            handle = raw["ReceiptHandle"]
            try:
                message = parse(raw["Body"], handle)
            except UnreadableMessage as error:
                _log.warning("a message that cannot be read is deleted (%s): %.500s", error, raw["Body"])
                done.append(Message(kind=MessageKind.IGNORED, handle=handle))
                continue
            if message.kind is MessageKind.IGNORED:
                done.append(message)
            else:
                self._received.put(message)
        self.delete(done)

    def _run(self) -> None:
        pause = _BACK_OFF[0]
        while not self._closed.is_set():
            try:
                self.receive()
                pause = _BACK_OFF[0]
            except Exception as error:
                if self._closed.is_set():
                    return
                loud = _log.critical if trouble(error) is Trouble.CREDENTIALS else _log.warning
                loud("the queue of interruption events could not be read: %s", error)
                self._closed.wait(pause.total_seconds())
                pause = min(pause * 2, _BACK_OFF[1])
