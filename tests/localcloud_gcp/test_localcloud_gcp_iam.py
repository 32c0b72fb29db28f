"""Service accounts, custom roles and policies, and their enforcement on calls."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from everspot_local.options import Options
from gcp_worker import ACCOUNTS, AGENT, ON_INSTANCES, PROJECT, ROLES, ROOT, Worker, policy
from obstore.exceptions import PermissionDeniedError
from obstore.store import GCSStore

REGION = f"/compute/v1/{ROOT}/regions/europe-west4"
ROLE = {"roleId": "everspotAgent", "role": {"title": "Agents", "includedPermissions": ["compute.instances.delete"]}}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """Callers are held to their permissions."""
    folder = Path(tmp_path_factory.mktemp("iam"))
    return Options(folder, cloud="gcp", scale=120.0, boot_command=None)


@pytest.fixture
def worker(kit: Any) -> Any:
    """One that the whole cloud has heard of."""
    with kit.still() as later:
        worker = Worker(kit)
        worker.later = later  # type: ignore[attr-defined]
        later(10)
        yield worker


def test_an_account_is_found_a_while_after_it_was_made(kit: Any) -> None:
    member = {"role": "roles/viewer", "members": [f"serviceAccount:{AGENT}"]}
    with kit.still() as later:
        Worker(kit)
        assert kit.call("GET", f"{ACCOUNTS}/{AGENT}").status == 404
        refused = kit.call("POST", f"{PROJECT}:setIamPolicy", policy(member))
        assert (refused.status, refused.message) == (400, f"Service account {AGENT} does not exist.")
        later(10)
        assert kit.get(f"{ACCOUNTS}/{AGENT}")["displayName"] == "agents"
        assert kit.call("POST", f"{PROJECT}:setIamPolicy", policy(member)).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {"accountId": "short"}, {"accountId": "Everspot-agent"}, {"accountId": "a" * 31},
        {"accountId": "everspot-agent", "serviceAccount": {"displayName": "x" * 101}},
        {"accountId": "everspot-agent", "serviceAccount": {"description": "x" * 257}},
        {"accountId": "everspot-agent", "serviceAccount": {"email": "a"}, "name": "b"},
    ],
)  # fmt: skip
def test_an_account_that_iam_does_not_take_is_refused(kit: Any, body: Any) -> None:
    assert kit.call("POST", ACCOUNTS, body).status == 400


def test_a_deleted_account_leaves_its_grants_to_nobody_of_its_name(worker: Any) -> None:
    kit = worker.kit
    kit.call(
        "POST", f"{PROJECT}:setIamPolicy", policy({"role": "roles/viewer", "members": [f"serviceAccount:{AGENT}"]})
    )
    assert kit.call("POST", ACCOUNTS, {"accountId": "everspot-agent"}).status == 409
    assert kit.call("DELETE", f"{ACCOUNTS}/{AGENT}").body == {}
    (binding,) = kit.call("POST", f"{PROJECT}:getIamPolicy", {}).body["bindings"]
    assert binding["members"] == [f"deleted:serviceAccount:{AGENT}?uid={worker.id}"]
    kit.call("POST", f"{ACCOUNTS}/{worker.id}:undelete", {})
    (binding,) = kit.call("POST", f"{PROJECT}:getIamPolicy", {}).body["bindings"]
    assert binding["members"] == [f"serviceAccount:{AGENT}"]


def test_a_deleted_role_keeps_its_id_for_37_days(kit: Any) -> None:
    with kit.still() as later:
        assert kit.call("POST", ROLES, ROLE).body["includedPermissions"] == ["compute.instances.delete"]
        assert kit.call("DELETE", f"{ROLES}/everspotAgent").body["deleted"] is True
        refused = kit.call("POST", ROLES, ROLE)
        assert (refused.status, refused.body["error"]["status"]) == (400, "FAILED_PRECONDITION")
        assert "which has been marked for deletion" in refused.message
        assert kit.get(f"{ROLES}/everspotAgent")["deleted"] is True
        assert "roles" not in kit.get(ROLES)
        assert "deleted" not in kit.call("POST", f"{ROLES}/everspotAgent:undelete", {}).body
        kit.call("DELETE", f"{ROLES}/everspotAgent")
        later(timedelta(days=7).total_seconds())
        assert kit.call("POST", f"{ROLES}/everspotAgent:undelete", {}).status == 400
        later(timedelta(days=30).total_seconds())
        assert kit.call("POST", ROLES, ROLE).status == 200


@pytest.mark.parametrize(
    ("role_id", "role", "message"),
    [
        ("a-b", {}, "letters, digits"),
        ("ab", {}, "3 to 64"),
        ("abc", {"includedPermissions": ["compute.instances.explode"]}, "compute.instances.explode is not valid"),
        ("abc", {"includedPermissions": ["resourcemanager.projects.list"]}, "is not valid"),
        ("abc", {"title": "x" * 101}, "100 bytes"),
        ("abc", {"stage": "NEW"}, "NEW"),
    ],
)
def test_a_role_that_iam_does_not_take_is_refused(kit: Any, role_id: str, role: Any, message: str) -> None:
    refused = kit.call("POST", ROLES, {"roleId": role_id, "role": role})
    assert refused.status == 400
    assert message in refused.message


def test_a_policy_is_written_by_who_read_it_last(worker: Any) -> None:
    kit, viewer = worker.kit, {"role": "roles/viewer", "members": ["user:a@example.com", "user:a@example.com"]}
    etag = kit.call("POST", f"{PROJECT}:getIamPolicy", {}).body["etag"]
    first = kit.call("POST", f"{PROJECT}:setIamPolicy", policy(viewer, etag=etag)).body
    assert first["bindings"] == [{"role": "roles/viewer", "members": ["user:a@example.com"]}]
    late = kit.call("POST", f"{PROJECT}:setIamPolicy", policy(etag=etag))
    assert (late.status, late.body["error"]["status"]) == (409, "ABORTED")
    assert kit.call("POST", f"{PROJECT}:setIamPolicy", policy(viewer, etag=first["etag"])).status == 200


def test_conditions_are_told_to_who_asks_for_version_3(worker: Any) -> None:
    worker.may("compute.instances.delete", condition=ON_INSTANCES)
    (old,) = worker.kit.call("POST", f"{PROJECT}:getIamPolicy", {}).body["bindings"]
    assert old["role"].startswith(f"{ROOT}/roles/everspotAgent_withcond_")
    options = {"options": {"requestedPolicyVersion": 3}}
    policy_answer = worker.kit.call("POST", f"{PROJECT}:getIamPolicy", options).body
    assert policy_answer["version"] == 3
    assert policy_answer["bindings"][0]["condition"] == {"title": "own", "expression": ON_INSTANCES}


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ({"role": "roles/none", "members": ["user:a@b.c"]}, "Role roles/none does not exist"),
        ({"role": f"{ROOT}/roles/none", "members": ["user:a@b.c"]}, "does not exist"),
        ({"role": "roles/viewer", "members": ["somebody"]}, "unknown type"),
        ({"role": "roles/viewer", "members": ["serviceAccount:a@b.c"]}, "Service account a@b.c does not exist."),
        (
            {"role": "roles/viewer", "members": ["user:a@b.c"], "condition": {"title": "t", "expression": "true"}},
            "basic role",
        ),
        (
            {"role": "roles/pubsub.viewer", "members": ["user:a@b.c"], "condition": {"expression": "true"}},
            "needs a title",
        ),
        (
            {
                "role": "roles/pubsub.viewer",
                "members": ["user:a@b.c"],
                "condition": {"title": "t", "expression": "now"},
            },
            "cannot be evaluated",
        ),
    ],
)
def test_a_policy_that_iam_does_not_take_is_refused(kit: Any, binding: Any, message: str) -> None:
    refused = kit.call("POST", f"{PROJECT}:setIamPolicy", policy(binding))
    assert refused.status == 400
    assert message in refused.message


def test_nothing_is_allowed_that_no_policy_allows(worker: Any) -> None:
    token = worker.token()
    for verb, path, body in (
        ("GET", "/compute/v1/projects/everspot-local/global/networks", None),
        ("PUT", f"/pubsub/v1/{ROOT}/topics/a-topic", {}),
        ("POST", ACCOUNTS, {"accountId": "another-one"}),
        ("POST", f"{PROJECT}:setIamPolicy", policy()),
        ("GET", "/storage/v1/b?project=everspot-local", None),
        ("GET", f"/secretmanager/v1/{ROOT}/secrets", None),
    ):
        assert worker.kit.call(verb, path, body, token=token).status == 403, path
    config = {"base_url": f"{worker.kit.cloud.endpoint}/xml", "bearer_token": token}
    store = GCSStore("control", config=config, client_options={"allow_http": True}, retry_config={"max_retries": 0})
    with pytest.raises(PermissionDeniedError, match=f"{AGENT} does not have storage.objects.get access"):
        obstore.get(store, "a")


def test_a_grant_has_effect_after_two_minutes_and_so_has_its_end(worker: Any) -> None:
    networks, token = "/compute/v1/projects/everspot-local/global/networks", worker.token()
    worker.may("compute.networks.list")
    refused = worker.kit.call("GET", networks, token=token)
    assert refused.message == f"Required 'compute.networks.list' permission for '{ROOT}'"
    worker.later(120)
    assert worker.kit.call("GET", networks, token=token).status == 200
    worker.kit.call("POST", f"{PROJECT}:setIamPolicy", policy())
    assert worker.kit.call("GET", networks, token=token).status == 200
    worker.later(120)
    assert worker.kit.call("GET", networks, token=token).status == 403


def test_objects_are_allowed_by_their_prefix(worker: Any) -> None:
    kit, token = worker.kit, worker.token()
    bucket = {"name": "control", "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    assert kit.call("POST", "/storage/v1/b?project=everspot-local", bucket).status == 200
    own = 'resource.name.startsWith("projects/_/buckets/control/objects/records/")'
    binding = {
        "role": "roles/storage.objectUser", "members": [f"serviceAccount:{AGENT}"],
        "condition": {"title": "own", "expression": own},
    }  # fmt: skip
    bucket_policy = kit.get("/storage/v1/b/control/iam?optionsRequestedPolicyVersion=3")
    bucket_policy["bindings"].append(binding)
    assert kit.call("PUT", "/storage/v1/b/control/iam", {**bucket_policy, "version": 3}).status == 200
    worker.later(120)
    path = "/storage/v1/b/control/o"
    composed = {"sourceObjects": [{"name": "records/none"}]}
    config = {"base_url": f"{kit.cloud.endpoint}/xml", "bearer_token": token}
    store = GCSStore("control", config=config, client_options={"allow_http": True}, retry_config={"max_retries": 0})
    obstore.put(store, "records/b", b"1")
    assert bytes(obstore.get(store, "records/b").bytes()) == b"1"
    with pytest.raises(PermissionDeniedError):  # a caller without the list permission gets 403 and not 404
        obstore.get(store, "records/none")
    assert kit.call("GET", f"{path}/records%2Fa", token=token).status == 404
    assert kit.call("POST", f"{path}/records%2Fa/compose", composed, token=token).status == 404
    assert kit.call("POST", f"{path}/heads%2Fa/compose", composed, token=token).status == 403
    assert kit.call("GET", f"{path}/heads%2Fa", token=token).status == 403
    assert kit.call("GET", path, token=token).status == 403


def test_calls_are_booked_with_their_permissions(worker: Any) -> None:
    token = worker.token()
    worker.kit.cloud.calls.restart()
    worker.kit.call("GET", "/compute/v1/projects/everspot-local/global/networks", token=token)
    worker.kit.get("/compute/v1/projects/everspot-local/global/networks")
    refused, allowed = worker.kit.cloud.calls.read()
    assert refused["principal"] == f"serviceAccount:{AGENT}"
    assert refused["checked"] == [{"action": "compute.networks.list", "resource": ROOT}]
    assert (refused["action"], refused["allowed"], allowed["allowed"]) == ("networks.list", False, True)


LAUNCH = (
    "compute.disks.create", "compute.disks.setLabels", "compute.images.useReadOnly",
    "compute.instanceTemplates.useReadOnly", "compute.instances.create", "compute.instances.setLabels",
    "compute.instances.setMetadata", "compute.instances.setServiceAccount", "compute.instances.setTags",
    "compute.subnetworks.use",
)  # fmt: skip
"""The permissions that a launch from a template with all of these features requires."""


def template(kit: Any) -> str:
    """A template with a service account, labels, tags, metadata, and an image and a labelled disk of the project."""
    kit.network()
    properties = kit.properties()
    image = f"{ROOT}/global/images/family/everspot"
    disk = {"diskSizeGb": "50", "sourceImage": image, "labels": {"everspot-cluster": "demo"}}
    properties["disks"][0]["initializeParams"].update(disk)
    more = {
        "labels": {"everspot-cluster": "demo"}, "tags": {"items": ["everspot"]},
        "metadata": {"items": [{"key": "everspot-manifest", "value": "{}"}]},
        "serviceAccounts": [{"email": AGENT, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}],
    }  # fmt: skip
    body = {"name": "t1", "properties": {**properties, **more}}
    kit.do("POST", f"{REGION}/instanceTemplates", body)
    return "regions/europe-west4/instanceTemplates/t1"


def test_a_launch_needs_what_its_template_asks_for(kit: Any) -> None:
    worker = Worker(kit)
    kit.until(lambda: kit.call("GET", f"{ACCOUNTS}/{AGENT}").status == 200)
    body = {"count": "2", "namePattern": "everspot-##", "sourceInstanceTemplate": template(kit)}
    token = worker.token()
    kit.cloud.calls.restart()
    assert kit.call("POST", f"{REGION}/instances/bulkInsert", body, token=token).status == 403
    (booked,) = kit.cloud.calls.read()
    needed = {each["action"] for each in booked["checked"]}
    assert needed == {*LAUNCH, "iam.serviceAccounts.actAs"}
    worker.may(*LAUNCH, condition=ON_INSTANCES.replace("==", "!=").replace("&&", "||"))
    act = {"roleId": "everspotActor", "role": {"includedPermissions": ["iam.serviceAccounts.actAs"]}}
    kit.call("POST", ROLES, act)
    binding = {"role": f"{ROOT}/roles/everspotActor", "members": [f"serviceAccount:{AGENT}"]}
    kit.call("POST", f"{ACCOUNTS}/{AGENT}:setIamPolicy", policy(binding))
    since = kit.cloud.market.clock.exact()
    kit.until(lambda: kit.cloud.market.clock.exact() >= since + 121)
    other = {**body, "namePattern": "other-##"}
    refused = kit.call("POST", f"{REGION}/instances/bulkInsert", other, token=token)
    assert "Required 'compute.instances.create' permission for" in refused.message
    assert kit.call("POST", f"{REGION}/instances/bulkInsert", body, token=token).status == 200


def test_permissions_are_tested_on_the_project(worker: Any) -> None:
    worker.may("compute.networks.list", "compute.networks.get")
    worker.later(120)
    permissions = {"permissions": ["compute.networks.list", "compute.networks.delete"]}
    answer = worker.kit.call("POST", f"{PROJECT}:testIamPermissions", permissions, token=worker.token())
    assert answer.body == {"permissions": ["compute.networks.list"]}
