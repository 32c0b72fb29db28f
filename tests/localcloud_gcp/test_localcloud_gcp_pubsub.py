"""Pub/Sub by REST: topics, pull subscriptions, deadlines in market time."""

import base64
from typing import Any

import pytest

TOPIC = "/pubsub/v1/projects/everspot-local/topics/events"
SUBSCRIPTION = "/pubsub/v1/projects/everspot-local/subscriptions/agents"
DEAD = "projects/everspot-local/topics/dead"
FORWARDS = "serviceAccount:service-100000000001@gcp-sa-pubsub.iam.gserviceaccount.com"
HELD = {"topic": "projects/everspot-local/topics/events", "ackDeadlineSeconds": 30}


@pytest.fixture
def pubsub(kit: Any) -> Any:
    assert kit.call("PUT", TOPIC, {"labels": {"project": "x"}}).status == 200
    assert kit.call("PUT", SUBSCRIPTION, HELD).status == 200
    return kit


def publish(kit: Any, *texts: str) -> list[str]:
    messages = [{"data": base64.b64encode(text.encode()).decode(), "attributes": {"n": text}} for text in texts]
    return list(kit.call("POST", f"{TOPIC}:publish", {"messages": messages}).body["messageIds"])


def pull(kit: Any, most: int = 10, path: str = SUBSCRIPTION) -> list[dict[str, Any]]:
    answer = kit.call("POST", f"{path}:pull", {"maxMessages": most, "returnImmediately": True})
    assert answer.status == 200, answer.body
    return list(answer.body.get("receivedMessages", []))


def texts(received: list[dict[str, Any]]) -> list[str]:
    return [base64.b64decode(each["message"]["data"]).decode() for each in received]


def test_what_is_published_is_pulled_until_it_is_acknowledged(pubsub: Any) -> None:
    with pubsub.still() as later:
        ids = publish(pubsub, "a", "b", "c")
        first = pull(pubsub, 2)
        assert texts(first) == ["a", "b"]
        assert [each["message"]["messageId"] for each in first] == ids[:2]
        assert first[0]["message"]["attributes"] == {"n": "a"}
        pubsub.call("POST", f"{SUBSCRIPTION}:acknowledge", {"ackIds": [first[0]["ackId"]]})
        assert texts(pull(pubsub)) == ["c"]
        assert pull(pubsub) == []
        later(30)
        assert texts(pull(pubsub)) == ["b", "c"]


def test_a_deadline_is_moved_and_a_message_given_back(pubsub: Any) -> None:
    with pubsub.still() as later:
        publish(pubsub, "a", "b")
        first, second = pull(pubsub)
        longer = {"ackIds": [first["ackId"]], "ackDeadlineSeconds": 600}
        pubsub.call("POST", f"{SUBSCRIPTION}:modifyAckDeadline", longer)
        back = {"ackIds": [second["ackId"]], "ackDeadlineSeconds": 0}
        pubsub.call("POST", f"{SUBSCRIPTION}:modifyAckDeadline", back)
        assert texts(pull(pubsub)) == ["b"]
        later(60)
        assert texts(pull(pubsub)) == ["b"]
        later(600)
        assert texts(pull(pubsub)) == ["a", "b"]


def test_a_retry_policy_holds_back_what_was_delivered_before(kit: Any) -> None:
    kit.call("PUT", TOPIC, {})
    kit.call("PUT", SUBSCRIPTION, {**HELD, "retryPolicy": {"minimumBackoff": "10s", "maximumBackoff": "15s"}})
    with kit.still() as later:
        publish(kit, "a")
        for seconds in (10, 15, 15):  # twice as long each time, and no longer than the longest
            (received,) = pull(kit)
            back = {"ackIds": [received["ackId"]], "ackDeadlineSeconds": 0}
            kit.call("POST", f"{SUBSCRIPTION}:modifyAckDeadline", back)
            later(seconds - 1)
            assert pull(kit) == []
            later(1)
        assert len(pull(kit)) == 1


def bound(kit: Any, path: str, role: str) -> None:
    policy = {"bindings": [{"role": role, "members": [FORWARDS]}]}
    assert kit.call("POST", f"{path}:setIamPolicy", {"policy": policy}).status == 200


def test_what_nobody_can_handle_goes_to_the_dead_letter_topic_if_pubsub_may_forward_it(kit: Any) -> None:
    dead = f"{SUBSCRIPTION}-dead"
    for path, body in (
        (TOPIC, {}),
        (f"/pubsub/v1/{DEAD}", {}),
        (dead, {"topic": DEAD}),
        (SUBSCRIPTION, {**HELD, "deadLetterPolicy": {"deadLetterTopic": DEAD}}),
    ):
        assert kit.call("PUT", path, body).status == 200
    assert kit.get(SUBSCRIPTION)["deadLetterPolicy"] == {"deadLetterTopic": DEAD, "maxDeliveryAttempts": 5}
    with kit.still() as later:
        publish(kit, "a")
        for attempt in range(1, 7):  # the forwarding is not permitted
            (received,) = pull(kit)
            assert received["deliveryAttempt"] == attempt
            later(30)
        bound(kit, SUBSCRIPTION, "roles/pubsub.subscriber")
        bound(kit, f"/pubsub/v1/{DEAD}", "roles/pubsub.publisher")
        later(120)
        assert pull(kit) == []
        (dead_letter,) = pull(kit, path=dead)
        assert texts([dead_letter]) == ["a"] and "deliveryAttempt" not in dead_letter
        about = dead_letter["message"]["attributes"]
        assert about["n"] == "a"
        assert about["CloudPubSubDeadLetterSourceDeliveryCount"] == "6"
        assert about["CloudPubSubDeadLetterSourceSubscription"] == "agents"


