"""A cluster on Google Cloud by the real engine, the bridge and the real upstream provider: it comes up, stays, is put
right when something of it was changed behind its back, changes in place, and goes without a trace."""

import json
import time
import urllib.request
from typing import Any

import pytest
import yaml
from everspot.gcp import deployers
from everspot_clouds.base.drift import KeptResource
from everspot_clouds.registry import added_by_hand
from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.gcp.project import PROJECT
from pulumi.automation import CommandError

pytestmark = pytest.mark.engine
STACK = "local-gcp"
NAME = f"everspot-{STACK}"
PEER = {
    "name": "everspot-aws-prod",
    "cloud": "aws",
    "control": "s3://aws-control?region=us-east-2",
    "data": "s3://aws-data?region=us-east-2",
    "scheduler": "arn:aws:iam::123456789012:role/everspot-aws-prod-identity-scheduler-1",
}
TEMPLATES = {f"{NAME}-{name}" for name in ("fleet-on-demand-agent", "fleet-spot-agent", "scheduler-template")}
GROUPS = {f"{NAME}-{name}" for name in ("fleet-on-demand", "fleet-spot", "scheduler-group")}
REGION = "europe-west4"
REGIONAL, GLOBAL = f"/compute/v1/projects/{PROJECT}/regions/{REGION}", f"/compute/v1/projects/{PROJECT}/global"
LISTS = (
    f"{GLOBAL}/networks", f"{GLOBAL}/firewalls", f"{GLOBAL}/healthChecks", f"{REGIONAL}/subnetworks",
    f"{REGIONAL}/instanceTemplates", f"{REGIONAL}/instanceGroupManagers", f"/storage/v1/b?project={PROJECT}",
    f"/pubsub/v1/projects/{PROJECT}/topics", f"/pubsub/v1/projects/{PROJECT}/subscriptions",
    f"/logging/v2/projects/{PROJECT}/sinks", f"/iam/v1/projects/{PROJECT}/serviceAccounts",
    f"/iam/v1/projects/{PROJECT}/roles", f"/iam/v1/projects/{PROJECT}/locations/global/workloadIdentityPools",
)  # fmt: skip


def declare(google: Any, **changes: Any) -> None:
    path = google.project / "stacks" / f"Pulumi.{STACK}.yaml"
    content = yaml.safe_load(path.read_text())
    content["config"]["everspot:cluster"] |= changes
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def ask(google: Any, path: str, verb: str = "GET", body: Any = None) -> Any:
    """What the cloud says for itself, without Pulumi."""
    url, data = google.env["EVERSPOT_GCP_ENDPOINT"] + path, None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {OWNER_TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, method=verb, data=data, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"{}")


def listed(google: Any, path: str) -> list[Any]:
    """A list's items, whatever the product calls them."""
    return next((found for found in ask(google, path).values() if isinstance(found, list)), [])


def named(google: Any, path: str, part: str) -> set[str]:
    """The names of a list's items that have a part in them."""
    return {item["name"] for item in listed(google, path) if part in item["name"]}


def homes(google: Any, part: str) -> set[str]:
    """The subnetworks of what the templates with a part in their names launch."""
    found = (
        ask(google, f"{REGIONAL}/instanceTemplates/{n}") for n in named(google, f"{REGIONAL}/instanceTemplates", part)
    )
    nics = [nic for template in found for nic in template["properties"]["networkInterfaces"]]
    assert nics
    return {nic["subnetwork"].rpartition("/")[2] for nic in nics}


def done(changes: dict[str, str]) -> dict[str, str]:
    """What a run did, without what it only looked at."""
    return {name: op for name, op in changes.items() if op != "refresh"}


def drift(google: Any) -> list[tuple[str, dict[str, Any]]]:
    """What a plan would do that looks at the cloud first: each step, and the paths that differ."""
    steps = json.loads(google.pulumi("preview", "--json", "--refresh", stack=STACK))["steps"]
    return [(s["op"], s.get("detailedDiff") or {}) for s in steps if s["op"] not in ("same", "read", "refresh")]


