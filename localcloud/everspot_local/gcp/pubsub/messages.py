"""Stands in for a pull subscription's messages: delivered at least once, again when not acknowledged in time.

Deadlines and retention are market time. Messages come oldest first, which Pub/Sub does not promise. Sources (Pub/Sub
documentation): "Subscription overview", "Pull subscriptions", "Extend ack time with lease management".
"""

import secrets
from collections.abc import Mapping
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
        told: dict[str, Any] = {"messageId": self.id, "publishTime": stamp(self.published)}
        if self.data:
            told["data"] = self.data
        return {**told, "attributes": dict(self.attributes)} if self.attributes else told


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
class _Held:
    message: Message
    ack_id: str = ""
    until: datetime | None = None
    """Until when it is, or was, with a subscriber; None: with none so far."""
    attempts: int = 0
    """How often it was delivered."""


@dataclass
class Backlog:
    """A subscription's messages that are not delivered yet, or delivered and not acknowledged."""

    held: dict[str, _Held] = field(default_factory=dict)

    def add(self, message: Message) -> None:
        """Add a message to deliver."""
        self.held[message.id] = _Held(message)

    def expire(self, now: datetime, retention: timedelta) -> None:
        """Drop messages that are older than the subscription's retention."""
        for name in [n for n, held in self.held.items() if held.message.published + retention <= now]:
            del self.held[name]

    def pull(self, most: int, now: datetime, deadline: timedelta, backoff: Backoff = NONE) -> list[tuple[str, Message]]:
        """Return messages that nobody else holds, each with its ack id. `backoff`: the delay of one that was delivered
        before ("Handle message failures", retry policy)."""
        given: list[tuple[str, Message]] = []
        for held in self.held.values():
            if len(given) >= most:
                break
            if held.until is None or held.until + backoff.after(held.attempts) <= now:
                held.ack_id, held.until = secrets.token_urlsafe(24), now + deadline
                held.attempts += 1
                given.append((held.ack_id, held.message))
        return given

    def spent(self, now: datetime, most: int) -> list[tuple[Message, int]]:
        """Return messages that were delivered as often as allowed and that nobody holds, each with its number of
        deliveries."""
        over = [h for h in self.held.values() if h.attempts >= most and h.until is not None and h.until <= now]
        return [(held.message, held.attempts) for held in over]

    def attempts(self, message: Message) -> int:
        """Return how often a message was delivered."""
        return self.held[message.id].attempts

    def acknowledge(self, ack_ids: list[str]) -> None:
        """Remove messages, so that they are not delivered again.

        An id that is over may work or not (reference of `acknowledge`); here it works until the message is delivered
        anew.
        """
        for name in [n for n, held in self.held.items() if held.ack_id in ack_ids]:
            del self.held[name]

    def extend(self, ack_ids: list[str], now: datetime, deadline: timedelta) -> None:
        """Set a new deadline; zero returns the message at once."""
        for held in self.held.values():
            if held.ack_id in ack_ids:
                held.until = now + deadline