def test_a_subscription_gets_what_is_published_after_it_and_keeps_it_for_a_while(kit: Any) -> None:
    kit.call("PUT", TOPIC, {})
    publish(kit, "before")
    kit.call("PUT", SUBSCRIPTION, {**HELD, "messageRetentionDuration": "600s"})
    with kit.still() as later:
        publish(kit, "after")
        later(599)
        assert texts(pull(kit)) == ["after"]
        later(31)
        assert pull(kit) == []


def test_a_pull_waits_for_the_first_message(pubsub: Any) -> None:
    publish(pubsub, "a")
    (received,) = pubsub.call("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 1}).body["receivedMessages"]
    pubsub.call("POST", f"{SUBSCRIPTION}:acknowledge", {"ackIds": [received["ackId"]]})
    assert pubsub.call("POST", f"{SUBSCRIPTION}:pull", {"maxMessages": 1}).body == {}


def test_a_subscription_tells_its_defaults_and_that_it_never_expires(kit: Any) -> None:
    kit.call("PUT", TOPIC, {})
    subscription = kit.call("PUT", SUBSCRIPTION, {"topic": HELD["topic"]}).body
    assert subscription["ackDeadlineSeconds"] == 10
    assert subscription["messageRetentionDuration"] == "604800s"
    assert subscription["expirationPolicy"] == {"ttl": "2678400s"}
    changed = {"subscription": {"expirationPolicy": {}, "ackDeadlineSeconds": 60}}
    mask = {"updateMask": "expirationPolicy,ackDeadlineSeconds"}
    kit.call("PATCH", SUBSCRIPTION, {**changed, **mask})
    again = kit.call("PATCH", f"{SUBSCRIPTION}?updateMask=labels", {"subscription": {"labels": {"team": "x"}}})
    assert again.body["labels"] == {"team": "x"}  # as the provider sends it
    subscription = kit.get(SUBSCRIPTION)
    assert (subscription["expirationPolicy"], subscription["ackDeadlineSeconds"], subscription["state"]) == (
        {},
        60,
        "ACTIVE",
    )


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({**HELD, "ackDeadlineSeconds": 5}, 400, "between 10 and 600"),
        ({**HELD, "messageRetentionDuration": "60s"}, 400, "between 600 and 2678400"),
        ({**HELD, "expirationPolicy": {"ttl": "3600s"}}, 400, "at least 1 day"),
        ({**HELD, "topic": "projects/everspot-local/topics/none"}, 404, "Resource not found (resource=none)"),
        ({**HELD, "labels": {"A": "b"}}, 400, "Invalid label"),
        ({**HELD, "pushConfig": {"pushEndpoint": "https://x"}}, 501, "push subscriptions"),
        ({**HELD, "enableExactlyOnceDelivery": True}, 501, "enableExactlyOnceDelivery"),
        ({**HELD, "deadLetterPolicy": {"maxDeliveryAttempts": 5}}, 400, "not specified a dead letter topic"),
        ({**HELD, "deadLetterPolicy": {"deadLetterTopic": DEAD}}, 404, "Resource not found (resource=dead)"),
        ({**HELD, "deadLetterPolicy": {"deadLetterTopic": DEAD, "maxDeliveryAttempts": 3}}, 400, "between 5 and 100"),
        ({**HELD, "ackDeadline": 10}, 400, 'Unknown name "ackDeadline"'),
    ],
)
def test_a_subscription_that_pubsub_does_not_take_is_refused(kit: Any, body: Any, status: int, message: str) -> None:
    kit.call("PUT", TOPIC, {})
    refused = kit.call("PUT", SUBSCRIPTION, body)
    assert refused.status == status
    assert message in refused.message
    assert kit.call("GET", SUBSCRIPTION).status == 404


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (f"{TOPIC}:publish", {"messages": []}, "empty"),
        (f"{TOPIC}:publish", {"messages": [{}]}, "did not have data or attributes"),
        (f"{SUBSCRIPTION}:pull", {"maxMessages": 0}, "max_messages=0"),
        (f"{SUBSCRIPTION}:acknowledge", {}, "not specified an ack ID"),
        (f"{SUBSCRIPTION}:modifyAckDeadline", {"ackIds": ["a"], "ackDeadlineSeconds": 601}, "0 to 600"),
    ],
)
def test_a_call_that_pubsub_does_not_take_is_refused(pubsub: Any, path: str, body: Any, message: str) -> None:
    refused = pubsub.call("POST", path, body)
    assert (refused.status, refused.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert message in refused.message


def test_names_are_taken_once_and_a_topic_that_is_gone_is_said_so(pubsub: Any) -> None:
    again = pubsub.call("PUT", TOPIC, {})
    assert (again.status, again.body["error"]["status"]) == (409, "ALREADY_EXISTS")
    assert pubsub.get(f"{TOPIC}/subscriptions")["subscriptions"] == ["projects/everspot-local/subscriptions/agents"]
    assert pubsub.call("DELETE", TOPIC).body == {}
    assert pubsub.get(SUBSCRIPTION)["topic"] == "_deleted-topic_"
    assert pubsub.call("POST", f"{TOPIC}:publish", {"messages": [{"data": "YQ=="}]}).status == 404
    assert pubsub.call("DELETE", SUBSCRIPTION).body == {}
    assert pubsub.call("PUT", "/pubsub/v1/projects/everspot-local/topics/goog-x", {}).status == 400
