"""Cloud Storage: buckets through the JSON API, objects through the JSON and XML APIs, over one state."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import obstore
import pytest
from everspot_local.gcp.callers import OWNER_TOKEN
from obstore.store import GCSStore

BUCKETS = "/storage/v1/b?project=everspot-local"
PRIVATE = {
    "name": "control", "location": "europe-west4",
    "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}, "publicAccessPrevention": "enforced"},
    "softDeletePolicy": {"retentionDurationSeconds": "0"},
}  # fmt: skip
RULE = {"action": {"type": "Delete"}, "condition": {"daysSinceNoncurrentTime": 3, "isLive": False}}


@pytest.fixture
def store(kit: Any) -> Iterator[GCSStore]:
    """An obstore client of a bucket that the JSON API created."""
    assert kit.call("POST", BUCKETS, PRIVATE).status == 200
    yield open_store(kit)


def open_store(kit: Any, token: str = OWNER_TOKEN) -> GCSStore:
    config = {"base_url": f"{kit.cloud.endpoint}/xml", "bearer_token": token}
    return GCSStore("control", config=config, client_options={"allow_http": True}, retry_config={"max_retries": 0})


def upload(kit: Any, name: str, data: bytes, **query: Any) -> Any:
    more = "".join(f"&{key}={value}" for key, value in query.items())
    url = f"{kit.cloud.endpoint}/upload/storage/v1/b/control/o?uploadType=media&name={name}{more}"
    request = urllib.request.Request(url, data=data, headers={"Authorization": f"Bearer {OWNER_TOKEN}"})
    request.add_header("Content-Type", "text/plain")
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_bucket_tells_what_was_sent_and_what_is_filled_in(kit: Any) -> None:
    labels = {"everspot-cluster": "demo", "project": "x"}
    sent = {**PRIVATE, "labels": labels, "lifecycle": {"rule": [RULE]}, "versioning": {"enabled": True}}
    bucket = kit.call("POST", BUCKETS, sent).body
    stored = kit.get("/storage/v1/b/control")
    assert stored == bucket
    assert stored["location"] == "EUROPE-WEST4"
    assert stored["locationType"] == "region"
    assert (stored["labels"], stored["lifecycle"]) == (labels, {"rule": [RULE]})
    assert stored["softDeletePolicy"]["retentionDurationSeconds"] == "0"
    assert (stored["metageneration"], stored["projectNumber"]) == ("1", "100000000001")
    assert stored["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"] is True
    assert stored["iamConfiguration"]["publicAccessPrevention"] == "enforced"


def test_soft_deletion_is_on_unless_it_is_set(kit: Any) -> None:
    off = {"hierarchicalNamespace": {"enabled": False}, "lifecycle": {"rule": []}, "logging": None}
    bucket = kit.call("POST", BUCKETS, {"name": "data", **off}).body
    assert bucket["softDeletePolicy"]["retentionDurationSeconds"] == "604800"
    assert bucket["location"] == "US"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Data"}, "The specified bucket is not valid."),
        ({"name": "goog-data"}, "The specified bucket is not valid."),
        ({"softDeletePolicy": {"retentionDurationSeconds": "3600"}}, "from 7 to 90 days"),
        ({"labels": {"everspot:cluster": "a"}}, "everspot:cluster"),
        ({"storageClass": "GLACIER"}, "STANDARD"),
        ({"location": "nowhere"}, "location constraint is not valid"),
        ({"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {}}]}}, "at least one condition"),
        ({"lifecycle": {"rule": [{**RULE, "action": {"type": "Expire"}}]}}, "AbortIncompleteMultipartUpload"),
        (
            {"lifecycle": {"rule": [{**RULE, "action": {"type": "AbortIncompleteMultipartUpload"}}]}},
            "does not take the conditions daysSinceNoncurrentTime, isLive",
        ),
        ({"iamConfiguration": {"publicAccessPrevention": "on"}}, "enforced or inherited"),
        ({"retentionPolicy": {"retentionPeriod": "0"}}, "above 0"),
        ({"versioned": True}, 'Unknown name "versioned"'),
        ({"encryption": {"defaultKmsKeyName": "projects/p/locations/l/keyRings/r/cryptoKeys/k"}}, "KMS key"),
    ],
)
def test_a_bucket_that_storage_does_not_take_is_refused(kit: Any, change: dict[str, Any], message: str) -> None:
    refused = kit.call("POST", BUCKETS, {**PRIVATE, **change})
    assert refused.status in (400, 403)
    assert message in refused.message
    assert "items" not in kit.get(BUCKETS)


def test_a_patch_merges_and_null_takes_away(kit: Any) -> None:
    kit.call("POST", BUCKETS, {**PRIVATE, "labels": {"a": "1", "b": "2"}, "lifecycle": {"rule": [RULE]}})
    change = {"labels": {"a": None, "c": "3"}, "lifecycle": None}
    changed = kit.call("PATCH", "/storage/v1/b/control?ifMetagenerationMatch=1", change).body
    assert changed["labels"] == {"b": "2", "c": "3"}
    assert "lifecycle" not in changed
    assert changed["metageneration"] == "2"
    late = kit.call("PATCH", "/storage/v1/b/control?ifMetagenerationMatch=1", {"labels": {}})
    assert (late.status, late.reason) == (412, "conditionNotMet")
    assert kit.call("PATCH", "/storage/v1/b/control", {"location": "US"}).status == 400


def test_buckets_come_and_go_one_in_two_seconds(kit: Any) -> None:
    with kit.still() as later:
        assert kit.call("POST", BUCKETS, PRIVATE).status == 200
        hasty = kit.call("POST", BUCKETS, {"name": "data"})
        assert (hasty.status, hasty.reason) == (429, "rateLimitExceeded")
        later(2)
        assert kit.call("POST", BUCKETS, {"name": "data"}).status == 200
        later(2)
        assert kit.call("POST", BUCKETS, {"name": "data"}).status == 409


def test_a_bucket_with_objects_is_not_deleted(kit: Any, store: GCSStore) -> None:
    obstore.put(store, "a/b", b"1")
    with kit.still() as later:
        later(2)
        refused = kit.call("DELETE", "/storage/v1/b/control")
        assert (refused.status, refused.reason) == (409, "conflict")
    # As the provider goes about it with `force_destroy`.
    (version,) = kit.get("/storage/v1/b/control/o?versions=true")["items"]
    assert "items" not in kit.get("/storage/v1/b/control/anywhereCaches/")
    delete = f"/storage/v1/b/control/o/a%2Fb?generation={version['generation']}"
    kit.until(lambda: kit.call("DELETE", delete).status == 204)
    kit.until(lambda: kit.call("DELETE", "/storage/v1/b/control").status == 204)
    assert kit.call("GET", "/storage/v1/b/control").status == 404


def test_objects_are_the_same_by_both_apis(kit: Any, store: GCSStore) -> None:
    put = obstore.put(store, "records/a", b"one")
    document = kit.get("/storage/v1/b/control/o/records%2Fa")
    assert (document["generation"], document["size"], document["name"]) == (put["version"], "3", "records/a")
    uploaded = upload(kit, "records/b", b"two")
    assert bytes(obstore.get(store, "records/b").bytes()) == b"two"
    assert uploaded["contentType"] == "text/plain"
    listed = kit.get("/storage/v1/b/control/o?prefix=records/&maxResults=1")
    assert [o["name"] for o in listed["items"]] == ["records/a"]
    second_page = kit.get(f"/storage/v1/b/control/o?prefix=records/&pageToken={listed['nextPageToken']}")
    assert [o["name"] for o in second_page["items"]] == ["records/b"]
    assert kit.get("/storage/v1/b/control/o?delimiter=/")["prefixes"] == ["records/"]
    parts = b'--x\r\nContent-Type: application/json\r\n\r\n{"name": "m", "metadata": {"k": "v"}}\r\n--x\r\n'
    body = parts + b"Content-Type: text/plain\r\n\r\nsome\r\n\r\ntext\r\n--x--\r\n"
    url = f"{kit.cloud.endpoint}/upload/storage/v1/b/control/o?uploadType=multipart&alt=json&prettyPrint=false"
    request = urllib.request.Request(url, data=body, headers={"Authorization": f"Bearer {OWNER_TOKEN}"})
    request.add_header("Content-Type", "multipart/related; boundary=x")
    with urllib.request.urlopen(request) as answer:
        document = json.load(answer)
    assert (document["name"], document["metadata"], document["contentType"]) == ("m", {"k": "v"}, "text/plain")
    assert bytes(obstore.get(store, "m").bytes()) == b"some\r\n\r\ntext"
    composed = {"sourceObjects": [{"name": "records/a"}, {"name": "records/b"}]}
    kit.call("POST", "/storage/v1/b/control/o/all/compose", composed)
    assert bytes(obstore.get(store, "all").bytes()) == b"onetwo"


def test_objects_are_copied_by_each_call(kit: Any, store: GCSStore) -> None:
    upload(kit, "a", b"one")
    objects = "/storage/v1/b/control/o"
    rewritten = kit.call("POST", f"{objects}/a/rewriteTo/b/control/o/b", {}).body
    assert (rewritten["done"], rewritten["objectSize"], rewritten["resource"]["contentType"]) == (
        True,
        "3",
        "text/plain",
    )
    copied = kit.call("POST", f"{objects}/a/copyTo/b/control/o/c", {"contentType": "text/csv"}).body
    assert (copied["name"], copied["contentType"]) == ("c", "text/csv")
    request = urllib.request.Request(f"{kit.cloud.endpoint}/xml/control/d", method="PUT")
    request.add_header("Authorization", f"Bearer {OWNER_TOKEN}")
    request.add_header("x-goog-copy-source", "/control/a")
    with urllib.request.urlopen(request) as answer:
        assert b"<CopyObjectResult>" in answer.read()
    assert [bytes(obstore.get(store, name).bytes()) for name in "bcd"] == [b"one"] * 3
    assert kit.call("POST", f"{objects}/none/rewriteTo/b/control/o/e", {}).status == 404
    assert kit.call("POST", f"{objects}/a/rewriteTo/b/control/o/e?rewriteToken=x", {}).status == 501


def test_a_write_names_the_generation_that_it_replaces(kit: Any, store: GCSStore) -> None:
    upload(kit, "a", b"1", ifGenerationMatch=0)
    assert upload(kit, "b", b"1", ifGenerationMatch=7) == 412
    assert upload(kit, "a", b"2", ifGenerationMatch=0) == 412


def test_a_name_is_written_once_a_second(kit: Any, store: GCSStore) -> None:
    upload(kit, "a", b"1")
    assert upload(kit, "a", b"2") == 429
    assert kit.call("DELETE", "/storage/v1/b/control/o/a").reason == "rateLimitExceeded"


def test_what_is_retained_is_not_deleted_and_a_locked_policy_stays(kit: Any) -> None:
    kit.call("POST", BUCKETS, {**PRIVATE, "retentionPolicy": {"retentionPeriod": "3600"}})
    upload(kit, "a", b"1")
    refused = kit.call("DELETE", "/storage/v1/b/control/o/a")
    assert (refused.status, refused.reason) == (403, "retentionPolicyNotMet")
    locked = kit.call("POST", "/storage/v1/b/control/lockRetentionPolicy?ifMetagenerationMatch=1").body
    assert locked["retentionPolicy"]["isLocked"] is True
    assert kit.call("PATCH", "/storage/v1/b/control", {"retentionPolicy": None}).status == 403


def test_what_is_replaced_is_kept_where_versions_or_soft_deletion_are_on(kit: Any) -> None:
    kit.call("POST", BUCKETS, {**PRIVATE, "versioning": {"enabled": True}})
    first = upload(kit, "a", b"1")["generation"]
    kit.until(lambda: kit.call("DELETE", "/storage/v1/b/control/o/a").status == 204)
    assert "items" not in kit.get("/storage/v1/b/control/o")
    past = kit.get("/storage/v1/b/control/o?versions=true")["items"]
    assert [o["generation"] for o in past] == [first]
    url = f"{kit.cloud.endpoint}/storage/v1/b/control/o/a?alt=media&generation={first}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {OWNER_TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        assert answer.read() == b"1"
    assert kit.call("DELETE", "/storage/v1/b/control").status == 409
    soft = {"versioning": None, "softDeletePolicy": {"retentionDurationSeconds": "604800"}}
    kit.call("PATCH", "/storage/v1/b/control", soft)
    assert kit.call("DELETE", f"/storage/v1/b/control/o/a?generation={first}").status == 204
    deleted = kit.get("/storage/v1/b/control/o?softDeleted=true")["items"]
    assert [o["generation"] for o in deleted] == [first]


def test_a_policy_of_a_bucket_names_the_projects_people_and_nobody_else(kit: Any) -> None:
    kit.call("POST", BUCKETS, PRIVATE)
    policy = kit.get("/storage/v1/b/control/iam")
    assert {b["role"] for b in policy["bindings"]} == {
        "roles/storage.legacyBucketOwner", "roles/storage.legacyBucketReader",
        "roles/storage.legacyObjectOwner", "roles/storage.legacyObjectReader",
    }  # fmt: skip
    public = {"role": "roles/storage.objectViewer", "members": ["allUsers"]}
    refused = kit.call("PUT", "/storage/v1/b/control/iam", {**policy, "bindings": [*policy["bindings"], public]})
    assert refused.status == 412
    query = "permissions=storage.objects.get&permissions=storage.buckets.delete"
    granted = kit.get(f"/storage/v1/b/control/iam/testPermissions?{query}")["permissions"]
    assert granted == ["storage.objects.get", "storage.buckets.delete"]


def test_a_token_that_nobody_gave_opens_nothing(kit: Any, store: GCSStore) -> None:
    assert kit.call("GET", "/storage/v1/b/control", token="made-up").status == 401
    url = f"{kit.cloud.endpoint}/xml/other"
    request = urllib.request.Request(url, method="PUT", headers={"Authorization": f"Bearer {OWNER_TOKEN}"})
    with pytest.raises(urllib.error.HTTPError, match="501"):  # buckets are made by the JSON API
        urllib.request.urlopen(request)
    with pytest.raises(Exception, match="401"):
        obstore.put(open_store(kit, "made-up"), "a", b"1")
