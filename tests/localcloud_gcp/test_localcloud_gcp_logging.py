"""Log sinks: entries about instances reach a topic if the sink's writer may publish there."""

import base64
import json
from typing import Any

import pytest
from everspot_local.gcp.logging.entries import CALLED, PREEMPTED, instance_event
from everspot_local.gcp.logging.filters import parsed

DELETED = CALLED["delete"]
ROOT = "projects/everspot-local"
SINKS = f"/logging/v2/{ROOT}/sinks"
TOPIC = f"{ROOT}/topics/ends"
FILTER = f'resource.type="gce_instance" AND protoPayload.methodName=("{PREEMPTED}" OR "{DELETED}")'
SPOT = {
    "provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False, "onHostMaintenance": "TERMINATE",
    "instanceTerminationAction": "DELETE",
}  # fmt: skip
SINK = {"name": "ends", "destination": f"pubsub.googleapis.com/{TOPIC}", "filter": FILTER}


def entry(kit: Any, method: str = PREEMPTED) -> dict[str, Any]:
    now = kit.cloud.market.clock.now()
    return instance_event("everspot-local", "europe-west4-a", "spot-1", "42", method, now, user="somebody")


@pytest.fixture
def ends(kit: Any) -> Any:
    """A topic with a subscription."""
    kit.call("PUT", f"/pubsub/v1/{TOPIC}", {})
    kit.call("PUT", f"/pubsub/v1/{ROOT}/subscriptions/ends", {"topic": TOPIC})
    return kit


def grant(kit: Any, member: str) -> None:
    bindings = [{"role": "roles/pubsub.publisher", "members": [member]}]
    assert kit.call("POST", f"/pubsub/v1/{TOPIC}:setIamPolicy", {"policy": {"bindings": bindings}}).status == 200


def received(kit: Any) -> list[dict[str, Any]]:
    path = f"/pubsub/v1/{ROOT}/subscriptions/ends:pull"
    messages = kit.call("POST", path, {"maxMessages": 100, "returnImmediately": True}).body.get("receivedMessages", [])
    return [json.loads(base64.b64decode(each["message"]["data"])) for each in messages]


def test_a_sink_has_a_writer_of_the_projects_own(kit: Any) -> None:
    sink = kit.call("POST", f"{SINKS}?uniqueWriterIdentity=true", SINK).body
    assert sink["writerIdentity"] == "serviceAccount:service-100000000001@gcp-sa-logging.iam.gserviceaccount.com"
    assert kit.get(f"{SINKS}/ends") == sink
    assert kit.call("POST", SINKS, SINK).status == 409
    changed = kit.call(
        "PATCH", f"{SINKS}/ends?uniqueWriterIdentity=true&updateMask=filter", {"filter": "severity>=INFO"}
    )
    assert changed.body["filter"] == "severity>=INFO"
    assert changed.body["destination"] == SINK["destination"]
    assert kit.call("PATCH", f"{SINKS}/ends", SINK).status == 400
    assert kit.call("DELETE", f"{SINKS}/ends").body == {}
    assert kit.call("GET", f"{SINKS}/ends").status == 404


def test_ends_reach_the_topic_once_the_writer_may_publish(ends: Any) -> None:
    writer = ends.call("POST", f"{SINKS}?uniqueWriterIdentity=true", SINK).body["writerIdentity"]
    ends.network()
    lost, preempted_vm, stopped = (ends.run(f"vm-{n}", scheduling=SPOT) for n in range(3))
    ends.market("interrupt", instance=lost["id"], notice=False)
    ends.wait_until_deleted("vm-0")
    grant(ends, writer)
    since = ends.cloud.market.clock.exact()
    ends.until(lambda: ends.cloud.market.clock.exact() >= since + 121)
    ends.market("interrupt", instance=preempted_vm["id"], notice=False)
    ends.wait_until_deleted("vm-1")
    ends.do("DELETE", "zones/europe-west4-a/instances/vm-2")
    preempted, deletion, done = ends.until(lambda: entries if len(entries := received(ends)) == 3 else [])
    assert preempted["protoPayload"]["methodName"] == "compute.instances.preempted"
    assert preempted["resource"]["labels"] == {
        "instance_id": preempted_vm["id"], "project_id": "everspot-local", "zone": "europe-west4-a",
    }  # fmt: skip
    assert preempted["logName"].endswith("cloudaudit.googleapis.com%2Fsystem_event")
    assert [each["protoPayload"]["methodName"] for each in (deletion, done)] == [DELETED, DELETED]
    assert (deletion["operation"].get("first"), done["operation"].get("last")) == (True, True)
    assert done["resource"]["labels"]["instance_id"] == stopped["id"]
    assert done["protoPayload"]["authenticationInfo"]["principalEmail"] == "owner@everspot-local.example"


