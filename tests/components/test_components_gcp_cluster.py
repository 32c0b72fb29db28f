"""A whole Google Cloud cluster under mocks: its exact children, with the settings that keep them safe."""

import copy
import json
import re
from functools import partial
from typing import Any

import pytest
from everspot import GcpTrainingCluster
from everspot_clouds.gcp.rules import HEALTH_PORT
from everspot_core.capacity.launching import store_mark
from gcp_cluster_helpers import (
    ELASTIC,
    FIREWALL,
    GROUP,
    SUBNETWORK,
    TEMPLATE,
    Cluster,
    Declare,
    cluster_outputs,
    manifest,
    registered,
)
from gcp_helpers import IMAGE, SPEC, ZONES

ROLE, MEMBER = "gcp:projects/iAMCustomRole:IAMCustomRole", "gcp:projects/iAMMember:IAMMember"
ON_BUCKET = "gcp:storage/bucketIAMMember:BucketIAMMember"
AGENT, SCHEDULER = "train-identity-agent", "train-identity-scheduler"
EXPECTED = {
    "train": "everspot:index:GcpTrainingCluster",
    **{f"train-{part}": f"everspot:index:Gcp{kind}" for part, kind in (
        ("events", "InterruptionEvents"), ("store", "Store"), ("network", "Network"), ("identity", "Identity"),
        ("fleet", "TrainingFleet"), ("scheduler", "SchedulerService"))},
    "train-guard": "pulumi:index:Stash",
    "train-place": "pulumi:index:Stash",
    "train-declared": "gcp:storage/bucketObject:BucketObject",
    "train-manifest": "gcp:storage/bucketObject:BucketObject",
    "train-events-topic": "gcp:pubsub/topic:Topic",
    "train-events-subscription": "gcp:pubsub/subscription:Subscription",
    "train-events-dead-topic": "gcp:pubsub/topic:Topic",
    "train-events-dead-subscription": "gcp:pubsub/subscription:Subscription",
    "train-events-dead-taker": "gcp:pubsub/subscriptionIAMMember:SubscriptionIAMMember",
    "train-events-dead-publisher": "gcp:pubsub/topicIAMMember:TopicIAMMember",
    "train-events-sink": "gcp:logging/projectSink:ProjectSink",
    "train-events-publisher": "gcp:pubsub/topicIAMMember:TopicIAMMember",
    **{f"train-store-{b}": "gcp:storage/bucket:Bucket" for b in ("control", "data")},
    "train-network-vpc": "gcp:compute/network:Network",
    "train-network-subnetwork": "gcp:compute/subnetwork:Subnetwork",
    "train-network-scheduler": "gcp:compute/subnetwork:Subnetwork",
    **{f"train-network-{rule}": FIREWALL for rule in ("out-https", "out-rest", "in-health")},
    **dict.fromkeys((AGENT, SCHEDULER), "gcp:serviceaccount/account:Account"),
    **{f"{AGENT}-{role}": ROLE for role in ("reader", "writer", "leaver", "jobs")},
    **{f"{SCHEDULER}-{role}": ROLE for role in ("watcher", "listener")},
    f"{AGENT}-leave": MEMBER,
    f"{SCHEDULER}-watch": MEMBER,
    **{f"{AGENT}-{b}": ON_BUCKET for b in ("control-read", "control-write-0", "data-read", "data-write-0")},
    **{f"{SCHEDULER}-{b}": ON_BUCKET for b in ("control-read", "control-write-0", "control-write-1")},
    f"{SCHEDULER}-listen": "gcp:pubsub/subscriptionIAMMember:SubscriptionIAMMember",
    "train-fleet-health": "gcp:compute/healthCheck:HealthCheck",
    **{f"train-fleet-{market}-agent": TEMPLATE for market in ("on-demand", "spot")},
    **{f"train-fleet-{market}": GROUP for market in ("on-demand", "spot")},
    "train-scheduler-template": TEMPLATE,
    "train-scheduler-group": GROUP,
}  # fmt: skip


