"""Corrects two answers of moto's SQS, which make the upstream provider wait for ever or plan changes that are none."""

import json
from typing import Any

from moto.sqs.models import Queue

_set_attributes = Queue._set_attributes
_attributes = Queue.attributes


def set_attributes(queue: Queue, attributes: dict[str, Any], now: float | None = None) -> None:
    """SetQueueAttributes leaves alone what it does not name; moto forgets the policy whenever another is set."""
    policy = getattr(queue, "policy", None)
    _set_attributes(queue, attributes, now)
    if "Policy" not in attributes:
        queue.policy = policy


def attributes(queue: Queue) -> dict[str, Any]:
    """SQS answers compact JSON, and the provider compares it as text."""
    found: dict[str, Any] = _attributes.fget(queue)  # type: ignore[attr-defined]
    if found.get("RedrivePolicy"):
        found["RedrivePolicy"] = json.dumps(json.loads(found["RedrivePolicy"]), separators=(",", ":"))
    return found
