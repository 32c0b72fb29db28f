"""Stands in for a pull subscription's messages: delivered at least once, again when not acknowledged in time.

Deadlines and retention are market time. Messages come oldest first, which Pub/Sub does not promise. Sources (Pub/Sub
documentation): "Subscription overview", "Pull subscriptions", "Extend ack time with lease management".
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_local.market.clock import stamp


@dataclass(frozen=True)
class Message:
    """One published message. `data`: in base64, as published."""

    id: str
    data: str
    attributes: Mapping[str, str]
    published: datetime

    def document(self) -> dict[str, Any]:
        """Return the message as the API shows it."""
        document: dict[str, Any] = {"messageId": self.id, "publishTime": stamp(self.published)}
        if self.data:
            document["data"] = self.data
        return {**document, "attributes": dict(self.attributes)} if self.attributes else document


@dataclass(frozen=True)
class Backoff:
    """How long a message waits before it is delivered again: twice as long each time, within limits."""

    least: timedelta
    most: timedelta

    def after(self, attempts: int) -> timedelta:
        """Return the wait after this many deliveries."""
        return min(self.most, self.least * 2 ** min(attempts - 1, 20)) if attempts else timedelta()


NONE = Backoff(timedelta(), timedelta())


@dataclass
class _Delivery:
    message: Message
    ack_id: str = ""
    until: datetime | None = None
    """End of the latest ack deadline; None before the first delivery."""
    attempts: int = 0
    """How often it was delivered."""


@dataclass
class Backlog:
    """A subscription's messages that are not delivered yet, or delivered and not acknowledged."""

    deliveries: dict[str, _Delivery] = field(default_factory=dict)

    def add(self, message: Message) -> None:
        """Add a message to deliver."""
        self.deliveries[message.id] = _Delivery(message)

    def expire(self, now: datetime, retention: timedelta) -> None:
        """Drop messages that are older than the subscription's retention."""
        for name in [n for n, delivery in self.deliveries.items() if delivery.message.published + retention <= now]:
            del self.deliveries[name]

    def pull(self, most: int, now: datetime, deadline: timedelta, backoff: Backoff = NONE) -> list[tuple[str, Message]]:
        """Return messages that nobody else holds, each with its ack id. `backoff`: the delay of one that was delivered
        before ("Handle message failures", retry policy)."""
        pulled: list[tuple[str, Message]] = []
        for delivery in self.deliveries.values():
            if len(pulled) >= most:
                break
            if delivery.until is None or delivery.until + backoff.after(delivery.attempts) <= now:
                delivery.ack_id, delivery.until = secrets.token_urlsafe(24), now + deadline
                delivery.attempts += 1
                pulled.append((delivery.ack_id, delivery.message))
        return pulled

    def spent(self, now: datetime, most: int) -> list[tuple[Message, int]]:
        """Return messages that were delivered as often as allowed and that nobody holds, each with its number of
        deliveries."""
        over = [h for h in self.deliveries.values() if h.attempts >= most and h.until is not None and h.until <= now]
        return [(delivery.message, delivery.attempts) for delivery in over]

    def attempts(self, message: Message) -> int:
        """Return how often a message was delivered."""
        return self.deliveries[message.id].attempts

    def reorder(self, shuffle: Callable[[list[Any]], None]) -> None:
        """Bring the messages into another order. `shuffle`: changes a list in place."""
        entries = list(self.deliveries.items())
        shuffle(entries)
        self.deliveries = dict(entries)

    def acknowledge(self, ack_ids: list[str]) -> None:
        """Remove messages, so that they are not delivered again.

        An expired id may work or not (reference of `acknowledge`); here it works until the message is delivered again.
        """
        for name in [n for n, delivery in self.deliveries.items() if delivery.ack_id in ack_ids]:
            del self.deliveries[name]

    def extend(self, ack_ids: list[str], now: datetime, deadline: timedelta) -> None:
        """Set a new deadline; zero returns the message immediately."""
        for delivery in self.deliveries.values():
            if delivery.ack_id in ack_ids:
                delivery.until = now + deadline
