"""Secret Manager, Cloud KMS and Cloud Monitoring, as far as a cluster uses them."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from everspot_local.market.clock import stamp

ROOT = "projects/everspot-local"
SECRETS = f"/secretmanager/v1/{ROOT}/secrets"
KEYS = f"/kms/v1/{ROOT}/locations/europe-west4/keyRings"
SERIES = f"/monitoring/v3/{ROOT}/timeSeries"
STORAGE = "serviceAccount:service-100000000001@gs-project-accounts.iam.gserviceaccount.com"
POLICY = {
    "displayName": "slow", "combiner": "OR",
    "conditions": [
        {
            "displayName": "slow",
            "conditionThreshold": {
                "filter": 'metric.type="custom.googleapis.com/everspot/age" AND resource.type="global"',
                "comparison": "COMPARISON_GT", "duration": "60s",
            },
        }
    ],
}  # fmt: skip


def data(text: bytes) -> dict[str, Any]:
    return {"payload": {"data": base64.b64encode(text).decode()}}


def point(kit: Any, value: float, *, ago: float = 0, kind: str = "custom.googleapis.com/everspot/age") -> Any:
    at = stamp(kit.cloud.market.clock.now() - timedelta(seconds=ago))
    return {
        "metric": {"type": kind, "labels": {"cluster": "demo"}}, "resource": {"type": "global"},
        "points": [{"interval": {"endTime": at}, "value": {"doubleValue": value}}],
    }  # fmt: skip


def test_a_secret_is_read_in_its_latest_version(kit: Any) -> None:
    secret = kit.call("POST", f"{SECRETS}?secretId=webhook", {"replication": {"automatic": {}}}).body
    assert secret["name"] == "projects/100000000001/secrets/webhook"
    assert secret["replication"] == {"automatic": {}}
    assert kit.call("POST", f"{SECRETS}?secretId=webhook", {"replication": {"automatic": {}}}).status == 409
    assert kit.call("GET", f"{SECRETS}/webhook/versions/latest:access").status == 404
    for text in (b"one", b"two"):
        kit.call("POST", f"{SECRETS}/webhook:addVersion", data(text))
    version = kit.get(f"{SECRETS}/webhook/versions/latest:access")
    assert base64.b64decode(version["payload"]["data"]) == b"two"
    assert kit.call("POST", f"{SECRETS}/webhook/versions/2:disable", {}).body["state"] == "DISABLED"
    refused = kit.call("GET", f"{SECRETS}/webhook/versions/2:access")
    assert (refused.status, refused.body["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert kit.get(f"{SECRETS}/webhook/versions/1:access")["payload"] == data(b"one")["payload"]
    assert kit.call("DELETE", f"{SECRETS}/webhook").body == {}
    assert kit.call("GET", f"{SECRETS}/webhook").status == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("?secretId=a.b", {"replication": {"automatic": {}}}, 400),
        ("?secretId=a", {}, 501),
        ("?secretId=a", {"replication": {"automatic": {}}, "rotation": {"rotationPeriod": "3600s"}}, 501),
        ("/none:addVersion", data(b"x"), 404),
    ],
)
def test_a_secret_that_is_not_taken_is_refused(kit: Any, path: str, body: Any, status: int) -> None:
    assert kit.call("POST", f"{SECRETS}{path}", body).status == status


def test_a_bucket_has_a_key_that_storage_may_use(kit: Any) -> None:
    assert kit.call("POST", f"{KEYS}?keyRingId=ring", {}).status == 200
    key = kit.call("POST", f"{KEYS}/ring/cryptoKeys?cryptoKeyId=key", {"purpose": "ENCRYPT_DECRYPT"}).body
    assert key["primary"]["state"] == "ENABLED"
    bucket = {"name": "data", "encryption": {"defaultKmsKeyName": key["name"]}}
    with kit.still() as later:
        assert kit.call("POST", "/storage/v1/b?project=everspot-local", bucket).status == 403
        agent = kit.get(f"/storage/v1/{ROOT}/serviceAccount")["email_address"]
        assert f"serviceAccount:{agent}" == STORAGE
        role = {"role": "roles/cloudkms.cryptoKeyEncrypterDecrypter", "members": [STORAGE]}
        kit.call("POST", f"/kms/v1/{key['name']}:setIamPolicy", {"policy": {"bindings": [role]}})
        later(120)
        assert kit.call("POST", "/storage/v1/b?project=everspot-local", bucket).status == 200
    version = kit.call("POST", f"/kms/v1/{key['name']}/cryptoKeyVersions/1:destroy", {}).body
    assert version["state"] == "DESTROY_SCHEDULED"


def test_points_come_in_order_and_not_too_often(kit: Any) -> None:
    with kit.still() as later:
        assert kit.call("POST", SERIES, {"timeSeries": [point(kit, 1.0)]}).body == {}
        hasty = kit.call("POST", SERIES, {"timeSeries": [point(kit, 2.0)]})
        assert (hasty.status, hasty.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
        later(60)
        assert kit.call("POST", SERIES, {"timeSeries": [point(kit, 3.0)]}).body == {}
        assert kit.call("POST", SERIES, {"timeSeries": [point(kit, 4.0, ago=30)]}).status == 400
        end = point(kit, 0)["points"][0]["interval"]["endTime"]
        metric_filter = "metric.type%3D%22custom.googleapis.com/everspot/age%22"
        (series,) = kit.get(f"{SERIES}?filter={metric_filter}&interval.endTime={end}")["timeSeries"]
    assert [p["value"]["doubleValue"] for p in series["points"]] == [3.0, 1.0]


@pytest.mark.parametrize(
    "change", [{"points": []}, {"resource": {"type": "moon"}}, {"metric": {"type": "compute.googleapis.com/cpu"}}]
)
def test_a_point_that_monitoring_does_not_take_is_refused(kit: Any, change: Any) -> None:
    refused = kit.call("POST", SERIES, {"timeSeries": [{**point(kit, 1.0), **change}]})
    assert refused.status == 400
    assert "timeSeries[0]" in refused.message
    assert kit.call("POST", SERIES, {"timeSeries": [point(kit, 1.0, ago=26 * 3600)]}).status == 400


def test_alert_policies_channels_and_dashboards_are_kept(kit: Any) -> None:
    path = f"/monitoring/v3/{ROOT}/alertPolicies"
    policy = kit.call("POST", path, POLICY).body
    assert policy["conditions"][0]["name"].startswith(policy["name"])
    assert kit.get(f"/monitoring/v3/{policy['name']}") == policy
    kit.call("PATCH", f"/monitoring/v3/{policy['name']}?updateMask=displayName", {"displayName": "slower"})
    assert kit.get(f"/monitoring/v3/{policy['name']}")["displayName"] == "slower"
    assert kit.call("POST", path, {**POLICY, "conditions": []}).status == 400
    assert kit.call("DELETE", f"/monitoring/v3/{policy['name']}").body == {}
    channel = {"type": "pubsub", "displayName": "people", "labels": {"topic": f"{ROOT}/topics/people"}}
    assert kit.call("POST", f"/monitoring/v3/{ROOT}/notificationChannels", channel).body["enabled"] is True
    tile = {"xPos": 0, "width": 16, "height": 16, "widget": {"title": "jobs"}}
    drawn = {"displayName": "demo", "mosaicLayout": {"columns": 48, "tiles": [tile]}}
    board = kit.call("POST", f"/monitoring/v1/{ROOT}/dashboards", drawn).body
    dashboard = kit.get(f"/monitoring/v1/{board['name']}")
    # A position of 0 is not told: https://github.com/hashicorp/terraform-provider-google/issues/24650
    assert dashboard["mosaicLayout"]["tiles"] == [{"width": 16, "height": 16, "widget": {"title": "jobs"}}]
    # Lines have an axis, and axes a scale: https://github.com/hashicorp/terraform-provider-google/issues/9976
    lines = {"dataSets": [{"plotType": "LINE", "timeSeriesQuery": {}}], "yAxis": {"label": "usd"}}
    charts = {"displayName": "demo", "gridLayout": {"widgets": [{"xyChart": lines}]}}
    chart = kit.call("PATCH", f"/monitoring/v1/{board['name']}", charts).body["gridLayout"]["widgets"][0]["xyChart"]
    assert (chart["dataSets"][0]["targetAxis"], chart["yAxis"]["scale"]) == ("Y1", "LINEAR")
    late = {"displayName": "demo", "gridLayout": {}, "etag": "old"}
    assert kit.call("PATCH", f"/monitoring/v1/{board['name']}", late).status == 409


def test_the_project_has_somebody_who_pays(kit: Any) -> None:
    billing = kit.get(f"/cloudbilling/v1/{ROOT}/billingInfo")
    assert (billing["projectId"], billing["billingEnabled"]) == ("everspot-local", True)
    assert kit.call("GET", "/cloudbilling/v1/projects/other/billingInfo").status == 404


def test_services_are_on_and_can_be_switched_on(kit: Any) -> None:
    path = f"/serviceusage/v1/{ROOT}/services"
    listed = kit.get(f"{path}?filter=state:ENABLED&fields=services/name,nextPageToken")["services"]
    assert "projects/100000000001/services/compute.googleapis.com" in [service["name"] for service in listed]
    assert kit.get(f"{path}/dns.googleapis.com")["state"] == "DISABLED"
    assert kit.call("POST", f"{path}:batchEnable", {"serviceIds": ["dns.googleapis.com"]}).body["done"] is True
    assert kit.get(f"{path}/dns.googleapis.com")["state"] == "ENABLED"
