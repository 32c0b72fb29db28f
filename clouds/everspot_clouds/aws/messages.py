"""Messages of EventBridge, which a thread receives from SQS.

Delivery is best-effort: messages come late, twice, out of order or not at all, and may be about other clusters. A table
holds a parser for each event pattern of the rules. Messages of other patterns are deleted. Messages that cannot be read
are logged and deleted, so that they do not block the queue. Every other message stays in the queue until the scheduler
has recorded what it means.
"""

import json
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from everspot_clouds.aws import rules
from everspot_clouds.aws.errors import trouble
from everspot_clouds.base import Message, MessageKind, Trouble
from everspot_clouds.listening import QueueListener

LONG_POLL = timedelta(seconds=20)
_BATCH = 10
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
    """Return the event in a message's body.

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


class Listener(QueueListener):
    """See `QueueListener`. It polls SQS."""

    noun = "queue"

    def __init__(self, sqs: Any, queue_url: str, *, long_poll: timedelta = LONG_POLL) -> None:
        super().__init__()
        self._sqs, self._url = sqs, queue_url
        self._wait = int(long_poll.total_seconds())

    def delete(self, messages: Iterable[Message]) -> None:
        """See `QueueListener`. Raises botocore's errors."""
        handles = [m.handle for m in messages]
        for start in range(0, len(handles), _BATCH):
            entries = [{"Id": str(n), "ReceiptHandle": h} for n, h in enumerate(handles[start : start + _BATCH])]
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)

    def trouble(self, error: Exception) -> Trouble:
        """See `QueueListener`."""
        return trouble(error)

    def receive(self) -> None:
        """See `QueueListener`. Raises botocore's errors."""
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=self._wait)
        self.keep(_read(raw) for raw in answer.get("Messages", []))


def _read(raw: dict[str, Any]) -> Message:
    try:
        return parse(raw["Body"], raw["ReceiptHandle"])
    except UnreadableMessage as error:
        _log.warning("a message that cannot be read is deleted (%s): %.500s", error, raw["Body"])
        return Message(kind=MessageKind.IGNORED, handle=raw["ReceiptHandle"])
