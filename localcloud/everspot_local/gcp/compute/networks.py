"""Stands in for VPC: networks, subnetworks, firewall rules and routers with Cloud NAT, as validated records.

No packet goes through any of them. It offers custom-mode networks with IPv4 subnetworks of the project's own region.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid, not_here, required
from everspot_local.gcp.compute.collection import Collection
from everspot_local.gcp.compute.state import Compute, fingerprint
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
_SMALLEST = 29
"""VPC, "Subnets": "the minimum IPv4 subnet range is /29"."""
_NETWORKS = "NETWORKS"


def routes(compute: Compute) -> dict[str, Handler]:
    """Return handlers by method id."""
    handlers: dict[str, Handler] = {}
    for collection in (NETWORKS, SUBNETWORKS, FIREWALLS, ROUTERS):
        handlers |= collection.routes(compute)
    handlers["compute.subnetworks.setPrivateIpGoogleAccess"] = lambda request: _set_access(compute, request)
    handlers["compute.firewalls.update"] = lambda request: FIREWALLS.replace(compute, request)
    handlers["compute.routers.update"] = lambda request: ROUTERS.replace(compute, request)
    return handlers


def _network(compute: Compute, scope: str, body: Document) -> Document:
    if body.get("autoCreateSubnetworks") or "IPv4Range" in body:
        raise not_here(
            "networks with subnetworks of their own making, or without any: set autoCreateSubnetworks to false"
        )
    if "autoCreateSubnetworks" not in body:
        # API reference, networks: "must be set to create a VPC network. If not set, then a legacy network is created";
        # which has not been possible since: VPC, "Legacy networks".
        raise required("resource.autoCreateSubnetworks")
    path = f"{scope}/networks/{body['name']}"
    if path not in compute.resources:
        limit = next(q for q in compute.project.market.quotas.all("compute") if q.code == _NETWORKS)
        most = compute.project.market.quotas.value(limit)
        if compute.project.strict and sum(1 for _ in compute.of_kind("networks")) >= most:
            raise ApiError(403, "quotaExceeded", f"Quota '{_NETWORKS}' exceeded.  Limit: {most:.1f} globally.")
    routing = {"routingMode": "REGIONAL", "bgpBestPathSelectionMode": "LEGACY", **body.get("routingConfig", {})}
    added = {"mtu": 1460, "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL"}
    return {**added, **body, "routingConfig": routing}


def _show_network(compute: Compute, path: str, network: Document) -> Document:
    """Return a network with its present subnetworks."""
    subnetworks = [d["selfLink"] for p, d in compute.of_kind("subnetworks") if compute.path(d["network"]) == path]
    with_id = compute.link(f"{path.rpartition('/')[0]}/{network['id']}")
    return {**network, "selfLinkWithId": with_id, "subnetworks": subnetworks}


def _subnetwork(compute: Compute, scope: str, body: Document) -> Document:
    for name in ("network", "ipCidrRange"):
        if not body.get(name):
            raise required(f"resource.{name}")
    network = compute.referred(body["network"], "networks", "resource.network")
    block = _block(body["ipCidrRange"], "resource.ipCidrRange")
    if block.prefixlen > _SMALLEST:
        raise invalid("resource.ipCidrRange", str(block), f"The range must be at least a /{_SMALLEST}.")
    path = f"{scope}/subnetworks/{body['name']}"
    for other, existing in compute.of_kind("subnetworks"):
        same = compute.path(existing["network"]) == network
        if other != path and same and block.overlaps(ipaddress.ip_network(existing["ipCidrRange"])):
            # As met: https://github.com/hashicorp/terraform-provider-google/issues/11366
            where = f"conflicts with existing subnetwork '{existing['name']}' in region '{compute.project.region}'"
            raise ApiError(400, "invalid", f"Invalid IPCidrRange: {block} {where}.")
    added = {
        "privateIpGoogleAccess": False, "purpose": "PRIVATE", "stackType": "IPV4_ONLY", "enableFlowLogs": False,
        "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS", "gatewayAddress": str(block[1]),
    }  # fmt: skip
    return {**added, **body, "network": compute.link(network), "fingerprint": fingerprint(body)}


def _set_access(compute: Compute, request: Request) -> Document:
    path = SUBNETWORKS.path(compute, request)
    compute.get(path)["privateIpGoogleAccess"] = bool(request.body.get("privateIpGoogleAccess", False))
    return compute.begun(request, "setPrivateIpGoogleAccess", path).document


def _firewall(compute: Compute, _scope: str, body: Document) -> Document:
    if bool(body.get("allowed")) == bool(body.get("denied")):
        # API reference, firewalls: "Exactly one of allowed or denied".
        message = "Exactly one of allowed and denied must be specified."
        raise invalid("resource", "", message)
    network = compute.referred(body.get("network", "global/networks/default"), "networks", "resource.network")
    inward = body.get("direction", "INGRESS") == "INGRESS"
    wrong = [name for name in (_OUTWARD if inward else _INWARD) if body.get(name)]
    if wrong:
        raise invalid(f"resource.{wrong[0]}", "", f"{wrong[0]} cannot be specified for this direction of traffic.")
    for name in ("sourceRanges", "destinationRanges"):
        for block in body.get(name, ()):
            _block(block, f"resource.{name}")
    for rule in (*body.get("allowed", ()), *body.get("denied", ())):
        if not rule.get("IPProtocol"):
            raise required("resource.allowed[0].IPProtocol")
    added: Document = {"direction": "INGRESS", "priority": 1000, "disabled": False, "logConfig": {"enable": False}}
    if not any(body.get(name) for name in (*_INWARD, *_OUTWARD)):
        added["sourceRanges" if inward else "destinationRanges"] = ["0.0.0.0/0"]
    return {**added, **body, "network": compute.link(network)}


_INWARD = ("sourceRanges", "sourceTags", "sourceServiceAccounts")
_OUTWARD = ("destinationRanges",)


def _router(compute: Compute, _scope: str, body: Document) -> Document:
    if not body.get("network"):
        raise required("resource.network")
    network = compute.referred(body["network"], "networks", "resource.network")
    nats = [_nat(compute, nat, i) for i, nat in enumerate(body.get("nats", ()))]
    return {"encryptedInterconnectRouter": False, **body, "network": compute.link(network), "nats": nats}


def _nat(compute: Compute, nat: Mapping[str, Any], index: int) -> Document:
    field = f"resource.nats[{index}]"
    for name in ("name", "sourceSubnetworkIpRangesToNat"):
        if not nat.get(name):
            raise required(f"{field}.{name}")
    listed = nat["sourceSubnetworkIpRangesToNat"] == "LIST_OF_SUBNETWORKS"
    if listed != bool(nat.get("subnetworks")):
        message = "Subnetworks are specified with LIST_OF_SUBNETWORKS, and only with it."
        raise invalid(f"{field}.subnetworks", "", message)
    for subnetwork in nat.get("subnetworks", ()):
        compute.referred(subnetwork.get("name", ""), "subnetworks", f"{field}.subnetworks")
    if nat.get("natIpAllocateOption") == "MANUAL_ONLY" or nat.get("natIps"):
        raise not_here("addresses of a NAT's own: use AUTO_ONLY")
    added = {"enableEndpointIndependentMapping": False, "endpointTypes": ["ENDPOINT_TYPE_VM"], "type": "PUBLIC"}
    return {**added, "natIpAllocateOption": "AUTO_ONLY", **nat}


def _block(text: str, field: str) -> ipaddress.IPv4Network:
    """Read an address range, and refuse bits beyond its mask: as met, "Must be a CIDR address range"."""
    try:
        return ipaddress.IPv4Network(text)
    except ValueError:
        raise invalid(field, text, "Must be a CIDR address range.") from None


NETWORKS = Collection(
    "networks", "networks", "network", "network", _network, delete_later=True, show=_show_network,
    verbs=("get", "list", "insert", "patch", "delete"),
)  # fmt: skip
SUBNETWORKS = Collection(
    "subnetworks", "subnetworks", "subnetwork", "subnetwork", _subnetwork,
    verbs=("get", "list", "aggregatedList", "insert", "patch", "delete"),
)  # fmt: skip
FIREWALLS = Collection(
    "firewalls", "firewalls", "firewall", "firewall", _firewall, verbs=("get", "list", "insert", "patch", "delete"),
)  # fmt: skip
ROUTERS = Collection(
    "routers", "routers", "router", "router", _router,
    verbs=("get", "list", "aggregatedList", "insert", "patch", "delete"),
)  # fmt: skip
