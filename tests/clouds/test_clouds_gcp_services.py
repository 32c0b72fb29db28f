"""The adapter's small services on the local cloud: queue, notifications, secrets, figures, buckets, credentials."""

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from everspot_clouds.base import CloudError, MessageKind, Trouble
from everspot_clouds.gcp.cloud import GcpCloud
from everspot_clouds.gcp.credentials import for_store
from everspot_clouds.gcp.errors import ApiError, to_cloud_error, trouble
from everspot_clouds.gcp.gauges import MonitoringFigures
from everspot_clouds.gcp.http_api import Api, open_api
from everspot_clouds.gcp.instances import of_cluster
from everspot_clouds.gcp.messages import Subscriber
from everspot_clouds.gcp.notify import GcpSender
from everspot_clouds.gcp.rules import PREEMPTED
from everspot_clouds.gcp.secrets import GcpSecrets
from everspot_clouds.gcp.site import GcpSite
from everspot_core.cluster.gauges import Gauge
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.notify import Notifications
from everspot_local.cloud import LocalCloud
from everspot_store import ManualClock, Store, SystemClock
from test_clouds_gcp_messages import AT, entry, sent

TOPIC, SUBSCRIPTION = "projects/everspot-local/topics/events", "projects/everspot-local/subscriptions/events"
PROJECT = "projects/everspot-local"


@pytest.fixture
def api(google: LocalCloud) -> Api:
    """Calls as the project's owner, on a clock that does not wait."""
    return Api(ManualClock())


@pytest.fixture
def queue(api: Api) -> Callable[[Any], None]:
    """A topic with a subscription; what is handed to it is published, as a sink does."""
    api.call("PUT", "pubsub", TOPIC, body={})
    api.call("PUT", "pubsub", SUBSCRIPTION, body={"topic": TOPIC, "ackDeadlineSeconds": 60})
    return lambda document: api.post("pubsub", f"{TOPIC}:publish", {"messages": [{"data": sent(document)}]}) and None


def test_the_project_is_that_of_the_environment(api: Api) -> None:
    assert api.project == "everspot-local"


def test_requests_beyond_a_quota_of_the_minute_are_not_sent_again_at_once(google: LocalCloud) -> None:
    clock = ManualClock()
    api, began = Api(clock), clock.monotonic()
    google.do("quota", code="LIST_REQUESTS", value=0)
    with pytest.raises(ApiError, match="Quota exceeded") as refused:
        next(api.pages("compute", f"{PROJECT}/aggregated/instances"))
    assert trouble(refused.value) is Trouble.THROTTLED  # halves the scheduler's frequency each time
    assert clock.monotonic() == began
    assert "try again in a minute" in to_cloud_error(refused.value).fix
    google.do("quota", code="LIST_REQUESTS", value=1500)
    assert next(api.pages("compute", f"{PROJECT}/aggregated/instances"))["kind"] == "compute#instanceAggregatedList"


ZONES = "zones/europe-west4-a", "zones/europe-west4-b"
NONE_THERE = {"warning": {"code": "NO_RESULTS_ON_PAGE"}}


@pytest.mark.parametrize(
    ("page", "lacking"),
    [
        ({"items": {ZONES[0]: {"instances": []}, ZONES[1]: NONE_THERE}}, ""),
        ({"items": {ZONES[0]: NONE_THERE, ZONES[1]: {"warning": {"code": "UNREACHABLE"}}}}, ZONES[1]),
        ({"items": {ZONES[0]: NONE_THERE}, "unreachables": [ZONES[1]]}, ZONES[1]),
        ({"warning": {"code": "UNREACHABLE"}}, "the service"),
        ({"items": [{"name": "operation"}]}, ""),
    ],
)
def test_a_zone_that_cannot_be_reached_is_not_one_without_instances(
    api: Api, monkeypatch: pytest.MonkeyPatch, page: dict[str, Any], lacking: str
) -> None:
    monkeypatch.setattr(api, "get", lambda *_path, **_query: page)
    if not lacking:
        assert list(api.pages("compute", f"{PROJECT}/aggregated/instances")) == [page]
        return
    with pytest.raises(ApiError, match=f"UNAVAILABLE: {lacking} cannot be reached") as refused:
        list(api.pages("compute", f"{PROJECT}/aggregated/instances"))
    assert trouble(refused.value) is Trouble.TRANSIENT