@pytest.fixture
def cluster(declare: Declare) -> Cluster:
    return partial(registered, declare)


@pytest.mark.parametrize("preview", [False, True], ids=["update", "preview"])
def test_exactly_these_children_are_registered(declare: Declare, preview: bool) -> None:
    recorder, _ = declare(lambda: cluster_outputs(copy.deepcopy(SPEC)), preview=preview)
    assert recorder.types_by_name() == EXPECTED
    assert len(recorder.resources) == len(EXPECTED)


def test_outputs_lead_to_the_parts(declare: Declare) -> None:
    _, outputs = declare(lambda: cluster_outputs(copy.deepcopy(SPEC)))
    assert (outputs["cluster"], outputs["project"], outputs["region"]) == ("train", "everspot-local", "europe-west4")
    assert (outputs["control_url"], outputs["data_url"]) == ("gs://train-store-control", "gs://train-store-data")
    assert outputs["queue_url"] == "projects/everspot-local/subscriptions/train-events-subscription"
    assert (outputs["on_demand_group"], outputs["spot_group"]) == ("train-fleet-on-demand", "train-fleet-spot")
    assert outputs["agent_account"] == "train-agent@everspot-local.iam.gserviceaccount.com"
    assert outputs["image_id"] == IMAGE
    assert None not in outputs.values()


def test_the_two_manifests_and_cluster_json_tell_each_reader_what_it_needs(cluster: Cluster) -> None:
    recorder = cluster(capacity={"elastic": ELASTIC}, limits={"orphan_limit": "10m"})
    agent, spot = manifest(recorder, "train-fleet-on-demand-agent"), manifest(recorder, "train-fleet-spot-agent")
    scheduler, launched = manifest(recorder, "train-scheduler-template"), manifest(recorder, "train-elastic-template")
    published = published_by(recorder)
    assert agent == spot
    assert [m["cloud"] for m in (agent, scheduler, launched, published)] == ["gcp"] * 4
    assert (agent["role"], scheduler["role"], published["role"]) == ("agent", "scheduler", "agent")
    assert "queue_url" not in agent
    assert scheduler["queue_url"] == "projects/everspot-local/subscriptions/train-events-subscription"
    assert (agent["account"], agent["region"]) == ("everspot-local", "europe-west4")
    assert (agent["notice"], agent["health_port"]) == (120, HEALTH_PORT)
    assert agent["generation"] == scheduler["generation"] == launched["generation"] == published["generation"]
    assert launched["limits"]["idle_limit"] == 300 + 600
    assert recorder.inputs("train-manifest")["name"] == "cluster.json"
    assert published["standing"] == {
        "on_demand_units": 1, "spot_units": 4,
        "weights": {"g2-standard-4": 1, "g2-standard-8": 1, "a3-highgpu-1g": 1},
    }  # fmt: skip
    elastic = published["elastic"]
    assert (
        elastic["template"] == "projects/everspot-local/regions/europe-west4/instanceTemplates/train-elastic-template"
    )
    assert (elastic["template_version"], elastic["max_instances"]) == ("4242", 8)
    assert elastic["places"] == dict.fromkeys(ZONES, SUBNETWORK)
    assert elastic["tags"]["everspot-cluster"] == "train"
    assert elastic["tags"] == recorder.inputs("train-elastic-template")["labels"]  # a request's labels replace these


def test_all_but_the_store_bears_the_mark_of_the_store(cluster: Cluster) -> None:
    """Another cluster of this name may be in the project."""
    recorder, marked, unmarked = cluster(), set(), set()
    for resource in recorder.resources:
        disks = [disk.get("labels") or {} for disk in resource.inputs.get("disks") or ()]
        for each in (resource.inputs.get("labels") or {}, resource.inputs.get("userLabels") or {}, *disks):
            if "everspot-cluster" in each:
                own = each.get("everspot-store") == store_mark("gs://train-store-control")
                (marked if own else unmarked).add(resource.typ)
    assert unmarked == {"gcp:storage/bucket:Bucket"}
    assert {kind.rpartition(":")[2] for kind in marked} >= {"RegionInstanceTemplate", "Topic", "Subscription"}


