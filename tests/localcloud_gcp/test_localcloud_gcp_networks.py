"""Networks, subnetworks, firewall rules, routers and health checks: valid settings, and the API's defaults."""

from typing import Any

import pytest

REGION = "regions/europe-west4"
NET = {"network": "global/networks/net"}
TCP = [{"IPProtocol": "tcp", "ports": ["443"]}]
NAT = {"name": "nat", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}


@pytest.fixture
def net(kit: Any) -> Any:
    kit.network()
    return kit


@pytest.fixture(scope="module")
def shared(module_cloud: Any, gcp_kit: Any) -> Any:
    """One kit for every rule that leaves nothing behind."""
    with pytest.MonkeyPatch.context() as patch:
        module_cloud.reset()
        kit = gcp_kit(module_cloud, patch)
        kit.network()
        yield kit


def test_the_api_shows_the_fields_it_adds(net: Any) -> None:
    network, subnetwork = net.get("global/networks/net"), net.get(f"{REGION}/subnetworks/net")
    assert network["routingConfig"]["routingMode"] == "REGIONAL" and network["subnetworks"] == [subnetwork["selfLink"]]
    assert (subnetwork["gatewayAddress"], subnetwork["stackType"]) == ("10.0.0.1", "IPV4_ONLY")
    assert subnetwork["network"] == network["selfLink"] and subnetwork["privateIpGoogleAccess"] is False
    net.do("POST", f"{REGION}/subnetworks/net/setPrivateIpGoogleAccess", {"privateIpGoogleAccess": True})
    assert net.get(f"{REGION}/subnetworks/net")["privateIpGoogleAccess"] is True
    net.do("POST", "global/firewalls", {"name": "in", **NET, "allowed": TCP})
    rule = net.get("global/firewalls/in")
    assert (rule["direction"], rule["priority"], rule["sourceRanges"]) == ("INGRESS", 1000, ["0.0.0.0/0"])
    net.do("PATCH", "global/firewalls/in", {"sourceRanges": ["35.191.0.0/16"], "description": "checks"})
    net.do("PATCH", "global/firewalls/in", {"description": ""})
    rule = net.get("global/firewalls/in")
    assert rule["sourceRanges"] == ["35.191.0.0/16"] and "description" not in rule
    net.do("POST", f"{REGION}/routers", {"name": "r", **NET})
    net.do("PATCH", f"{REGION}/routers/r", {"nats": [NAT]})
    (nat,) = net.get(f"{REGION}/routers/r")["nats"]
    assert nat["natIpAllocateOption"] == "AUTO_ONLY"
    net.do("POST", "global/healthChecks", {"name": "h", "type": "HTTP", "httpHealthCheck": {"port": 8080}})
    check = net.get("global/healthChecks/h")
    assert (check["checkIntervalSec"], check["httpHealthCheck"]["requestPath"]) == (5, "/")


def test_a_network_goes_when_nothing_uses_it(net: Any) -> None:
    refused_deletion = net.wait(net.begin("DELETE", "global/networks/net"))
    assert [e["code"] for e in refused_deletion["error"]["errors"]] == ["RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"]
    net.do("DELETE", f"{REGION}/subnetworks/net")
    net.do("DELETE", "global/networks/net")
    assert net.call("GET", "global/networks/net").status == 404


def test_networks_are_limited(kit: Any) -> None:
    kit.market("quota", code="NETWORKS", value=1)
    kit.network()
    refused = kit.call("POST", "global/networks", {"name": "other", "autoCreateSubnetworks": False})
    assert (refused.status, refused.reason) == (403, "quotaExceeded") and "'NETWORKS'" in refused.message


