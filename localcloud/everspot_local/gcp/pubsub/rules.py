"""Stands in for Pub/Sub's validation: names, durations and sizes; what the local cloud does not support is refused by
name.

Sources: "Create a topic" and "Guidelines to name a topic, subscription, schema, or snapshot" in the Pub/Sub
documentation, "Quotas and limits", and the field descriptions of pubsub.v1.json.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from everspot_local.gcp.answers import not_here
from everspot_local.gcp.refusals import bad

ACK = (timedelta(seconds=10), timedelta(seconds=600))
RETENTION = (timedelta(minutes=10), timedelta(days=31))
EXPIRY_AT_LEAST = timedelta(days=1)
EXPIRY_DEFAULT = timedelta(days=31)
RETENTION_DEFAULT = timedelta(days=7)
MESSAGES, BYTES, ATTRIBUTES, KEY, VALUE = 1000, 10_000_000, 100, 256, 1024
LABELS = 64
ATTEMPTS_LEAST, ATTEMPTS_MOST = 5, 100
"""Of deliveries, before a message goes to the dead-letter topic (pubsub.v1.json, DeadLetterPolicy)."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
_TOPIC = {"name", "labels", "messageRetentionDuration", "kmsKeyName", "messageStoragePolicy", "state", "tags"}
_SUBSCRIPTION = {
    "name", "topic", "ackDeadlineSeconds", "retainAckedMessages", "messageRetentionDuration", "labels",
    "expirationPolicy", "retryPolicy", "filter", "state", "pushConfig", "enableMessageOrdering", "detached",
    "enableExactlyOnceDelivery", "topicMessageRetentionDuration", "tags", "deadLetterPolicy",
}  # fmt: skip


def check_topic(body: Mapping[str, Any]) -> None:
    """Refuse a topic that Pub/Sub refuses, or that the local cloud does not support."""
    _check_fields(body, _TOPIC, "topics")
    _check_name(body["name"])
    _check_labels(body.get("labels") or {})
    if body.get("messageRetentionDuration"):
        _within("messageRetentionDuration", span(body["messageRetentionDuration"]), RETENTION)


def check_subscription(body: Mapping[str, Any]) -> None:
    """Refuse a subscription that Pub/Sub refuses, or that the local cloud does not support."""
    _check_fields(body, _SUBSCRIPTION, "subscriptions")
    for name in ("enableMessageOrdering", "enableExactlyOnceDelivery", "filter"):
        if body.get(name):
            raise not_here(f"{name} of subscriptions")
    if (body.get("pushConfig") or {}).get("pushEndpoint"):
        raise not_here("push subscriptions")
    _check_name(body["name"])
    _check_labels(body.get("labels") or {})
    seconds = body.get("ackDeadlineSeconds") or 0
    if seconds:
        _within("ackDeadlineSeconds", timedelta(seconds=seconds), ACK)
    if body.get("messageRetentionDuration"):
        _within("messageRetentionDuration", span(body["messageRetentionDuration"]), RETENTION)
    ttl = (body.get("expirationPolicy") or {}).get("ttl")
    if ttl and span(ttl) < max(EXPIRY_AT_LEAST, span(body.get("messageRetentionDuration") or "0s")):
        raise bad("Invalid expiration policy: its ttl must be at least 1 day, and at least the message retention.")
    dead = body.get("deadLetterPolicy") or {}
    if dead and not dead.get("deadLetterTopic"):
        raise bad("You have not specified a dead letter topic in the dead letter policy.")
    attempts = int(dead.get("maxDeliveryAttempts") or ATTEMPTS_LEAST)
    if not ATTEMPTS_LEAST <= attempts <= ATTEMPTS_MOST:
        raise bad(f"Invalid maxDeliveryAttempts: {attempts}. It must be between {ATTEMPTS_LEAST} and {ATTEMPTS_MOST}.")


def check_messages(messages: list[Mapping[str, Any]]) -> None:
    """Refuse messages that cannot be published together."""
    if not messages:
        raise bad("The list of messages to publish is empty.")
    size = sum(len(m.get("data") or "") * 3 // 4 + len(str(m.get("attributes") or "")) for m in messages)
    if len(messages) > MESSAGES or size > BYTES:
        raise bad(f"The value for message_count or request size is too large: at most {MESSAGES} messages and 10 MB.")
    for message in messages:
        attributes = message.get("attributes") or {}
        if not message.get("data") and not attributes:
            raise bad("Some messages in the request did not have data or attributes: every message must have one.")
        if message.get("orderingKey"):
            raise not_here("ordering keys")
        long = any(len(k.encode()) > KEY or len(str(v).encode()) > VALUE for k, v in attributes.items())
        if len(attributes) > ATTRIBUTES or long:
            raise bad(f"A message has at most {ATTRIBUTES} attributes of {KEY} and {VALUE} bytes.")


def span(text: str) -> timedelta:
    """Read a duration in the form of proto-JSON, such as `600s`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)s", text)
    if match is None:
        raise bad(f"Invalid duration: {text}")
    return timedelta(seconds=float(match[1]))


def _check_fields(body: Mapping[str, Any], supported: set[str], kind: str) -> None:
    unknown = sorted(name for name, value in body.items() if value and name not in supported)
    if unknown:
        raise not_here(f"{', '.join(unknown)} of {kind}")


def _check_name(full: str) -> None:
    name = full.rpartition("/")[2]
    if not _NAME.fullmatch(name) or name.startswith("goog"):
        raise bad(f"Invalid resource name given (name={full}). Refer to https://cloud.google.com/pubsub/docs/admin#"
                  "resource_names for more information.")  # fmt: skip


def _check_labels(labels: Mapping[str, str]) -> None:
    wrong = [k for k, v in labels.items() if not _LABEL[0].fullmatch(k) or not _LABEL[1].fullmatch(v)]
    if wrong or len(labels) > LABELS:
        raise bad(f"Invalid label: {', '.join(wrong)}. Labels are lower case letters, digits, - and _, at most 63 of"
                  f" them, and at most {LABELS} labels.")  # fmt: skip


def _within(name: str, value: timedelta, bounds: tuple[timedelta, timedelta]) -> None:
    if not bounds[0] <= value <= bounds[1]:
        low, high = (int(bound.total_seconds()) for bound in bounds)
        raise bad(f"Invalid {name}: {int(value.total_seconds())}s. It must be between {low} and {high} seconds.")
