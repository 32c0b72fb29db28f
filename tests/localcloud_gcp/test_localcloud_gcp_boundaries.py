"""Downscoped tokens: what a Credential Access Boundary leaves, and which boundaries are refused."""

from typing import Any

import obstore
import pytest
import requests
from gcp_worker import AGENT, PROJECT, ROOT, Worker, policy
from google.auth.downscoped import AccessBoundaryRule, AvailabilityCondition, CredentialAccessBoundary
from google.auth.exceptions import OAuthError
from google.auth.transport.requests import Request
from google.oauth2.sts import Client
from obstore.exceptions import BaseError
from obstore.store import GCSStore

ACCESS = "urn:ietf:params:oauth:token-type:access_token"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
OBJECTS = "projects/_/buckets/control/objects"
OWN = "heads/mine.json"
WAYS = ("rewriteTo", "copyTo")
OTHERS = ("heads/other.json", "heads/mine.json2", "instances/phantom.json", "code/tree", "ledger/2026", "heads")
USER, VIEWER = "inRole:roles/storage.objectUser", "inRole:roles/storage.objectViewer"
LISTED = f"""resource.name.startsWith('{OBJECTS}/events/mine/')
    || api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('events/mine/')"""


def rule(expression: str = "", role: str = USER, bucket: str = "control") -> AccessBoundaryRule:
    condition = AvailabilityCondition(expression) if expression else None
    return AccessBoundaryRule(f"//storage.googleapis.com/projects/_/buckets/{bucket}", [role], condition)


HEAD = rule(f"resource.name == '{OBJECTS}/{OWN}'")
EVENTS = rule(LISTED, VIEWER)


def downscope(kit: Any, token: str, options: Any) -> str:
    """Exchange a token as Google's client library does it."""
    answer = Client(f"{kit.cloud.endpoint}/sts/v1/token").exchange_token(
        Request(), GRANT, token, ACCESS, requested_token_type=ACCESS, additional_options=options
    )
    assert "expires_in" not in answer
    return str(answer["access_token"])


def limited(kit: Any, token: str, *rules: AccessBoundaryRule) -> str:
    return downscope(kit, token, CredentialAccessBoundary(list(rules)).to_json())


def opened(kit: Any, token: str) -> GCSStore:
    config = {"base_url": f"{kit.cloud.endpoint}/xml", "bearer_token": token}
    return GCSStore("control", config=config, client_options={"allow_http": True}, retry_config={"max_retries": 8})


def bucket(kit: Any, name: str = "control", *, uniform: bool = True) -> None:
    access = {"uniformBucketLevelAccess": {"enabled": uniform}}
    body = {"name": name, "location": "europe-west4", "iamConfiguration": access}
    assert kit.call("POST", "/storage/v1/b?project=everspot-local", body).status == 200


@pytest.fixture
def source(kit: Any) -> Any:
    """The token of a service account that may do everything in the project's buckets."""
    bucket(kit)
    with kit.still() as later:
        worker = Worker(kit)
        later(10)
        binding = {"role": "roles/storage.admin", "members": [f"serviceAccount:{AGENT}"]}
        tokens = {"role": "roles/iam.serviceAccountTokenCreator", "members": [f"serviceAccount:{AGENT}"]}
        assert kit.call("POST", f"{PROJECT}:setIamPolicy", policy(binding, tokens)).status == 200
        later(300)
        yield worker.token()


def test_a_downscoped_token_writes_and_reads_its_own_key_alone(kit: Any, source: str) -> None:
    everything, own = opened(kit, source), opened(kit, limited(kit, source, HEAD))
    for key in OTHERS:
        obstore.put(everything, key, b"theirs")
    obstore.put(own, OWN, b"one")
    obstore.put(own, OWN, b"two")
    assert obstore.get(own, OWN).bytes() == b"two"
    for key in OTHERS:
        with pytest.raises(BaseError):
            obstore.put(own, key, b"mine")
        with pytest.raises(BaseError):
            obstore.get(own, key)
        with pytest.raises(BaseError):
            obstore.delete(own, key)
        assert obstore.get(everything, key).bytes() == b"theirs"


