"""Disturbances by the local Google Cloud at an adjustable rate, and the product's recovery from them."""

import base64
from typing import Any

import pytest
from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.gcp.environment import endpoints
from everspot_store import Store

BUCKETS = "/storage/v1/b?project=everspot-local"
TOPIC = "/pubsub/v1/projects/everspot-local/topics/events"
SUBSCRIPTION = "/pubsub/v1/projects/everspot-local/subscriptions/agents"


def disturb(kit: Any, **rates: float) -> None:
    kit.cloud.actions.do({"action": "disturbances", **rates})


@pytest.fixture
def calm(kit: Any) -> Any:
    """A cloud that is calm again after the test, as others share it."""
    yield kit
    disturb(kit, slow_down=0, duplicate=0, reorder=0)


def pull(kit: Any) -> list[tuple[str, str]]:
    """The text and the ack id of each message that is delivered now."""
    answer = kit.call("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 50, "returnImmediately": True}).body
    return [(base64.b64decode(m["message"]["data"]).decode(), m["ackId"]) for m in answer.get("receivedMessages", [])]


def test_a_busy_storage_refuses_changes_with_429_and_the_rest_with_503(calm: Any) -> None:
    disturb(calm, slow_down=1)
    change, read = calm.call("POST", BUCKETS, {"name": "control"}), calm.call("GET", BUCKETS)
    assert [(a.status, a.reason) for a in (change, read)] == [(429, "rateLimitExceeded"), (503, "backendError")]
    assert calm.call("GET", "zones").status == 200, "other services are not Storage"


def test_a_store_upon_a_busy_storage_loses_nothing(calm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in endpoints(calm.cloud.endpoint).items():
        monkeypatch.setenv(name, value)
    assert calm.call("POST", BUCKETS, {"name": "control", "location": "europe-west4"}).status == 200
    owner: Any = {"token": OWNER_TOKEN, "expires_at": None}
    store = Store.open("gs://control", "gs://control", credentials=lambda: owner)
    disturb(calm, slow_down=0.2)
    for number in range(20):
        store.control.put(f"notes/{number:02}", str(number).encode())
    assert [entry.key for entry in store.control.list("notes/")] == [f"notes/{n:02}" for n in range(20)]
    documents = [store.control.get(f"notes/{number:02}") for number in range(20)]
    assert [d.value if d is not None else None for d in documents] == [str(n).encode() for n in range(20)]
    assert calm.cloud.market.disturbances.counts["slow_down"] > 0


def test_pubsub_delivers_again_what_was_acknowledged_and_in_another_order(calm: Any) -> None:
    assert calm.call("PUT", TOPIC, {}).status == 200
    assert calm.call("PUT", SUBSCRIPTION, {"topic": TOPIC.removeprefix("/pubsub/v1/")}).status == 200
    sent = [f"{number:02}" for number in range(30)]
    messages = [{"data": base64.b64encode(text.encode()).decode()} for text in sent]
    assert calm.call("POST", f"{TOPIC}:publish", {"messages": messages}).status == 200
    disturb(calm, duplicate=1, reorder=1)
    first = pull(calm)
    order = [text for text, _ in first]
    assert sorted(order) == sent and order != sent
    assert calm.call("POST", f"{SUBSCRIPTION}:acknowledge", {"ackIds": [ack for _, ack in first]}).status == 200
    disturb(calm, duplicate=0, reorder=0)
    second = pull(calm)
    assert sorted(text for text, _ in second) == sent
    assert calm.call("POST", f"{SUBSCRIPTION}:acknowledge", {"ackIds": [ack for _, ack in second]}).status == 200
    assert pull(calm) == []