def test_agents_limit_each_job_by_a_role_that_nobody_is_granted(cluster: Cluster) -> None:
    recorder = cluster(read_buckets=["corpora"])
    role = recorder.inputs(f"{AGENT}-jobs")
    assert role["permissions"] == ["storage.objects.delete"]
    granted = [args.inputs["role"] for args in recorder.resources if "role" in args.inputs and "member" in args.inputs]
    name = f"projects/everspot-local/roles/{AGENT}-jobs"
    assert granted and name not in granted
    for template in ("train-fleet-on-demand-agent", "train-fleet-spot-agent", "train-scheduler-template"):
        contents = manifest(recorder, template)
        assert (contents["job_role"], contents["read_buckets"]) == (name, ["corpora"])
    recorder = cluster(job_role=False, read_buckets=["corpora"])
    assert f"{AGENT}-jobs" not in recorder.types_by_name()
    agents = manifest(recorder, "train-fleet-spot-agent")
    assert not {"job_role", "read_buckets"} & set(agents)


def test_agents_read_images_of_the_repositories_that_are_named(cluster: Cluster) -> None:
    recorder = cluster(image_repositories=["europe-docker.pkg.dev/other-project/images"])
    (binding,) = recorder.of_type("gcp:artifactregistry/repositoryIamMember:RepositoryIamMember")
    account = recorder.inputs("train-identity-agent-leave")["member"]
    assert binding.inputs == {
        "location": "europe",
        "project": "other-project",
        "repository": "images",
        "role": "roles/artifactregistry.reader",
        "member": account,
    }
    assert published_by(recorder)["image_repositories"] == ["europe-docker.pkg.dev/other-project/images/"]


def test_the_network_lets_nothing_in_but_health_checks_and_out_to_one_port(cluster: Cluster) -> None:
    recorder = cluster()
    subnetwork = recorder.inputs("train-network-subnetwork")
    assert subnetwork["privateIpGoogleAccess"] is True and subnetwork["ipCidrRange"] == "10.64.0.0/16"
    assert "logConfig" not in subnetwork
    assert recorder.inputs("train-network-vpc")["autoCreateSubnetworks"] is False
    health = recorder.inputs("train-network-in-health")
    assert health["sourceRanges"] == ["35.191.0.0/16", "130.211.0.0/22"]
    assert health["allows"] == [{"protocol": "tcp", "ports": [str(HEALTH_PORT)]}]
    assert health["targetServiceAccounts"] == ["train-agent@everspot-local.iam.gserviceaccount.com"]
    out = {args.name: args.inputs for args in recorder.of_type(FIREWALL) if args.inputs["direction"] == "EGRESS"}
    assert out["train-network-out-https"]["allows"] == [{"protocol": "tcp", "ports": ["443"]}]
    assert out["train-network-out-rest"]["denies"] == [{"protocol": "all"}]
    assert out["train-network-out-https"]["priority"] < out["train-network-out-rest"]["priority"]


def test_what_opens_more_has_to_be_asked_for(cluster: Cluster) -> None:
    recorder = cluster(
        nat=True, flow_logs=True, iap_ssh=True, prometheus={"cidrs": ["10.1.0.0/24"]}, capacity={"elastic": ELASTIC}
    )
    assert recorder.inputs("train-network-nat")["sourceSubnetworkIpRangesToNat"] == "LIST_OF_SUBNETWORKS"
    assert recorder.inputs("train-network-subnetwork")["logConfig"]["metadata"] == "INCLUDE_ALL_METADATA"
    shell = recorder.inputs("train-network-in-shell")
    assert (shell["sourceRanges"], shell["targetTags"]) == (["35.235.240.0/20"], ["everspot-door"])
    assert {tuple(args.inputs["tags"]) for args in recorder.of_type(TEMPLATE)} == {("everspot-door",)}
    metrics = recorder.inputs("train-network-in-metrics")
    assert metrics["targetServiceAccounts"] == ["train-scheduler@everspot-local.iam.gserviceaccount.com"]
    assert (metrics["sourceRanges"], metrics["allows"][0]["ports"]) == (["10.1.0.0/24"], ["9494"])
    assert manifest(recorder, "train-scheduler-template")["metrics"] == {"port": 9494}


