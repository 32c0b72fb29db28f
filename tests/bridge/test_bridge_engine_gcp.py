"""The real engine, the bridge, the real upstream Google provider, the local Google Cloud: one stack's whole life."""

import json
import urllib.request

import pytest
from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.gcp.project import PROJECT

pytestmark = pytest.mark.engine

REGION = "europe-west4"
PROGRAM = """
network = gcp.compute.Network("train", auto_create_subnetworks=False)
subnet = gcp.compute.Subnetwork("train", network=network.id, ip_cidr_range="10.0.0.0/20", private_ip_google_access=True)
gcp.compute.Firewall("inside", network=network.id, source_ranges=["10.0.0.0/20"], allows=[{"protocol": "tcp"}])
health = gcp.compute.HealthCheck("agent", http_health_check={"port": 8080, "request_path": "/healthz"})
agent = gcp.serviceaccount.Account("agent", account_id="cluster-agent")
member = pulumi.Output.concat("serviceAccount:", agent.email)
bucket = gcp.storage.Bucket(
    "control", location="EUROPE-WEST4", uniform_bucket_level_access=True, public_access_prevention="enforced",
    soft_delete_policy={"retention_duration_seconds": 0}, labels={"team": "research"},
)
gcp.storage.BucketIAMMember("agent", bucket=bucket.name, role="roles/storage.objectUser", member=member)
role = gcp.projects.IAMCustomRole("sees", role_id="seesGroups", title="sees", permissions=["compute.instances.get"])
gcp.projects.IAMMember("agent", project=role.project, role=role.name, member=member)
topic = gcp.pubsub.Topic("events")
gcp.pubsub.Subscription("events", topic=topic.id, ack_deadline_seconds=30, expiration_policy={"ttl": ""})
sink = gcp.logging.ProjectSink(
    "preempted", destination=pulumi.Output.concat("pubsub.googleapis.com/", topic.id), unique_writer_identity=True,
    filter='protoPayload.methodName="compute.instances.preempted"',
)
gcp.pubsub.TopicIAMMember("sink", topic=topic.id, role="roles/pubsub.publisher", member=sink.writer_identity)
for market, size in (("spot", 2), ("standard", 1)):
    spot = {"preemptible": True, "provisioning_model": "SPOT", "instance_termination_action": "DELETE",
            "preemption_notice_duration": {"seconds": 120}} if market == "spot" else {}
    template = gcp.compute.RegionInstanceTemplate(
        market, name_prefix=f"{market}-", machine_type="g2-standard-4", metadata={"everspot-manifest": "MANIFEST"},
        disks=[{"boot": True, "disk_type": "pd-balanced",
                "source_image": "projects/debian-cloud/global/images/family/debian-12"}],
        network_interfaces=[{"subnetwork": subnet.id}], labels={"everspot-cluster": "c"},
        scheduling={"automatic_restart": False, "on_host_maintenance": "TERMINATE", **spot},
        service_account={"email": agent.email, "scopes": ["cloud-platform"]},
    )
    group = gcp.compute.RegionInstanceGroupManager(
        market, base_instance_name=f"c-{market}", versions=[{"instance_template": template.self_link}],
        target_size=size, distribution_policy_zones=["europe-west4-a", "europe-west4-b"],
        distribution_policy_target_shape="ANY", wait_for_instances=False,
        instance_flexibility_policy={"instance_selections": [
            {"name": "first", "rank": 1, "machine_types": ["g2-standard-4", "g2-standard-8"]}]},
        update_policy={"type": "OPPORTUNISTIC", "minimal_action": "REPLACE", "instance_redistribution_type": "NONE",
                       "max_surge_fixed": 2, "max_unavailable_fixed": 2},
        instance_lifecycle_policy={"force_update_on_repair": "YES", "on_repair": {"allow_changing_zone": "YES"}},
        auto_healing_policies={"health_check": health.id, "initial_delay_sec": 600},
    )
    pulumi.export(market, {"template": template.name, "group": group.name})
pulumi.export("bucket", bucket.name)
"""
REGIONAL, GLOBAL = f"/compute/v1/projects/{PROJECT}/regions/{REGION}", f"/compute/v1/projects/{PROJECT}/global"
LISTS = (
    f"{GLOBAL}/networks", f"{GLOBAL}/firewalls", f"{GLOBAL}/healthChecks", f"{REGIONAL}/subnetworks",
    f"{REGIONAL}/instanceTemplates", f"{REGIONAL}/instanceGroupManagers", f"/storage/v1/b?project={PROJECT}",
    f"/pubsub/v1/projects/{PROJECT}/topics", f"/pubsub/v1/projects/{PROJECT}/subscriptions",
    f"/logging/v2/projects/{PROJECT}/sinks", f"/iam/v1/projects/{PROJECT}/serviceAccounts",
    f"/iam/v1/projects/{PROJECT}/roles",
)  # fmt: skip


def program(manifest="one"):
    return PROGRAM.replace("MANIFEST", manifest)


def ask(stack, path, verb="GET", body=None):
    """What the cloud says for itself, without Pulumi."""
    request = urllib.request.Request(
        stack.endpoint + path, method=verb, data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {OWNER_TOKEN}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"{}")


def listed(stack, path):
    """A list's items, whatever the product calls them."""
    return next((found for found in ask(stack, path).values() if isinstance(found, list)), [])


def size(stack, group):
    return ask(stack, f"{REGIONAL}/instanceGroupManagers/{group}")["targetSize"]


def test_a_stack_on_google_cloud_lives_from_up_to_destroy(google_stack):
    stack = google_stack
    stack.up(program())
    out = stack.outputs()
    bucket, group = f"/storage/v1/b/{out['bucket']}", out["spot"]["group"]
    labels = ask(stack, bucket)["labels"]
    assert labels == {"team": "research", "goog-pulumi-provisioned": "true"}
    # What the API has and upstream's release has not: asked for, and read back, so that the next plan is empty.
    found = ask(stack, f"{REGIONAL}/instanceTemplates/{out['spot']['template']}")["properties"]["scheduling"]
    assert found["preemptionNoticeDuration"]["seconds"] == "120"
    stack.up(program(), "--expect-no-changes")

    (firewall,) = listed(stack, f"{GLOBAL}/firewalls")
    ask(stack, f"{GLOBAL}/firewalls/{firewall['name']}", "DELETE")
    ask(stack, bucket, "PATCH", {"labels": {"team": "mine"}})
    ask(stack, f"{REGIONAL}/instanceGroupManagers/{group}/resize?size=5", "POST")
    drift = stack.preview(program(), "--refresh")
    assert {name: op for name, (op, _) in drift.items()} == {"inside": "create", "control": "update", "spot": "update"}
    assert (list(drift["control"][1]), list(drift["spot"][1])) == (["labels.team"], ["targetSize"])

    stack.up(program("two"), "--refresh")
    after = stack.outputs()
    assert ask(stack, bucket)["labels"] == labels and size(stack, group) == 2
    for market in ("spot", "standard"):  # the groups stay, their templates are others
        assert after[market]["group"] == out[market]["group"]
        assert after[market]["template"] != out[market]["template"]
    names = {template["name"] for template in listed(stack, f"{REGIONAL}/instanceTemplates")}
    assert names == {after["spot"]["template"], after["standard"]["template"]}

    stack.run("destroy", "--yes", "--skip-preview")
    assert {path: listed(stack, path) for path in LISTS} == {path: [] for path in LISTS}
    assert "bindings" not in ask(stack, f"/resourcemanager/v1/projects/{PROJECT}:getIamPolicy", "POST", {})
