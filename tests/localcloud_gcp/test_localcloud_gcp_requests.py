"""The front end: routing of requests to methods, callers, validation of bodies, and operations."""

import subprocess
import sys
from typing import Any

import pytest
from everspot_local.market.delays import Delays

NETWORK = {"name": "net", "autoCreateSubnetworks": False}


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({**NETWORK, "autoCreateSubnetworkz": True}, "resource", 'Unknown name "autoCreateSubnetworkz"'),
        ({**NETWORK, "mtu": "many"}, "resource.mtu", "TYPE_INT32"),
        ({**NETWORK, "mtu": 2**40}, "resource.mtu", "TYPE_INT32"),
        ({**NETWORK, "autoCreateSubnetworks": "no"}, "resource.autoCreateSubnetworks", "TYPE_BOOL"),
        ({**NETWORK, "description": 3}, "resource.description", "TYPE_STRING"),
        ({**NETWORK, "routingConfig": []}, "resource.routingConfig", "object expected"),
        ({**NETWORK, "peerings": {}}, "resource.peerings", "array expected"),
        (
            {**NETWORK, "routingConfig": {"routingMode": "Regional"}},
            "resource.routingConfig.routingMode",
            "Invalid value at",
        ),
    ],
)
def test_a_body_is_held_to_the_discovery_document(kit: Any, body: Any, field: str, message: str) -> None:
    refused = kit.call("POST", "global/networks", body)
    assert (refused.status, refused.reason) == (400, "badRequest")
    assert message in refused.message
    (detail,) = refused.body["error"]["details"]
    assert [v["field"] for v in detail["fieldViolations"]] == [field]
    assert "items" not in kit.get("global/networks")


def test_all_that_is_wrong_in_a_body_is_told_at_once(kit: Any) -> None:
    refused = kit.call("POST", "global/networks", {"name": 1, "mtu": "x", "bla": 2})
    (detail,) = refused.body["error"]["details"]
    assert {v["field"] for v in detail["fieldViolations"]} == {"resource.name", "resource.mtu", "resource"}


def test_null_or_empty_fields_count_as_not_sent_and_are_not_returned(kit: Any) -> None:
    sent = {**NETWORK, "description": "", "mtu": None, "peerings": [], "ofTheProviderAlone": None}
    kit.do("POST", "global/networks", sent)
    network = kit.get("global/networks/net")
    assert network["mtu"] == 1460
    assert not {"description", "peerings", "subnetworks"} & set(network)
    assert network["autoCreateSubnetworks"] is False


@pytest.mark.parametrize(
    ("verb", "path", "status", "reason"),
    [
        ("GET", "global/networks/other", 404, "notFound"),
        ("GET", "global/networks?bla=1", 400, "badRequest"),
        ("GET", "global/networks?returnPartialSuccess=true", 400, "badRequest"),
        ("GET", "global/networks?maxResults=501", 400, "invalid"),
        ("GET", "global/networks?filter=name", 400, "invalid"),
        ("GET", "global/networks?pageToken=%C3%BC", 400, "invalid"),
        ("GET", "regions/us-central1/subnetworks", 404, "notFound"),
        ("GET", "zones/us-central1-a/operations", 404, "notFound"),
        ("GET", "/compute/v1/projects/another/global/networks", 403, "forbidden"),
        ("GET", "global/targetVpnGateways", 404, None),
        ("GET", "global/sslCertificates", 501, "notImplemented"),
        ("GET", "global/networks?fields=nothing", 400, "invalidParameter"),
        ("GET", "/nothing", 404, None),
    ],
)
def test_what_is_not_there_is_refused(kit: Any, verb: str, path: str, status: int, reason: str | None) -> None:
    refused = kit.call(verb, path)
    assert refused.status == status
    if reason is not None:
        assert refused.reason == reason


def test_a_token_is_asked_for_and_has_to_be_one_that_was_given(kit: Any) -> None:
    missing, unknown = (kit.call("GET", "global/networks", token=token) for token in ("", "ya29.made-up"))
    assert [(a.status, a.reason) for a in (missing, unknown)] == [(401, "required"), (401, "authError")]


