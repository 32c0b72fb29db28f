"""Corrects two answers of moto's SQS, which make the upstream provider wait forever or plan changes that change
nothing, and refuses what SQS refuses of a queue's name, tags and attributes.

A standard queue delivers a share of its messages twice, and now and then in another order (SQS developer guide,
"At-least-once delivery", "Message ordering"). Names of deleted queues are kept in market time, like all of the cloud's
own delays.
"""

import json
import re
from copy import deepcopy
from datetime import timedelta
from typing import Any

from moto.sqs.exceptions import SQSException
from moto.sqs.models import Message, Queue, SQSBackend

from everspot_local.aws import account
from everspot_local.aws.strict import strict

NAME_KEPT = timedelta(seconds=60)  # CreateQueue: QueueDeletedRecently
TAGS, TAG_KEY, TAG_VALUE = 50, 128, 256  # "Amazon SQS queue tags"
POLICY_BYTES = 8192  # "Amazon SQS policy quotas"
RANGES = {  # SetQueueAttributes and CreateQueue in the API reference
    "DelaySeconds": (0, 900),
    "MaximumMessageSize": (1024, 1_048_576),
    "MessageRetentionPeriod": (60, 1_209_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "VisibilityTimeout": (0, 43_200),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}
_TAG_TEXT = re.compile(r"[\w .:/=+\-@]*")

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_delete_message = Queue.delete_message
_send_message = SQSBackend.send_message
_add_message = Queue.add_message
_receive_message = SQSBackend.receive_message
_set_attributes = Queue._set_attributes
_attributes = Queue.attributes
_create_queue = SQSBackend.create_queue
_delete_queue = SQSBackend.delete_queue
_tag_queue = SQSBackend.tag_queue


class QueueRefused(SQSException):
    """A request that SQS refuses with its own error code."""


def set_attributes(queue: Queue, attributes: dict[str, Any], now: float | None = None) -> None:
    """Set the named attributes and keep the others, as SQS does; moto drops the policy whenever another attribute is
    set."""
    if strict():
        _check_attributes(attributes)
    policy = getattr(queue, "policy", None)
    _set_attributes(queue, attributes, now)
    if "Policy" not in attributes:
        queue.policy = policy


def attributes(queue: Queue) -> dict[str, Any]:
    """Return the attributes with compact JSON, as SQS writes it: the provider compares the texts."""
    attribute_values: dict[str, Any] = _attributes.fget(queue)  # type: ignore[attr-defined]
    if attribute_values.get("RedrivePolicy"):
        attribute_values["RedrivePolicy"] = json.dumps(
            json.loads(attribute_values["RedrivePolicy"]), separators=(",", ":")
        )
    return attribute_values


def create_queue(self: SQSBackend, name: str, tags: dict[str, str] | None = None, **more: Any) -> Queue:
    """Create a queue as moto does, unless a queue of this name was deleted a moment ago."""
    if strict():
        deleted_at = _deleted(self).get(name)
        if deleted_at is not None and account.current().market.clock.now() < deleted_at + NAME_KEPT:
            raise QueueRefused(
                "AWS.SimpleQueueService.QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
            )
        _check_tags(tags or {})
    return _create_queue(self, name, tags, **more)


def delete_queue(self: SQSBackend, queue_name: str) -> None:
    """Delete a queue as moto does; its name stays taken for a minute."""
    _delete_queue(self, queue_name)
    _deleted(self)[queue_name] = account.current().market.clock.now()


def tag_queue(self: SQSBackend, queue_name: str, tags: dict[str, str]) -> None:
    """Add tags as moto does, within SQS's limits on all tags of a queue together."""
    if strict():
        _check_tags({**(self.get_queue(queue_name).tags or {}), **tags})
    _tag_queue(self, queue_name, tags)


def add_message(queue: Queue, message: Message) -> None:
    """Add a message as moto does; a standard queue may get a copy, which is received and deleted on its own."""
    _add_message(queue, message)
    if not queue.fifo_queue and account.current().market.disturbances.occurs("duplicate"):
        _add_message(queue, deepcopy(message))


def receive_message(self: SQSBackend, queue_name: str, *arguments: Any, **more: Any) -> list[Message]:
    """Receive messages as moto does; a standard queue may give them in another order."""
    queue = self.get_queue(queue_name)
    disturbances = account.current().market.disturbances
    if not queue.fifo_queue and disturbances.occurs("reorder"):
        with queue._messages_lock:
            disturbances.shuffle(queue._messages)
    return _receive_message(self, queue_name, *arguments, **more)


def delete_message(queue: Queue, receipt_handle: str) -> None:
    """Delete a message by the handle of its last reception. By an earlier one the call succeeds, and a standard queue
    keeps the message (API reference, DeleteMessage)."""
    stale = (m for m in queue._messages if m.receipt_handle != receipt_handle and m.had_receipt_handle(receipt_handle))
    if strict() and not queue.fifo_queue and next(stale, None) is not None:
        return
    _delete_message(queue, receipt_handle)


def send_message(self: SQSBackend, queue_name: str, message_body: str, *arguments: Any, **more: Any) -> Message:
    """Send a message as moto does, of characters that SQS takes (API reference, SendMessage)."""
    if strict() and not message_body:
        raise QueueRefused("MissingParameter", "The request must contain the parameter MessageBody.")
    if strict() and _FORBIDDEN.search(message_body):
        raise QueueRefused("InvalidMessageContents", "Invalid characters found in the message body.")
    return _send_message(self, queue_name, message_body, *arguments, **more)


def _deleted(backend: SQSBackend) -> dict[str, Any]:
    return backend.__dict__.setdefault("everspot_deleted", {})  # type: ignore[no-any-return]


def _check_attributes(attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        low, high = RANGES.get(name, (None, None))
        if low is not None and high is not None and not (str(value).isdigit() and low <= int(value) <= high):
            raise QueueRefused("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
        if name == "Policy" and value and len(str(value).encode()) > POLICY_BYTES:
            raise QueueRefused("InvalidAttributeValue", "Invalid value for the parameter Policy.")


def _check_tags(tags: dict[str, str]) -> None:
    for key, value in tags.items():
        fits = 1 <= len(key) <= TAG_KEY and len(value) <= TAG_VALUE
        if not fits or not _TAG_TEXT.fullmatch(key + value) or key.lower().startswith("aws:"):
            raise QueueRefused("InvalidParameterValue", f"Tag key or value is invalid: {key[:TAG_KEY]}")
    if len(tags) > TAGS:
        raise QueueRefused("InvalidParameterValue", f"Too many tags: {len(tags)}, at most {TAGS} are allowed.")