def test_a_full_subnetwork_gives_no_address(kit: Any) -> None:
    kit.do("POST", "global/networks", {"name": "net", "autoCreateSubnetworks": False})
    kit.do("POST", f"{REGION}/subnetworks", {"name": "net", **NET, "ipCidrRange": "10.0.0.0/29"})
    for n in range(4):
        kit.run(f"one-{n}", standard=True)
    body = {"name": "late", **kit.properties("zones/europe-west4-a/machineTypes/g2-standard-4")}
    failed = kit.wait(kit.begin("POST", "zones/europe-west4-a/instances", body))
    assert [e["code"] for e in failed["error"]["errors"]] == ["IP_SPACE_EXHAUSTED"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("global/networks", {"autoCreateSubnetworks": True}, 501, "autoCreateSubnetworks"),
        ("global/networks", {}, 400, "resource.autoCreateSubnetworks"),
        (f"{REGION}/subnetworks", {"ipCidrRange": "10.9.0.0/20"}, 400, "resource.network"),
        (f"{REGION}/subnetworks", {**NET}, 400, "resource.ipCidrRange"),
        (f"{REGION}/subnetworks", {**NET, "ipCidrRange": "10.0.1.0/24"}, 400, "conflicts with existing"),
        (f"{REGION}/subnetworks", {**NET, "ipCidrRange": "10.9.0.1/24"}, 400, "CIDR"),
        (f"{REGION}/subnetworks", {**NET, "ipCidrRange": "10.9.0.0/30"}, 400, "/29"),
        (f"{REGION}/subnetworks", {"network": "global/networks/none", "ipCidrRange": "10.9.0.0/24"}, 404, "not found"),
        ("global/firewalls", {**NET}, 400, "Exactly one"),
        ("global/firewalls", {**NET, "allowed": TCP, "denied": TCP}, 400, "Exactly one"),
        ("global/firewalls", {**NET, "allowed": TCP, "destinationRanges": ["0.0.0.0/0"]}, 400, "direction"),
        ("global/firewalls", {**NET, "allowed": TCP, "direction": "EGRESS", "sourceTags": ["a"]}, 400, "direction"),
        ("global/firewalls", {**NET, "allowed": TCP, "sourceRanges": ["10.0.0.1/8"]}, 400, "CIDR"),
        ("global/firewalls", {"allowed": TCP}, 404, "networks/default"),
        (f"{REGION}/routers", {}, 400, "resource.network"),
        (f"{REGION}/routers", {**NET, "nats": [{"name": "n"}]}, 400, "sourceSubnetworkIpRangesToNat"),
        (f"{REGION}/routers", {**NET, "nats": [{**NAT, "subnetworks": [{"name": "x"}]}]}, 400, "LIST_OF_SUBNETWORKS"),
        (f"{REGION}/routers", {**NET, "nats": [{**NAT, "natIpAllocateOption": "MANUAL_ONLY"}]}, 501, "AUTO_ONLY"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be(shared: Any, path: str, body: Any, status: int, message: str) -> None:
    refused = shared.call("POST", path, {"name": "x", **body})
    assert refused.status == status and message in refused.message, refused.body


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "resource.type"),
        ({"type": "HTTP2"}, 501, "HTTP2"),
        ({"type": "HTTP", "tcpHealthCheck": {"port": 1}}, 400, "tcpHealthCheck"),
        ({"type": "HTTP", "timeoutSec": 6}, 400, "greater than checkIntervalSec"),
        ({"type": "TCP", "healthyThreshold": 11}, 400, "between 1 and 10"),
        ({"type": "HTTP", "httpHealthCheck": {"port": 70000}}, 400, "65535"),
    ],
)
def test_a_health_check_that_cannot_be(shared: Any, body: Any, status: int, message: str) -> None:
    for path in ("global/healthChecks", f"{REGION}/healthChecks"):
        refused = shared.call("POST", path, {"name": "x", **body})
        assert refused.status == status and message in refused.message, refused.body


def test_places_and_types_are_those_of_the_market(shared: Any) -> None:
    zones = [zone["name"] for zone in shared.get("zones")["items"]]
    assert zones == ["europe-west4-a", "europe-west4-b", "europe-west4-c"]
    kind = shared.get("zones/europe-west4-a/machineTypes/g2-standard-4")
    assert kind["accelerators"] == [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}]
    assert (kind["guestCpus"], kind["memoryMb"]) == (4, 16384)
    assert "accelerators" not in shared.get("zones/europe-west4-a/machineTypes/n1-standard-8")
    assert shared.call("GET", "zones/europe-west4-a/machineTypes/a3-highgpu-8g").status == 404
    sold = shared.get("aggregated/machineTypes?filter=name%3Da3-highgpu-8g")["items"]
    assert sorted(sold) == ["zones/europe-west4-b", "zones/europe-west4-c"]
    own = shared.get("global/images/family/everspot")
    assert own["selfLink"] == shared.get(f"global/images/{own['name']}")["selfLink"]
    assert shared.get("/compute/v1/projects/everspot-local")["id"] == "100000000001"


def test_a_template_keeps_nothing_from_being_deleted(net: Any) -> None:
    link = net.template()
    net.do("DELETE", f"{REGION}/subnetworks/net")
    net.do("DELETE", "global/networks/net")
    body = {"count": 1, "namePattern": "vm-#", "sourceInstanceTemplate": link}
    refused = net.call("POST", f"{REGION}/instances/bulkInsert", body)
    assert refused.status == 404 and "subnetworks/net" in refused.message
