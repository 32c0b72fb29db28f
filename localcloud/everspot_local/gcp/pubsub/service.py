"""Stands in for Pub/Sub's topics and subscriptions: what is published reaches every subscription that is there then.

It keeps no messages of a topic for later subscriptions, and has no snapshots. Names of deleted topics and subscriptions
are free immediately. A message that reached its dead-letter policy's number of deliveries goes to that topic at
the next pull; in the cloud this is best effort ("Handle message failures", dead-letter topics).
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.answers import Present
from everspot_local.gcp.pubsub.messages import NONE, Backlog, Backoff, Message
from everspot_local.gcp.pubsub.rules import (
    ATTEMPTS_LEAST,
    EXPIRY_DEFAULT,
    RETENTION_DEFAULT,
    check_messages,
    check_subscription,
    check_topic,
    span,
)
from everspot_local.gcp.refusals import absent, bad, exists_already
from everspot_local.market.disturbances import Disturbances

GONE = "_deleted-topic_"
"""The topic of a subscription whose topic has been deleted."""
WAIT = timedelta(seconds=90)
"""How long a pull waits for a message: the reference says "a bounded amount of time"."""
_FIXED = {"name", "topic", "filter", "enableMessageOrdering", "state", "topicMessageRetentionDuration"}


@dataclass
class Subscription:
    """One subscription: the request with defaults filled in, and its messages."""

    document: dict[str, Any]
    backlog: Backlog = field(default_factory=Backlog)

    @property
    def deadline(self) -> timedelta:
        """Return the acknowledgement deadline."""
        return timedelta(seconds=self.document["ackDeadlineSeconds"])

    @property
    def backoff(self) -> Backoff:
        """Return the wait between deliveries of the same message."""
        policy = self.document.get("retryPolicy")
        return Backoff(span(policy["minimumBackoff"]), span(policy["maximumBackoff"])) if policy else NONE

    @property
    def dead_letters(self) -> tuple[str, int] | None:
        """Return the dead-letter topic and the number of deliveries before it; None without such a policy."""
        policy = self.document.get("deadLetterPolicy")
        return (policy["deadLetterTopic"], policy["maxDeliveryAttempts"]) if policy else None

    @property
    def retention(self) -> timedelta:
        """Return how long a message is kept."""
        return span(self.document["messageRetentionDuration"])


class PubSub:
    """All topics and subscriptions. Thread-safe. Every method raises `ApiError` in Pub/Sub's words.

    Args:
        now: market time.
        to_real: how long a span of it takes.
        may_forward: whether Pub/Sub's own account may take from a subscription and publish to a topic.
        used: is told of each new subscription: Google makes that account with the first one.
        disturbances: returns what decides whether messages are delivered twice or in another order, which Pub/Sub may
            do without exactly-once delivery and ordering keys ("Subscription overview").
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        to_real: Callable[[timedelta], timedelta],
        may_forward: Callable[[str, str], bool],
        used: Callable[[], None] = lambda: None,
        *,
        disturbances: Callable[[], Disturbances],
    ) -> None:
        self._disturbances = disturbances
        self._now, self._to_real, self._may_forward, self._used = now, to_real, may_forward, used
        self._ready = threading.Condition()
        self.topics: dict[str, dict[str, Any]] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self._count = 10**15

    def create_topic(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a topic.

        Raises:
            ApiError: for a name that is taken, or what Pub/Sub refuses.
        """
        topic = {**_set_fields(body), "name": name}
        check_topic(topic)
        with self._ready:
            if name in self.topics:
                raise exists_already(f"Resource already exists in the project (resource={_short(name)}).")
            self.topics[name] = topic
        return topic

    def topic(self, name: str) -> dict[str, Any]:
        """Return a topic."""
        if name not in self.topics:
            raise absent(f"Resource not found (resource={_short(name)}).")
        return self.topics[name]

    def patch_topic(self, name: str, body: Mapping[str, Any], mask: list[str]) -> dict[str, Any]:
        """Change the named fields of a topic."""
        changed = _masked(self.topic(name), body, mask, {"name"})
        check_topic(changed)
        self.topics[name] = changed
        return changed

    def delete_topic(self, name: str) -> None:
        """Delete a topic; its subscriptions stay."""
        self.topic(name)
        with self._ready:
            del self.topics[name]
            for subscription in self.subscriptions.values():
                if subscription.document["topic"] == name:
                    subscription.document["topic"] = GONE

    def create_subscription(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a subscription."""
        subscription = _with_defaults({**_set_fields(body), "name": name})
        check_subscription(subscription)
        if not subscription.get("topic"):
            raise bad("You have not specified a topic for the subscription.")
        with self._ready:
            if name in self.subscriptions:
                raise exists_already(f"Resource already exists in the project (resource={_short(name)}).")
            self.topic(subscription["topic"])
            self._check_dead_letters(subscription)
            self.subscriptions[name] = Subscription(subscription)
        self._used()
        return subscription

    def subscription(self, name: str) -> Subscription:
        """Return a subscription.

        Raises:
            ApiError: 404.
        """
        if name not in self.subscriptions:
            raise absent(f"Resource not found (resource={_short(name)}).")
        return self.subscriptions[name]

    def patch_subscription(self, name: str, body: Mapping[str, Any], mask: list[str]) -> dict[str, Any]:
        """Change those fields of a subscription that `mask` names.

        Raises:
            ApiError: for a subscription that does not exist, a field that cannot change, or what Pub/Sub refuses.
        """
        subscription = self.subscription(name)
        changed = _with_defaults(_masked(subscription.document, body, mask, _FIXED))
        check_subscription(changed)
        self._check_dead_letters(changed)
        subscription.document = changed
        return changed

    def delete_subscription(self, name: str) -> None:
        """Delete a subscription with its messages."""
        self.subscription(name)
        del self.subscriptions[name]

    def publish(self, topic: str, messages: list[Mapping[str, Any]]) -> list[str]:
        """Publish messages; return their ids."""
        self.topic(topic)
        check_messages(messages)
        with self._ready:
            stored = [self._message(message) for message in messages]
            for subscription in self.subscriptions.values():
                if subscription.document["topic"] == topic:
                    for message in stored:
                        subscription.backlog.add(message)
            self._ready.notify_all()
        return [message.id for message in stored]

    def pull(self, name: str, most: int, *, wait: bool) -> list[dict[str, Any]]:
        """Return messages that nobody else holds. `wait`: wait for the first one, as long as a pull waits."""
        if most <= 0:
            raise bad("You have passed an invalid maximum number of messages to the server (max_messages="
                      f"{most}). It must be a positive number.")  # fmt: skip
        remaining = self._to_real(WAIT).total_seconds() if wait else 0.0
        with self._ready:
            while True:
                subscription = self.subscription(name)
                self._forward()
                subscription.backlog.expire(self._now(), subscription.retention)
                if self._disturbances().occurs("reorder"):
                    subscription.backlog.reorder(self._disturbances().shuffle)
                pulled = subscription.backlog.pull(
                    min(most, 1000), self._now(), subscription.deadline, subscription.backoff
                )
                if pulled or remaining <= 0:
                    return [_received(subscription, ack_id, message) for ack_id, message in pulled]
                step = min(remaining, 0.25)  # a deadline that passes is no notification
                self._ready.wait(step)
                remaining -= step

    def acknowledge(self, name: str, ack_ids: list[str]) -> None:
        """Remove messages, so that they are not delivered again."""
        subscription = self._with_ids(name, ack_ids)
        with self._ready:
            twice = {ack_id for ack_id in ack_ids if self._disturbances().occurs("duplicate")}
            subscription.backlog.extend(sorted(twice), self._now(), timedelta())
            subscription.backlog.acknowledge([ack_id for ack_id in ack_ids if ack_id not in twice])

    def modify(self, name: str, ack_ids: list[str], seconds: int) -> None:
        """Set the time that remains to acknowledge messages. With 0 seconds, they are delivered again immediately.

        Raises:
            ApiError: for a subscription that does not exist, no ids, or seconds other than 0 to 600.
        """
        subscription = self._with_ids(name, ack_ids)
        if not 0 <= seconds <= 600:
            raise bad(f"Invalid ack deadline given (deadline={seconds}): it must be 0 to 600 seconds.")
        with self._ready:
            subscription.backlog.extend(ack_ids, self._now(), timedelta(seconds=seconds))
            self._ready.notify_all()

    def _check_dead_letters(self, document: Mapping[str, Any]) -> None:
        if document.get("deadLetterPolicy"):
            self.topic(document["deadLetterPolicy"]["deadLetterTopic"])

    def _forward(self) -> None:
        """Publish messages that no subscriber could handle to the dead-letter topics. Where Pub/Sub's account may not,
        the message stays and is delivered again."""
        for name, subscription in self.subscriptions.items():
            topic, most = subscription.dead_letters or ("", 0)
            if topic in self.topics and self._may_forward(name, topic):
                for message, attempts in subscription.backlog.spent(self._now(), most):
                    del subscription.backlog.deliveries[message.id]
                    self.publish(topic, [_forwarded(message, attempts, subscription.document)])

    def _with_ids(self, name: str, ack_ids: list[str]) -> Subscription:
        subscription = self.subscription(name)
        if not ack_ids:
            raise bad("You have not specified an ack ID in the request.")
        return subscription

    def _message(self, fields: Mapping[str, Any]) -> Message:
        self._count += 1
        return Message(str(self._count), fields.get("data") or "", fields.get("attributes") or {}, self._now())


def _received(subscription: Subscription, ack_id: str, message: Message) -> dict[str, Any]:
    received: dict[str, Any] = {"ackId": ack_id, "message": message.document()}
    # "If a DeadLetterPolicy is not set on the subscription, this will be 0" (pubsub.v1.json), which is not said.
    return (
        {**received, "deliveryAttempt": subscription.backlog.attempts(message)}
        if subscription.dead_letters
        else received
    )


def _forwarded(message: Message, attempts: int, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as it arrives in a dead-letter topic ("Handle message failures", attributes of forwarded
    messages)."""
    about = {
        "CloudPubSubDeadLetterSourceDeliveryCount": str(attempts),
        "CloudPubSubDeadLetterSourceSubscription": _short(source["name"]),
        "CloudPubSubDeadLetterSourceSubscriptionProject": source["name"].split("/")[1],
        "CloudPubSubDeadLetterSourceTopicPublishTime": message.document()["publishTime"],
    }
    return {"data": message.data, "attributes": {**message.attributes, **about}}


def _with_defaults(body: dict[str, Any]) -> dict[str, Any]:
    """Return a subscription with Pub/Sub's defaults (descriptions in pubsub.v1.json)."""
    subscription = {
        key: value for key, value in body.items() if value not in (None, "", [], {}, False) or key in _EMPTY_SAID
    }
    subscription["ackDeadlineSeconds"] = body.get("ackDeadlineSeconds") or 10
    subscription["messageRetentionDuration"] = body.get("messageRetentionDuration") or _seconds(RETENTION_DEFAULT)
    if "expirationPolicy" not in subscription:
        subscription["expirationPolicy"] = {"ttl": _seconds(EXPIRY_DEFAULT)}
    subscription["expirationPolicy"] = Present({k: v for k, v in (subscription["expirationPolicy"] or {}).items() if v})
    if "pushConfig" in subscription:
        subscription["pushConfig"] = Present(subscription["pushConfig"])
    if "retryPolicy" in subscription:
        subscription["retryPolicy"] = {"minimumBackoff": "10s", "maximumBackoff": "600s", **subscription["retryPolicy"]}
    if "deadLetterPolicy" in subscription:
        dead = subscription["deadLetterPolicy"]
        subscription["deadLetterPolicy"] = {
            **dead,
            "maxDeliveryAttempts": dead.get("maxDeliveryAttempts") or ATTEMPTS_LEAST,
        }
    subscription["state"] = "ACTIVE"
    return subscription


_EMPTY_SAID = ("expirationPolicy", "pushConfig")
"""Fields that may be given empty: an empty expiration policy means never, an empty push configuration no push."""


def _seconds(duration: timedelta) -> str:
    return f"{int(duration.total_seconds())}s"


def _set_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value is not None}


def _masked(current: Mapping[str, Any], body: Mapping[str, Any], mask: list[str], fixed: set[str]) -> dict[str, Any]:
    if not mask:
        raise bad("The update_mask in the request is missing or empty.")
    names = {name.split(".")[0] for name in mask}
    if names & fixed:
        raise bad(f"Invalid update_mask provided: {', '.join(sorted(names & fixed))} cannot be changed.")
    return {**{k: v for k, v in current.items() if k not in names}, **{k: body[k] for k in names if k in body}}


def _short(name: str) -> str:
    return name.rpartition("/")[2]