@pytest.mark.parametrize(
    ("unreachable", "fails"),
    [
        (ZONES[1], True),
        ("regions/europe-west4", True),
        (f"https://www.googleapis.com/compute/v1/{PROJECT}/{ZONES[1]}", True),
        ("somewhere", True),
        ("zones/asia-east1-b", False),
        ("zones/europe-west40-a", False),
        ("regions/us-central1", False),
    ],
)
def test_only_a_place_out_of_reach_in_the_clusters_region_hides_its_instances(
    api: Api, monkeypatch: pytest.MonkeyPatch, unreachable: str, fails: bool
) -> None:
    """Without `returnPartialSuccess` Google refuses the whole list."""
    queries: list[dict[str, Any]] = []
    lacking = {"warning": {"code": "UNREACHABLE"}, "unreachables": [unreachable]}
    instance = {"id": "7", "name": "vm", "zone": ZONES[0], "labels": {"everspot-cluster": "dev"}}
    page = {"items": {ZONES[0]: {"instances": [instance]}}, **lacking}
    monkeypatch.setattr(api, "get", lambda *_path, **query: queries.append(query) or page)
    if fails:
        with pytest.raises(ApiError, match=f"UNAVAILABLE: {unreachable} cannot be reached"):
            list(of_cluster(api, "europe-west4", "dev", "gs://control"))
    else:
        assert list(of_cluster(api, "europe-west4", "dev", "gs://control")) == [instance]
    assert queries[0]["returnPartialSuccess"] == "true"


def test_what_a_bucket_is_asked_too_often_in_a_second_is_sent_again(google: LocalCloud) -> None:
    """A project makes a bucket in two seconds: Cloud Storage calls that a rate, too."""
    api = Api(SystemClock())
    for name in ("first", "second"):
        bucket = api.call("POST", "storage", "b", body={"name": name}, query={"project": "everspot-local"})
        assert bucket["name"] == name


def test_own_entries_wait_for_acknowledgement_and_foreign_ones_do_not(api: Api, queue: Callable[[Any], None]) -> None:
    queue(entry("v1.compute.disks.delete"))
    queue(entry(PREEMPTED))
    queue({"textPayload": "no entry of the audit log"})
    listener = Subscriber(api, SUBSCRIPTION, timedelta(seconds=120), ManualClock())
    while not (messages := listener.drain()):
        listener.receive()
    assert [(m.kind, m.instance_id, m.deadline) for m in messages] == [
        (MessageKind.WARNING, "1844488190001", AT + timedelta(seconds=145))
    ]
    listener.delete(messages)
    answer = api.post("pubsub", f"{SUBSCRIPTION}:pull", {"maxMessages": 10, "returnImmediately": True})
    assert answer == {}


def test_people_are_notified_by_a_topic(api: Api, queue: Callable[[Any], None]) -> None:
    settings = Notifications(topic_arn=TOPIC)
    GcpSender(api).send(settings, "job-1 failed", "job-1 failed\nit broke", {"job_id": "job-1"})
    (received,) = api.post("pubsub", f"{SUBSCRIPTION}:pull", {"maxMessages": 1})["receivedMessages"]
    message = received["message"]
    assert base64.b64decode(message["data"]) == b"job-1 failed\nit broke"
    assert message["attributes"] == {"subject": "job-1 failed", "job": "job-1"}


def keep(api: Api, name: str, data: bytes) -> None:
    """A secret with one version."""
    api.call("POST", "secretmanager", f"{PROJECT}/secrets", body={"replication": {"automatic": {}}},
             query={"secretId": name})  # fmt: skip
    payload = {"payload": {"data": base64.b64encode(data).decode()}}
    api.post("secretmanager", f"{PROJECT}/secrets/{name}:addVersion", payload)


