"""Rules for addresses and for the traffic that is let in."""

from collections.abc import Iterator, Mapping
from typing import Any

from everspot_core.validation.problems import Problem

from everspot_policy.addresses import open_ranges
from everspot_policy.gcp.kinds import FROM_TEMPLATE, LAUNCHES
from everspot_policy.reading import hidden, inner, mapping, objects, text, yes
from everspot_policy.rule import Level, Rule, Severity, Subject, rule

FIREWALL = "gcp:compute/firewall:Firewall"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
DATABASE = "gcp:sql/databaseInstance:DatabaseInstance"
KUBERNETES_CLUSTER = "gcp:container/cluster:Cluster"
POLICY_RULES = ("gcp:compute/*irewallPolicyRule:*", "gcp:compute/*irewallPolicyWithRules:*")
"""Rules of firewall policies, hierarchical, of networks and of regions: by themselves, and within the policy."""

SCOPES = ("srcNetworkScope", "srcNetworkType", "srcNetworkContext")
"""Where the packets come from, by the names of several releases of the API."""
INSIDE = ("NON_INTERNET", "INTRA_VPC", "VPC_NETWORKS")
"""The values that take no packets from the internet, whatever ranges are named."""
SOURCES = ("srcIpRanges", "srcAddressGroups", "srcFqdns", "srcRegionCodes", "srcThreatIntelligences")
"""Sources that limit a rule beside its scope: a packet has to match both (Cloud NGFW, "Firewall policy rules",
network types)."""


@rule(
    "gcp-no-public-address",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="Instances have no public address",
    remedy="Leave accessConfigs out; reach instances through Identity-Aware Proxy and let them reach Google through "
    "privateIpGoogleAccess of their subnetwork.",
    types=(*LAUNCHES, FROM_TEMPLATE, SUBNETWORK),
    checkov=("CKV_GCP_40",),
)
def no_public_address(subject: Subject) -> Iterator[Problem]:
    """Find interfaces with an access configuration: even an empty one gets an address. And subnetworks whose IPv6
    addresses are external."""
    if text(subject.inputs.get("ipv6AccessType")) == "EXTERNAL":
        yield Problem("ipv6AccessType", "has to be INTERNAL")
    for path, each in objects(subject.inputs, "networkInterfaces"):
        for name in ("accessConfigs", "ipv6AccessConfigs"):
            if each.get(name) and not hidden(each.get(name)):
                yield Problem(f"{path}.{name}", "has to be left out")


@rule(
    "gcp-nothing-open",
    Level.MANDATORY,
    Severity.CRITICAL,
    title="No port is open to everybody",
    remedy="Name the ranges, tags or service accounts that may connect. People connect through Identity-Aware Proxy, "
    "whose range is 35.235.240.0/20. For a public service, note an exception.",
    types=(FIREWALL, *POLICY_RULES, DATABASE, KUBERNETES_CLUSTER),
    checkov=("CKV_GCP_2", "CKV_GCP_3", "CKV_GCP_106", "CKV_GCP_88"),
)
def nothing_open(subject: Subject) -> Iterator[Problem]:
    """Yield rules that let in from everywhere, and are not switched off."""
    if subject.type in (DATABASE, KUBERNETES_CLUSTER):
        yield from _authorized_networks(subject)
        return
    within = objects(subject.inputs, "rules") if "WithRules:" in subject.type else [("", subject.inputs)]
    for place, each in within:
        if yes(each.get("disabled")) or (text(each.get("direction")) or "INGRESS") != "INGRESS":
            continue
        if subject.type == FIREWALL:
            # A source tag or account beside a range only allows more sources.
            path, ranges = "sourceRanges", each.get("sourceRanges") if each.get("allows") else None
        else:
            allow = text(each.get("action")) in ("allow", "goto_next", "apply_security_profile_group")
            match = mapping(each.get("match")) if allow else {}
            if (scope := _open_scope(match)) and not any(match.get(source) for source in SOURCES):
                yield Problem(f"{place}.match.{scope}".lstrip("."), "INTERNET is everybody")
            inside = any(text(match.get(name)) in INSIDE for name in SCOPES)
            path, ranges = "match.srcIpRanges", None if inside else match.get("srcIpRanges")
        for cidr in open_ranges(ranges):
            yield Problem(f"{place}.{path}".lstrip("."), f"{cidr} is everybody")


def _authorized_networks(subject: Subject) -> Iterator[Problem]:
    """Yield the open ranges that a database, or a control plane of Kubernetes, lets in."""
    if subject.type == DATABASE:
        path, ranges, key = "settings.ipConfiguration", "authorizedNetworks", "value"
        networks = inner(subject.inputs, "settings", "ipConfiguration")
    else:
        path, ranges, key = "masterAuthorizedNetworksConfig", "cidrBlocks", "cidrBlock"
        networks = inner(subject.inputs, path)
    for place, each in objects(networks, ranges):
        for cidr in open_ranges(each.get(key)):
            yield Problem(f"{path}.{place}.{key}", f"{cidr} is everybody")


def _open_scope(match: Mapping[str, Any]) -> str:
    """Return the property by which a rule takes packets from the internet; empty if it does not say so."""
    return next((name for name in SCOPES if text(match.get(name)) == "INTERNET"), "")


@rule(
    "gcp-no-nat",
    Level.ADVISORY,
    Severity.LOW,
    title="There is no Cloud NAT without a stated reason",
    remedy="It costs by the hour for each instance, and $0.045 per GB. Use privateIpGoogleAccess instead, or note an "
    "exception with the reason.",
    types=("gcp:compute/routerNat:RouterNat",),
)
def no_nat(subject: Subject) -> Iterator[Problem]:
    """Yield every NAT of a router."""
    yield Problem("", f"is a {(text(subject.inputs.get('type')) or 'public').lower()} NAT")


@rule(
    "gcp-own-subnetworks",
    Level.MANDATORY,
    Severity.MEDIUM,
    title="Networks have only declared subnetworks",
    remedy="Set autoCreateSubnetworks to false. Otherwise Google creates one in every region.",
    types=("gcp:compute/network:Network",),
)
def own_subnetworks(subject: Subject) -> Iterator[Problem]:
    """Find networks in automatic mode, which is the default."""
    value = subject.inputs.get("autoCreateSubnetworks")
    if value is None or yes(value):
        yield Problem("autoCreateSubnetworks", "has to be false")


RULES: tuple[Rule, ...] = (no_public_address, nothing_open, no_nat, own_subnetworks)