def test_an_existing_network_gets_the_rules_alone_unless_its_owner_makes_them(cluster: Cluster) -> None:
    existing = {
        "network": "projects/host-project/global/networks/shared",
        "subnetwork": "projects/host-project/regions/europe-west4/subnetworks/subnet-1",
    }
    recorder = cluster(**existing)
    assert {args.name for args in recorder.of_type(FIREWALL)} == {"train-network-in-health"}
    assert not recorder.of_type("gcp:compute/network:Network") + recorder.of_type("gcp:compute/subnetwork:Subnetwork")
    assert not cluster(**existing, firewall=False).of_type(FIREWALL)
    with pytest.raises(Exception, match="no Private Google Access"):
        cluster(**{**existing, "subnetwork": "projects/host-project/regions/europe-west4/subnetworks/closed"})


def test_buckets_are_private_and_keep_nothing_that_was_deleted(cluster: Cluster) -> None:
    recorder = cluster(jobs_expire_days=60, kms_key="projects/p-12345/locations/europe-west4/keyRings/r/cryptoKeys/k")
    for name in ("train-store-control", "train-store-data"):
        bucket = recorder.inputs(name)
        assert bucket["uniformBucketLevelAccess"] is True and bucket["publicAccessPrevention"] == "enforced"
        assert bucket["softDeletePolicy"] == {"retentionDurationSeconds": 0}
        assert bucket["versioning"] == {"enabled": False}
        assert bucket["location"] == "EUROPE-WEST4" and bucket["forceDestroy"] is False
        assert bucket["encryption"] == {
            "defaultKmsKeyName": "projects/p-12345/locations/europe-west4/keyRings/r/cryptoKeys/k"
        }
        assert bucket["lifecycleRules"][0] == {
            "action": {"type": "AbortIncompleteMultipartUpload"}, "condition": {"age": 2},
        }  # fmt: skip
    rules = [rule["condition"] for rule in recorder.inputs("train-store-data")["lifecycleRules"]]
    assert rules[1:] == [{"age": 30, "matchesPrefixes": ["agents/"]}, {"age": 60, "matchesPrefixes": ["jobs/"]}]
    key = recorder.inputs("train-store-key")
    assert key["member"] == "serviceAccount:gcs@google"


@pytest.mark.parametrize("retain", [True, False])
def test_the_permission_to_use_a_key_outlives_its_setting(
    cluster: Cluster, protection: dict[str, tuple[bool, bool]], retain: bool
) -> None:
    cluster(kms_key="projects/p-12345/locations/europe-west4/keyRings/r/cryptoKeys/k", retain_store=retain)
    assert (protection["train-store-key"], protection["train-store-data"]) == ((False, True), (False, retain))


def test_events_go_by_a_sink_of_its_own_to_a_subscription_that_stays(cluster: Cluster) -> None:
    recorder = cluster()
    sink = recorder.inputs("train-events-sink")
    assert sink["destination"] == "pubsub.googleapis.com/projects/everspot-local/topics/train-events-topic"
    assert "compute.instances.preempted" in sink["filter"] and sink["uniqueWriterIdentity"] is True
    assert recorder.inputs("train-events-subscription")["expirationPolicy"] == {"ttl": ""}
    publisher = recorder.inputs("train-events-publisher")
    assert publisher["member"] == "serviceAccount:train-events-sink@logging"