def test_an_operation_takes_market_time_and_can_be_waited_for(kit: Any) -> None:
    with kit.still() as later:
        begun = kit.begin("POST", "global/networks", NETWORK)
        assert (begun["status"], begun["progress"], begun["operationType"]) == ("RUNNING", 0, "insert")
        assert begun["targetId"] == kit.get("global/networks/net")["id"]
        assert kit.get(f"global/operations/{begun['name']}") == begun
        later(Delays().operation.total_seconds() + 1)
    done = kit.wait(begun)
    assert (done["status"], done["progress"]) == ("DONE", 100)
    assert done["insertTime"] < done["endTime"]
    assert [o["id"] for o in kit.get("global/operations")["items"]] == [begun["id"]]
    assert [o["id"] for o in kit.get("aggregated/operations")["items"]["global"]["operations"]] == [begun["id"]]
    assert kit.call("DELETE", f"global/operations/{begun['name']}").status == 204
    assert kit.call("POST", f"global/operations/{begun['name']}/wait").status == 404


def test_a_request_id_carries_a_change_out_once(kit: Any) -> None:
    path = "global/networks?requestId=6a4e1f5c-0000-4000-8000-00000000000a"
    first, again = (kit.begin("POST", path, NETWORK) for _ in range(2))
    assert first["id"] == again["id"]
    duplicate = kit.call("POST", "global/networks", NETWORK)
    assert (duplicate.status, duplicate.reason) == (409, "alreadyExists")
    for wrong in ("7", "00000000-0000-0000-0000-000000000000"):
        refused = kit.call("POST", f"global/networks?requestId={wrong}", {**NETWORK, "name": "other"})
        assert (refused.status, refused.reason) == (400, "invalid")


def test_lists_come_in_pages_and_by_filters(kit: Any) -> None:
    for name in ("c", "a", "b"):
        kit.begin("POST", "global/networks", {**NETWORK, "name": name, "description": f"of {name}"})

    def names(query: str) -> list[str]:
        return [network["name"] for network in kit.get(f"global/networks?{query}").get("items", [])]

    assert names("") == ["a", "b", "c"]
    first = kit.get("global/networks?maxResults=2")
    second = kit.get(f"global/networks?maxResults=2&pageToken={first['nextPageToken']}")
    assert [n["name"] for n in (*first["items"], *second["items"])] == ["a", "b", "c"]
    assert "nextPageToken" not in second
    for text, expected in {
        "name%3Db": ["b"],
        "name%20eq%20a|b": ["a", "b"],
        "name!%3Db": ["a", "c"],
        "(name%3Da)%20OR%20(description%3D%22of%20c%22)": ["a", "c"],
        "name%3Da%20AND%20name%3Db": [],
        "autoCreateSubnetworks%3Dfalse%20name%3Dc": ["c"],
        "routingConfig.routingMode:regional%20name%20ne%20c": ["a", "b"],
        "mtu%3E1459%20mtu%3C%3D1460%20description%3Dof*": ["a", "b", "c"],
        "labels.none%3Dx": [],
    }.items():
        assert names(f"filter={text}") == expected, text


def test_the_newest_comes_first_and_moments_have_no_order_in_filters(kit: Any) -> None:
    for name in ("a", "b"):
        kit.do("POST", "global/networks", {**NETWORK, "name": name})
    operations = kit.get("global/operations?orderBy=creationTimestamp%20desc")["items"]
    assert [operation["targetLink"].rpartition("/")[2] for operation in operations] == ["b", "a"]
    for text in ("insertTime%3E%3D%222026-01-01T00:00:00Z%22", "creationTimestamp%3C2026-01-01"):
        refused = kit.call("GET", f"global/operations?filter={text}")
        assert (refused.status, refused.reason) == (400, "invalid")


def test_every_call_is_booked(kit: Any) -> None:
    kit.get("global/networks")
    (line,) = kit.cloud.calls.read()
    assert (line["service"], line["action"], line["allowed"]) == ("compute", "networks.list", True)
    assert line["principal"].startswith("user:owner@")


def test_the_other_cloud_is_not_brought_in(tmp_path: Any) -> None:
    program = (
        "import pathlib, sys\n"
        "from everspot_local.cloud import LocalCloud\n"
        "from everspot_local.options import Options\n"
        f"with LocalCloud(Options(pathlib.Path({str(tmp_path)!r}), cloud='gcp', boot_command=None)):\n"
        "    print({'moto', 'boto3', 'googleapiclient'} & set(sys.modules))\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"
    )
