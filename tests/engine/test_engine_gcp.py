"""A project on Google Cloud by the real engine, the bridge and the real upstream provider, each run by the identity
that is to make it: the owner bootstraps it, and the accounts that this made preview, apply and look at a cluster. It
comes up, stays, is put right when something of it was changed behind its back, changes in place, and goes without a
trace.

The tests share one project and run in this order.
"""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from engine_changes import DIGEST, keep_change, stored_change_digests
from everspot.repository import ReviewPart
from everspot_clouds.base.drift import KeptResource
from everspot_clouds.gcp import deployers
from everspot_clouds.orphans import find_orphans
from everspot_clouds.registry import added_by_hand
from everspot_clouds.stack_state import declared_clusters, list_ids
from everspot_local.gcp.callers import OWNER_TOKEN
from everspot_local.gcp.project import PROJECT
from everspot_store import StoreError, SystemClock
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
BILLING = "billingAccounts/000000-000000-000000"
SPENDING = {"billingAccount": BILLING.partition("/")[2], "budgets": [{"team": "vision", "usdPerMonth": 1000.5}]}
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


def request_json(google: Any, path: str, verb: str = "GET", body: Any = None, token: str = OWNER_TOKEN) -> Any:
    """Return the cloud's answer, without Pulumi."""
    url, data = google.env["EVERSPOT_GCP_ENDPOINT"] + path, None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, method=verb, data=data, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read() or b"{}")


def listed(google: Any, path: str) -> list[Any]:
    """A list's items, whatever the product calls them."""
    return next((items for items in request_json(google, path).values() if isinstance(items, list)), [])


def list_names(google: Any, path: str, part: str) -> set[str]:
    """The names of a list's items that have a part in them."""
    return {item["name"] for item in listed(google, path) if part in item["name"]}


def homes(google: Any, part: str) -> set[str]:
    """The subnetworks of what the templates with a part in their names launch."""
    templates = (
        request_json(google, f"{REGIONAL}/instanceTemplates/{n}")
        for n in list_names(google, f"{REGIONAL}/instanceTemplates", part)
    )
    nics = [nic for template in templates for nic in template["properties"]["networkInterfaces"]]
    assert nics
    return {nic["subnetwork"].rpartition("/")[2] for nic in nics}


def done(changes: dict[str, str]) -> dict[str, str]:
    """Return the operations of a run, without reads."""
    return {name: op for name, op in changes.items() if op != "refresh"}