def test_what_no_scheduler_can_handle_is_kept_apart(cluster: Cluster) -> None:
    recorder = cluster()
    where = "projects/everspot-local"
    dead, source = f"{where}/topics/train-events-dead-topic", f"{where}/subscriptions/train-events-subscription"
    policy = {"deadLetterTopic": dead, "maxDeliveryAttempts": 5}
    assert recorder.inputs("train-events-subscription")["deadLetterPolicy"] == policy
    dead_letters = recorder.inputs("train-events-dead-subscription")
    assert (dead_letters["topic"], dead_letters["messageRetentionDuration"]) == (dead, "1209600s")
    assert "deadLetterPolicy" not in dead_letters
    agent = "serviceAccount:service-100000000001@gcp-sa-pubsub.iam.gserviceaccount.com"
    taker, publisher = (recorder.inputs(f"train-events-dead-{end}") for end in ("taker", "publisher"))
    assert (taker["subscription"], taker["role"], taker["member"]) == (source, "roles/pubsub.subscriber", agent)
    assert (publisher["topic"], publisher["role"], publisher["member"]) == (dead, "roles/pubsub.publisher", agent)


def test_monitoring_is_a_dashboard_alerts_and_one_permission(cluster: Cluster) -> None:
    channel = "projects/everspot-local/notificationChannels/7"
    recorder = cluster(monitoring={"channels": [channel]})
    alerts = {args.name: args.inputs for args in recorder.of_type("gcp:monitoring/alertPolicy:AlertPolicy")}
    assert set(alerts) == {
        f"train-monitoring-{name}"
        for name in ("job-over-estimate", "pool-over-norm", "budget-at-80", "scheduler-silent")
    }  # fmt: skip
    assert all(alert["notificationChannels"] == [channel] for alert in alerts.values())
    (silent,) = alerts["train-monitoring-scheduler-silent"]["conditions"]
    assert silent["conditionAbsent"]["duration"] == "300s"
    assert 'metric.labels.cluster="train"' in silent["conditionAbsent"]["filter"]
    assert recorder.inputs("train-monitoring-gauges")["permissions"] == ["monitoring.timeSeries.create"]
    assert published_by(recorder)["monitoring"] == {"namespace": "Everspot"}
    body = json.loads(recorder.inputs("train-monitoring-dashboard")["dashboardJson"])
    tiles = body["mosaicLayout"]["tiles"]
    assert [(t.get("xPos"), t.get("yPos")) for t in tiles] == [  # where zeros were declared, each plan would change it
        (None, None), (16, None), (32, None), (None, 16), (16, 16), (32, 16),
    ]  # fmt: skip


def test_names_fit_for_the_longest_cluster(declare: Declare) -> None:
    long = "c" * 32
    args: Any = copy.deepcopy(SPEC)
    args["capacity"]["elastic"] = ELASTIC
    args["nat"] = True
    args["monitoring"] = {}
    recorder, _ = declare(lambda: {"url": GcpTrainingCluster(long, args).control_url})
    for resource in recorder.resources:
        if resource.typ.startswith("gcp:compute/") or resource.typ == "gcp:storage/bucket:Bucket":
            assert len(resource.name) + 8 <= 63, resource.name
    accounts = [args.inputs["accountId"] for args in recorder.of_type("gcp:serviceaccount/account:Account")]
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", name) for name in accounts) and len(set(accounts)) == 2
    roles = [args.inputs["roleId"] for args in recorder.of_type(ROLE)]
    assert all(re.fullmatch(r"[a-zA-Z0-9_.]{3,64}", name) for name in roles) and len(set(roles)) == len(roles) == 9
    bases = [args.inputs["baseInstanceName"] for args in recorder.of_type(GROUP)]
    assert all(len(name) <= 58 for name in bases)


def published_by(recorder: Any) -> dict[str, Any]:
    """Return the content of `cluster.json`. The SDK treats the contents of every object as secret."""
    return json.loads(recorder.inputs("train-manifest")["content"]["value"])