def test_a_listing_needs_a_prefix_that_the_condition_names(kit: Any, source: str) -> None:
    everything, own = opened(kit, source), opened(kit, limited(kit, source, HEAD, EVENTS))
    for key in ("events/mine/1", "events/other/1"):
        obstore.put(everything, key, b"e")
    assert [each["path"] for each in obstore.list(own, "events/mine").collect()] == ["events/mine/1"]
    for prefix in (None, "events", "events/other"):
        with pytest.raises(BaseError):
            obstore.list(own, prefix).collect()
    with pytest.raises(BaseError):  # the events may only be read
        obstore.put(own, "events/mine/1", b"changed")


def test_the_json_api_holds_a_token_to_the_same_boundary(kit: Any, source: str) -> None:
    token = limited(kit, source, HEAD, EVENTS)
    obstore.put(opened(kit, source), OTHERS[0], b"theirs")
    objects = "/storage/v1/b/control/o"
    assert kit.call("GET", f"{objects}?prefix=events/mine/", token=token).status == 200
    compose = {"sourceObjects": [{"name": OTHERS[0]}]}
    calls: list[tuple[str, str, Any]] = [
        ("GET", objects, None), ("GET", f"{objects}?prefix=events/", None), ("GET", "/storage/v1/b/control", None),
        ("GET", f"{objects}/heads%2Fother.json?alt=media", None), ("DELETE", f"{objects}/heads%2Fother.json", None),
        ("PATCH", f"{objects}/heads%2Fother.json", {"metadata": {"a": "b"}}),
        ("POST", f"{objects}/heads%2Fother.json/compose", compose),
        ("POST", f"{objects}/heads%2Fmine.json/compose", compose),  # another's data read by way of the own key
        *(("POST", f"{objects}/heads%2Fother.json/{way}/b/control/o/heads%2Fmine.json", {}) for way in WAYS),
        *(("POST", f"{objects}/heads%2Fmine.json/{way}/b/control/o/heads%2Fother.json", {}) for way in WAYS),
        ("GET", "/storage/v1/b/control/iam", None), ("DELETE", "/storage/v1/b/control", None),
        ("PUT", "/storage/v1/b/control/iam", {"bindings": [{"role": "roles/storage.admin", "members": ["allUsers"]}]}),
        ("GET", "/storage/v1/b?project=everspot-local", None),
    ]  # fmt: skip
    for verb, path, body in calls:
        assert kit.call(verb, path, body, token=token).status == 403, (verb, path)
    permissions = "permissions=storage.objects.get&permissions=storage.objects.list&permissions=storage.buckets.get"
    tested = f"/storage/v1/b/control/iam/testPermissions?{permissions}"
    assert "permissions" not in kit.get(tested, token=token) or not kit.get(tested, token=token)["permissions"]
    assert len(kit.get(tested, token=source)["permissions"]) == 3


def test_other_services_take_no_downscoped_token(kit: Any, source: str) -> None:
    token = limited(kit, source, rule())
    path = f"/iamcredentials/v1/projects/-/serviceAccounts/{AGENT}:generateAccessToken"
    assert kit.call("POST", path, {"scope": ["cloud-platform"]}, token=source).status == 200
    assert kit.call("POST", path, {"scope": ["cloud-platform"]}, token=token).status == 403
    for other in ("zones/europe-west4-a/instances", f"/secretmanager/v1/{ROOT}/secrets", f"/pubsub/v1/{ROOT}/topics"):
        assert kit.call("GET", other, token=token).status == 403


def test_a_boundary_grants_nothing_that_its_account_lacks(kit: Any, source: str) -> None:
    token = limited(kit, source, rule())
    with kit.still() as later:
        assert kit.call("POST", f"{PROJECT}:setIamPolicy", policy()).status == 200
        later(300)
        with pytest.raises(BaseError):
            obstore.put(opened(kit, token), OWN, b"one")