def test_a_sink_that_is_off_or_wants_something_else_sends_nothing(ends: Any) -> None:
    others = {**SINK, "name": "others", "filter": 'protoPayload.methodName="compute.instances.preempted"'}
    for sink in ({**SINK, "disabled": True}, others):
        writer = ends.call("POST", f"{SINKS}?uniqueWriterIdentity=true", sink).body["writerIdentity"]
    grant(ends, writer)
    since = ends.cloud.market.clock.exact()
    ends.network()
    ends.run("vm-0")
    ends.until(lambda: ends.cloud.market.clock.exact() >= since + 121)
    ends.do("DELETE", "zones/europe-west4-a/instances/vm-0")
    assert received(ends) == []


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        (f'protoPayload.methodName="{PREEMPTED}"', True),
        ('protoPayload.methodName:"preempted"', True),
        ('protoPayload.methodName="compute.instances.insert"', False),
        ('resource.labels.instance_id="42" resource.type=gce_instance', True),
        ('resource.type="gce_instance" AND NOT resource.labels.zone="europe-west4-a"', False),
        ('resource.type="gcs_bucket" OR resource.labels."zone"="europe-west4-a"', True),
        ('(severity="ERROR" OR severity="INFO") AND protoPayload.serviceName:*', True),
        ("severity>=NOTICE", False),
        ("severity<NOTICE", True),
        ("operation.first=true", True),
        ("labels.cluster!=demo -- of no cluster of ours", True),
        ('logName="projects/everspot-local/logs/cloudaudit.googleapis.com%2Fsystem_event"', True),
    ],
)
def test_a_filter_reads_the_fields_of_an_entry(kit: Any, text: str, fits: bool) -> None:
    assert parsed(text)(entry(kit)) is fits


@pytest.mark.parametrize(
    "text", ["preempted", 'a =~ "x"', 'timestamp>="2026"', "a=", "(a=b", "a=b)", "a=b AND", "x.y = {", "a=(b AND c)"]
)
def test_a_filter_that_is_not_known_is_refused_when_the_sink_is_made(kit: Any, text: str) -> None:
    refused = kit.call("POST", SINKS, {**SINK, "filter": text})
    assert refused.status == 400
    assert "Unparseable filter" in refused.message


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"name": "a b"}, 400),
        ({"destination": "pubsub.googleapis.com/ends"}, 400),
        ({"destination": "storage.googleapis.com/bucket"}, 501),
        ({"exclusions": [{"name": "a", "filter": "severity=INFO"}]}, 501),
    ],
)
def test_a_sink_that_logging_does_not_take_is_refused(kit: Any, change: Any, status: int) -> None:
    assert kit.call("POST", SINKS, {**SINK, **change}).status == status


def test_google_makes_a_services_agent_when_it_is_used_and_grants_it_nothing_before(kit: Any) -> None:
    def granted(name: str) -> Any:
        member = f"serviceAccount:service-100000000001@gcp-sa-{name}.iam.gserviceaccount.com"
        bindings = [{"role": "roles/pubsub.publisher", "members": [member]}]
        return kit.call("POST", f"/pubsub/v1/{TOPIC}:setIamPolicy", {"policy": {"bindings": bindings}})

    kit.call("PUT", f"/pubsub/v1/{TOPIC}", {})
    for name in ("pubsub", "logging"):
        refused = granted(name)
        assert refused.status == 400 and f"gcp-sa-{name}.iam.gserviceaccount.com does not exist" in str(refused.body)
    kit.call("PUT", f"/pubsub/v1/{ROOT}/subscriptions/ends", {"topic": TOPIC})
    assert (granted("pubsub").status, granted("logging").status) == (200, 400)
    assert kit.call("POST", f"{SINKS}?uniqueWriterIdentity=true", SINK).status == 200
    assert granted("logging").status == 200