def found_beside_the_state(google: Any) -> None:
    """The second look: it finds nothing in what the provider has made, and what was added by hand until it is gone."""
    kept = KeptResource.of_state(json.loads(google.pulumi("stack", "export", stack=STACK)))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in google.env.items():
            patch.setenv(name, value)
        assert added_by_hand("gcp", kept) == []
        (network,) = listed(google, f"{GLOBAL}/networks")
        door = {"name": "by-hand", "network": network["selfLink"], "sourceRanges": ["0.0.0.0/0"],
                "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]}  # fmt: skip
        ask(google, f"{GLOBAL}/firewalls", "POST", door)
        google.wait(lambda: named(google, f"{GLOBAL}/firewalls", "by-hand"))
        (seen,) = added_by_hand("gcp", kept)
        assert (seen.kind, seen.what) == ("firewall rule", "by-hand allows tcp 22 from 0.0.0.0/0")
        ask(google, f"{GLOBAL}/firewalls/by-hand", "DELETE")
        google.wait(lambda: not named(google, f"{GLOBAL}/firewalls", "by-hand"))


def test_a_cluster_comes_up_stays_is_put_right_changes_in_place_and_goes(google: Any) -> None:
    told = google.preview(STACK).told
    assert "An hour of the cluster, at list prices of europe-west4" in told
    up = google.up(STACK)
    assert up.changes[f"{NAME}-fleet-spot"] == "create" and len(up.changes) >= 50
    out = google.outputs
    bucket, group = f"/storage/v1/b/{out['controlUrl'].removeprefix('gs://')}", out["spotGroup"]
    labels = ask(google, bucket)["labels"]
    assert labels.items() >= {"project": "everspot", "goog-pulumi-provisioned": "true"}.items()
    # What the API has and upstream's release has not: asked for, and read back, so that the next plan is empty.
    templates = named(google, f"{REGIONAL}/instanceTemplates", "-spot-")
    (spot,) = (ask(google, f"{REGIONAL}/instanceTemplates/{name}") for name in templates)
    assert spot["properties"]["scheduling"]["preemptionNoticeDuration"]["seconds"] == "120"
    # A second one changes nothing, and nothing is found to have drifted.
    google.up(STACK, "--refresh", "--expect-no-changes")
    found_beside_the_state(google)

    firewalls = named(google, f"{GLOBAL}/firewalls", "")
    ask(google, f"{GLOBAL}/firewalls/{min(firewalls)}", "DELETE")
    ask(google, bucket, "PATCH", {"labels": {"team": "mine"}})
    ask(google, f"{REGIONAL}/instanceGroupManagers/{group}/resize?size=3", "POST")
    found = drift(google)
    assert sorted(op for op, _ in found) == ["create", "update", "update"]
    assert {path for _, diff in found for path in diff} == {"labels.team", "targetSize"}

    capacity = google.declared(STACK)["capacity"]
    declare(google, capacity={**capacity, "standing": {"target": 3, "onDemandBase": 1}})
    changed = done(google.up(STACK, "--refresh").changes)
    assert changed.items() >= {f"{NAME}-fleet-spot": "update", f"{NAME}-manifest": "update"}.items()
    # The rule and the labels are put right; the component tells a preview of its types and sizes.
    assert sorted(changed.values()) == ["create", *["update"] * 4] and changed[f"{NAME}-fleet"] == "update"
    assert ask(google, bucket)["labels"] == labels
    # Mended with the same digits behind its name or with others: as many as before, of the same kinds.
    again = named(google, f"{GLOBAL}/firewalls", "")
    assert {name.rpartition("-")[0] for name in again} == {name.rpartition("-")[0] for name in firewalls}
    assert ask(google, f"{REGIONAL}/instanceGroupManagers/{group}")["targetSize"] == 2

    # What a cluster may have besides, so that all that deployers need is asked for once.
    more = {"monitoring": {}, "flowLogs": True, "iapSsh": True, "federation": [PEER]}
    declare(google, limits={**google.declared(STACK)["limits"], "noticePoll": "1s"}, **more)
    changed = google.up(STACK).changes
    # The groups stay, and their templates are others.
    assert {changed[name] for name in GROUPS} == {"update"}
    assert set(changed) >= TEMPLATES
    peer = f"{NAME}-peer-{PEER['name']}"
    assert {changed[name] for name in (f"{NAME}-peers", f"{peer}-provider", peer, f"{peer}-user")} == {"create"}
    assert google.outputs["spotGroup"] == group
    after = named(google, f"{REGIONAL}/instanceTemplates", "-spot-")
    assert len(after) == 1 and not after & templates
    assert google.preview(STACK).changes == {} and drift(google) == []
    # The way out to the peer is the scheduler's: its subnetwork, in which no agent is, is all that NAT serves.
    (nat,) = (nat for router in listed(google, f"{REGIONAL}/routers") for nat in router["nats"])
    (served,) = (subnetwork["name"].rpartition("/")[2] for subnetwork in nat["subnetworks"])
    assert {served} == homes(google, "-scheduler-") and not {served} & homes(google, "-fleet-")

    declare(google, capacity={**capacity, "standing": {"target": 2, "shape": "EVEN"}, "maxPrice": 1.0})
    refused = google.refused(STACK)
    assert "capacity.standing.shape: EVEN goes with one instance type only" in refused
    assert "capacity.maxPrice: is another cloud's setting" in refused
    declare(google, capacity=capacity)
    google.destroy(STACK)
    assert json.loads(google.pulumi("stack", "export", stack=STACK))["deployment"].get("resources", []) == []
    assert {path: listed(google, path) for path in LISTS} == {path: [] for path in LISTS}
    assert "bindings" not in ask(google, f"/resourcemanager/v1/projects/{PROJECT}:getIamPolicy", "POST", {})


def test_a_project_is_set_up_and_deployers_need_exactly_what_is_listed(google: Any) -> None:
    """After the other test, whose calls count as well."""
    file = google.project / "stacks" / "Pulumi.gcp-account.yaml"
    file.write_text(file.read_text().replace("my-project", "everspot-local"))
    google.preview("gcp-account")
    assert google.up("gcp-account").changes
    google.destroy("gcp-account")
    assert google.unlisted(deployers) == set()
    listed = deployers.PREVIEW | deployers.DEPLOY | deployers.ACCOUNT
    assert listed - google.asked["preview"] - google.asked["deploy"] == set()


def test_a_bootstrap_is_made_as_soon_as_its_key_may_be_used_and_then_nothing_changes(google: Any) -> None:
    """A grant takes effect within two minutes of Google's time: until then no bucket can be made with the key."""
    file = google.project / "stacks" / "Pulumi.gcp-bootstrap.yaml"
    file.write_text(file.read_text().replace("my-project", "everspot-local"))
    for _ in range(20):
        try:
            google.up("gcp-bootstrap")
            break
        except CommandError as late:
            assert "Permission denied on Cloud KMS key" in str(late)
            time.sleep(1)
    assert google.outputs["stateUrl"] == "gs://everspot-state-everspot-local"
    provider = google.outputs["identityProvider"]
    found = ask(google, f"/iam/v1/{provider}")
    assert found["attributeCondition"].startswith("assertion.repository_id == ")
    assert google.preview("gcp-bootstrap").changes == {}