def test_a_bucket_with_access_lists_is_out_of_reach(kit: Any, source: str) -> None:
    bucket(kit, "listed", uniform=False)
    token = limited(kit, source, rule(bucket="listed"), rule())
    assert kit.call("GET", "/storage/v1/b/listed/o", token=source).status == 200
    assert kit.call("GET", "/storage/v1/b/listed/o", token=token).status == 403
    assert kit.call("GET", "/storage/v1/b/control/o", token=token).status == 200


def test_a_boundary_that_google_does_not_take_is_refused(kit: Any, source: str) -> None:
    resource = "//storage.googleapis.com/projects/_/buckets/control"
    whole = {"availableResource": resource, "availablePermissions": [USER]}
    refused: list[tuple[Any, str]] = [
        ([], "1 to 10 rules"),
        ([whole] * 11, "1 to 10 rules"),
        ([{"availablePermissions": [USER]}], "availableResource"),
        ([{**whole, "availableResource": "//compute.googleapis.com/projects/p"}], "availableResource"),
        ([{"availableResource": resource}], "at least one role"),
        ([{**whole, "availablePermissions": ["roles/storage.objectUser"]}], "inRole:"),
        ([{**whole, "availablePermissions": ["inRole:roles/storage.none"]}], "inRole:"),
        ([{**whole, "availablePermissions": ["storage.objects.get"]}], "inRole:"),
        ([{**whole, "availabilityCondition": {"title": "t"}}], "expression"),
        ([{**whole, "availabilityCondition": {"expression": "x" * 2049}}], "2048 characters"),
        ([{**whole, "availabilityCondition": {"expression": "resource.name.matches('a')"}}], "cannot be evaluated"),
        ([{**whole, "availabilityCondition": {"expression": "api.getAttribute('a')"}}], "cannot be evaluated"),
        ([{**whole, "more": 1}], "fields"),
    ]
    for rules, reason in refused:
        with pytest.raises(OAuthError, match=reason):
            downscope(kit, source, {"accessBoundary": {"accessBoundaryRules": rules}})
    with pytest.raises(OAuthError, match="accessBoundary"):
        downscope(kit, source, {"userProject": "p"})


def test_only_a_valid_token_without_a_boundary_is_downscoped(kit: Any, source: str) -> None:
    for token in ("ya29.unknown", limited(kit, source, rule())):
        with pytest.raises(OAuthError, match="invalid_grant"):
            limited(kit, token, rule())


def test_an_upload_in_parts_is_of_one_object(kit: Any, source: str) -> None:
    address = f"{kit.cloud.endpoint}/xml/control"
    job_headers, agent_headers = (
        {"Authorization": f"Bearer {token}"} for token in (limited(kit, source, HEAD), source)
    )
    begun = requests.post(f"{address}/heads/other.json?uploads", headers=agent_headers)
    upload = begun.text.partition("<UploadId>")[2].partition("</UploadId>")[0]
    assert upload
    for verb, query in (("PUT", "&partNumber=1"), ("POST", ""), ("DELETE", "")):
        answer = requests.request(verb, f"{address}/{OWN}?uploadId={upload}{query}", data=b"mine", headers=job_headers)
        assert (answer.status_code, "NoSuchUpload" in answer.text) == (404, True), verb
    whole = f"{address}/heads/other.json?uploadId={upload}&partNumber=1"
    assert requests.put(whole, data=b"theirs", headers=agent_headers).status_code == 200


def test_the_name_in_an_uploads_metadata_counts(kit: Any, source: str) -> None:
    headers = {
        "Authorization": f"Bearer {limited(kit, source, HEAD)}", "Content-Type": "multipart/related; boundary=b"
    }  # fmt: skip

    def upload(name: str) -> int:
        parts = (f'application/json\r\n\r\n{{"name": "{name}"}}', "text/plain\r\n\r\nx")
        body = "".join(f"--b\r\nContent-Type: {part}\r\n" for part in parts) + "--b--\r\n"
        address = f"{kit.cloud.endpoint}/upload/storage/v1/b/control/o?uploadType=multipart"
        return requests.post(address, data=body.encode(), headers=headers).status_code

    assert (upload(OWN), upload("heads/other.json")) == (200, 403)