def drift(google: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the steps of a plan after a refresh, with the paths that differ."""
    with acting(google, ReviewPart.DRIFT):
        steps = json.loads(google.pulumi("preview", "--json", "--refresh", stack=STACK))["steps"]
    return [(s["op"], s.get("detailedDiff") or {}) for s in steps if s["op"] not in ("same", "read", "refresh")]


@contextmanager
def acting(google: Any, part: ReviewPart) -> Iterator[None]:
    """Run the block as a job, with the account that the bootstrap created."""
    email, original = f"everspot-{part.value}@{PROJECT}.iam.gserviceaccount.com", dict(google.env)
    path = f"/iamcredentials/v1/projects/-/serviceAccounts/{email}:generateAccessToken"
    token = request_json(google, path, "POST", {"scope": ["cloud-platform"]})["accessToken"]
    google.env.update(GOOGLE_OAUTH_ACCESS_TOKEN=token, GOOGLE_BEARER_TOKEN=token)
    try:
        yield
    finally:
        google.env.update(original)


def granted(google: Any, resource: str, permission: str) -> None:
    """Wait until who acts has a permission: a grant takes effect within two minutes of Google's time."""
    query, token = {"permissions": [permission]}, google.env["GOOGLE_BEARER_TOKEN"]
    google.wait(lambda: request_json(google, f"{resource}:testIamPermissions", "POST", query, token).get("permissions"))


def preview(google: Any) -> Any:
    """A preview by the job that makes them."""
    with acting(google, ReviewPart.PREVIEW):
        return google.preview(STACK)


def up(google: Any, *options: str) -> Any:
    """An update by the job that applies what was merged."""
    with acting(google, ReviewPart.DEPLOY):
        return google.up(STACK, *options)


def bindings(google: Any) -> set[tuple[str, str]]:
    """Return pairs of role and member on the project."""
    policy_bindings = request_json(google, f"/resourcemanager/v1/projects/{PROJECT}:getIamPolicy", "POST", {}).get(
        "bindings", []
    )
    return {(binding["role"], member) for binding in policy_bindings for member in binding["members"]}


def snapshot(google: Any) -> dict[str, set[str]]:
    """The names of what the project has, by list."""
    return {path: list_names(google, path, "") for path in LISTS}


def check_drift_beside_state(google: Any) -> None:
    """The second look: it finds nothing in what the provider has made, and what was added by hand until it is gone."""
    state = json.loads(google.pulumi("stack", "export", stack=STACK))
    resource = KeptResource.of_state(state)
    with acting(google, ReviewPart.DRIFT), pytest.MonkeyPatch.context() as patch:
        for name, value in google.env.items():
            patch.setenv(name, value)
        assert added_by_hand("gcp", resource) == []
        (cluster,) = declared_clusters(state)
        assert find_orphans(cluster, list_ids(state), SystemClock.from_environment()) == []
        (network,) = listed(google, f"{GLOBAL}/networks")
        door = {"name": "by-hand", "network": network["selfLink"], "sourceRanges": ["0.0.0.0/0"],
                "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}]}  # fmt: skip
        request_json(google, f"{GLOBAL}/firewalls", "POST", door)
        google.wait(lambda: list_names(google, f"{GLOBAL}/firewalls", "by-hand"))
        (addition,) = added_by_hand("gcp", resource)
        assert (addition.kind, addition.detail) == ("firewall rule", "by-hand allows tcp 22 from 0.0.0.0/0")
        request_json(google, f"{GLOBAL}/firewalls/by-hand", "DELETE")
        google.wait(lambda: not list_names(google, f"{GLOBAL}/firewalls", "by-hand"))


def test_a_bootstrap_is_made_as_soon_as_its_key_may_be_used_and_then_nothing_changes(google: Any) -> None:
    """A grant takes effect within two minutes of Google's time: until then no bucket can be made with the key."""
    file = google.project / "stacks" / "Pulumi.gcp-bootstrap.yaml"
    content = yaml.safe_load(file.read_text().replace("my-project", PROJECT))
    content["config"]["everspot:bootstrap"]["spending"] = SPENDING
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    for _ in range(20):
        try:
            google.up("gcp-bootstrap")
            break
        except CommandError as late:
            assert "Permission denied on Cloud KMS key" in str(late)
            time.sleep(1)
    assert google.outputs["stateUrl"] == f"gs://everspot-state-{PROJECT}"
    identity_provider = request_json(google, f"/iam/v1/{google.outputs['identityProvider']}")
    assert identity_provider["attributeCondition"].startswith("assertion.repository_id == ")
    (budget,) = listed(google, f"/billingbudgets/v1/{BILLING}/budgets")
    assert budget["amount"]["specifiedAmount"] == {"currencyCode": "USD", "units": "1000", "nanos": 500000000}
    for part in ReviewPart:
        with acting(google, part):
            granted(google, f"/resourcemanager/v1/projects/{PROJECT}", "resourcemanager.projects.get")
    with acting(google, ReviewPart.PREVIEW):
        assert google.preview("gcp-bootstrap").changes == {}


def test_a_runner_that_leaves_takes_no_other_runners_grant_along(google: Any) -> None:
    """Nor does an upgrade from grants that were named after the runners' places in the list."""
    stack, runners = "gcp-bootstrap", [f"runner-{name}@{PROJECT}.iam.gserviceaccount.com" for name in "ab"]
    path = f"/iam/v1/projects/{PROJECT}/serviceAccounts"
    for email in runners:
        request_json(google, path, "POST", {"accountId": email.partition("@")[0]})
    declare_runners(google, runners)
    google.up(stack)
    state = google.pulumi("stack", "export", stack=stack)
    for index, email in enumerate(runners):
        state = state.replace(f"-runner-{email}", f"-runner-{index}")
    assert "-deploy-runner-1" in state
    former = google.project / "former.json"
    former.write_text(state)
    google.pulumi("stack", "import", "--file", str(former), stack=stack)
    assert google.up(stack).changes == {}
    declare_runners(google, runners[1:])
    assert set(google.up(stack).changes.values()) == {"delete"}
    policy = request_json(google, f"{path}/everspot-deploy@{PROJECT}.iam.gserviceaccount.com:getIamPolicy", "POST", {})
    members = [member for binding in policy["bindings"] for member in binding["members"] if "runner-" in member]
    assert members == [f"serviceAccount:{runners[1]}"]


def declare_runners(google: Any, emails: list[str]) -> None:
    """Set the accounts of the runners that deploy."""
    file = google.project / "stacks" / "Pulumi.gcp-bootstrap.yaml"
    content = yaml.safe_load(file.read_text())
    content["config"]["everspot:bootstrap"]["deployRunnerAccounts"] = emails
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def test_drift_of_the_bootstrap_is_seen_once_its_job_may_see_the_billing_account(google: Any) -> None:
    words = ("preview", "--refresh", "--expect-no-changes", "--color=never")
    with acting(google, ReviewPart.DRIFT), pytest.raises(CommandError, match=r"billing\.budgets\.get|Budget"):
        google.pulumi(*words, stack="gcp-bootstrap")
    member = f"serviceAccount:everspot-drift@{PROJECT}.iam.gserviceaccount.com"
    viewer = {"policy": {"bindings": [{"role": "roles/billing.viewer", "members": [member]}]}}
    request_json(google, f"/cloudbilling/v1/{BILLING}:setIamPolicy", "POST", viewer)
    with acting(google, ReviewPart.DRIFT):
        granted(google, f"/cloudbilling/v1/{BILLING}", "billing.budgets.get")
        google.pulumi(*words, stack="gcp-bootstrap")
    for (
        asked_so_far
    ) in google.requested_actions.values():  # a bootstrap is made by its project's owner, who may do everything
        asked_so_far.clear()


def keep_change_and_read_it(google: Any, control: str) -> None:
    """Check that only the applying job can store the record of the change."""
    for part in (ReviewPart.PREVIEW, ReviewPart.DRIFT):
        with acting(google, part), pytest.raises(StoreError):
            keep_change(google.env, control)
    with acting(google, ReviewPart.DEPLOY):
        keep_change(google.env, control)
    with acting(google, ReviewPart.PREVIEW):
        assert stored_change_digests(google.env, control) == [DIGEST]


def test_a_cluster_comes_up_stays_is_put_right_changes_in_place_and_goes(google: Any) -> None:
    before, bound = snapshot(google), bindings(google)
    output = preview(google).output
    assert "An hour of the cluster, at list prices of europe-west4" in output
    created = up(google).changes
    assert created[f"{NAME}-fleet-spot"] == "create" and len(created) >= 50
    out = google.outputs
    keep_change_and_read_it(google, out["controlUrl"])
    bucket, group = f"/storage/v1/b/{out['controlUrl'].removeprefix('gs://')}", out["spotGroup"]
    labels = request_json(google, bucket)["labels"]
    assert labels.items() >= {"project": "everspot", "goog-pulumi-provisioned": "true"}.items()
    # A field that the API has and upstream's release lacks. It is sent and read back, so the next plan is empty.
    templates = list_names(google, f"{REGIONAL}/instanceTemplates", "-spot-")
    (spot,) = (request_json(google, f"{REGIONAL}/instanceTemplates/{name}") for name in templates)
    assert spot["properties"]["scheduling"]["preemptionNoticeDuration"]["seconds"] == "120"
    check_drift_beside_state(google)

    firewalls = list_names(google, f"{GLOBAL}/firewalls", "")
    request_json(google, f"{GLOBAL}/firewalls/{min(firewalls)}", "DELETE")
    request_json(google, bucket, "PATCH", {"labels": {"team": "mine"}})
    request_json(google, f"{REGIONAL}/instanceGroupManagers/{group}/resize?size=3", "POST")
    operations = drift(google)  # what was changed by hand, and nothing else
    assert sorted(op for op, _ in operations) == ["create", "update", "update"]
    assert {path for _, diff in operations for path in diff} == {"labels.team", "targetSize"}

    capacity = google.declared(STACK)["capacity"]
    declare(google, capacity={**capacity, "standing": {"target": 3, "onDemandBase": 1}})
    changed = done(up(google, "--refresh").changes)
    assert changed.items() >= {f"{NAME}-fleet-spot": "update", f"{NAME}-manifest": "update"}.items()
    # The rule and the labels are put right; the component tells a preview of its types and sizes.
    assert sorted(changed.values()) == ["create", *["update"] * 5] and changed[f"{NAME}-fleet"] == "update"
    assert changed[f"{NAME}-fleet-on-demand"] == "update"
    assert request_json(google, bucket)["labels"] == labels
    # Repaired resources may have other suffixes; their number and kinds are as before.
    again = list_names(google, f"{GLOBAL}/firewalls", "")
    assert {name.rpartition("-")[0] for name in again} == {name.rpartition("-")[0] for name in firewalls}
    assert request_json(google, f"{REGIONAL}/instanceGroupManagers/{group}")["targetSize"] == 2

    # Optional parts of a cluster, so that every permission of deployers is used once.
    more = {"monitoring": {}, "flowLogs": True, "iapSsh": True, "federation": [PEER]}
    declare(google, limits={**google.declared(STACK)["limits"], "noticePoll": "1s"}, **more)
    changed = up(google).changes
    # The groups stay, and their templates are others.
    assert {changed[name] for name in GROUPS} == {"update"}
    assert set(changed) >= TEMPLATES
    peer = f"{NAME}-peer-{PEER['name']}"
    assert {changed[name] for name in (f"{NAME}-peers", f"{peer}-provider", peer, f"{peer}-user")} == {"create"}
    assert google.outputs["spotGroup"] == group
    after = list_names(google, f"{REGIONAL}/instanceTemplates", "-spot-")
    assert len(after) == 1 and not after & templates
    assert preview(google).changes == {} and drift(google) == []
    # The way out to the peer is the scheduler's: its subnetwork, in which no agent is, is all that NAT serves.
    (nat,) = (nat for router in listed(google, f"{REGIONAL}/routers") for nat in router["nats"])
    (served,) = (subnetwork["name"].rpartition("/")[2] for subnetwork in nat["subnetworks"])
    assert {served} == homes(google, "-scheduler-") and not {served} & homes(google, "-fleet-")

    with acting(google, ReviewPart.DEPLOY):
        google.destroy(STACK)
    assert json.loads(google.pulumi("stack", "export", stack=STACK))["deployment"].get("resources", []) == []
    assert snapshot(google) == before and bindings(google) == bound


def test_a_project_is_set_up_and_deployers_need_exactly_what_is_listed(google: Any) -> None:
    """After the other test, whose calls count as well."""
    file = google.project / "stacks" / "Pulumi.gcp-account.yaml"
    file.write_text(file.read_text().replace("my-project", PROJECT))
    with acting(google, ReviewPart.PREVIEW):
        google.preview("gcp-account")
    with acting(google, ReviewPart.DEPLOY):
        assert google.up("gcp-account").changes
    with acting(google, ReviewPart.DRIFT):
        google.pulumi("preview", "--refresh", "--expect-no-changes", stack="gcp-account")
    with acting(google, ReviewPart.DEPLOY):
        google.destroy("gcp-account")
    assert google.unlisted(deployers) == set()
    listed = deployers.PREVIEW | deployers.DEPLOY | deployers.ACCOUNT
    assert listed - google.requested_actions["preview"] - google.requested_actions["deploy"] == set()