def test_a_jobs_secrets_are_read_by_their_names(api: Api) -> None:
    keep(api, "token", b"tulips")
    keep(api, "pair", json.dumps({"user": "jan", "port": 5432}).encode())
    keep(api, "blob", b"\xff\xfe")
    read = GcpSecrets(ManualClock())
    assert read("secretmanager:token") == read(f"secretmanager:{PROJECT}/secrets/token") == "tulips"
    assert (read("secretmanager:pair#user"), read("secretmanager:pair#port")) == ("jan", "5432")
    for reference, words, kind in (
        ("secretmanager:pair#remote_access", "no JSON object with the key remote_access", Trouble.REQUEST),
        ("secretmanager:blob", "it is binary", Trouble.REQUEST),
        ("secretmanager:nothing", "NOT_FOUND", Trouble.REQUEST),
        ("ssm:/x", "it has to be one of secretmanager:NAME, secretmanager:NAME#KEY", Trouble.REQUEST),
    ):
        with pytest.raises(CloudError, match=words) as refused:
            read(reference)
        assert refused.value.trouble is kind
        assert "tulips" not in str(refused.value)


def test_a_webhook_whose_secret_is_no_address_is_refused_without_telling_it(api: Api) -> None:
    keep(api, "hook", b"http://secret-host/path")
    with pytest.raises(ValueError, match="no https address") as refused:
        GcpSender(api).send(Notifications(webhook_secret_arn="hook"), "s", "t", {})
    assert "secret-host" not in str(refused.value)


def test_figures_are_written_and_found_again(google: LocalCloud, api: Api) -> None:
    at = google.market.clock.now()
    MonitoringFigures(api, "train", "europe-west4").put("everspot", {Gauge.TICKS: 3.0}, at)
    listed = api.get(
        "monitoring", f"{PROJECT}/timeSeries",
        **{
            "filter": 'metric.type="custom.googleapis.com/everspot/ticks"',
            "interval.startTime": (at - timedelta(hours=1)).isoformat(),
            "interval.endTime": (at + timedelta(minutes=1)).isoformat(),
        },
    )  # fmt: skip
    (series,) = listed["timeSeries"]
    assert series["metric"]["labels"] == {"cluster": "train"}
    assert series["points"][0]["value"] == {"doubleValue": 3.0}


def manifest(**fields: Any) -> Manifest:
    defaults = {"control_url": "gs://train-control", "data_url": "gs://train-data", **fields}
    return Manifest(cluster="train", cloud="gcp", region="europe-west4", **defaults)


def test_a_retained_bucket_is_listed_and_a_deleted_one_is_not(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.call("POST", "storage", "b", body={"name": "train-control", "location": "EUROPE-WEST4"},
             query={"project": "everspot-local"})  # fmt: skip
    site = GcpSite(manifest(), ManualClock())
    assert [(resource.kind, resource.name, resource.retained) for resource in site.remaining()] == [
        ("bucket", "train-control", True)
    ]


def test_a_store_takes_a_persons_token_and_finds_an_instances_by_itself(
    google: LocalCloud, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert for_store("s3://b", None) is None
    assert for_store("gs://b", None) is None, "GOOGLE_BASE_URL: obstore has its own variables there"
    api.call("POST", "storage", "b", body={"name": "train-control", "location": "EUROPE-WEST4"},
             query={"project": "everspot-local"})  # fmt: skip
    monkeypatch.delenv("GOOGLE_BEARER_TOKEN")
    credentials = for_store("gs://train-control", "someone")
    assert credentials is not None
    assert credentials()["token"] == "everspot-local"
    store = Store.open("gs://train-control", "gs://train-control", credentials=credentials)
    store.write_manifest(manifest(data_url="gs://train-control"))
    assert store.manifest().cluster == "train"


def test_without_credentials_people_are_told_the_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN", "GCE_METADATA_HOST", "GOOGLE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(CloudError, match="no Google Cloud credentials") as refused:
        open_api(ManualClock())
    assert refused.value.trouble is Trouble.CREDENTIALS
    assert "gcloud auth application-default login" in refused.value.fix
    with pytest.raises(CloudError, match="no Google Cloud credentials"):
        GcpCloud.open(manifest(), ManualClock())
    with pytest.raises(CloudError, match="for gs://b cannot be obtained"):
        for_store("gs://b", None)
